"""Pipeline schedules: the explicit order in which each stage works on its micro-batches.

A schedule is one list of :class:`Action` per pipeline stage. It becomes control dependencies in the trace, so that
every simulator runs the same order. Times are integers of any unit; the generator uses nanoseconds.

Sources: GPipe (Huang et al. 2019), 1F1B (PipeDream-flush; Narayanan et al. 2021, arXiv 2104.04473, sections 2.2 and
2.3 for the interleaved form), zero bubble (Qi et al. 2024, arXiv 2401.10241, figures 2 and 3), DualPipe (DeepSeek-AI
2024, arXiv 2412.19437, section 3.2.1) and DualPipeV (cut in half, as the DualPipe repository has it).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeVar

from chakra.errors import ConfigError, UsageError
from chakra.io.digits import is_whole, whole_number
from chakra.io.files import read_bytes
from chakra.io.readable import counted

PartT = TypeVar("PartT")


class Phase(StrEnum):
    """What an action computes."""

    FORWARD = "F"
    #: whole backward pass: gradients of inputs and of weights
    BACKWARD = "B"
    #: gradients of inputs only
    INPUT = "I"
    #: gradients of weights only
    WEIGHT = "W"


class ScheduleKind(StrEnum):
    """Names of the built-in schedules as the command line takes them."""

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    ZB_H1 = "zb-h1"
    ZB_H2 = "zb-h2"
    DUALPIPE = "dualpipe"
    DUALPIPEV = "dualpipev"


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """One stage working on one micro-batch of one of its model chunks.

    ``beside`` says that the communication of this action and of the one after it goes on beside each other's computation.
    """

    phase: Phase
    micro_batch: int
    chunk: int = 0
    beside: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.phase}{self.micro_batch}" + (f".{self.chunk}" if self.chunk else "")


#: one list of actions per stage
Schedule = tuple[tuple[Action, ...], ...]


@dataclass(frozen=True)
class Placement:
    """Where the parts of the model lie: the ways that micro-batches take through stages and their chunks.

    ``routes`` are those ways: (stage, chunk) of each part in order. With several, each takes an equal run of the
    micro-batches and has all parts, so that as many copies of every part exist.
    """

    routes: tuple[tuple[tuple[int, int], ...], ...]

    @cached_property
    def chunks(self) -> int:
        """Chunks of each stage."""
        return 1 + max(chunk for route in self.routes for _, chunk in route)

    def find(self, stage: int, chunk: int) -> tuple[int, int]:
        """Route and part of a chunk."""
        return self._places[stage, chunk]

    @cached_property
    def _places(self) -> dict[tuple[int, int], tuple[int, int]]:
        return {
            place: (number, part)
            for number, route in enumerate(self.routes)
            for part, place in enumerate(route)
        }

    def layers(self, parts: Sequence[PartT], stage: int) -> tuple[PartT, ...]:
        """What a stage has of the ``parts`` of a model, by chunk."""
        return tuple(parts[self.find(stage, chunk)[1]] for chunk in range(self.chunks))

    def beyond(self, stage: int, chunk: int, step: int) -> tuple[int, int] | None:
        """Stage and chunk of the part after (1) or before (-1) that of a chunk; None at the ends of the model."""
        route, part = self.find(stage, chunk)
        other = part + step
        return self.routes[route][other] if 0 <= other < len(self.routes[route]) else None

    def micro_batches(self, route: int, micro_batches: int) -> range:
        """Numbers of the micro-batches that take a route."""
        each = micro_batches // len(self.routes)
        return range(route * each, (route + 1) * each)


@lru_cache(maxsize=64)
def placed(kind: ScheduleKind, stages: int, chunks: int = 1) -> Placement:
    """The placement that a schedule works on.

    Chunks of virtual stages follow each other round the pipeline; with DualPipe stage p has parts p and P-1-p, for
    micro-batches from both ends; with DualPipeV parts p and 2P-1-p, for micro-batches that go there and back.
    """
    if kind is ScheduleKind.DUALPIPE:
        down = tuple((stage, 0) for stage in range(stages))
        up = tuple((stage, 1) for stage in reversed(range(stages)))
        return Placement((down, up))
    if kind is ScheduleKind.DUALPIPEV:
        there = tuple((stage, 0) for stage in range(stages))
        back = tuple((stage, 1) for stage in reversed(range(stages)))
        return Placement((there + back,))
    return Placement((tuple((stage, chunk) for chunk in range(chunks) for stage in range(stages)),))


@dataclass(frozen=True, slots=True)
class ActionTimes:
    """Duration of each phase on one chunk; the whole backward takes ``input + weight``."""

    forward: int
    input: int
    weight: int

    def of(self, phase: Phase) -> int:
        """Duration of one action of this phase."""
        if phase is Phase.FORWARD:
            return self.forward
        if phase is Phase.INPUT:
            return self.input
        if phase is Phase.WEIGHT:
            return self.weight
        return self.input + self.weight


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """Outcome of running a schedule without communication.

    ``start`` and ``end`` hold each stage's first start and last end, ``busy`` its total work, ``in_flight`` the largest
    number of (micro-batch, chunk) pairs whose activations it holds at once.
    """

    start: tuple[int, ...]
    end: tuple[int, ...]
    busy: tuple[int, ...]
    in_flight: tuple[int, ...]

    @property
    def makespan(self) -> int:
        """Time from the first start to the last end over all stages."""
        return max(self.end) - min(self.start)

    @property
    def longest_bubble(self) -> int:
        """Largest idle time that a stage has between its own first start and last end."""
        spans = zip(self.start, self.end, self.busy, strict=True)
        return max(end - start - busy for start, end, busy in spans)


def _gpipe(stages: int, micro_batches: int) -> Schedule:
    forwards = tuple(Action(Phase.FORWARD, m) for m in range(micro_batches))
    backwards = tuple(Action(Phase.BACKWARD, m) for m in range(micro_batches))
    return tuple(forwards + backwards for _ in range(stages))


def _one_f_one_b(stages: int, micro_batches: int, *, paired: bool) -> Schedule:
    rows = []
    for stage in range(stages):
        # beside each other are passes that do not wait for each other: one forward more goes ahead
        warm_up = min(micro_batches, stages - 1 - stage + paired)
        row = [Action(Phase.FORWARD, m) for m in range(warm_up)]
        for m in range(micro_batches - warm_up):
            row += [Action(Phase.FORWARD, m + warm_up, beside=paired), Action(Phase.BACKWARD, m)]
        row += [Action(Phase.BACKWARD, m) for m in range(micro_batches - warm_up, micro_batches)]
        rows.append(tuple(row))
    return tuple(rows)


def _interleaved(stages: int, micro_batches: int, chunks: int, *, paired: bool) -> Schedule:
    if micro_batches % stages:
        raise UsageError(
            f"the interleaved schedule needs micro-batches ({micro_batches}) to be a multiple of the pipeline size "
            f"({stages})"
        )
    total = micro_batches * chunks

    def action(k: int, phase: Phase) -> Action:
        # groups of `stages` micro-batches pass through chunk 0, then chunk 1, ...; backwards in reverse
        group, within = divmod(k, stages * chunks)
        chunk, offset = divmod(within, stages)
        if phase is Phase.BACKWARD:
            chunk = chunks - 1 - chunk
        return Action(phase, group * stages + offset, chunk)

    rows = []
    for stage in range(stages):
        warm_up = total
        if micro_batches > stages:
            warm_up = min(total, (stages - 1 - stage) * 2 + (chunks - 1) * stages + paired)
        row = [action(k, Phase.FORWARD) for k in range(warm_up)]
        for k in range(total - warm_up):
            row += [replace(action(k + warm_up, Phase.FORWARD), beside=paired), action(k, Phase.BACKWARD)]
        row += [action(k, Phase.BACKWARD) for k in range(total - warm_up, total)]
        rows.append(tuple(row))
    return tuple(rows)


def _zero_bubble(stages: int, micro_batches: int, *, deep: bool) -> Schedule:
    """ZB-H1 (``deep`` false: memory of 1F1B) or ZB-H2 (about twice that, no bubble when all phases take equally long).

    Weight gradients of stage r lag r micro-batches behind the input gradients (H2: 2r); this fills the end of the
    pipeline with work, as in figures 2 and 3 of the paper.
    """
    rows = []
    for stage in range(stages):
        ahead = stages - 1 - stage
        warm_up = min(micro_batches, 2 * ahead if deep else ahead)
        lag = 2 * stage if deep else stage
        row = [Action(Phase.FORWARD, m) for m in range(warm_up)]
        next_forward, next_weight = warm_up, 0
        for m in range(micro_batches):
            if next_forward < micro_batches:
                row.append(Action(Phase.FORWARD, next_forward))
                next_forward += 1
            row.append(Action(Phase.INPUT, m))
            if m >= lag:
                row.append(Action(Phase.WEIGHT, next_weight))
                next_weight += 1
        row += [Action(Phase.WEIGHT, m) for m in range(next_weight, micro_batches)]
        rows.append(tuple(row))
    return tuple(rows)


def _dualpipe(stages: int, micro_batches: int) -> Schedule:
    """Micro-batches from both ends, half of them each; forward of one way beside backward of the other where they meet.

    A stage's way 0 is the one that begins nearer to it. The eight steps are those of the published schedule.
    """
    if stages % 2 or micro_batches % 2 or micro_batches < 2 * stages:
        raise UsageError(
            "dualpipe needs an even number of stages and of micro-batches, and at least two micro-batches for each stage:"
            f" not {stages} and {micro_batches}"
        )
    half = micro_batches // 2
    return tuple(
        _DualRow(min(stage, stages - 1 - stage), stages // 2, half, (half, stage >= stages // 2)).row()
        for stage in range(stages)
    )


def _dualpipev(stages: int, micro_batches: int) -> Schedule:
    """The first half of a DualPipe of 2P stages: what its other half would send comes from the stage's own chunks."""
    if micro_batches < 2 * stages:
        raise UsageError(
            "dualpipev needs at least two micro-batches for each stage: not "
            f"{micro_batches} for {stages} stages"
        )
    return tuple(_DualRow(stage, stages, micro_batches, (0, False)).row() for stage in range(stages))


