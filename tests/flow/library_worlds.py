"""Machines with a collective library over switches, and jobs of its collectives, made for tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from chakra.builder import Handle, TraceBuilder, Workload
from chakra.platforms.direct import Torus
from chakra.platforms.fabric import Fabric, Inside, Shape
from chakra.replay.config import load_network
from chakra.replay.config.model import Network, Topology

SYSTEM: dict[str, Any] = {
    "collective-library": "nccl",
    "collective-costs": "hgx-h100",
    "endpoint-delay": 10,
} | {
    f"{kind}-implementation": ["ring"]
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
}


def machines(
    count: int, ports: int, shape: Shape, *, over: float = 1.0, spray: bool = True, spread: bool = False
) -> Network:
    """HGX machines of eight over switches, link by link; in a torus of two rows, if they are as many, and else of one."""
    sides: tuple[int, ...] = ()
    if shape is Shape.TORUS:
        sides = (count // 2, 2) if count % 2 == 0 else (count,)
        over, spread, ports = 1.0, False, Torus(sides).links_each
    elif shape is Shape.RAIL_ONLY:
        over, spread = 1.0, False
    elif shape is Shape.DRAGONFLY:  # a machine at a router of 32 ports
        over, ports = 1.0, max(ports, 32)
    elif shape is Shape.FAT_TREE and 8 * count <= ports:  # one switch
        over = 1.0
    fabric = Fabric(shape, ports, over, spread, spray, sides=sides)
    inside = [Inside(Topology.SWITCH, 8, 419.095159, 936.25)]
    return load_network(fabric.network(inside, count, rate_gibps=46.566129, latency_ns=1000.0))


def strided(npus: int, size: int, stride: int) -> list[list[int]]:
    """All NPUs, in groups of neighbours `stride` apart."""
    grid = np.arange(npus).reshape(-1, size, stride)
    return [grid[i, :, j].tolist() for i in range(len(grid)) for j in range(stride)]


def job(
    npus: int, calls: Sequence[tuple[str, int, list[list[int]] | None]], *, overlap: bool = False
) -> Workload:
    """Collectives one after the other, each in groups or of all; with `overlap` beside computing."""
    workload = Workload(npus)
    names: list[dict[int, str]] = []
    known: dict[str, dict[int, str]] = {"None": {}}
    for _, _, groups in calls:
        if str(groups) not in known:
            of_groups = [workload.add_group(ranks) for ranks in groups or []]
            known[str(groups)] = {
                rank: name for ranks, name in zip(groups or [], of_groups, strict=True) for rank in ranks
            }
        names.append(known[str(groups)])

    def program(b: TraceBuilder) -> None:
        last: list[Handle] = [b.compute(duration_micros=5)]
        for (kind, size, groups), name in zip(calls, names, strict=True):
            if groups is not None and b.rank not in name:
                continue
            if overlap:
                b.compute(duration_micros=30, after=last)
            last = [b.collective(kind, size_bytes=size, group=name.get(b.rank), after=last)]

    workload.run(program)
    return workload
