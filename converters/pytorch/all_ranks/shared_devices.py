"""Ranks whose recordings show that they share one accelerator.

Neither a device number nor a device's properties tell: with ``CUDA_VISIBLE_DEVICES`` every rank of a host calls its own
accelerator 0, and so does the first rank of every host. What cannot be hidden is that an accelerator runs kernels of
several processes in turn. Ranks of one job on accelerators of their own do alike at about the same time, so that their
short kernels lie side by side more often than chance would have it; on one accelerator they never do. Long kernels say
nothing: they are recorded from their first to their last turn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, Bool, rows_by
from chakra.converters.pytorch.link import Linked
from chakra.converters.pytorch.read.device import KERNEL

#: longer kernels may be interrupted by those of another process (turns take about 2 ms)
LONGEST_NS = 1_000_000
#: kernels side by side that chance alone would give, below which nothing can be told
LEAST_EXPECTED = 8.0
#: kernels side by side, of those that chance would give, up to which they take turns
MOST_SHARE = 0.05
#: ranks so far from each other in the job's order are on other hosts
NEIGHBOURS = 64


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Short computing kernels of a rank, by the number that the rank gives to its accelerator."""

    rank: int
    #: sorted begins and ends (ns since 1970) of stretches in which kernels run
    stretches: dict[int, tuple[I64, I64]]


def device_use(linked: Linked, rank: int) -> DeviceUse:
    """When a linked rank's accelerators computed."""
    gpu, clock = linked.device.device, linked.device.first_ns
    computing: Bool = (gpu.kind == KERNEL) & (gpu.end - gpu.start < LONGEST_NS)
    rows = linked.graph.device_row[sorted(linked.graph.comm)]
    computing[rows[rows >= 0]] = False
    stretches = {}
    for device, own in rows_by(gpu.device, np.flatnonzero(computing)).items():
        stretches[device] = union(clock + gpu.start[own], clock + gpu.end[own])
    return DeviceUse(rank, stretches)


def union(begins: I64, ends: I64) -> tuple[I64, I64]:
    """Stretches that intervals, sorted by begin, cover."""
    last = np.maximum.accumulate(ends)
    new = np.concatenate(([True], begins[1:] > last[:-1]))
    return begins[new], last[np.concatenate((new[1:], [True]))]


def takes_turns(one: DeviceUse, other: DeviceUse) -> bool:
    """Whether the kernels of two ranks show that they take turns on one accelerator."""
    return any(
        _turns(one.stretches[device], other.stretches[device])
        for device in one.stretches.keys() & other.stretches.keys()
    )


def _turns(one: tuple[I64, I64], other: tuple[I64, I64]) -> bool:
    low, high = max(one[0][0], other[0][0]), min(one[1][-1], other[1][-1])
    if low >= high:
        return False
    (begins, ends), (others_begin, others_end) = _within(one, low, high), _within(other, low, high)
    # two stretches of lengths s and t, anywhere in a span w, meet with a chance of (s + t) / w
    busy, others_busy = (ends - begins).sum(), (others_end - others_begin).sum()
    expected = (len(begins) * others_busy + len(others_begin) * busy) / (high - low)
    met = np.searchsorted(others_begin, ends, "left") - np.searchsorted(others_end, begins, "right")
    return bool(expected >= LEAST_EXPECTED and met.sum() <= MOST_SHARE * expected)


def _within(stretches: tuple[I64, I64], low: int, high: int) -> tuple[I64, I64]:
    inside = (stretches[1] > low) & (stretches[0] < high)
    return stretches[0][inside], stretches[1][inside]


def neighbours(ranks: Iterable[int]) -> list[tuple[int, int]]:
    """Pairs of these ranks that may be on one host, the lower rank first."""
    ordered = sorted(ranks)
    return [
        (one, other)
        for place, one in enumerate(ordered)
        for other in ordered[place + 1 : place + 1 + NEIGHBOURS]
        if other - one <= NEIGHBOURS
    ]


def sharing(uses: Sequence[DeviceUse], pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Ranks of the first of these pairs whose members take turns, with all who share with them; empty: none."""
    by_rank = {use.rank: use for use in uses}
    found: set[int] = set()
    for one, other in sorted(set(pairs)):
        if one in by_rank and other in by_rank and takes_turns(by_rank[one], by_rank[other]):
            found |= {one, other}
    return sorted(found)
