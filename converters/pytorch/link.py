"""Joining a host trace and a device trace into one graph."""

from dataclasses import dataclass, field

import numpy as np

from chakra.arrays import I64, Bool
from chakra.converters.pytorch.comm import operations as communication
from chakra.converters.pytorch.comm.awaited import awaited_works
from chakra.converters.pytorch.graph.build import Parts, make_draft
from chakra.converters.pytorch.graph.linked_graph import (
    NODE_DEVICE,
    NODE_DEVICE_GAP,
    NODE_TURN,
    NODE_UNMATCHED,
    Graph,
    finish,
)
from chakra.converters.pytorch.match.attach import Attachment, lost_launches, lost_text
from chakra.converters.pytorch.match.pair import Pairing
from chakra.converters.pytorch.match.region import (
    LinkOptions,
    Match,
    Region,
    match_traces,
    matched_bounds,
    thread_numbers,
)
from chakra.converters.pytorch.read.device import BAD, DeviceTrace
from chakra.converters.pytorch.read.host import HostTrace
from chakra.converters.pytorch.read.kernel_names import KernelNames
from chakra.converters.pytorch.read.repeated import repeated_ids
from chakra.converters.pytorch.read.times import untimed_text
from chakra.converters.pytorch.time.cutting import bursts_of, cut_host
from chakra.converters.pytorch.time.host_time import Bursts
from chakra.converters.pytorch.time.sync import SyncEdges, find_waits
from chakra.errors import UsageError

__all__ = ["NODE_DEVICE", "NODE_DEVICE_GAP", "NODE_TURN", "NODE_UNMATCHED", "LinkOptions", "Linked", "link"]


@dataclass(slots=True)
class Linked:
    """A linked trace and the account of how it came about."""

    graph: Graph
    host: HostTrace | None
    device: DeviceTrace
    pairing: Pairing | None
    attachment: Attachment
    active: Bool
    """Operators of the device trace that became nodes."""
    kept: Bool
    """Device operations that became nodes."""
    thread_numbers: I64
    """``tid`` of every thread of the device trace."""
    waits: SyncEdges
    bursts: Bursts
    moved_ns: int
    """Self time of operators that was moved in front of their children."""
    gaps_dropped_ns: int
    groups: communication.ProcessGroups
    first_ns: int
    """Start of the matched region, ns since the first event."""
    measured_ns: int
    """Span of the matched region: first start to last end of matched operators and attached device
    operations.
    """
    steps: dict[int, tuple[int, int]]
    whole_steps: int = 0
    """Profiler steps that lie in the region as a whole."""
    recording_cost_ns: int = 0
    """What was taken off the host's time as the cost of its recording, of all nodes together."""
    counts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def link(
    host: HostTrace | None,
    device: DeviceTrace,
    options: LinkOptions | None = None,
    rank: int = 0,
    pairing: Pairing | None = None,
) -> Linked:
    """Link the traces of one rank.

    Parameters
    ----------
    host
        Host trace; None builds the graph from the device trace alone (nesting gives the call tree).
    device
        Device trace that shares the host trace's name table. Operators that overlap by the file's resolution
        are clipped in place.
    rank
        Global rank, for peers of point-to-point communication.
    pairing
        Matched operators, when they are known already (linked files).

    Raises
    ------
    ConversionError
        Nothing matches, the step or window is empty, or the device trace has no host activity.
    UsageError
        An option needs a host trace, and there is none.
    """
    options = options or LinkOptions()
    if host is None and pairing is None and (options.add_unmatched or options.deps == "tensors"):
        option = "--add-unmatched" if options.add_unmatched else "--deps tensors"
        raise UsageError(f"{device.source}: {option} needs the host trace, too: --host ET")
    return _build(host, device, options, rank, match_traces(host, device, options, pairing))


