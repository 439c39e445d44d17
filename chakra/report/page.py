"""The report pages: one run, or several side by side. One HTML file, nothing loaded."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from markupsafe import Markup

from chakra import __version__
from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.readable import bytes_text, count_text, duration_text, percent_text, printable
from chakra.report import charts, side_by_side, tables
from chakra.report.document import ACCOUNT_PARTS, Run, part_words
from chakra.report.excerpt import Excerpt, excerpt
from chakra.report.fabric_picture import link_legend
from chakra.report.network_picture import drawn_wires, fabric_of_run, network_picture, use_chart
from chakra.report.npu_groups import NpuGroup, npu_groups
from chakra.timeline.lenient import number, numbers

if TYPE_CHECKING:
    import jinja2


@cache
def _environment() -> "jinja2.Environment":
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("chakra.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@checked
def report_html(runs: Sequence[Run]) -> str:
    """The page of one run, or the comparison page of several.

    Parameters
    ----------
    runs
        Runs; the others are compared with the first.

    Raises
    ------
    UsageError
        If there is no run.
    """
    if not runs:
        raise UsageError("a report needs at least one run")
    if len(runs) == 1:
        run = _run_context(runs[0])
        return rendered(
            "run.html.j2",
            script="timeline.js" if run["timeline"] else "",
            run=run,
            title=f"Replay report: {printable(runs[0].name)}",
        )
    return rendered("compare.html.j2", title=f"Comparison of {len(runs)} runs", runs=_comparison(runs))


def rendered(template: str, *, script: str = "", **context: object) -> str:
    """A page of this package's templates, with what all pages share.

    Parameters
    ----------
    template
        File of the template.
    script
        File of the page's own script, behind that of all pages; none by default. The policy admits the two alone.
    context
        What the template names.
    """
    shared = {
        "version": __version__,
        "patterns": charts.patterns(),
        "swatch": charts.swatch,
        "fact_parts": tables.fact_parts,
        "breakable": breakable,
    }
    source, policy = _script("boxes.js", *([script] if script else []))
    page = _environment().get_template(template)
    return page.render(**shared, script=source, script_policy=policy, **context)


def breakable(text: str) -> Markup:
    """A name that may go on in the next line behind a point, such as a parameter's.

    >>> breakable("network.dim1.<b>")
    Markup('network.<wbr>dim1.<wbr>&lt;b&gt;')
    """
    return Markup(".<wbr>").join(text.split("."))


@cache
def _script(*names: str) -> tuple[Markup, Markup]:
    """Scripts as one text, and the hash by which a page's policy admits it."""
    folder = resources.files("chakra.report").joinpath("templates")
    text = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup(text), Markup(f"'sha256-{digest}'")


def _run_context(run: Run) -> dict[str, object]:
    groups, left_out = npu_groups(run)
    words = part_words([run])
    wires = drawn_wires(run)
    network = network_picture(run, wires)
    memory = run.document.get("memory")
    chart = None
    if isinstance(memory, dict):
        time, held = numbers(memory.get("time_ns")), numbers(memory.get("bytes"))
        if len(time) and len(time) == len(held):
            label = bytes_text(int(held.max(initial=0)))
            chart = charts.line_chart(time, held, title="Memory in use", x_end_ns=run.end_ns, y_label=label)
    return {
        "name": printable(run.name),
        "npus": run.npus,
        "partial": bool(run.document.get("partial")),
        "answer": tables.answer(run),
        "headline": tables.headline(run),
        "verdict": tables.waiting_verdict(run),
        "waiting_note": tables.waiting_note(run),
        "notes": [tables.text_of(n) for n in _list(run.document.get("notes"))],
        "warnings": [tables.text_of(w) for w in _list(run.document.get("warnings"))],
        "account": charts.account_chart(groups, run.end_ns, words) if run.account else None,
        "parts": [(key, words[key]) for key in words if key in run.account and run.account[key].any()],
        "groups": _group_table(groups, words),
        "left_out": left_out,
        "collectives": tables.collectives(run),
        "messages": tables.messages(run),
        "dimensions": _with_bars(run),
        "links": tables.links(run),
        "fabric": fabric_of_run(run, wires),
        "network": network,
        "link_legend": link_legend(),
        "link_use": use_chart(run, numbered=network is not None),
        "unseen": tables.why_no_use(run),
        "critical_path": tables.critical_path(run),
        "path_by_operator": tables.path_by_operator(run),
        "operators": [
            (heading, table)
            for heading, table in (
                ("On the devices", tables.operators(run)),
                ("On the hosts", tables.operators(run, host=True)),
            )
            if table.rows
        ],
        "npus_with_nodes": run.npus_with_nodes,
        "memory": chart,
        "memory_npu": memory.get("npu") if isinstance(memory, dict) else None,
        "timeline": _excerpt(run),
        "inputs": tables.inputs(run),
        "corrections": tables.corrections(run),
    }


