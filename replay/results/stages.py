"""Pipeline stages of a generated workload's ranks, as its traces' metadata tells them."""

from chakra.et import Trace
from chakra.et.operators import PART, STAGE
from chakra.replay.workload.model import Workload


def stages_of(workload: Workload) -> list[str | None]:
    """Stage of each NPU: its number, behind the part of the workload where it has several.

    Parameters
    ----------
    workload
        What runs.

    Returns
    -------
    list of str or None
        By NPU, None where its trace tells no stage; empty where the traces tell fewer than two stages.
    """
    told = [_words(trace) for trace in workload.traces]
    if len(set(told) - {None}) < 2:
        return []
    return [told[trace] for trace in workload.trace_of.tolist()]


def part_and_stage(trace: Trace) -> tuple[str, int]:
    """Part of the workload that a trace is of, empty where it has one only, and the stage; -1 where it tells none.

    Parameters
    ----------
    trace
        The trace.
    """
    part, stage = "", -1
    for item in trace.metadata.attr:
        if item.name == PART:
            part = item.string_val
        elif item.name == STAGE and item.HasField("int64_val"):
            stage = item.int64_val
    return part, stage


def _words(trace: Trace) -> str | None:
    part, stage = part_and_stage(trace)
    return None if stage < 0 else f"{part} {stage}" if part else str(stage)
