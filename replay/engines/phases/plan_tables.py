"""Tables of the phase-level kernel: plans of collectives and their phases, one row each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.plan import FLAT, NATIVE, Phase, Plan, Schedule
from chakra.replay.collectives.select import endpoint_delay
from chakra.replay.collectives.steps import Do, Steps
from chakra.replay.config.model import KIND_NUMBERS, System
from chakra.replay.engines.kernels import phases_algorithms, phases_layout
from chakra.replay.engines.phases.communicators import ActorComm
from chakra.replay.engines.phases.durations import Durations, tree_tables
from chakra.replay.engines.state import Layout
from chakra.replay.engines.tables import concat, ints
from chakra.replay.options import RunOptions
from chakra.replay.symmetry.rings_used import ROOTED


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan that some calls have, and the communicator whose distances decide its durations."""

    plan: Plan
    comm: ActorComm
    #: comm_size of the calls
    size_bytes: int

    @property
    def phases(self) -> int:
        """Phases of the longest variant."""
        return max(len(variant) for variant in self.plan.variants)

    def block_cells(self) -> int:
        """Room that an instance needs in the pool."""
        chunks = len(self.plan.chunks)
        cells = 2 * chunks * self.phases * len(self.comm.actors)
        if self.plan.schedule is not Schedule.PLAN:
            cells += 1 + chunks
        if self.plan.templates:
            cells += chunks * self.phases * phases_layout.PH_CELLS
        return cells


class PhaseRow(NamedTuple):
    """The kernel's row of a phase; what the cells mean stands at ``PH_*`` in `phases_layout`, in the same order."""

    view: int
    dim: int
    rule: int
    alg: int
    do: int
    size: int
    window: int
    cycle: int
    endpoint: int
    tau: int
    last: int
    table: int
    kind: int
    sent: int
    left: int
    same: int


