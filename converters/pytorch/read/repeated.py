"""Ids that a profiler gives once and a recording has twice: of launches, of their kernels, of operators.

A recording joined of two, or one whose events were written twice, counts device time twice and attaches kernels to the
wrong launches. Graph launches, copies and other vendors' commands have one id for many operations; these are no repeats.
"""

import re

import numpy as np

from chakra.arrays import I64, Bool, distinct
from chakra.converters.pytorch.read.device import DeviceTrace

#: calls that launch exactly one kernel, of CUDA, HIP and their drivers
ONE_KERNEL = re.compile(
    r"(launch(cooperative)?kernel|modulelaunch|kernellaunch)(?!.*multidevice)", re.IGNORECASE
)


def repeats(ids: I64) -> I64:
    """Ids, other than 0, that are there more than once."""
    values, counts = np.unique(ids[ids != 0], return_counts=True)
    found: I64 = values[counts > 1]
    return found


def repeated_launches(name: I64, correlation: I64, thread: I64, start: I64, end: I64) -> I64:
    """Correlations that are on several launches; a driver's call inside the runtime's is the same launch."""
    rows = np.flatnonzero(np.isin(correlation, repeats(correlation)))
    rows = rows[np.lexsort((-end[rows], start[rows], thread[rows], correlation[rows]))]
    found: list[int] = []
    reached = 0
    for before, row in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True):
        reached = max(reached, int(end[before]))
        if correlation[before] != correlation[row]:
            reached = 0
        elif thread[before] != thread[row] or start[row] >= reached or name[before] == name[row]:
            found.append(int(correlation[row]))
    return distinct(np.array(found, np.int64))


def said_of(source: str, launches: I64, kernels: I64, operators: I64, operator_id: str) -> list[str]:
    """A line for each kind of repeated id.

    Parameters
    ----------
    source
        The file.
    launches, kernels, operators
        Ids that are on several launches, on several kernels of one launch, on several operators.
    operator_id
        What the ids of the operators are called.
    """
    lines = []
    for name, ids, things in (
        ("correlation", launches, "launches"),
        ("correlation", kernels, "kernels of one launch"),
        (operator_id, operators, "operators"),
    ):
        if len(ids):
            more = f", and {len(ids) - 1} more" if len(ids) > 1 else ""
            lines.append(
                f"{source}: {name} {int(ids[0])} is on several {things}{more}: are events there twice, or recordings "
                "joined? Each counts"
            )
    return lines


def one_kernel(names: I64, texts: list[str]) -> Bool:
    """(calls,) whether each launches one kernel."""
    codes = [code for code in distinct(names).tolist() if ONE_KERNEL.search(texts[code])]
    return np.isin(names, codes)


def repeated_ids(trace: DeviceTrace) -> list[str]:
    """Lines that name ids which a Kineto trace has twice; none where it is sound."""
    calls, ops = trace.calls, trace.ops
    rows = np.flatnonzero(one_kernel(calls.name, trace.names.texts))
    launches = calls.correlation[rows]
    kernels = repeats(trace.device.correlation)
    own = ops.rf_id[~ops.annotation]
    named = "Record function id" if own.any() else "External id"
    return said_of(
        trace.source,
        repeated_launches(calls.name[rows], launches, calls.thread[rows], calls.start[rows], calls.end[rows]),
        kernels[np.isin(kernels, launches)],
        repeats(own if own.any() else ops.external[~ops.annotation]),
        named,
    )
