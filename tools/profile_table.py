"""Make the tables of docs/reference/pytorch-recordings.md: what is explained, and errors with and without profiler.

    python tools/profile_table.py            writes between the marks of the page
    python tools/profile_table.py --print    prints the tables
    python tools/profile_table.py --check    fails where the page says something else, or an aim is missed

It reads the recordings beside the repository (../shared/data).
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from chakra.converters.pytorch import Inputs, Settings, find_inputs
from chakra.converters.pytorch.all_ranks.device_turns import add_turns, occupied, sharers
from chakra.converters.pytorch.all_ranks.job_replay import RankGraph, rank_graph, replay_job, step_error
from chakra.converters.pytorch.deprofile import deprofile, unprofiled_step_ns
from chakra.converters.pytorch.job import read_and_link
from chakra.converters.pytorch.link import link
from chakra.converters.pytorch.read.device import read_device_trace
from chakra.errors import ConversionError, UsageError
from chakra.replay.results.recorded_notes import RECORDING_COST_ERROR

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "pytorch-recordings.md"
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
#: device trace of which no host trace is known -> the same of version 0.1.0
ALONE = {
    "a100_16rank_cudagraph": "88.8", "a100_alexnet_sync": "100.0", "a100_event_sync": "97.1",
    "a100_event_sync_multi_stream": "100.0", "a100_simple_add_sync": "100.0", "a2a_128rank_r0": "73.6",
    "a2a_128rank_r1": "74.1", "backward_thread_tiny": "92.5", "cpu_gloo_300rank": "99.0", "cpu_only_dlrm": "100.0",
    "cupti_range_profiler": "100.0", "h100_bert_small": "99.8", "h100_vit": "100.0", "mi210_gpu_only": "99.8",
    "mi250_minitoy_train": "98.4", "mi300_bert_small": "99.4", "mi300_hipgraph_decode": "2.2", "mi300_vit": "100.0",
    "mtia_inference": "94.1", "mtia_train_hccl": "100.0", "old_category_names": "99.9", "rocm_normalization": "100.0",
    "rocm_triton_compile": "99.9", "triton_example": "0.0", "v100_ns_resolution": "98.9", "vllm_graph_execution": "66.7",
}  # fmt: skip
ALONE_HEAD = ("device trace alone", "measured us", "explained, 0.1.0", "now", "replayed")
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
    ranks = [read_and_link(inputs, Settings()) for inputs in found]
    shared = sharers([occupied(linked, rank) for linked, rank in ranks])
    for linked, rank in ranks:
        add_turns(linked, shared.get(rank, []))
    explained = [100 * linked.graph.explained_ns / linked.measured_ns for linked, _ in ranks]
    graphs = [rank_graph(linked, rank) for linked, rank in ranks]
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


@dataclass(frozen=True)
class Unprofiled:
    """A job's step without the cost of its recording, by the median constant of the other jobs. Shares, not percent."""

    recorded: float
    """By how much the recorded step is longer than the one without profiler."""
    deprofiled: float
    """The same of the step whose cost was taken off."""
    taken: float | None
    """What was taken off over what recording cost; None where it cost nothing."""
    changed: float
    """By how much taking it off changed the recorded step."""


def unprofiled(one: Job, costs: dict[str, float]) -> Unprofiled | None:
    """What the constant of the other jobs does to a job; None where its step without profiler is not known."""
    if not one.unprofiled_ns:
        return None
    others = median(cost for name, cost in costs.items() if name != one.name)
    result = deprofile(one.graphs, one.unprofiled_ns, others)
    overhead = result.profiled_step_ns - one.unprofiled_ns
    taken = result.profiled_step_ns - result.step_ns
    return Unprofiled(
        result.profiled_step_ns / one.unprofiled_ns - 1, result.step_ns / one.unprofiled_ns - 1,
        taken / overhead if overhead > 0 else None, taken / result.profiled_step_ns,
    )  # fmt: skip


