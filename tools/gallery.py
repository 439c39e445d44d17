"""Makes docs/gallery/ from traces/: one picture or page of everything that shows a trace or a run.

Run it from anywhere with ``python tools/gallery.py``; figures need matplotlib.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from chakra.replay import ReplayResult, simulate
from chakra.report import report_html, run_of
from chakra.report.figures import account_figure, graph_figure, timeline_figure
from chakra.sweep import Store, load_study, run_study, runner, study_html
from chakra.timeline import filtered, from_result, write_timeline
from chakra.viz import DrawOptions, Folding, draw, fold, folded, read_graph
from chakra.viz.graph.select import around, critical_path, only

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "gallery"
#: Relative, so that the pages name the same files on every machine.
TRACES = Path("traces")

INDEX = """# Gallery

What the drawings, reports and timelines of [seeing a trace and a run](../guides/seeing.md) look like: one file of each,
made by `python tools/gallery.py` from the workloads in `traces/`. Pages (`.html`) open in a browser, `.pftrace` and
`.json` in [Perfetto](https://ui.perfetto.dev).

| what | how | file |
|---|---|---|
{rows}

## Pictures

Each leads to the file in its full size.

{pictures}
"""


def replayed(name: str) -> ReplayResult:
    """The replay of one of the example workloads on the machine beside it."""
    folder = TRACES / name
    return simulate(
        str(folder / "workload"),
        str(folder / "system.json"),
        str(folder / "network.yml"),
        memory=str(folder / "memory.json"),
    )


def main() -> None:
    """Write every file of the gallery and its index."""
    os.chdir(ROOT)
    OUT.mkdir(parents=True, exist_ok=True)
    rows: list[str] = []
    pictures: list[str] = []

    def listed(file: str, what: str, how: str) -> Path:
        if file.endswith((".svg", ".png")):
            pictures.append(f"{what}:\n\n[![{what}]({file})]({file})")
        rows.append(f"| {what} | `{how}` | [{file}]({file}) |")
        return OUT / file

    own = DrawOptions(layout="own")
    three = read_graph(TRACES / "three_nodes/workload.0.et")
    layers = read_graph(TRACES / "mlp_model_parallel/workload.0.et")
    box = read_graph(TRACES / "h100_box/workload.0.et")
    draw(
        three, listed("three_nodes.svg", "Three nodes", "chakra visualize workload.0.et three_nodes.svg"), own
    )
    draw(
        three,
        listed("three_nodes.pdf", "The same as PDF", "chakra visualize workload.0.et three_nodes.pdf"),
        own,
    )
    draw(
        layers,
        listed("mlp.svg", "A training step of six layers", "chakra visualize workload.0.et mlp.svg"),
        own,
    )
    folding = DrawOptions(fold=Folding.REPEAT, layout="own")
    draw(box, listed("h100_folded.svg", "Repeated layers folded", "… h100_folded.svg --fold repeat"), folding)
    draw(
        only(box, ("comm",)),
        listed("h100_comm.svg", "Only communication", "… h100_comm.svg --only comm"),
        own,
    )
    draw(
        critical_path(layers),
        listed("mlp_critical.svg", "Critical path", "… mlp_critical.svg --critical-path"),
        own,
    )
    near = around(layers, int(layers.ids[10]), 2)
    draw(near, listed("mlp_around.png", "Around one node", "… mlp_around.png --around 10 --hops 2"), own)
    draw(box, listed("h100.html", "Interactive page", "chakra visualize workload.0.et h100.html"))
    graph_figure(folded(layers, fold(layers, Folding.AUTO, 12))).savefig(
        listed("mlp_figure.svg", "Figure in a notebook", "graph_figure(folded(graph, fold(graph)))"),
        metadata={"Date": None},
    )
    small, machine = replayed("mlp_model_parallel"), replayed("h100_box")
    runs = [run_of(small.to_dict(nodes=True), "mlp"), run_of(machine.to_dict(nodes=True), "h100_box")]
    report = listed("h100_report.html", "Report of a run", "chakra report run.json -o h100_report.html")
    report.write_text(report_html([runs[1]]), encoding="utf-8")
    comparison = listed(
        "comparison.html", "Comparison", "chakra report mlp.json h100.json -o comparison.html"
    )
    comparison.write_text(report_html(runs), encoding="utf-8")
    study = load_study(ROOT / "docs" / "studies" / "gpt3_1024_h100.yml")
    with TemporaryDirectory() as folder, runner() as run:
        outcomes = run_study(study, Store(folder), run)
    page = listed("study.html", "Study", "chakra sweep gpt3_1024_h100.yml")
    page.write_text(study_html(study, outcomes), encoding="utf-8")
    account_figure(runs[1]).savefig(
        listed("h100_account.svg", "Time account as a figure", "account_figure(run)"), metadata={"Date": None}
    )
    timeline = filtered(from_result(machine), ranks={0, 1})
    write_timeline(
        timeline,
        listed("h100.pftrace", "Timeline for Perfetto", "chakra timeline run.json h100.pftrace --ranks 0-1"),
    )
    write_timeline(
        timeline,
        listed(
            "h100_timeline.json",
            "Timeline for Chrome",
            "chakra timeline run.json h100_timeline.json --ranks 0-1",
        ),
    )
    timeline_figure(timeline).savefig(
        listed("h100_timeline.svg", "Timeline as a figure", "timeline_figure(timeline)"),
        metadata={"Date": None},
    )
    (OUT / "README.md").write_text(
        INDEX.format(rows="\n".join(rows), pictures="\n\n".join(pictures)), encoding="utf-8"
    )


if __name__ == "__main__":
    import matplotlib as mpl

    mpl.rcParams["svg.hashsalt"] = "chakra"  # equal input, equal file
    main()
