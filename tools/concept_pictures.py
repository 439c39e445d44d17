"""Makes the pictures of docs/guides/concepts.md: ``python tools/concept_pictures.py`` (needs matplotlib).

One training step of two layers on four NPUs, the last of which computes at two thirds of the others' speed.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl

from chakra.builder import TraceBuilder
from chakra.et import Trace, write_trace
from chakra.replay import ReplayResult, simulate
from chakra.report import run_of
from chakra.report.figures import account_figure, timeline_figure
from chakra.timeline import filtered, from_result
from chakra.viz import DrawOptions, draw, read_graph

OUT = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SYSTEM = {
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring"],
    "local-mem-bw": 1600,
}
NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}


def step() -> Trace:
    """Forward, backward with an all-reduce of each layer's gradients beside it, optimizer."""
    builder = TraceBuilder()
    forward = builder.compute("forward", duration_micros=60)
    second = builder.compute("backward of layer 2", duration_micros=60, after=forward)
    gradients = builder.collective(
        "all_reduce", name="gradients of layer 2", size_bytes=2 << 20, after=second
    )
    first = builder.compute("backward of layer 1", duration_micros=60, after=second)
    others = builder.collective("all_reduce", name="gradients of layer 1", size_bytes=2 << 20, after=first)
    builder.compute("optimizer", duration_micros=20, after=[gradients, others])
    return builder.build()


def replayed(trace: Trace) -> ReplayResult:
    """The step on four NPUs, one of them slow."""
    return simulate([trace] * 4, SYSTEM, NETWORK, npu_scale=[1, 1, 1, 1.5])


def main() -> None:
    """Write the three pictures."""
    mpl.rcParams["svg.hashsalt"] = "chakra"  # equal input, equal file
    OUT.mkdir(parents=True, exist_ok=True)
    trace = step()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "step.0.et"
        write_trace(trace, path)
        draw(read_graph(path), OUT / "concept_graph.svg", DrawOptions(layout="own"))
    result = replayed(trace)
    timeline = filtered(from_result(result), ranks={0, 3})
    timeline_figure(timeline).savefig(OUT / "concept_timeline.svg", metadata={"Date": None})
    run = run_of(result.to_dict(nodes=True), "step")
    account_figure(run).savefig(OUT / "concept_account.svg", metadata={"Date": None})
    for name in ("finish_ns", "exposed_comm_ns"):
        print(name, getattr(result, name).tolist())
    print({name: values.tolist() for name, values in result.account.items()})


if __name__ == "__main__":
    main()