def missed(found: list[Job], costs: dict[str, float]) -> list[str]:
    """Aims that the jobs miss, a line each."""
    out = []
    jobs_of = {one.name: one for one in found}
    for name in JOBS:
        before, now = (100 - min(values) for values in (_numbers(JOBS[name]), jobs_of[name].explained))
        if now > 0.5 * before + 0.05:  # the figures of 0.1.0 have one decimal
            out.append(
                f"{name}: {now:.2f} % are unexplained, more than half of the {before:.1f} % of version 0.1.0"
            )
    for name in ("dlrm8", "fsdp"):
        graphs = jobs_of[name].graphs
        error = step_error(graphs, replay_job(graphs))
        if abs(error) > 0.01:
            out.append(
                f"{name}: the slowest rank is {100 * error:+.2f} % off with recorded collectives, aim 1 %"
            )
    without = {name: unprofiled(jobs_of[name], costs) for name in JOBS}
    for name, most in (("infer", 0.15), ("pp", 0.15), ("resnet", 0.30)):
        one = without[name]
        if one is None or one.taken is None or abs(one.taken - 1) > most:
            out.append(f"{name}: not within {100 * most:.0f} % of the overhead is taken off")
    for name in ("ddp", "graph"):
        one = without[name]
        if one is None or abs(one.deprofiled) > 0.15:
            out.append(f"{name}: the step without profiler is not within 15 %")
    shares = [abs(one.taken - 1) for one in without.values() if one is not None and one.taken is not None]
    if abs(mean(shares) - RECORDING_COST_ERROR) > 0.005:
        out.append(
            f"replays state {RECORDING_COST_ERROR:g} as the mean error of the overhead, the jobs give {mean(shares):.3f}"
        )
    fsdp = without["fsdp"]
    if fsdp is None or abs(fsdp.changed) > 0.03:
        out.append("fsdp: taking the cost of recording off changes the step by more than 3 %")
    return out


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(" to ")]


def table(found: list[Job], costs: dict[str, float]) -> str:
    """The rows as Markdown."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + " -- |" * len(HEAD)]
    lines += ["| " + " | ".join(_row(one, costs)) + " |" for one in found]
    return "\n".join(lines)


def alone_table() -> str:
    """The rows of traces that nothing but the device recorded, as Markdown."""
    lines = ["| " + " | ".join(ALONE_HEAD) + " |", "|" + " -- |" * len(ALONE_HEAD)]
    for name, before in ALONE.items():
        path = DATA / "kineto" / f"{name}.json.gz"
        linked = link(None, read_device_trace(path, keep_io=True))
        spans = (
            linked.graph.explained_ns / linked.measured_ns,
            linked.graph.replay_ns / linked.measured_ns - 1,
        )
        cells = (
            name, f"{linked.measured_ns / 1e3:,.1f}", f"{before} %", f"{100 * spans[0]:.1f} %",
            f"{100 * spans[1]:+.2f} %",
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _row(one: Job, costs: dict[str, float]) -> tuple[str, ...]:
    measured = [graph.measured_ns / 1e3 for graph in one.graphs]
    ranks = f", {len(measured)} ranks" if len(measured) > 1 else ""
    cells = (
        one.name + ranks, _span(measured, "{:,.1f}"), f"{one.before} %", f"{_span(one.explained, '{:.1f}')} %",
        _together(one),
    )  # fmt: skip
    without = unprofiled(one, costs)
    if without is None:
        return (*cells, "", "", "", "")
    errors = (without.recorded, without.deprofiled)
    return (
        *cells, f"{one.unprofiled_ns / 1e3:,.1f}", *(f"{100 * error:+.0f} %" for error in errors),
        "none to take" if without.taken is None else f"{100 * without.taken:.0f} %",
    )  # fmt: skip


def _together(one: Job) -> str:
    try:
        return f"{100 * step_error(one.graphs, replay_job(one.graphs)):+.2f} %"
    except ConversionError:
        return "groups unknown"  # gloo's records do not say them


def _span(values: list[float], form: str) -> str:
    texts = [form.format(value) for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(texts))


def filled(page: str, rows: str, mark: str = "profiles") -> str:
    """The page with a table between its marks."""
    marks = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- end -->)", re.DOTALL)
    return marks.sub(lambda found: f"{found[1]}\n{rows}\n\n{found[2]}", page, count=1)


def main(arguments: list[str]) -> int:
    """Write, print or check the table."""
    found = list(jobs())
    costs = constants(found)
    rows, alone = table(found, costs), alone_table()
    if arguments == ["--print"]:
        print(f"{rows}\n\n{alone}\n")
        print("\n".join(f"{name}: {cost:.1f} us per operator" for name, cost in sorted(costs.items())))
        return 0
    page = PAGE.read_text(encoding="utf-8")
    if arguments == ["--check"]:
        lines = missed(found, costs)
        if filled(filled(page, rows), alone, "device traces") != page:
            lines.append(f"{PAGE.name}: the tables say something else: run tools/profile_table.py")
        print("\n".join(lines or ["the tables are those of the page, and no aim is missed"]))
        return 1 if lines else 0
    PAGE.write_text(filled(filled(page, rows), alone, "device traces"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
