"""Which part of the traces is linked: the active operators and the device operations that belong to them."""

from dataclasses import dataclass

import numpy as np

from chakra.arguments import check_fields
from chakra.arrays import I64, Bool, followed
from chakra.converters.pytorch.match.attach import Attachment, attach, nest_ops, without_launch
from chakra.converters.pytorch.match.pair import Pairing, pair
from chakra.converters.pytorch.read.device import DeviceTrace, Ops, profiler_steps
from chakra.converters.pytorch.read.host import HostTrace
from chakra.converters.pytorch.read.kernel_names import KernelNames
from chakra.errors import ConversionError, UsageError

_WORDS = {"gaps": ("node", "fold", "drop"), "cpu_comm": ("comm", "comp"), "deps": ("order", "tensors")}


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """How to link.

    Attributes
    ----------
    gaps
        ``node``, ``fold`` or ``drop``: what becomes of time on a thread that no operator covers.
    add_unmatched
        Operators of the device trace without host node become nodes too.
    step
        Only this ProfilerStep.
    window_ns
        Only operators that start within (from, to), ns since the first event.
    gpu_only
        Only device nodes (with the host's effect on them lost).
    cpu_comm
        ``comm``: communication of CPU back ends (gloo) becomes communication nodes; ``comp``: stays CPU time.
    deps
        ``order``: device operations of a stream follow each other; ``tensors``: they follow what wrote their inputs.
    comm_kernels
        Kernels that communicate and that no name of ours knows, as ``PATTERN=kind``: a regular expression, and a
        collective such as ``allreduce``, or ``none`` for a kernel that computes.
    """

    gaps: str = "node"
    add_unmatched: bool = False
    step: int | None = None
    window_ns: tuple[int, int] | None = None
    gpu_only: bool = False
    cpu_comm: str = "comm"
    deps: str = "order"
    comm_kernels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        KernelNames.of(self.comm_kernels)
        for name, words in _WORDS.items():
            if getattr(self, name) not in words:
                raise UsageError(f"{name}: {getattr(self, name)!r} is not one of {', '.join(words)}")
        if self.gpu_only and (self.gaps == "fold" or self.cpu_comm == "comp"):
            option = "--gaps fold" if self.gaps == "fold" else "--cpu-comm comp"
            raise UsageError(f"{option} is about the host's part, which --gpu-only leaves out")


def calls_as_ops(device: DeviceTrace) -> Ops:
    """A trace without operators (GPU-only profiles): the host calls stand in for them."""
    calls = device.calls
    n = len(calls.name)
    zero, none = np.zeros(n, np.int64), np.full(n, -1, np.int64)
    order = np.lexsort((-(calls.end - calls.start), calls.start, calls.thread))
    return Ops(
        calls.name[order], calls.thread[order], calls.start[order], calls.end[order].copy(), zero, zero.copy(),
        zero.copy(), none, np.zeros(n, np.bool_), none.copy(), none.copy(),
    )  # fmt: skip


def active_operators(
    device: DeviceTrace, pairing: Pairing | None, options: LinkOptions, steps: dict[int, tuple[int, int]]
) -> Bool:
    ops = device.ops
    active = np.ones(len(ops.name), np.bool_)
    if pairing is not None and not options.add_unmatched:
        active = pairing.node >= 0
    elif pairing is not None:
        matched = pairing.node >= 0
        first, last = ops.start[matched].min(), ops.end[matched].max()
        active = matched | ((ops.start >= first) & (ops.end <= last))
    if options.step is not None:
        if options.step not in steps:
            known = ", ".join(map(str, steps)) or "none"
            raise ConversionError(
                f"{device.source}: no ProfilerStep#{options.step}; steps in the trace: {known}"
            )
        begin, end = steps[options.step]
        active &= (ops.start >= begin) & (ops.end <= end)
    if options.window_ns is not None:
        begin, end = options.window_ns
        active &= (ops.start >= begin) & (ops.start < end)
    return active


def nearest_active(active: Bool, parent: I64) -> I64:
    """Innermost active operator at or above each; -1 where none, and at the place of no operator, which is the last."""
    return np.append(followed(np.where(active, np.arange(len(active)), parent)), -1)


