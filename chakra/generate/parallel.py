"""Parallel degrees, the order of ranks, and the groups that follow from both.

Axes: ``tp`` tensor, ``cp`` context, ``ep`` expert, ``dp`` data, ``pp`` pipeline. The world has tp*cp*dp*pp ranks; the
expert axis cuts the cp x dp plane (as Megatron-LM does), so ep divides cp*dp and expert gradients are reduced over
``edp``, the cp*dp/ep ranks that hold the same experts.

Hybrid sharding cuts dp into ``sdp``, neighbours that shard one copy of the model between them (with cp), and ``rdp``, the
copies. Experts are spread within a copy: ``esdp`` are the ranks of one copy that hold the same experts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from chakra.arrays import I32, I64
from chakra.errors import UsageError
from chakra.io.limits import MAX_GENERATED_NPUS
from chakra.io.readable import counted

AXES = ("tp", "cp", "ep", "dp", "pp")
#: Megatron-LM's default: first is fastest in the rank number
DEFAULT_ORDER = "tp-cp-ep-dp-pp"


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """Degrees of parallelism and the order of ranks.

    ``order`` names all five axes, fastest in the rank number first; where ``ep`` stands relative to ``dp`` decides
    whether experts are spread over neighbouring or distant ranks of the cp x dp plane. ``shard`` is the number of
    data-parallel ranks that shard one copy of the model between them (hybrid sharding), a divisor of dp; None: all.
    """

    tp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1
    vp: int = 1
    order: str = DEFAULT_ORDER
    shard: int | None = None

    def __post_init__(self) -> None:
        for axis in (*AXES, "vp"):
            if getattr(self, axis) < 1:
                raise UsageError(f"{axis} must be at least 1, not {getattr(self, axis)}")
        if self.world > MAX_GENERATED_NPUS:
            raise UsageError(
                f"tp*cp*dp*pp = {counted(self.world, 'NPU')}; at most {MAX_GENERATED_NPUS} are generated"
            )
        names = self.order.split("-")
        if sorted(names) != sorted(AXES):
            raise UsageError(
                f"rank order {self.order!r} must name each of {', '.join(AXES)} once, joined by '-'"
            )
        if (self.cp * self.dp) % self.ep:
            raise UsageError(f"expert parallel degree ep={self.ep} must divide cp*dp={self.cp * self.dp}")
        if self.shard is not None and (self.shard < 1 or self.dp % self.shard):
            raise UsageError(f"shard must be a divisor of dp ({self.dp}), not {self.shard}")
        if (self.cp * self.sdp) % self.ep:
            raise UsageError(
                f"experts are spread within a copy of the model: ep={self.ep} must divide cp*shard={self.cp * self.sdp}"
            )
        if self.vp > 1 and self.pp == 1:
            raise UsageError(f"virtual stages (vp={self.vp}) need a pipeline (pp > 1)")

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def edp(self) -> int:
        """Ranks that hold the same experts (at equal tp and pp)."""
        return self.cp * self.dp // self.ep

    @property
    def sdp(self) -> int:
        """Data-parallel ranks that shard one copy of the model between them."""
        return self.dp if self.shard is None else self.shard

    @property
    def rdp(self) -> int:
        """Copies of the model."""
        return self.dp // self.sdp

    @property
    def esdp(self) -> int:
        """Ranks of one copy that hold the same experts (at equal tp and pp)."""
        return self.cp * self.sdp // self.ep

    def sharding(self, axes: Sequence[str]) -> tuple[str, ...]:
        """Axes of more than one rank over which weights are sharded that lie on all ranks of ``axes``."""
        inner = {"dp": "sdp", "edp": "esdp"} if self.rdp > 1 else {}
        return tuple(axis for axis in (inner.get(axis, axis) for axis in axes) if self.axis_sizes[axis] > 1)

    def copies(self, axes: Sequence[str]) -> tuple[str, ...]:
        """Axes of more than one rank across which shards of weights are copied that lie on all ranks of ``axes``."""
        return ("rdp",) if self.rdp > 1 and axes else ()

    @property
    def axis_sizes(self) -> dict[str, int]:
        """Ranks per axis, expert axes included."""
        return {
            "tp": self.tp,
            "cp": self.cp,
            "dp": self.dp,
            "pp": self.pp,
            "ep": self.ep,
            "edp": self.edp,
            "sdp": self.sdp,
            "rdp": self.rdp,
            "esdp": self.esdp,
        }

    def size(self, axes: Sequence[str]) -> int:
        """Ranks of the product of some axes."""
        return prod(self.axis_sizes[axis] for axis in axes)


class RankLayout:
    """Coordinates of every rank and the group tables of any product of axes."""

    def __init__(self, config: ParallelConfig) -> None:
        self.config = config
        self._tables: dict[tuple[str, ...], I32] = {}

    @cached_property
    def coordinates(self) -> dict[str, I64]:
        """Coordinate of every rank on every axis; ``ep`` and ``esdp`` number the cp x sdp plane of a copy."""
        config = self.config
        ranks = np.arange(config.world, dtype=np.int64)
        out: dict[str, I64] = {}
        plane = np.zeros_like(ranks)
        plane_stride = 1
        stride = 1
        order = config.order.split("-")
        for axis in order:
            if axis == "ep":
                continue
            size = config.axis_sizes[axis]
            out[axis] = ranks // stride % size
            stride *= size
            if axis in ("cp", "dp"):
                inside = config.sdp if axis == "dp" else size
                plane += out[axis] % inside * plane_stride
                plane_stride *= inside
        out["sdp"], out["rdp"] = out["dp"] % config.sdp, out["dp"] // config.sdp
        if order.index("ep") < order.index("dp"):
            out["ep"], out["esdp"] = plane % config.ep, plane // config.ep
        else:
            out["esdp"], out["ep"] = plane % config.esdp, plane // config.esdp
        out["edp"] = out["esdp"] + config.esdp * out["rdp"]
        return out

    def table(self, axes: Sequence[str]) -> I32:
        """Groups of a product of axes.

        Parameters
        ----------
        axes
            Axes that vary inside a group: of the dense view (tp, cp, dp, pp), where dp may be cut in sdp and rdp, or of
            the expert view (tp, ep, edp, pp), where edp may be cut in esdp and rdp.

        Returns
        -------
        (n_groups, size) int32
            Members ascending by their coordinates (the first axis of the rank order fastest); groups by first member.
            Read only: every call gets the same array.
        """
        if tuple(axes) not in self._tables:
            self._tables[tuple(axes)] = self._table(axes)
        return self._tables[tuple(axes)]

    def distances(self, axes: Sequence[str], offset: int) -> I64:
        """How much higher the rank is that lies `offset` places further on in each rank's group, round the end."""
        table = self.table(axes)
        distances = np.empty(self.config.world, dtype=np.int64)
        distances[table] = np.roll(table, -offset, axis=1) - table
        return distances

    def _table(self, axes: Sequence[str]) -> I32:
        dense: tuple[str, ...] = ("dp",)
        expert: tuple[str, ...] = ("edp",)
        if {"sdp", "rdp", "esdp"} & set(axes):
            dense, expert = ("sdp", "rdp"), ("esdp", "rdp")
        spread = {"ep", "edp", "esdp"} & set(axes)
        view = ("tp", "ep", *expert, "pp") if spread else ("tp", "cp", *dense, "pp")
        coordinates = self.coordinates
        # ranks of one group share all coordinates that are not in `axes`; inside, positions follow the rank number
        key = np.zeros(self.config.world, dtype=np.int64)
        for axis in view:
            if axis not in axes:
                key = key * self.config.axis_sizes[axis] + coordinates[axis]
        groups = np.argsort(key, kind="stable").reshape(-1, self.config.size(axes))
        table: I32 = groups[np.argsort(groups[:, 0], kind="stable")].astype(np.int32)
        table.flags.writeable = False
        return table

    def stage_of(self) -> I32:
        """Pipeline stage of every rank."""
        return self.coordinates["pp"].astype(np.int32)