class _DualRow:
    """One stage's actions of DualPipe.

    ``far`` are the stages between this one and its end of the pipeline, of ``deep`` before the middle; each way has
    ``each`` micro-batches. ``way`` is the number of the first micro-batch of the second way, and whether the way that
    begins nearer to this stage is the second.
    """

    def __init__(self, far: int, deep: int, each: int, way: tuple[int, bool]) -> None:
        self.far, self.near = far, deep - 1 - far
        self.half, self.second = way
        self.pairs = each - 2 * deep + far + 1
        self.actions: list[Action] = []
        self.done = {(phase, chunk): 0 for phase in (Phase.FORWARD, Phase.BACKWARD) for chunk in (0, 1)}
        self.waiting: deque[Action] = deque()

    def _do(self, phase: Phase, way: int, *, beside: bool = False) -> None:
        chunk = way ^ self.second
        key = Phase.FORWARD if phase is Phase.FORWARD else Phase.BACKWARD, chunk
        micro_batch = self.done[key] + chunk * self.half
        self.done[key] += 1
        self.actions.append(Action(phase, micro_batch, chunk, beside))
        if phase is Phase.INPUT:
            self.waiting.append(Action(Phase.WEIGHT, micro_batch, chunk))

    def _pair(self, forward: int, backward: int) -> None:
        self._do(Phase.FORWARD, forward, beside=True)
        self._do(Phase.BACKWARD, backward)

    def row(self) -> tuple[Action, ...]:
        """The actions in order."""
        for _ in range(2 * self.near):
            self._do(Phase.FORWARD, 0)
        for _ in range(self.far + 1):
            self._do(Phase.FORWARD, 0)
            self._do(Phase.FORWARD, 1)
        for _ in range(self.near):
            self._do(Phase.INPUT, 1)
            self.actions.append(self.waiting.popleft())
            self._do(Phase.FORWARD, 1)
        for number in range(self.pairs):
            if number == 0 and not self.near:
                # the two stages in the middle wait for each other's forward
                self._do(Phase.FORWARD, 0)
                self._do(Phase.BACKWARD, 1)
            else:
                self._pair(0, 1)
            self._pair(1, 0)
        for _ in range(self.near):
            self._do(Phase.BACKWARD, 1)
            self._pair(1, 0)
        self._last_backwards()
        return tuple(self.actions)

    def _last_backwards(self) -> None:
        """The last backwards put weight gradients off, from the middle of them on."""
        turn = 2 * ((self.far + 1) // 2) + (self.far % 2 == 0)
        for number in range(2 * (self.far + 1)):
            self._do(Phase.INPUT if number >= turn else Phase.BACKWARD, 1 - number % 2)
        for _ in range(self.near):
            self.actions.append(self.waiting.popleft())
            self._do(Phase.INPUT, 0)
        self.actions += self.waiting


def build_schedule(
    kind: ScheduleKind, stages: int, micro_batches: int, chunks: int = 1, *, paired: bool = False
) -> Schedule:
    """Order of work of every stage.

    Parameters
    ----------
    kind
        Built-in schedule.
    stages
        Pipeline size P.
    micro_batches
        Micro-batches of a step, M.
    chunks
        Model chunks per stage (virtual stages), v; more than one only with the interleaved schedule. DualPipeV has two.
    paired
        1F1B and interleaved: each forward behind the first ones goes beside the backward that follows it.

    Raises
    ------
    UsageError
        Pairs with another schedule, sizes below one, chunks with a schedule that has none,
        M not a multiple of P when interleaved, odd numbers or
        M < 2P with DualPipe and DualPipeV.
    """
    for what, number in (
        ("pipeline size", stages),
        ("micro-batches", micro_batches),
        ("virtual stages", chunks),
    ):
        if number < 1:
            raise UsageError(f"{what} must be at least 1, not {number}")
    if paired and kind not in (ScheduleKind.ONE_F_ONE_B, ScheduleKind.INTERLEAVED):
        raise UsageError(f"paired passes are of 1f1b and the interleaved schedule, not of {kind}")
    if kind is ScheduleKind.DUALPIPEV:
        return _dualpipev(stages, micro_batches)
    if chunks > 1 and kind is not ScheduleKind.INTERLEAVED:
        raise UsageError(f"virtual stages ({chunks}) need the interleaved schedule, not {kind}")
    if kind is ScheduleKind.GPIPE:
        return _gpipe(stages, micro_batches)
    if kind is ScheduleKind.ONE_F_ONE_B:
        return _one_f_one_b(stages, micro_batches, paired=paired)
    if kind is ScheduleKind.INTERLEAVED:
        return _interleaved(stages, micro_batches, chunks, paired=paired)
    if kind is ScheduleKind.DUALPIPE:
        return _dualpipe(stages, micro_batches)
    return _zero_bubble(stages, micro_batches, deep=kind is ScheduleKind.ZB_H2)


def forward_only(stages: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """Schedule of inference: every micro-batch once forward through all chunks."""
    row = tuple(Action(Phase.FORWARD, m, c) for m in range(micro_batches) for c in range(chunks))
    return tuple(row for _ in range(stages))


def read_schedule(
    path: str | Path, stages: int, micro_batches: int, chunks: int = 1, placement: Placement | None = None
) -> Schedule:
    """Schedule from a CSV file: one line per stage, one cell per action, for instance ``F0,F1,B0,F2,B1``.

    A cell is a phase letter (F, B, I, W), the micro-batch, and ``.chunk`` for chunks after the first; ``F4+B1.1`` are a
    forward and a backward beside each other. Empty cells are pauses in the drawing and are skipped. ``placement`` says
    which parts of the model the chunks are.

    Raises
    ------
    ConfigError
        A cell that does not parse, a wrong number of lines, or work that is missing, repeated or in a deadlock.
    """
    text = read_bytes(path, error=ConfigError).decode("utf-8", "replace")
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        row = [
            action
            for cell in line.split(",")
            if cell.strip()
            for action in _actions(cell.strip(), f"{path}: line {number}")
        ]
        if row:
            rows.append(tuple(row))
    schedule = tuple(rows)
    if len(schedule) != stages:
        raise ConfigError(
            f"{path}: {counted(len(schedule), 'line')} with actions, but the pipeline has {counted(stages, 'stage')}"
        )
    try:
        check_schedule(schedule, micro_batches, chunks, placement)
        run_schedule(schedule, ActionTimes(1, 1, 1), chunks, placement)
    except UsageError as error:
        raise ConfigError(f"{path}: {error}") from None
    return schedule


def _actions(cell: str, where: str) -> list[Action]:
    """The action of a cell, or the two that lie beside each other."""
    actions = [_action(part.strip(), where) for part in cell.split("+") if part.strip()]
    if [action.phase for action in actions] == [Phase.FORWARD, Phase.BACKWARD]:
        return [replace(actions[0], beside=True), actions[1]]
    if len(actions) != 1 or "+" in cell:
        raise ConfigError(
            f"{where}: {cell[:40]!r} is not an action such as F0, or a forward and a backward, F4+B1.1"
        )
    return actions


def _action(cell: str, where: str) -> Action:
    name, _, chunk = cell[1:].partition(".")
    good = cell[0] in "FBIW" and all(is_whole(part, 7) for part in (name, chunk or "0"))
    if not good:
        raise ConfigError(f"{where}: {cell[:40]!r} is not an action such as F0, B3 or W2.1")
    return Action(Phase(cell[0]), whole_number(name), whole_number(chunk or "0"))


def check_schedule(
    schedule: Schedule, micro_batches: int, chunks: int = 1, placement: Placement | None = None
) -> None:
    """Raise UsageError unless every stage does every micro-batch of every chunk exactly once, forward and backward.

    With a placement of several routes, a chunk has the micro-batches of its route.
    """
    if placement is not None:
        chunks = placement.chunks
    for stage, row in enumerate(schedule):
        done = dict.fromkeys(row, 0)
        for action in row:
            done[action] += 1
            if done[action] > 1:
                raise UsageError(f"stage {stage} does {action} twice")
            if action.micro_batch >= micro_batches or action.chunk >= chunks:
                raise UsageError(
                    f"stage {stage} does {action}, but there are {counted(micro_batches, 'micro-batch')} and "
                    f"{counted(chunks, 'chunk')}"
                )
            if placement is not None and action.micro_batch not in _taken(
                placement, stage, action, micro_batches
            ):
                raise UsageError(f"stage {stage} does {action}, a micro-batch that goes the other way")
        for m in range(micro_batches):
            for c in range(chunks):
                if placement is not None and m not in _taken(
                    placement, stage, Action(Phase.FORWARD, m, c), micro_batches
                ):
                    continue
                if Action(Phase.FORWARD, m, c) not in done:
                    raise UsageError(f"stage {stage} never does {Action(Phase.FORWARD, m, c)}")
                whole = Action(Phase.BACKWARD, m, c) in done
                parts = [Action(phase, m, c) in done for phase in (Phase.INPUT, Phase.WEIGHT)]
                if whole == all(parts) or any(parts) != all(parts):
                    raise UsageError(
                        f"stage {stage}: micro-batch {m}, chunk {c} needs either B or both I and W"
                    )


def _taken(placement: Placement, stage: int, action: Action, micro_batches: int) -> range:
    """Micro-batches of an action's chunk."""
    return placement.micro_batches(placement.find(stage, action.chunk)[0], micro_batches)


def _needs(action: Action, stage: int, placement: Placement) -> list[tuple[int, Action]]:
    """Actions (with their stages) that must end before this one starts, besides the order on its own stage."""
    m, c = action.micro_batch, action.chunk
    if action.phase is Phase.WEIGHT:
        return [(stage, Action(Phase.INPUT, m, c))]
    forward = action.phase is Phase.FORWARD
    needs = [] if forward else [(stage, Action(Phase.FORWARD, m, c))]
    other = placement.beyond(stage, c, -1 if forward else 1)
    if other is not None:
        needs.append((other[0], Action(action.phase, m, other[1])))
    return needs


def run_schedule(
    schedule: Schedule, times: ActionTimes, chunks: int = 1, placement: Placement | None = None
) -> ScheduleRun:
    """Run a schedule on equal stages with free communication; actions beside each other run one after the other.

    Returns
    -------
    ScheduleRun
        Start, end, work and activations in flight of each stage, in the unit of ``times``.

    Raises
    ------
    UsageError
        The order deadlocks: an action waits for one that its own stage does later, directly or round about.
    """
    stages = len(schedule)
    if placement is None:
        placement = placed(ScheduleKind.INTERLEAVED, stages, chunks)
    ended: dict[tuple[int, Action], int] = {}
    position = [0] * stages
    clock = [0] * stages
    start = [-1] * stages
    progress = True
    while progress:
        progress = False
        for stage, row in enumerate(schedule):
            while position[stage] < len(row):
                action = row[position[stage]]
                needed = [ended.get(_either(need, ended)) for need in _needs(action, stage, placement)]
                if None in needed:
                    break
                begin = max([clock[stage], *(time for time in needed if time is not None)])
                if start[stage] < 0:
                    start[stage] = begin
                clock[stage] = begin + times.of(action.phase)
                ended[stage, action] = clock[stage]
                position[stage] += 1
                progress = True
    for stage, row in enumerate(schedule):
        if position[stage] < len(row):
            raise UsageError(f"deadlock: stage {stage} can never do {row[position[stage]]}")
    busy = tuple(sum(times.of(action.phase) for action in row) for row in schedule)
    return ScheduleRun(tuple(start), tuple(clock), busy, tuple(in_flight(row) for row in schedule))


def _either(need: tuple[int, Action], ended: dict[tuple[int, Action], int]) -> tuple[int, Action]:
    """The neighbour may do a whole backward where this stage splits it, and the other way round."""
    stage, action = need
    if need in ended or action.phase not in (Phase.BACKWARD, Phase.INPUT):
        return need
    other = Phase.INPUT if action.phase is Phase.BACKWARD else Phase.BACKWARD
    return stage, Action(other, action.micro_batch, action.chunk)


def in_flight(row: Sequence[Action]) -> int:
    """Largest number of (micro-batch, chunk) pairs whose activations a stage holds; W (or B) releases them."""
    held = most = 0
    for action in row:
        if action.phase is Phase.FORWARD:
            held += 1
            most = max(most, held)
        elif action.phase in (Phase.BACKWARD, Phase.WEIGHT):
            held -= 1
    return most


def bubble(kind: ScheduleKind, stages: int, times: ActionTimes) -> int:
    """Closed form of the idle time of the first stage: ``stages`` equal stages, free communication.

    GPipe, 1F1B and interleaved: (P-1)(tf+tI+tW), times per chunk; ZB-H1: (P-1)(tf+tI-tW); ZB-H2: (P-1)(tf+tI-2tW).
    The zero-bubble forms hold for tW <= tf, tW <= tI, tf+tI >= 2tW and M >= 2P - 1. Sources: see the module.

    DualPipe: (P/2-1)(tf+tI-tW) for tW <= tI <= tf <= tI+tW, where a forward's output leaves when the forward is done.
    Where it leaves with the backward beside it, (P/2-1)(2tf+tI-tW), which for tf = tI is the paper's
    (P/2-1)(F&B+B-3W). DualPipeV, times per chunk: (P-1)(tf+tI-tW), under the same.
    """
    if kind is ScheduleKind.DUALPIPE:
        return (stages // 2 - 1) * (times.forward + times.input - times.weight)
    full = times.forward + times.input
    if kind in (ScheduleKind.ZB_H1, ScheduleKind.DUALPIPEV):
        return (stages - 1) * (full - times.weight)
    if kind is ScheduleKind.ZB_H2:
        return (stages - 1) * (full - 2 * times.weight)
    return (stages - 1) * (full + times.weight)
