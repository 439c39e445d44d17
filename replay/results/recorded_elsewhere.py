"""What a recording keeps of the machine that it ran on, where it is replayed on another one."""

from collections.abc import Sequence

from chakra.errors import UsageError
from chakra.et import NodeType, Trace
from chakra.et.families import CPU_BACK_ENDS
from chakra.io.digits import is_whole
from chakra.io.readable import printable
from chakra.replay.compute.other_accelerator import ACCELERATOR, accelerator_named
from chakra.replay.compute.parameters import ComputeParameters
from chakra.replay.compute.presets import compute_parameters, names_with_operator_times
from chakra.replay.engines.scenario import Scenario
from chakra.replay.workload.kernel_speeds import recorded_kernels
from chakra.replay.workload.recorded import is_recorded


def elsewhere_notes(scenario: Scenario) -> list[str]:
    """That collectives of CPUs take a library's times, and that kernels of another accelerator keep theirs."""
    traces = [trace for trace in scenario.workload.traces if is_recorded(trace)]
    if not traces or scenario.system.replay_only or scenario.options.astra:
        return []
    return [*_collectives_of_cpus(traces, scenario), *_kernels_of_another(traces, scenario)]


def _collectives_of_cpus(traces: Sequence[Trace], scenario: Scenario) -> list[str]:
    """That the library of accelerators stands in for the back end that ran the collectives."""
    library = scenario.plans.library
    ran = sorted({name for trace in traces for name in _back_ends(trace)} & set(CPU_BACK_ENDS))
    if library is None or not ran:
        return []
    taken = (
        f"they take the times of {library.name} on {library.machine.name}, as if its accelerators ran them"
    )
    return [f"the recording ran its collectives with {' and '.join(ran)} on CPUs; {taken}"]


def _back_ends(trace: Trace) -> set[str]:
    """Back ends of the collectives of a trace, where their names say them (``gloo:all_reduce``)."""
    codes = set(trace.name_codes[trace.types == NodeType.COMM_COLL].tolist())
    return {trace.name_table[code].partition(":")[0] for code in codes}


def _kernels_of_another(traces: Sequence[Trace], scenario: Scenario) -> list[str]:
    """That recorded kernels keep their times on a machine of another accelerator."""
    here = scenario.system.operator_model
    if here not in names_with_operator_times() or scenario.options.accelerator is not None:
        return []
    machine = compute_parameters(here)
    names = {
        attribute.string_val
        for trace in traces
        if recorded_kernels(trace).any()
        for attribute in trace.metadata.attr
        if attribute.name == ACCELERATOR and attribute.string_val
    }
    others = sorted(name for name in names if not _is_of(name, machine))
    if not others:
        return []
    known = all(_has_operator_times(name) for name in others)
    remedy = f": --accelerator {machine.name} gives them that one's" if known else ""
    devices = ", ".join(map(printable, others))
    return [
        f"kernels keep the times that they took on {devices}; the machine has {machine.accelerator}{remedy}"
    ]


def _has_operator_times(device: str) -> bool:
    """Whether times of a device's kernels can be told of another one."""
    try:
        accelerator_named(device)
    except UsageError:
        return False
    return True


def _is_of(device: str, machine: ComputeParameters) -> bool:
    """Whether a device's name is that of a machine's accelerator: they share a model's name, such as H100."""
    ours, theirs = (
        {word for word in text.lower().replace("-", " ").replace("_", " ").split() if _is_model(word)}
        for text in (f"{machine.name} {machine.accelerator}", device)
    )
    return bool(ours & theirs)


def _is_model(word: str) -> bool:
    """Whether a word may be the name of a model: it has letters and digits."""
    return any(is_whole(char, 1) for char in word) and any(char.isalpha() for char in word)
