"""Pipeline stages of a generated workload's ranks, as its traces' metadata tells them."""

from chakra.et import Trace
from chakra.et.attributes import attribute_value
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
    told = [_stage(trace) for trace in workload.traces]
    if len(set(told) - {None}) < 2:
        return []
    return [told[trace] for trace in workload.trace_of.tolist()]


def _stage(trace: Trace) -> str | None:
    said = {attribute.name: attribute_value(attribute) for attribute in trace.metadata.attr}
    stage, part = said.get(STAGE), said.get(PART)
    if not isinstance(stage, int):
        return None
    return f"{part} {stage}" if isinstance(part, str) and part else str(stage)
