"""Why a number of the machine or an option takes no part in a run's times, where that is a rule."""

import re
from collections.abc import Callable

from chakra.arrays import Bool
from chakra.et import Trace
from chakra.io.digits import whole_number
from chakra.replay.collectives.library.in_effect import PlacedLibrary
from chakra.replay.compute.in_effect import operator_model
from chakra.replay.results.result import ReplayResult
from chakra.replay.workload.model import Engine, Op
from chakra.replay.workload.recorded import accelerator_time, host_time

_DIM = re.compile(r"network\.dim([0-9]{1,3})\.(bandwidth|latency)")
#: keys of a system file and options that algorithms alone read, and a library's collectives don't
_OF_ALGORITHMS = frozenset(
    {
        "system.preferred-dataset-splits",
        "system.active-chunks-per-dimension",
        "system.endpoint-delay",
        "system.collective-optimization",
        "system.inter-dimension-scheduling",
        "system.intra-dimension-scheduling",
        "system.local-reduction-delay",
        "replay.injection-scale",
        "replay.queues-per-dim",
    }
)
#: keys that a library alone reads
_OF_LIBRARY = frozenset(
    {
        "system.collective-channels",
        "system.node-ports",
        "system.network-plugin-latency",
        "system.overlap-computing-rate",
        "system.overlap-collective-rate",
    }
)


def why_idle(name: str, result: ReplayResult) -> str:
    """Why a value would change no time of a run, and what to change instead; empty: no rule says so.

    A rule names a reason, it does not prove that nothing changes: that only a second run shows.

    Parameters
    ----------
    name
        As a study writes it: ``network.dim0.bandwidth``, ``system.endpoint-delay``, ``replay.host-speed``.
    result
        The run.
    """
    dim = _DIM.fullmatch(name)
    if dim:
        return _of_dimension(whole_number(dim[1]), dim[2], result)
    if name in _OF_ALGORITHMS:
        return _of_algorithms(name, result)
    if name in _OF_LIBRARY:
        return _of_library(name, result)
    rule = _RULES.get(name)
    return "" if rule is None else rule(result)


def _library(result: ReplayResult) -> PlacedLibrary | None:
    """The library whose times the run's collectives take."""
    return result.scenario.plans.library if result.workload.has_collectives else None


def _sends(result: ReplayResult) -> bool:
    return any((program.op == Op.SEND).any() for program in result.workload.programs)


def _taken(library: PlacedLibrary) -> str:
    return f"collectives take the times of {library.name} on {library.machine.name}"


def _of_dimension(k: int, what: str, result: ReplayResult) -> str:
    """Bandwidth or latency of a network dimension."""
    if k >= len(result.network.dims) or not (result.workload.has_collectives or _sends(result)):
        return "" if k >= len(result.network.dims) else "the workload sends nothing"
    library = _library(result)
    if library is not None:
        inner = 1
        for dim in result.network.dims[: k + 1]:
            inner *= dim.npus
        if inner <= library.node_npus:
            return (
                f"{_taken(library)}, whose links inside a node are part of them; another machine's times are those of "
                "another collective-costs: the name of a preset, or a file that `chakra calibrate LOG --library "
                f"{library.machine.name} -o costs.yml` makes of a log of nccl-tests"
            )
        if what == "latency":
            return f"{_taken(library)}, with its own latencies; system.network-plugin-latency adds to them"
    if result.dimensions[k]["bytes_per_npu"] == 0:
        return f"nothing is sent in dimension {k}"
    if library is not None:
        return f"{_taken(library)}, and the slowest dimension between nodes decides"
    return ""


def _of_algorithms(name: str, result: ReplayResult) -> str:
    """What the algorithms of a system file read."""
    if not result.workload.has_collectives:
        return "the workload has no collective"
    library = _library(result)
    if library is not None:
        return f"{_taken(library)}, and only algorithms of a system file read it; without collective-library they run"
    if name == "replay.injection-scale" and result.system.endpoint_delay_ns == 0:
        return "it multiplies endpoint-delay, which is 0 ns"
    return ""


def _of_library(name: str, result: ReplayResult) -> str:
    """What a collective library reads."""
    if not result.workload.has_collectives:
        return "the workload has no collective"
    library = _library(result)
    if library is None:
        return "only a collective library reads it, and none is in effect"
    if name != "system.collective-channels" and library.node_npus == result.npus and "overlap" not in name:
        return "it counts between nodes, and the network is one"
    return ""


def _recorded(result: ReplayResult, whose: Callable[[Trace], Bool]) -> bool:
    """Whether traces give times of the host or of the accelerator."""
    return any((whose(trace) & (trace.durations_ns() > 0)).any() for trace in result.workload.traces)


def _of_host(result: ReplayResult) -> str:
    if _recorded(result, host_time):
        return ""
    return "it divides recorded times of the host alone; that of a generated step is its framework's"


def _of_accelerator(result: ReplayResult) -> str:
    if _recorded(result, accelerator_time):
        return ""
    programs = result.workload.programs
    if not any((accelerator_time(p.trace)[p.order] & (p.duration_ns > 0)).any() for p in programs):
        return "no time of this run is one of an accelerator"
    return "it divides recorded times alone; accelerator.FAMILY (--kernel-speed) divides those of operator models, too"


def _of_flops(result: ReplayResult) -> str:
    return "" if result.system.roofline else _of_accelerator(result)


def _of_computing_memory(result: ReplayResult) -> str:
    if result.system.roofline or operator_model(result.system, result.scenario.options) is not None:
        return ""
    return "durations are those of the traces; only a roofline, an operator model and reductions of algorithms read it"


def _of_remote_memory(result: ReplayResult) -> str:
    programs = result.workload.programs
    return (
        ""
        if any((p.engine == Engine.MEMORY).any() for p in programs)
        else "no node of the workload uses remote memory"
    )


def _of_communication(result: ReplayResult) -> str:
    return "" if result.workload.has_collectives or _sends(result) else "the workload sends nothing"


def _always(reason: str) -> Callable[[ReplayResult], str]:
    """A reason that holds wherever nothing changed."""
    return lambda result: reason


#: parameter, as a study writes it -> its rule
_RULES: dict[str, Callable[[ReplayResult], str]] = {
    "replay.host-speed": _of_host,
    "replay.accelerator-speed": _of_accelerator,
    "npu.flops": _of_flops,
    "system.peak-perf": _of_computing_memory,
    "system.local-mem-bw": _of_computing_memory,
    "system.local-mem-capacity": _always(
        "it says whether a generated workload fits, and no time depends on it"
    ),
    "memory.remote-mem-latency": _of_remote_memory,
    "memory.remote-mem-bw": _of_remote_memory,
    "replay.comm-scale": _of_communication,
    "replay.start": _always("it places the beginnings of recorded ranks alone"),
    "replay.accelerator": _always("it changes recorded kernels alone"),
}