class PlanTables:
    """Rows of plans, variants, phases and templates, and the tables of trees and steps that phases point into."""

    def __init__(
        self,
        planned: Sequence[Planned],
        n_dims: int,
        durations: Durations,
        system: System,
        options: RunOptions,
    ) -> None:
        self._planned = planned
        self._n_dims = n_dims
        self._durations = durations
        self._system = system
        self._options = options
        self._rows: list[PhaseRow] = []
        self._tables: list[I64] = []
        self._table_at: dict[int, int] = {}
        self._kept: list[Steps] = []  # keys of _table_at are identities, so they must live
        self._known: dict[tuple[Any, ...], tuple[int, int, int]] = {}
        self._same: dict[tuple[Any, ...], int] = {}
        self._chunk_start = [0]
        self._variant_of: list[int] = []
        self._variant_phase: list[int] = []
        self._templates: list[int] = []
        self._template_start: list[int] = []
        for item in planned:
            self._add(item)

    @property
    def trees(self) -> I64:
        """Tables of trees and steps."""
        return np.asarray(concat(self._tables), np.int64)

    def put(self, layout: Layout) -> dict[str, int]:
        """Add the tables to the block; returns where each starts, by the names of ``PL_*``."""
        cells = phases_layout.PH_CELLS
        base = layout.put(ints(self._rows).reshape(-1))
        template = ints(self._templates)
        template[1::3] = base + cells * template[1::3]
        template[2::3] = base + cells * template[2::3]
        templates_at = layout.put(template)
        plans = [item.plan for item in self._planned]
        tables = {
            "chunks": [len(plan.chunks) for plan in plans],
            "phases": [item.phases for item in self._planned],
            "chunk_start": self._chunk_start,
            "variant": self._variant_of,
            "variant_phase": base + cells * ints(self._variant_phase),
            "block": [item.block_cells() for item in self._planned],
            "schedule": [int(plan.schedule) for plan in plans],
            "template": templates_at + ints(self._template_start),
            "kind": [int(NATIVE.get(plan.kind, Do.ALL_REDUCE)) for plan in plans],
            "bytes": [sum(plan.variants[v][0].bytes for v in plan.chunks) for plan in plans],
        }
        return {name: layout.put(ints(values)) for name, values in tables.items()}

    def _add(self, item: Planned) -> None:
        first = len(self._variant_phase)
        for variant in item.plan.variants:
            self._variant_phase.append(len(self._rows))
            self._rows += [self._row(phase, item, len(variant) - k) for k, phase in enumerate(variant)]
        self._variant_of += [first + v for v in item.plan.chunks]
        self._chunk_start.append(len(self._variant_of))
        self._template_start.append(len(self._templates))
        by_dim = {pair[0].dim: pair for pair in item.plan.templates}
        for dim in range(self._n_dims) if by_dim else ():
            at = len(self._rows)
            self._templates += [by_dim[dim][0].size if dim in by_dim else 0, at, at + 1]
            self._rows += [self._template_row(phase, item) for phase in by_dim.get(dim, ())]

    def _template_row(self, phase: Phase, item: Planned) -> PhaseRow:
        """A row that the kernel copies and gives a size: its duration is not known yet."""
        row = self._row(phase, item, 1)
        same_ends = row.tau >= 0 and phase.algorithm.family is not Family.STEPS
        return row._replace(
            sent=phase.size, tau=phases_layout.TAU_UNKNOWN if same_ends else phases_layout.TAU_DIFFERS
        )

    def _row(self, phase: Phase, item: Planned, left: int) -> PhaseRow:
        comm, size, algorithm = item.comm, phase.size, phase.algorithm
        table, window = 0, algorithm.window_in(size)
        cycle = algorithm.cycle_in(size, sub_cluster=not comm.whole)
        family = int(algorithm.family)
        if algorithm.family is Family.TREE:
            table = self._table(size, lambda: tree_tables(size))
        elif phase.do in ROOTED:
            family = phases_layout.ALG_NONE
        elif algorithm.family is Family.STEPS:
            steps = self._durations.steps(phase, comm)
            self._kept.append(steps)
            table = self._table(id(steps), lambda: np.ascontiguousarray(steps.messages.reshape(-1)))
            window, cycle = steps.whole, len(steps.messages)
        # distances within a dimension are the same on all its rings; a flat ring has its own
        place = id(comm) if phase.view == FLAT else comm.whole
        kind = (phase.view, algorithm, phase.do, size, place)
        key = (*kind, phase.bytes)
        if key not in self._known:
            self._known[key] = self._durations.of(phase, comm)
        tau, last, sent = self._known[key]
        return PhaseRow(
            view=len(comm.views) - 1 if phase.view == FLAT else phase.view,
            dim=phase.dim,
            rule=int(phase.rule),
            alg=family,
            do=int(phase.do),
            size=phase.bytes,
            window=window,
            cycle=cycle,
            endpoint=endpoint_delay(comm.whole, self._system, self._options),
            tau=tau,
            last=last,
            table=table,
            kind=KIND_NUMBERS[item.plan.kind],
            sent=sent,
            left=left,
            same=self._same.setdefault(kind, len(self._same) + 1),
        )

    def _table(self, key: int, make: Callable[[], I64]) -> int:
        """Where a table of a tree or of steps starts."""
        if key not in self._table_at:
            self._table_at[key] = sum(len(table) for table in self._tables)
            self._tables.append(make())
        return self._table_at[key]

    def scratch(self) -> tuple[int, int]:
        """Room for phases that are evaluated member by member, and for their events; as much as any can need."""
        cells, heap = 8, 2
        for item in self._planned:
            for phase in (phase for pair in item.plan.templates for phase in pair):
                cells, heap = _most((cells, heap), _template_scratch(phase))
            for phase in (phase for variant in item.plan.variants for phase in variant):
                rings = item.comm.views[-1 if phase.view == FLAT else phase.view]
                if any(len(np.unique(stand)) > 1 for _, stand in rings):
                    cells, heap = _most((cells, heap), _member_scratch(phase))
        return cells, heap


def _most(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), max(one[1], other[1])


def _template_scratch(phase: Phase) -> tuple[int, int]:
    """Cells and heap to evaluate a phase whose size is known during the run only."""
    cells, heap = _member_scratch(phase)
    if phase.algorithm.family is not Family.STEPS:
        packets = phases_algorithms.packet_count(int(phase.algorithm.family), int(phase.do), phase.size)
        window = phase.algorithm.window_in(phase.size)
        cells, heap = _most((cells, heap), (8 + packets, 3 * (2 * window + 2 * packets + 2)))
    return cells, heap


def _member_scratch(phase: Phase) -> tuple[int, int]:
    """Cells and heap to evaluate a phase whose members start or end apart."""
    n, window = phase.size, phase.algorithm.window_in(phase.size)
    in_turns = window < n - 1 or int(phase.do) == phases_layout.DO_ALL_REDUCE
    if phase.algorithm.family is not Family.DIRECT or not in_turns:
        return 4 * n, 0
    packets = phases_algorithms.packet_count(int(phase.algorithm.family), int(phase.do), n)
    return max(4 * n, 6 * n + n * packets), 3 * n * (2 * window + 2 * packets + 2)
