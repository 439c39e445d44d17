"""Where the host's time is cut: at waits for the device, at waits for threads, at launches."""

import numpy as np

from chakra.arrays import I64, distinct
from chakra.converters.pytorch.match.attach import Attachment
from chakra.converters.pytorch.match.pair import Pairing
from chakra.converters.pytorch.match.region import LinkOptions, Region
from chakra.converters.pytorch.read.device import DeviceTrace
from chakra.converters.pytorch.read.host import HostTrace
from chakra.converters.pytorch.time.host_time import (
    CUT_AFTER,
    CUT_JOIN,
    CUT_PLAIN,
    CUT_SYNC,
    Bursts,
    Pieces,
    cut_time,
    find_bursts,
    sort_cuts,
)
from chakra.converters.pytorch.time.sync import SyncEdges, classify

#: A launch is cut out of its piece when the device began this long before the piece ends.
LAUNCH_CUT_NS = 5_000


def bursts_of(
    host: HostTrace | None,
    device: DeviceTrace,
    pairing: Pairing | None,
    region: Region,
    attachment: Attachment,
) -> Bursts:
    cause = np.full(len(region.rows), -1, np.int64)
    if host is not None and pairing is not None:
        node = pairing.node[region.rows]
        forward = np.where(node >= 0, host.nodes.fw_parent[node], 0)
        rows = np.flatnonzero(forward > 0)
        ids = host.nodes.id
        at = np.minimum(np.searchsorted(ids, forward[rows]), len(ids) - 1)
        source = np.where(ids[at] == forward[rows], pairing.op[at], -1)
        cause[rows] = np.where(source >= 0, device.ops.thread[source], -1)
        # The engine's wrapper around a backward operator has no forward parent itself: take the first
        # child's.
        up = region.parent[rows]
        rows, up = rows[up >= 0], up[up >= 0]
        inherit = cause[up] < 0
        cause[up[inherit]] = cause[rows[inherit]]
    names = device.names.texts
    codes = [
        c for c in distinct(device.calls.name).tolist() if classify(names[c]) in ("device", "stream", "event")
    ]
    rows = np.flatnonzero(np.isin(device.calls.name, codes))
    return find_bursts(
        region.thread,
        region.start,
        region.end,
        region.parent,
        cause,
        (device.calls.thread[rows], device.calls.start[rows]),
    )


def cut_host(
    device: DeviceTrace,
    options: LinkOptions,
    region: Region,
    waits: SyncEdges,
    bursts: Bursts,
    attachment: Attachment,
) -> Pieces:
    calls, gpu = device.calls, device.device
    call_rows, inverse = np.unique(waits.host_call, return_inverse=True)
    until = calls.start[call_rows].copy()
    np.maximum.at(until, inverse, gpu.end[waits.host_source])
    until = np.minimum(until, calls.end[call_rows])
    none = np.full(len(bursts.first), -1, np.int64)
    row = np.arange(len(bursts.first))
    waiting = bursts.last >= 0
    launches = launch_cuts(device, region, attachment, call_rows)
    empty = np.full(len(launches[0]), -1, np.int64)
    cuts = sort_cuts(
        [
            (calls.thread[call_rows], calls.start[call_rows], until, CUT_SYNC, call_rows),
            (
                bursts.source_thread[waiting], bursts.start[waiting], bursts.waited_until[waiting], CUT_JOIN,
                row[waiting],
            ),
            (
                bursts.source_thread[~waiting], bursts.start[~waiting], bursts.start[~waiting], CUT_PLAIN,
                none[~waiting],
            ),
            (launches[0], launches[1], launches[1], CUT_PLAIN, empty),
            # Behind a wait the host works again: that is time of its own, and not what is left of the wait.
            (
                calls.thread[call_rows], calls.end[call_rows], calls.end[call_rows], CUT_AFTER,
                np.full(len(call_rows), -1, np.int64),
            ),
            (
                bursts.source_thread[waiting], bursts.waited_until[waiting], bursts.waited_until[waiting], CUT_AFTER,
                none[waiting],
            ),
        ]
    )  # fmt: skip
    skip = np.zeros(len(region.rows), np.int64)
    skip[bursts.first[bursts.first >= 0]] = 1
    return cut_time(region.thread, region.start, region.end, region.annotation, cuts, skip, options.gaps)


def launch_cuts(
    device: DeviceTrace, region: Region, attachment: Attachment, blocking: I64
) -> tuple[I64, I64]:
    """Where to cut behind launches whose device operation ran on while the same piece of host time went on.

    Without the cut the operation would wait for all of the piece in a replay. Only the first operation of a
    call matters, and only if the piece lasts clearly longer.
    """
    gpu, calls = device.device, device.calls
    rows = np.flatnonzero(region.kept & (region.launch_thread >= 0))
    rows = rows[~np.isin(attachment.call[rows], blocking)]
    if not len(rows):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    thread, launch = region.launch_thread[rows], region.launch[rows]
    at = np.minimum(calls.end[attachment.call[rows]], np.maximum(gpu.start[rows], launch))
    span = int(max(region.end.max(), launch.max())) + 2
    bounds = np.sort(np.concatenate([region.thread * span + region.start, region.thread * span + region.end]))
    following = bounds[np.minimum(np.searchsorted(bounds, thread * span + at, "right"), len(bounds) - 1)]
    left = following - (thread * span + at)
    wanted = (left > LAUNCH_CUT_NS) & (left < span) & (gpu.start[rows] - at < left)
    keys = distinct(thread[wanted] * span + at[wanted])
    return keys // span, keys % span