def _excerpt(run: Run) -> Excerpt | None:
    return excerpt(run) if run.table("nodes") else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _group_table(groups: Sequence[NpuGroup], words: Mapping[str, str]) -> tables.Table:
    keys = [key for key, _ in ACCOUNT_PARTS if groups and key in groups[0].parts]
    staged = any(group.stage for group in groups)
    rows = [
        (
            *([group.stage] if staged else []),
            group.label,
            count_text(group.count),
            group.finish,
            duration_text(group.exposed_ns),
            *(
                f"{duration_text(group.parts[key])} ({tables.percent(group.parts[key], group.finish_ns)})"
                for key in keys
            ),
        )
        for group in groups
    ]
    return tables.Table(
        (
            *(["stage"] if staged else []),
            "NPUs",
            "count",
            "finish",
            "exposed communication",
            *(words[key] for key in keys),
        ),
        rows,
        first_number=1 + staged,
    )


def _with_bars(run: Run) -> dict[str, object]:
    table = tables.dimensions(run)
    shares = [number(d.get("utilisation")) for d in run.table("dimensions")]
    return {"table": table, "bars": [charts.share_bar(share, percent_text(share)) for share in shares]}


def _comparison(runs: Sequence[Run]) -> dict[str, object]:
    """Runs side by side: the first is the base that others are measured against."""
    base = runs[0].end_ns
    longest = max(run.end_ns for run in runs)
    keys = [
        key for key, _ in ACCOUNT_PARTS if any(key in run.account and run.account[key].any() for run in runs)
    ]
    words = part_words(runs)
    rows, bars = [], []
    for run in runs:
        mean = {key: int(run.account[key].mean()) for key in keys if key in run.account}
        rows.append(
            (
                printable(run.name),
                count_text(run.npus),
                duration_text(run.end_ns),
                f"{base / run.end_ns:.3f}×" if run.end_ns else "",
                duration_text(int(run.exposed_ns.max(initial=0))),
                *(duration_text(mean[key]) if key in mean else "" for key in keys),
                tables.text_of(run.document.get("backend"))
                + (" (partial)" if run.document.get("partial") else ""),
            )
        )
        bars.append(_mean_group(run, mean))
    names = [run.name for run in runs]
    columns = ("run", "NPUs", "simulated time", "speedup", "exposed communication (max)")
    table = tables.Table((*columns, *(f"{words[key]} (mean)" for key in keys), "backend"), rows)
    return {
        "table": table,
        "account": charts.account_chart(bars, longest, words) if keys else None,
        "parts": [(key, words[key]) for key in keys],
        "differences": side_by_side.inputs_table(runs, names),
        "collectives": side_by_side.collectives_table(runs, names),
        "dimensions": side_by_side.dimensions_table(runs, names),
    }


def _mean_group(run: Run, mean: dict[str, int]) -> NpuGroup:
    """Means as the times of one NPU: they add up to the mean finish, of which the parts are shares."""
    finish = int(run.finish_ns.mean())
    return NpuGroup(printable(run.name), 1, finish, int(run.exposed_ns.max(initial=0)), mean)
