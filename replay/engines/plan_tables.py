"""Rows of collectives: plans, their variants, phases and templates. Both engines have them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.call import Uneven
from chakra.replay.collectives.plan import FLAT, Phase, Plan, Schedule
from chakra.replay.collectives.select import endpoint_delay
from chakra.replay.collectives.steps import Do
from chakra.replay.collectives.uneven import is_open, pair_bytes
from chakra.replay.config.model import KIND_NUMBERS, System
from chakra.replay.engines.kernels import layout as L
from chakra.replay.engines.kernels.packets import packet_count
from chakra.replay.engines.state import Block
from chakra.replay.options import RunOptions

#: fields of a phase's row that an engine knows better, by their offsets
Fields = Mapping[int, int]
#: what an engine adds to a row; handed on, not kept: it knows the engine's tables, which know these rows, and a circle of
#: references would keep a run's memory until the collector looks for circles
Details = Callable[[list[int], Phase, int, bool], Fields]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan that some calls have, on communicators of one shape."""

    plan: Plan
    #: whether the communicator is of all NPUs
    whole: bool
    #: streams that a chunk has: simulated members
    members: int
    #: comm_size of the calls
    size_bytes: int

    @property
    def phases(self) -> int:
        """Phases of the longest variant."""
        return max(len(variant) for variant in self.plan.variants)

    def each_phase(self) -> list[Phase]:
        """Phases of all variants and templates."""
        every = [phase for variant in self.plan.variants for phase in variant]
        return every + [phase for pair in self.plan.templates for phase in pair]


@dataclass(frozen=True, slots=True)
class StreamShape:
    """How long the row of a stream is, and what lies in it behind the fields."""

    width: int
    #: where the queues of the phases lie
    codes: int
    #: words at the end that count members
    counts: int
    #: words of an inbox
    bits: int = 0


def phase_row(phase: Phase, planned: Planned, left: int, system: System, options: RunOptions) -> list[int]:
    """What a phase is, for both engines."""
    algorithm, n = phase.algorithm, phase.size
    row = [0] * L.PHASE_ROW
    row[L.PH_VIEW] = L.FLAT if phase.view == FLAT else phase.view
    row[L.PH_DIM] = phase.dim
    row[L.PH_RULE] = int(phase.rule)
    library = algorithm.family is Family.LIBRARY  # a barrier to the kernels, with a duration
    row[L.PH_FAMILY] = int(Family.NONE if library else algorithm.family)
    row[L.PH_DO] = int(phase.do)
    row[L.PH_KIND] = KIND_NUMBERS[planned.plan.kind]
    row[L.PH_N] = n
    row[L.PH_BYTES] = phase.bytes
    row[L.PH_AS_ASTRA] = phase.as_astra
    row[L.PH_LEFT] = left
    row[L.PH_WINDOW] = algorithm.window_in(n)
    row[L.PH_CYCLE] = algorithm.cycle_in(n, sub_cluster=not planned.whole)
    row[L.PH_PACKETS] = packet_count(row[L.PH_FAMILY], row[L.PH_DO], n)
    row[L.PH_ENDPOINT] = endpoint_delay(planned.whole, system, options)
    return row


