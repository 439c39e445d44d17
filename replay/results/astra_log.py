"""ASTRA-sim's log files: finish lines, statistics, and with trace-enabled ticks of nodes (replay semantics, section 1.6).

The form of a line is ASTRA-sim's, so that scripts which read its logs read ours. Unlike there, long traces
lose nothing to rotation. ``SOURCE_DATE_EPOCH`` fixes the time stamps.
"""

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from chakra.arrays import distinct
from chakra.errors import UsageError
from chakra.io.digits import decimal_number, is_whole
from chakra.io.files import atomic_text
from chakra.replay.config.model import CollectiveKind
from chakra.replay.workload.model import Engine, Op

if TYPE_CHECKING:
    from chakra.replay.results.result import ReplayResult
    from chakra.replay.workload.model import Program

#: key of the result document's statistics, words in ASTRA-sim's log, for nodes of which engine
_TYPES = (
    ("cpu_ns", "CPU time", Engine.CPU),
    ("gpu_ns", "GPU time", Engine.GPU),
    ("comm_ns", "Comm time", Engine.COMM),
    ("remote_mem_ns", "Remote mem time", Engine.MEMORY),
    ("", "Invalid time", Engine.NONE),
)
#: with the roofline on: key, words, unit
_ROOFLINE = (
    ("compute_bound_pct", "Compute bound percentage", "%"),
    ("avg_compute_util_pct", "Average compute utilization", "%"),
    ("avg_memory_util_pct", "Average memory utilization", "%"),
    ("avg_op_intensity", "Average operation intensity", ""),
)


#: line of a log: logger, level, message
Record = tuple[str, str, str]
_RINGS = "system::topology::RingTopology"
#: ASTRA-sim's words for the collectives whose topologies it builds at the start, in that order
_TOPOLOGIES = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL,
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
    with atomic_text(os.path.join(folder, "log.log")) as file:
        file.writelines(_lines(result, debug=result.system.trace_enabled))
    with atomic_text(os.path.join(folder, "err.log")):
        pass


def format_astra_sim(result: "ReplayResult") -> str:
    """What ASTRA-sim prints on standard output: the rings it builds, finish lines, statistics.

    NPUs stand in the order in which they finish, and by number at one tick. ASTRA-sim's order of the statistics of
    one NPU is that of a hash table; here it is the order of the documentation.
    """
    return "".join(_lines(result, debug=False))


def _lines(result: "ReplayResult", *, debug: bool) -> Iterator[str]:
    stamp = _stamp()
    if debug:
        for line in trace_lines(result):
            yield f"{stamp} [workload] [debug] {line}\n"
    for logger, level, message in log_records(result):
        yield f"{stamp} [{logger}] [{level}] {message}\n"


def log_records(result: "ReplayResult") -> Iterator[Record]:
    """The lines of ASTRA-sim's log from level `info` on, in order of time."""
    yield from _rings_of_dimensions(result)
    finish, exposed = result.finish_ns.tolist(), result.exposed_comm_ns.tolist()
    groups = _rings_of_groups(result)
    following = next(groups, None)
    for npu in sorted((npu for npu in range(result.npus) if finish[npu] >= 0), key=finish.__getitem__):
        while following is not None and following[0] <= finish[npu]:
            yield following[1]
            following = next(groups, None)
        yield (
            "workload",
            "info",
            # the count is unsigned there: below zero it wraps
            f"sys[{npu}] finished, {finish[npu]} cycles, exposed communication {exposed[npu] % (1 << 64)} cycles.",
        )
        yield "statistics", "info", f"sys[{npu}]. Post statistics processing start."
        yield "statistics", "info", f"sys[{npu}]. Post statistics processing end."
        for line in statistics_lines(result, npu):
            yield "statistics", "info", line
        if result.system.track_local_mem:
            yield (
                "workload",
                "info",
                f"sys[{npu}] peak memory usage: {_size(int(result.peak_memory_bytes[npu]))}",
            )
    yield "system", "warning", "Exiting"


def _rings_of_dimensions(result: "ReplayResult") -> Iterator[Record]:
    """What building the four topologies of NPU 0 says: a line for each dimension that is no double binary tree."""
    sizes = [dim.npus for dim in result.network.dims]
    for kind in _TOPOLOGIES:
        offset = 1
        for dim, algorithm in enumerate(result.system.implementations.get(kind, ())[: len(sizes)]):
            if algorithm.startswith("one"):
                yield _ring_of_dimension(result.npus, 1)
                break
            if algorithm != "doubleBinaryTree":
                yield _ring_of_dimension(sizes[dim], offset)
            offset *= sizes[dim]


def _ring_of_dimension(size: int, offset: int) -> Record:
    message = (
        f"ring of node 0, id: 0 dimension: local total nodes in ring: {size} index in ring: 0 offset: {offset} "
        f"total nodes in ring: {size}"
    )
    return _RINGS, "info", message


def _rings_of_groups(result: "ReplayResult") -> Iterator[tuple[int, Record]]:
    """Tick and line of each NPU's first collective of each kind in each group that is not all NPUs."""
    found = []
    for npu in range(result.npus):
        program = _program(result, npu)
        if not program.calls:
            continue
        ticks = dict(zip(*(values.tolist() for values in result.node_ticks(npu)[:2]), strict=True))
        ids = program.ids()
        met: dict[tuple[int, str], tuple[int, int]] = {}
        for place in np.flatnonzero(program.op == Op.COLLECTIVE).tolist():
            call = program.calls[int(program.call[place])]
            tick = ticks.get(int(ids[place]))
            if tick is not None:
                key = (call.group, str(call.kind))
                met[key] = min(met.get(key, (tick, place)), (tick, place))
        for (slot, _), (tick, place) in met.items():
            comm = result.membership.comms[int(result.membership.comm[npu, slot])]
            if not comm.whole:
                found.append((tick, npu, place, int(result.membership.member[npu, slot]), comm.size))
    for tick, npu, _, index, size in sorted(found):
        message = (
            f"custom ring, id: {npu}, dimension: local total nodes in ring: {size} index in ring: {index} "
            f"total nodes in ring {size}"
        )
        yield tick, (_RINGS, "info", message)


def _program(result: "ReplayResult", npu: int) -> "Program":
    return result.workload.programs[int(result.workload.program_of[npu])]


def _size(size: int) -> str:
    """Bytes in ASTRA-sim's form: units of 1,024 with two digits."""
    units = ("B", "KB", "MB", "GB", "TB")
    power = min(max(size.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{np.float32(size) / np.float32(1024**power):.2f} {units[power]}"


def statistics_lines(result: "ReplayResult", npu: int) -> Iterator[str]:
    """ASTRA-sim's statistics of an NPU, ns; types that do not occur have no line."""
    statistics = result.statistics
    yield f"sys[{npu}], Wall time: {int(statistics['wall_ns'][npu])}"
    occurring = {int(engine) for engine in distinct(_program(result, npu).engine)}
    for key, words, engine in _TYPES:
        if engine in occurring:
            yield f"sys[{npu}], {words}: {int(statistics[key][npu]) if key else 0}"
    if "overlap_ns" in statistics and statistics["overlap_ns"][npu] > 0:
        yield f"sys[{npu}], Total compute-communication overlap: {int(statistics['overlap_ns'][npu])}"
    for key, words, unit in _ROOFLINE:
        if key in statistics:
            yield f"sys[{npu}], {words}: {statistics[key][npu]:.3f}{unit}"


def _stamp() -> str:
    """`[date time.ms]` of the run."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = decimal_number(epoch) if epoch and is_whole(epoch, 11) else time.time()
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
