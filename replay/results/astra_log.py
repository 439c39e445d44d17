"""ASTRA-sim's log files: finish lines, statistics, and with trace-enabled ticks of nodes (replay semantics, section 1.6).

The form of a line is ASTRA-sim's, so that scripts which read its logs read ours. Unlike there, long traces
lose nothing to rotation. ``SOURCE_DATE_EPOCH`` fixes the time stamps.
"""

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from chakra.errors import UsageError
from chakra.io.files import atomic_text

if TYPE_CHECKING:
    from chakra.replay.results.result import ReplayResult

#: key of the result document's statistics, words in ASTRA-sim's log
_STATISTICS = (
    ("wall_ns", "Wall time"),
    ("cpu_ns", "CPU time"),
    ("gpu_ns", "GPU time"),
    ("comm_ns", "Comm time"),
    ("remote_mem_ns", "Remote mem time"),
    ("overlap_ns", "Total compute-communication overlap"),
)
#: with the roofline on: key, words, unit
_ROOFLINE = (
    ("compute_bound_pct", "Compute bound percentage", "%"),
    ("avg_compute_util_pct", "Average compute utilization", "%"),
    ("avg_memory_util_pct", "Average memory utilization", "%"),
    ("avg_op_intensity", "Average operation intensity", ""),
)


def write_log(result: "ReplayResult", folder: str) -> None:
    """Write ``log.log`` and an empty ``err.log`` (a run that fails raises instead) into a folder.

    Raises
    ------
    UsageError
        if the folder cannot be written
    """
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise UsageError(f"log folder {folder}: cannot be made: {error.strerror}") from None
    stamp = _stamp()
    with atomic_text(os.path.join(folder, "log.log")) as file:
        if result.system.trace_enabled:
            file.writelines(f"{stamp} [workload] [debug] {line}\n" for line in trace_lines(result))
        for npu, (finish, exposed) in enumerate(
            zip(result.finish_ns.tolist(), result.exposed_comm_ns.tolist(), strict=True)
        ):
            if finish >= 0:
                file.write(
                    f"{stamp} [workload] [info] sys[{npu}] finished, {finish} cycles, "
                    f"exposed communication {exposed % (1 << 64)} cycles.\n"
                )
        file.writelines(f"{stamp} [statistics] [info] {line}\n" for line in statistics_lines(result))
    with atomic_text(os.path.join(folder, "err.log")):
        pass


def statistics_lines(result: "ReplayResult") -> Iterator[str]:
    """ASTRA-sim's statistics of each NPU, ns; types that do not occur have no line."""
    statistics = result.statistics
    for npu in range(result.npus):
        for key, words in _STATISTICS:
            if key in statistics and (statistics[key][npu] > 0 or key == "wall_ns"):
                yield f"sys[{npu}], {words}: {int(statistics[key][npu])}"
        for key, words, unit in _ROOFLINE:
            if key in statistics:
                yield f"sys[{npu}], {words}: {statistics[key][npu]:.3f}{unit}"


def _stamp() -> str:
    """`[date time.ms]` of the run."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = float(epoch) if epoch and epoch.isdigit() else time.time()
    moment = time.gmtime(now) if epoch else time.localtime(now)
    return f"[{time.strftime('%Y-%m-%d %H:%M:%S', moment)}.{int(now % 1 * 1000):03d}]"


def trace_lines(result: "ReplayResult") -> Iterator[str]:
    """`issue,...` and `callback,...` lines of all NPUs in order of time.

    At one tick an NPU's completions come before what they let start; a node without duration ends at once.
    """
    ticks, npus, phases, orders, whiches = [], [], [], [], []
    for npu in range(result.npus):
        _, issue, finish = result.node_ticks(npu)
        n = len(issue)
        done = finish >= 0
        ticks += [issue, finish[done]]
        npus.append(np.full(n + int(done.sum()), npu, np.int64))
        # completions (0) come before issues (1), but that of a node without duration follows its issue
        phases += [np.ones(n, np.int64), (finish == issue)[done].astype(np.int64)]
        orders += [np.arange(n), np.flatnonzero(done)]
        whiches += [np.zeros(n, np.int64), np.ones(int(done.sum()), np.int64)]
    tick, npu_of = np.concatenate(ticks), np.concatenate(npus)
    phase, order, which = np.concatenate(phases), np.concatenate(orders), np.concatenate(whiches)
    described: dict[int, list[str]] = {}
    for i in np.lexsort((which, order, phase, npu_of, tick)).tolist():
        npu = int(npu_of[i])
        if npu not in described:
            described[npu] = _nodes(result, npu)
        word = "callback" if which[i] else "issue"
        yield f"{word},sys->id={npu}, tick={tick[i]}, {described[npu][order[i]]}"


def _nodes(result: "ReplayResult", npu: int) -> list[str]:
    """`node->id=..., node->name=..., node->type=...` of an NPU's nodes in issue order."""
    ids = result.node_ticks(npu)[0]
    trace = result.workload.traces[int(result.workload.trace_of[npu])]
    where = {int(node): i for i, node in enumerate(trace.ids)}
    names = [" ".join(name.split()) for name in trace.name_table]  # one line each, whatever a name holds
    return [
        f"node->id={node}, node->name={names[int(trace.name_codes[i])]}, node->type={int(trace.types[i])}"
        for node in ids.tolist()
        for i in (where[node],)
    ]
