"""A training step of many ranks: one trace per pipeline stage, shared by all ranks of the stage."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from chakra.arguments import checked
from chakra.arrays import I32, I64
from chakra.errors import UsageError
from chakra.et import NodeType, Trace
from chakra.et.manifest import WorkloadManifest
from chakra.et.operators import BY_STREAM, COMM_ORDER, FRAMEWORK, PART, STAGE
from chakra.generate.model.ir import Layer
from chakra.generate.model.stage_model import StageModel
from chakra.generate.parallel import ParallelConfig, RankLayout
from chakra.generate.plan.options import TrainingOptions, Zero
from chakra.generate.plan.stages import EMBEDDING_GROUP, MIRROR_GROUP, StageBuilder
from chakra.generate.plan.stamp import Stamp, TraceFacts, stamp_trace
from chakra.generate.plan.template import CACHE_GROUP, TOKEN_GROUP, EmitOptions, Stream, Template
from chakra.generate.schedule.pipeline import (
    Action,
    Phase,
    Schedule,
    ScheduleKind,
    build_schedule,
    placed,
    read_schedule,
)
from chakra.io.limits import MAX_GENERATED_PASSES
from chakra.io.readable import counted


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Templates of one stage and the order in which they are stamped, for some of its ranks or (None) for all.

    ``position`` is the expert-parallel position of the ranks, where positions differ; ``working_bytes`` the largest
    result of an operator that runs in any step of inference; ``unscattered_bytes`` the gradients that are whole at once
    before ZeRO 2 or 3 scatters them.
    """

    stage: int
    templates: tuple[Template, ...]
    stamps: tuple[Stamp, ...]
    ranks: tuple[int, ...] | None = None
    position: int | None = None
    working_bytes: int = 0
    unscattered_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A whole step before it becomes traces: what summaries, checks and the memory model read.

    Attributes
    ----------
    parallel
        Parallel degrees and rank order.
    model
        Layers of each pipeline stage.
    schedule
        Actions of each stage in order.
    training
        Options of the step.
    stages
        What each stage computes and communicates.
    about
        What the manifest says of the workload.
    name
        Which part of the workload this is, where it has several.
    beside
        Further parts, on ranks behind these.
    positions
        Models of the expert-parallel positions, where experts are not visited evenly.
    """

    parallel: ParallelConfig
    model: StageModel
    schedule: Schedule
    training: TrainingOptions
    stages: tuple[StagePlan, ...]
    about: Mapping[str, object] = field(default_factory=dict)
    name: str = ""
    beside: tuple["StepPlan", ...] = ()
    positions: tuple[StageModel, ...] = ()

    @property
    def parts(self) -> tuple["StepPlan", ...]:
        """This part and those beside it."""
        return (self, *self.beside)

    @property
    def world(self) -> int:
        """Ranks of all parts."""
        return sum(part.parallel.world for part in self.parts)

    @checked
    def chunks_of(self, stage: StagePlan) -> tuple[tuple[Layer, ...], ...]:
        """Layers of a stage by chunk, as the ranks of a stage plan compute them."""
        return self.layers_of(stage.stage, stage.position)

    @checked
    def layers_of(self, stage: int, position: int | None = None) -> tuple[tuple[Layer, ...], ...]:
        """Layers of a pipeline stage by chunk (of an expert-parallel position of it)."""
        model = self.model if position is None else self.positions[position]
        placement = placed(self.training.schedule, self.parallel.pp, self.parallel.vp)
        return placement.layers(model.chunks, stage)

    @checked
    def ranks_of(self, stage: StagePlan) -> int:
        """How many ranks of this part do what a stage plan says."""
        return self.parallel.world // self.parallel.pp if stage.ranks is None else len(stage.ranks)


def plan_schedule(training: TrainingOptions, parallel: ParallelConfig) -> Schedule:
    """The schedule that the options ask for.

    Raises
    ------
    UsageError
        Sizes that the schedule does not allow.
    ConfigError
        A schedule file that is wrong.
    """
    check_passes(2 * parallel.pp * parallel.vp * training.passes)
    if training.schedule is ScheduleKind.DUALPIPE:
        _check_dualpipe(training, parallel)
    if training.schedule is ScheduleKind.DUALPIPEV and training.zero > Zero.OPTIMIZER:
        raise UsageError(
            "dualpipev: gathers and reductions of each micro-batch would stand between the exchanges of a forward and a "
            "backward beside each other: zero must be 0 or 1"
        )
    if training.paired and training.zero > Zero.OPTIMIZER:
        raise UsageError(
            "paired: gathers and reductions of each micro-batch would stand between the exchanges of a forward and a "
            "backward beside each other: zero must be 0 or 1"
        )
    if training.schedule_file and training.paired:
        raise UsageError(
            "paired changes a built-in schedule: a schedule file says itself which passes go beside each other"
        )
    if training.schedule_file:
        placement = placed(training.schedule, parallel.pp, parallel.vp)
        return read_schedule(
            training.schedule_file, parallel.pp, training.micro_batches, parallel.vp, placement
        )
    return build_schedule(
        training.schedule, parallel.pp, training.micro_batches, parallel.vp, paired=training.paired
    )


def _check_dualpipe(training: TrainingOptions, parallel: ParallelConfig) -> None:
    """Refuse what does not go with micro-batches from both ends."""
    if parallel.pp % 2 or training.micro_batches % 2:
        raise UsageError(
            f"dualpipe needs even numbers of stages and micro-batches, not {parallel.pp} and {training.micro_batches}"
        )
    if training.zero > Zero.OPTIMIZER:
        raise UsageError(
            "dualpipe: two stages hold the same weights and reduce their gradients once a step: zero must be 0 or 1"
        )
    if parallel.vp > 1:
        raise UsageError("dualpipe has two chunks on each stage already: vp must be 1")


def check_passes(count: int) -> None:
    """Refuse a workload of more passes than are generated, before they are listed.

    Raises
    ------
    UsageError
        More than `MAX_GENERATED_PASSES`.
    """
    if count > MAX_GENERATED_PASSES:
        raise UsageError(
            f"{counted(count, 'pass')} (stages x micro-batches x phases or decode steps); at most "
            f"{MAX_GENERATED_PASSES} are "
            "generated"
        )


def plan_step(
    model: StageModel,
    parallel: ParallelConfig,
    training: TrainingOptions,
    emit: EmitOptions,
    about: Mapping[str, object] | None = None,
    positions: Sequence[StageModel] = (),
) -> StepPlan:
    """Templates and stamps of every stage, or of every expert-parallel position of it where ``positions`` are given.

    Raises
    ------
    UsageError
        A model that is not cut into pp x vp chunks, or sizes that do not divide.
    """
    placement = placed(training.schedule, parallel.pp, parallel.vp)
    if len(placement.routes) > 1 and any(layer.opens for chunk in model.chunks for layer in chunk):
        raise UsageError(
            "dualpipe: an encoder and what is behind it take different times, and each stage would hold both: take "
            "another schedule"
        )
    if len(model.chunks) != parallel.pp * parallel.vp:
        raise UsageError(
            f"{counted(len(model.chunks), 'model chunk')} for pp*vp = {parallel.pp * parallel.vp}"
        )
    schedule = plan_schedule(training, parallel)
    stages = []
    for stage, row in enumerate(schedule):
        for position, ranks in stage_ranks(parallel, stage, positions):
            one = model if position is None else positions[position]
            builder = StageBuilder(stage, parallel, one, training, emit, placement)
            stamps = _stamps(builder, row)
            tail = builder.tail()
            if tail is not None:
                stamps.append(Stamp(tail))
            stamps = [
                stamp for step in range(training.iterations) for stamp in _of_step(stamps, step, training)
            ]
            stages.append(
                StagePlan(
                    stage, tuple(builder.templates), tuple(stamps), ranks, position,
                    unscattered_bytes=builder.unscattered_bytes(),
                )
            )  # fmt: skip
    return StepPlan(
        parallel, model, schedule, training, tuple(stages), about or {}, positions=tuple(positions)
    )


def stage_ranks(
    parallel: ParallelConfig, stage: int, positions: Sequence[StageModel]
) -> Iterator[tuple[int | None, tuple[int, ...] | None]]:
    """The expert-parallel positions of a stage with their ranks, where they differ; else all ranks (None, None)."""
    if not positions:
        yield None, None
        return
    coordinates = RankLayout(parallel).coordinates
    of_stage = coordinates["pp"] == stage
    for position in range(parallel.ep):
        yield position, tuple(np.flatnonzero(of_stage & (coordinates["ep"] == position)).tolist())


def _of_step(
    stamps: Sequence[Stamp], step: int, training: TrainingOptions, before: int | None = None
) -> Sequence[Stamp]:
    """The stamps of a step among several: micro-batches are numbered on, and labels say the step."""
    if training.iterations == 1:
        return stamps
    if before is None:
        before = step * len(stamps)
    return [
        replace(
            stamp,
            micro_batch=step * training.micro_batches + stamp.micro_batch,
            label=f"step{step}.{stamp.label}".rstrip("."),
            forward=stamp.forward if stamp.forward < 0 else before + stamp.forward,
            input=stamp.input if stamp.input < 0 else before + stamp.input,
            posted=stamp.posted if stamp.posted < 0 else before + stamp.posted,
            second=_of_step([stamp.second], step, training, before)[0] if stamp.second else None,
        )
        for stamp in stamps
    ]


def _stamps(builder: StageBuilder, row: Iterable[Action]) -> list[Stamp]:
    row = list(row)
    last = {}
    for i, action in enumerate(row):
        if action.phase in (Phase.BACKWARD, Phase.WEIGHT):
            last[action.chunk] = i
    always = builder.reduces_every_micro_batch()
    # two actions beside each other are one stamp; without overlap they are two
    beside = not builder.emit.blocks(Stream.LAYER)
    position: dict[Action, int] = {}
    count = 0
    for i, action in enumerate(row):
        joins = beside and i > 0 and row[i - 1].beside
        count += not joins
        position[action] = count - 1
    # the last pass of each chunk forward and backward: behind it the next one's message is awaited
    before: dict[tuple[bool, int], int] = {}
    several = len(builder.chunks) > 1
    stamps: list[Stamp] = []
    for i, action in enumerate(row):
        m, c = action.micro_batch, action.chunk
        chunk = f".{c}" if several else ""
        forward = position.get(Action(Phase.FORWARD, m, c), -1) if action.phase is not Phase.FORWARD else -1
        sync = always or last.get(c) == i
        way = action.phase is Phase.FORWARD, c
        stamp = Stamp(
            -1,
            micro_batch=m,
            label=f"{action.phase}{m}{chunk}",
            forward=forward,
            input=position.get(Action(Phase.INPUT, m, c), -1) if action.phase is Phase.WEIGHT else -1,
            posted=before.get(way, -1),
        )
        if action.phase is not Phase.WEIGHT:
            before[way] = position[action]
        if position[action] < len(stamps):
            pair = builder.pair(row[i - 1], action, sync=sync)
            stamps[-1] = replace(stamps[-1], template=pair, second=stamp)
        else:
            stamps.append(replace(stamp, template=builder.template(action, sync=sync)))
    return stamps


def group_tables(layout: RankLayout, names: Iterable[str], tied_stages: Sequence[int] = ()) -> dict[str, I32]:
    """Tables of the symbolic groups that traces use: products of axes joined by ``_``, and ``embed`` of some stages."""
    tables = {}
    for name in sorted(set(names)):
        if name == MIRROR_GROUP:
            stages = layout.table(["pp"])
            half = stages.shape[1] // 2
            pairs = np.stack([stages[:, :half], stages[:, ::-1][:, :half]], axis=2)
            tables[name] = np.ascontiguousarray(pairs.reshape(-1, 2))
        elif name == EMBEDDING_GROUP:
            tables[name] = np.ascontiguousarray(layout.table(["pp"])[:, list(tied_stages)])
        else:
            tables[name] = layout.table(name.split("_"))
    return tables


@checked
def build_workload(
    plan: StepPlan,
    *,
    tensors: bool = False,
    names: bool = True,
    metadata: Mapping[str, str | int] | None = None,
) -> WorkloadManifest:
    """Traces, ranks and groups of a planned step.

    Parameters
    ----------
    plan
        From :func:`plan_step` or an inference plan.
    tensors
        Write activations as ``inputs`` and ``outputs`` for memory trackers.
    names
        Put the micro-batch before node names (``F3 layer0.qkv``).
    metadata
        Facts for every trace's first record.
    """
    parameters = plan.about.get("parameters")
    if isinstance(parameters, Mapping):
        metadata = dict(metadata or {})
        if parameters.get("framework"):
            # a replay takes the framework's operator times
            metadata[FRAMEWORK] = str(parameters["framework"])
        if parameters.get("comm_order") == BY_STREAM:
            # where a library gives collectives their times, those of several streams run side by side
            metadata[COMM_ORDER] = BY_STREAM
    trace_of = np.empty(plan.world, dtype=np.int32)
    traces: list[Trace] = []
    groups: dict[str, I32] = {}
    first = 0
    for part in plan.parts:
        layout = RankLayout(part.parallel)
        stage_of = layout.stage_of()
        facts = {**(metadata or {}), **({PART: part.name} if part.name else {})}
        prefix = f"{part.name}." if first else ""
        used: set[str] = set()
        for stage in part.stages:
            ranks = np.flatnonzero(stage_of == stage.stage)
            if stage.ranks is not None:
                ranks = np.array(stage.ranks, dtype=np.int64)
            for members, peers in _peer_classes(layout, stage, ranks):
                said = TraceFacts({**facts, STAGE: stage.stage}, tensors, names, peers, prefix)
                trace_of[first + members] = len(traces)
                traces.append(stamp_trace(stage.templates, stage.stamps, said, f"<stage {stage.stage}>"))
            used.update(name.removeprefix(prefix) for name in traces[-1].pg_table)
        tables = group_tables(layout, used, part.model.tied_stages(part.parallel.pp))
        groups |= {prefix + name: table + first for name, table in tables.items()}
        first += part.parallel.world
    return WorkloadManifest(plan.world, tuple(traces), trace_of, groups, about=dict(plan.about))


def _peer_classes(
    layout: RankLayout, stage: StagePlan, ranks: I64
) -> Iterator[tuple[I64, dict[tuple[str, int], int]]]:
    """Ranks of a stage by the distances to their peers (ring exchanges wrap round at the ends), with those distances."""
    channels = sorted(
        {
            (group, offset)
            for t in stage.templates
            for node_type, group, offset in zip(t.types, t.groups, t.offsets, strict=True)
            if node_type in (NodeType.COMM_SEND, NodeType.COMM_RECV) and group
        }
    )
    known: dict[tuple[str, int], I64] = {}
    which = np.zeros(len(ranks), np.int64)
    for channel in channels:
        if channel[0] in (CACHE_GROUP, TOKEN_GROUP):
            known[channel] = np.full(len(ranks), channel[1], np.int64)
            continue
        known[channel] = layout.distances([channel[0]], channel[1])[ranks]
        values, place = np.unique(known[channel], return_inverse=True)
        if len(values) > 1:  # numbered anew, so that products stay small
            which = np.unique(which * len(values) + place, return_inverse=True)[1]
    _, firsts = np.unique(which, return_index=True)
    for number, first in enumerate(firsts.tolist()):
        yield ranks[which == number], {channel: int(known[channel][first]) for channel in channels}
