"""From device operations to the host calls and operators that launched them (rule R-ATTACH of the
conversion).

The host call is found by correlation number, whatever its name: launches, copies, graph launches, driver and
vendor calls. The operator is the innermost one on the call's thread that holds the call's start.
"""

import re
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, Bool, distinct
from chakra.converters.pytorch.read.device import DeviceTrace
from chakra.converters.pytorch.read.repeated import one_kernel
from chakra.io.readable import counted, verb
from chakra.jit import compiled

#: Above this many rows the compiled kernels pay for their start.
COMPILE_ABOVE = 60_000


def kernels(rows: int):  # type: ignore[no-untyped-def]
    """Kernel namespace for a table of ``rows`` rows: plain Python for small ones."""
    if rows > COMPILE_ABOVE:
        return compiled("chakra.converters.pytorch.match.sweeps")
    from chakra.converters.pytorch.match import sweeps as plain

    return plain


@dataclass(slots=True)
class Attachment:
    """Where device operations come from.

    ``call`` is the row in ``DeviceTrace.calls`` of each device operation (-1: none in the trace); ``op`` the
    row in
    ``DeviceTrace.ops`` of the innermost operator around that call (-1: none). ``parent`` is the enclosing
    operator of every operator and ``call_op`` the innermost operator around every call.
    """

    call: I64
    op: I64
    parent: I64
    call_op: I64
    by_correlation: int
    by_external: int
    external_agrees: float | None
    """Share of device operations whose External id names the operator found (None: the trace has no such
    ids).
    """


def nest_ops(device: DeviceTrace) -> I64:
    """Enclosing operator of every operator; clips children that end after their parent (file resolution)."""
    ops = device.ops
    parent = np.full(len(ops.name), -1, np.int64)
    kernels(len(parent)).nest(ops.thread, ops.start, ops.end, parent)
    return parent


def attach(device: DeviceTrace, parent: I64) -> Attachment:
    """Find call and operator of every device operation."""
    calls, gpu, ops = device.calls, device.device, device.ops
    call_op = np.full(len(calls.name), -1, np.int64)
    kernels(len(calls.name) + len(ops.name)).innermost(
        ops.thread, ops.start, ops.end, parent, calls.thread, calls.start, call_op
    )
    call = _by_correlation(device)
    by_correlation = int((call >= 0).sum())
    op = np.where(call >= 0, call_op[call] if len(call_op) else -1, -1)
    external_is_op = _external_is_op(device)
    by_external = 0
    missing = np.flatnonzero(call < 0)
    if len(missing) and external_is_op:
        found, call_found = _by_external(device, missing, call_op)
        op[missing], call[missing] = found, call_found
        by_external = int((found >= 0).sum())
    agrees = None
    if external_is_op and len(gpu.name):
        has = (op >= 0) & (gpu.external != 0)
        if has.any():
            agrees = float((ops.external[op[has]] == gpu.external[has]).mean())
    return Attachment(call, op, parent, call_op, by_correlation, by_external, agrees)


def _by_correlation(device: DeviceTrace) -> I64:
    """Row of the host call with the same correlation; the outermost on its thread where several share it."""
    calls, gpu = device.calls, device.device
    out = np.full(len(gpu.name), -1, np.int64)
    usable = np.flatnonzero(calls.correlation != 0)
    if not len(usable):
        return out
    # Rows are ordered by thread and start, so the first of a number on a thread is its outermost call; among
    # threads the one that starts first made the call.
    order = usable[np.lexsort((-(calls.end[usable]), calls.start[usable], calls.correlation[usable]))]
    values, first = np.unique(calls.correlation[order], return_index=True)
    at = np.minimum(np.searchsorted(values, gpu.correlation), len(values) - 1)
    hit = (values[at] == gpu.correlation) & (gpu.correlation != 0)
    out[hit] = order[first[at[hit]]]
    return out


def _external_is_op(device: DeviceTrace) -> bool:
    """Whether External ids of device operations name operators (not so in old traces: there it is the
    correlation).
    """
    gpu = device.device
    has = gpu.external != 0
    return bool(has.any() and (gpu.external[has] == gpu.correlation[has]).mean() < 0.5)