class PlanRows:
    """Adds the rows of plans to a block.

    Parameters
    ----------
    details
        Called with the row of a phase, the phase, the number of its plan and whether it is a template: the fields that
        the engine adds.
    shape
        Called with a plan: the rows of its streams.
    """

    def __init__(
        self,
        block: Block,
        planned: Sequence[Planned],
        n_dims: int,
        system: System,
        options: RunOptions,
        details: Details,
        shape: Callable[[Planned], StreamShape],
    ) -> None:
        self._block = block
        self._n_dims = n_dims
        self._system = system
        self._options = options
        self._classes: dict[tuple[int, int], int] = {}
        self._same: dict[tuple[Any, ...], int] = {}
        self._sizes: dict[tuple[Do, bool, Uneven], int] = {}
        #: words of the largest instance
        self.largest = 0
        self.shapes = [shape(item) for item in planned]
        #: fields of each plan's row that the engine may still set
        self.rows = np.zeros((len(planned), L.PLAN_ROW), np.int64)
        for k, item in enumerate(planned):
            self._fill(k, item, self.shapes[k], details)
        #: where each plan's row lies
        self.at = block.room(self.rows.size) + np.arange(len(planned)) * L.PLAN_ROW

    def numbers(self, rows: I64) -> I64:
        """Numbers of plans that are given by their rows; -1 for `NIL`."""
        first = int(self.at[0]) if len(self.at) else 0
        return np.where(rows == L.NIL, -1, (rows - first) // L.PLAN_ROW)

    def done(self) -> None:
        """Write the rows of the plans, when all is known."""
        self._block.put(int(self.at[0]) if len(self.at) else 0, self.rows)

    def _fill(self, number: int, item: Planned, shape: StreamShape, details: Details) -> None:
        plan, block, row = item.plan, self._block, self.rows[number]
        phases = [
            self._row(phase, item, number, len(variant) - k, details)
            for variant in plan.variants
            for k, phase in enumerate(variant)
        ]
        first = block.add(np.array(phases, np.int64)) if phases else 0
        at = first + L.PHASE_ROW * np.cumsum([0, *(len(v) for v in plan.variants)])[:-1]
        chunks, streams = len(plan.chunks), item.members * len(plan.chunks) * shape.width
        chosen = 0
        if plan.schedule is not Schedule.PLAN:
            chosen = chunks + (chunks * item.phases * L.PHASE_ROW if plan.templates else 0)
        row[L.P_CHUNKS] = chunks
        row[L.P_CHUNK_VARIANTS] = block.add(np.array(plan.chunks, np.int64))
        row[L.P_VARIANTS] = block.add(at.astype(np.int64))
        row[L.P_PHASES] = item.phases
        row[L.P_SCHEDULE] = plan.schedule
        row[L.P_DO] = plan.do
        row[L.P_BYTES] = sum(plan.variants[v][0].bytes for v in plan.chunks)
        row[L.P_TEMPLATES] = self._templates(item, number, details) if plan.templates else 0
        row[L.P_CHOSEN] = streams
        row[L.P_WIDTH] = shape.width
        row[L.P_CODES] = shape.codes
        row[L.P_COUNTS] = shape.counts
        row[L.P_BLOCK] = streams + chosen
        row[L.P_BITS] = shape.bits
        key = (streams + chosen, shape.width)
        if key not in self._classes:
            self._classes[key] = block.room(1)
        row[L.P_CLASS] = self._classes[key]
        self.largest = max(self.largest, streams + chosen)

    def _templates(self, item: Planned, number: int, details: Details) -> int:
        by_dim = {pair[0].dim: pair for pair in item.plan.templates}
        table = np.zeros((self._n_dims, L.TEMPLATE_ROW), np.int64)
        for dim, (scatter, gather) in by_dim.items():
            rows = [self._row(phase, item, number, 1, details, template=True) for phase in (scatter, gather)]
            at = self._block.add(np.array(rows, np.int64))
            table[dim] = (scatter.size, at, at + L.PHASE_ROW)
        return self._block.add(table)

    def _sizes_at(self, phase: Phase) -> int:
        """Where the bytes from each member to each lie; equal tables are shared."""
        assert phase.sizes is not None
        left_out = is_open(phase.algorithm, phase.size)
        key = (phase.do, left_out, phase.sizes)
        if key not in self._sizes:
            pairs = pair_bytes(phase.do, phase.sizes.sizes)
            self._sizes[key] = self._block.add(np.where(pairs == 0, -1, pairs) if left_out else pairs)
        return self._sizes[key]

    def _row(
        self,
        phase: Phase,
        item: Planned,
        number: int,
        left: int,
        details: Details,
        *,
        template: bool = False,
    ) -> list[int]:
        row = phase_row(phase, item, left, self._system, self._options)
        # distances within a dimension are the same on all its rings; a flat ring has its own
        place = number if phase.view == FLAT else item.whole
        kind = (phase.view, phase.algorithm, phase.do, phase.size, place)
        if phase.sizes is not None and phase.algorithm.family is Family.DIRECT:
            row[L.PH_SIZES] = self._sizes_at(phase)
        row[L.PH_SAME] = self._same.setdefault(kind, len(self._same) + 1)
        for field, value in details(row, phase, number, template).items():
            row[field] = value
        return row