def _build(
    host: HostTrace | None,
    device: DeviceTrace,
    options: LinkOptions,
    rank: int,
    match: Match,
) -> Linked:
    pairing, attachment, steps, active = match.pairing, match.attachment, match.steps, match.active
    region = Region(device, attachment, active)
    groups = communication.groups_of(host, device)
    records = communication.device_communication(
        host, device, pairing, attachment, region.kept, groups, rank, KernelNames.of(options.comm_kernels)
    )
    is_comm = np.zeros(len(device.device.name), np.bool_)
    is_comm[list(records.members)] = True
    works = awaited_works(host, pairing, device, attachment, np.flatnonzero(is_comm))
    waits = find_waits(device, attachment, region.kept, is_comm, works)
    bursts = bursts_of(host, device, pairing, region, attachment)
    pieces = cut_host(device, options, region, waits, bursts, attachment)
    moved_ns, dropped_ns = pieces.moved_ns, pieces.dropped_ns
    parts = Parts(
        host, device, options, rank, pairing, attachment, region, groups, records, waits, bursts, pieces
    )
    draft = make_draft(parts)
    del parts, pieces  # large, and not needed to order the graph
    graph = finish(draft)
    del draft
    begin, end = matched_bounds(device, region, gpu_only=options.gpu_only)
    linked = Linked(
        graph=graph,
        host=host,
        device=device,
        pairing=pairing,
        attachment=attachment,
        active=active,
        kept=region.kept,
        thread_numbers=thread_numbers(host, device, pairing),
        waits=waits,
        bursts=bursts,
        moved_ns=moved_ns,
        gaps_dropped_ns=dropped_ns,
        groups=groups,
        first_ns=region.first,
        measured_ns=end - begin,
        steps=steps,
        whole_steps=_whole_steps(device, options, steps, active),
        warnings=list(host.warnings if host else []) + groups.warnings + records.warnings,
    )
    twice = repeated_ids(device)
    linked.warnings += twice
    launches, lost = lost_launches(device, region.first, region.last)
    linked.counts = {
        "operators": int(active.sum()),
        "device_ops_attached": int((region.device_op[region.kept] >= 0).sum()),
        "device_ops_outside_operators": region.outside_op,
        "device_ops_without_launch": region.orphans,
        "device_ops_before_window": region.early,
        "device_ops_left_out": int((~region.kept).sum()) - region.early,
        "kernel_launches": launches,
        "kernel_launches_lost": lost,
        "kinds_of_repeated_ids": len(twice),
        "communication_as_computing": sum(records.suspects.values()),
    }
    if device.dropped.get(BAD):
        linked.warnings.append(untimed_text(device.source, device.dropped[BAD]))
    if records.suspects:
        linked.warnings.append(_suspects_text(device.source, records.suspects))
    if lost:
        linked.warnings.append(lost_text(device.source, launches, lost))
    return linked


def _whole_steps(
    device: DeviceTrace, options: LinkOptions, steps: dict[int, tuple[int, int]], active: Bool
) -> int:
    """Number of the profiler's steps that are there as a whole."""
    if options.step is not None:
        return 1
    begin, end = options.window_ns or (min(device.ops.start, default=0), 1 << 62)
    starts = np.sort(device.ops.start[active])
    return sum(
        begin <= first
        and last <= end
        and bool(np.searchsorted(starts, first) < np.searchsorted(starts, last))
        for first, last in steps.values()
    )


def _suspects_text(source: str, suspects: dict[str, int]) -> str:
    """A warning that names the commonest of the kernels that look like communication."""
    names = sorted(suspects, key=lambda name: (-suspects[name], name))
    shown = ", ".join(f"{name[:60]!r} ({suspects[name]} x)" for name in names[:3])
    more = f" and {len(names) - 3} more names" if len(names) > 3 else ""
    return (
        f"{source}: kernels that look like communication are kept as computing: {shown}{more}; "
        "--comm-kernels 'PATTERN=KIND' says what they are (KIND none: computing)"
    )
