"""Make the table of recorded jobs in docs/guides/pytorch.md: what is explained, and errors with and without profiler.

    python tools/profile_table.py

It reads the recordings beside the repository (../shared/data) and writes between the marks of the page.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from chakra.converters.pytorch import Inputs, Settings, find_inputs
from chakra.converters.pytorch.all_ranks.job_replay import RankGraph, rank_graph, replay_job, step_error
from chakra.converters.pytorch.deprofile import deprofile, unprofiled_step_ns
from chakra.converters.pytorch.job import read_and_link
from chakra.errors import ConversionError, UsageError

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "guides" / "pytorch.md"
DATA = ROOT.parent / "shared" / "data"
#: job -> explained share of version 0.1.0, percent (the least and the largest of its ranks)
PAIRS = {
    "h200_sync": "97.8", "h200_graph": "97.1", "h200_gpt": "99.7", "resnet_cross": "99.5", "dlrm8": "99.1 to 99.4",
    "linear": "99.6", "resnet2023": "99.7", "simple_add": "100.0", "gloo4": "87.5 to 90.0",
}  # fmt: skip
JOBS = {
    "ddp": "98.5 to 99.4", "fsdp": "93.4 to 97.3", "pp": "97.1 to 98.4", "resnet": "99.5", "infer": "99.9",
    "graph": "89.6",
}  # fmt: skip
HEAD = (
    "job", "measured us", "explained, 0.1.0", "now", "together", "without profiler us", "recorded", "deprofiled",
    "overhead taken off",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A recorded job, linked."""

    name: str
    before: str
    explained: list[float]
    graphs: list[RankGraph]
    unprofiled_ns: int


def jobs() -> Iterator[Job]:
    """All recorded jobs."""
    for folder, names in (("pairs", PAIRS), ("h200", JOBS)):
        for name, before in names.items():
            yield job(folder, name, before)


def job(folder: str, name: str, before: str) -> Job:
    """One job."""
    found = find_inputs(DATA / folder, name)
    explained, graphs = [], []
    for inputs in found:
        linked, rank = read_and_link(inputs, Settings())
        explained.append(100 * linked.graph.explained_ns / linked.measured_ns)
        graphs.append(rank_graph(linked, rank))
    return Job(name, before, explained, graphs, max(map(_unprofiled, found)))


def _unprofiled(inputs: Inputs) -> int:
    return unprofiled_step_ns(inputs.device)


def constants(found: list[Job]) -> dict[str, float]:
    """The cost of an operator's record that each job measures, us; none of jobs that cannot."""
    out = {}
    for one in found:
        if not one.unprofiled_ns:
            continue
        try:
            out[one.name] = deprofile(one.graphs, one.unprofiled_ns, None).operator_us
        except UsageError:
            continue
    return out


def table() -> str:
    """The rows as Markdown."""
    found = list(jobs())
    costs = constants(found)
    lines = ["| " + " | ".join(HEAD) + " |", "|" + " -- |" * len(HEAD)]
    lines += ["| " + " | ".join(_row(one, costs)) + " |" for one in found]
    return "\n".join(lines)


def _row(one: Job, costs: dict[str, float]) -> tuple[str, ...]:
    measured = [graph.measured_ns / 1e3 for graph in one.graphs]
    ranks = f", {len(measured)} ranks" if len(measured) > 1 else ""
    cells = (
        one.name + ranks, _span(measured, "{:,.1f}"), f"{one.before} %", f"{_span(one.explained, '{:.1f}')} %",
        _together(one),
    )  # fmt: skip
    if not one.unprofiled_ns:
        return (*cells, "", "", "", "")
    others = median(cost for name, cost in costs.items() if name != one.name)
    result = deprofile(one.graphs, one.unprofiled_ns, others)
    errors = (step / one.unprofiled_ns - 1 for step in (result.profiled_step_ns, result.step_ns))
    overhead = result.profiled_step_ns - one.unprofiled_ns
    taken = result.profiled_step_ns - result.step_ns
    return (
        *cells, f"{one.unprofiled_ns / 1e3:,.1f}", *(f"{100 * error:+.0f} %" for error in errors),
        f"{100 * taken / overhead:.0f} %" if overhead > 0 else "none to take",
    )  # fmt: skip


def _together(one: Job) -> str:
    try:
        return f"{100 * step_error(one.graphs, replay_job(one.graphs)):+.2f} %"
    except ConversionError:
        return "groups unknown"  # gloo's records do not say them


def _span(values: list[float], form: str) -> str:
    texts = [form.format(value) for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(texts))


def filled(page: str, rows: str) -> str:
    """The page with the table between its marks."""
    marks = re.compile(r"(<!-- profiles -->\n).*?(<!-- end -->)", re.DOTALL)
    return marks.sub(lambda found: f"{found[1]}\n{rows}\n\n{found[2]}", page, count=1)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), table()), encoding="utf-8")