class Region:
    """The active operators as a table of their own (rows renumbered), and the device operations kept with
    them.
    """

    def __init__(self, device: DeviceTrace, attachment: Attachment, active: Bool) -> None:
        ops = device.ops
        self.rows = np.flatnonzero(active)
        #: whether nothing of the trace is left out, so that what runs behind the last operator belongs to it as well
        self.whole = bool(active.all())
        self.index = np.full(len(ops.name), -1, np.int64)
        self.index[self.rows] = np.arange(len(self.rows))
        nearest = nearest_active(active, attachment.parent)
        parent = nearest[attachment.parent[self.rows]]
        self.parent = np.where(parent >= 0, self.index[parent], -1)
        self.thread, self.start, self.end = ops.thread[self.rows], ops.start[self.rows], ops.end[self.rows]
        self.annotation = ops.annotation[self.rows]
        self.first, self.last = int(self.start.min()), int(self.end.max())
        n_threads = len(device.threads)
        self.thread_first = np.full(n_threads, 1 << 62, np.int64)
        self.thread_last = np.full(n_threads, -1, np.int64)
        np.minimum.at(self.thread_first, self.thread, self.start)
        np.maximum.at(self.thread_last, self.thread, self.end)
        self._keep(device, attachment, nearest)

    def _keep(self, device: DeviceTrace, attachment: Attachment, nearest: I64) -> None:
        """Which device operations belong to the region, and the active operator each hangs on."""
        gpu, calls = device.device, device.calls
        op = nearest[attachment.op]
        self.device_op = np.where(op >= 0, self.index[op], -1)
        has_call = attachment.call >= 0
        call = np.maximum(attachment.call, 0)
        launch = np.where(has_call, calls.start[call] if len(calls.start) else 0, gpu.start)
        thread = np.where(has_call, calls.thread[call] if len(calls.thread) else -1, -1)
        on_thread = has_call & (launch >= self.thread_first[thread]) & (launch <= self.thread_last[thread])
        elsewhere = has_call & (self.thread_last[thread] < 0) & (launch >= self.first) & (launch <= self.last)
        early, self.orphans = without_launch(device, attachment, self.first)
        orphan = (
            (attachment.call < 0) & (attachment.op < 0) & ~early & (self.whole | (gpu.start <= self.last))
        )
        self.kept = (self.device_op >= 0) | on_thread | elsewhere | orphan
        self.early = int(early.sum())
        self.orphans = int(orphan.sum())
        self.outside_op = int(((on_thread & (self.device_op < 0)) | elsewhere).sum())
        self.launch_thread = np.where(on_thread | (self.device_op >= 0), thread, -1)
        self.launch = launch


@dataclass(frozen=True, slots=True)
class Match:
    """What of a device trace belongs to what.

    Attributes
    ----------
    pairing
        Operators that both traces have; None without a host trace.
    attachment
        Operator and call of each device operation.
    steps
        Begin and end of the profiler's steps, ns since the first event, by number.
    active
        (operators,) whether each is linked.
    """

    pairing: Pairing | None
    attachment: Attachment
    steps: dict[int, tuple[int, int]]
    active: Bool


def match_traces(
    host: HostTrace | None, device: DeviceTrace, options: LinkOptions, pairing: Pairing | None = None
) -> Match:
    """Match the traces of one rank; `link` says what each parameter is.

    Raises
    ------
    ConversionError
        Nothing matches, the step or window is empty, or the device trace has no host activity.
    """
    if not len(device.ops.name):
        device.ops = calls_as_ops(device)
    if pairing is None and host is not None:
        pairing = pair(host, device)
    attachment = attach(device, nest_ops(device))
    steps = profiler_steps(device)
    active = active_operators(device, pairing, options, steps)
    if not active.any():
        raise ConversionError(f"{device.source}: no operator inside the chosen step or window")
    return Match(pairing, attachment, steps, active)


def matched_bounds(device: DeviceTrace, region: Region, *, gpu_only: bool) -> tuple[int, int]:
    """Begin and end of what was recorded, ns since the first event: of the operators and of what they launched."""
    attached = region.kept & (region.whole | (region.device_op >= 0))
    if gpu_only:
        return int(device.device.start[region.kept].min()), int(device.device.end[region.kept].max())
    first, last = region.first, region.last
    if attached.any():
        first = min(first, int(device.device.start[attached].min()))
        last = max(last, int(device.device.end[attached].max()))
    return first, last


def thread_numbers(host: HostTrace | None, device: DeviceTrace, pairing: Pairing | None) -> I64:
    """``tid`` of each thread: the host trace's number where one thread has most of its operators, else a new
    one.
    """
    n = len(device.threads)
    out = np.zeros(n, np.int64)
    taken: set[int] = set()
    if host is not None and pairing is not None:
        matched = np.flatnonzero(pairing.node >= 0)
        tid, thread = host.nodes.tid[pairing.node[matched]], device.ops.thread[matched]
        pairs, counts = np.unique(np.stack([tid, thread]), axis=1, return_counts=True)
        for i in np.argsort(-counts, kind="stable"):
            number, which = int(pairs[0, i]), int(pairs[1, i])
            if out[which] == 0 and number not in taken and number > 0:
                out[which] = number
                taken.add(number)
    number = max(taken, default=0)
    for which in range(n):
        if out[which] == 0:
            number += 1
            out[which] = number
    return out