def _by_external(device: DeviceTrace, missing: I64, call_op: I64) -> tuple[I64, I64]:
    """Operator with the same External id, and the last call inside it that starts before the device
    operation.
    """
    ops, gpu, calls = device.ops, device.device, device.calls
    values, first, counts = np.unique(ops.external, return_index=True, return_counts=True)
    usable = (counts == 1) & (values != 0)
    values, first = values[usable], first[usable]
    op = np.full(len(missing), -1, np.int64)
    call = np.full(len(missing), -1, np.int64)
    if not len(values):
        return op, call
    wanted = gpu.external[missing]
    at = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    hit = values[at] == wanted
    op[hit] = first[at[hit]]
    # Calls of the same operator without a device operation of their own, in order of start.
    order = np.lexsort((calls.start, call_op))
    grouped = call_op[order]
    for i in np.flatnonzero(hit):
        low, high = np.searchsorted(grouped, op[i], "left"), np.searchsorted(grouped, op[i], "right")
        rows = order[low:high]
        before = rows[calls.start[rows] <= gpu.start[missing[i]]]
        call[i] = before[-1] if len(before) else -1
    return op, call


def without_launch(device: DeviceTrace, attachment: Attachment, first_ns: int) -> tuple[Bool, int]:
    """Device operations to leave out: launched before the window and started before its first operator.

    Returns the mask and the number of operations without a launch that are kept in stream order.
    """
    orphan = (attachment.call < 0) & (attachment.op < 0)
    early = orphan & (device.device.start < first_ns)
    return early, int((orphan & ~early).sum())


_CAPTURE = re.compile(r"stream(begin|end)capture", re.IGNORECASE)


def lost_text(source: str, launches: int, lost: int) -> str:
    """What is said of launches of a file whose kernels are missing."""
    return (
        f"{source}: {lost} of {counted(launches, 'kernel launch')} {verb(launches, 'has', 'have')} no kernel in the "
        "trace: the profiler lost "
        "their records, "
        "so their device time is missing"
    )


def lost_launches(device: DeviceTrace, first_ns: int, last_ns: int) -> tuple[int, int]:
    """Kernel launches within a time, and how many of them have no kernel in the trace.

    Launches inside another launch (a driver's inside the runtime's) are the same one; launches while a graph is captured
    launch nothing.
    """
    calls, texts = device.calls, device.names.texts
    rows = np.flatnonzero(
        one_kernel(calls.name, texts)
        & (calls.correlation != 0)
        & (calls.start >= first_ns)
        & (calls.start <= last_ns)
    )
    if not len(rows):
        return 0, 0
    found = np.isin(calls.correlation[rows], device.device.correlation)
    # Rows are ordered by thread and start: a running maximum of ends tells what lies inside an earlier one.
    span = int(calls.end.max()) + 2
    keys = calls.thread[rows] * span
    before = np.append(np.int64(-1), np.maximum.accumulate(keys + calls.end[rows])[:-1])
    inside = keys + calls.start[rows] < before
    outer = np.maximum.accumulate(np.where(inside, 0, np.arange(len(rows))))
    has = np.zeros(len(rows), np.bool_)
    np.logical_or.at(has, outer, found)
    counted = ~inside & ~_captured(device, rows)
    return int(counted.sum()), int((counted & ~has).sum())


def _captured(device: DeviceTrace, rows: I64) -> Bool:
    """Whether each call was made while its thread captured a graph."""
    calls, texts = device.calls, device.names.texts
    marks = {
        code: (1 if "begin" in found[1].lower() else -1)
        for code in distinct(calls.name).tolist()
        if (found := _CAPTURE.search(texts[code]))
    }
    if not marks:
        return np.zeros(len(rows), np.bool_)
    step = np.array([marks.get(code, 0) for code in calls.name.tolist()], np.int64)
    depth = np.cumsum(step)
    first = np.searchsorted(calls.thread, calls.thread[rows])
    out: Bool = depth[rows] - np.where(first > 0, depth[first - 1], 0) > 0
    return out
