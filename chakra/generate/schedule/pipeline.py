"""Pipeline schedules: the explicit order in which each stage works on its micro-batches.

A schedule is one list of :class:`Action` per pipeline stage. It becomes control dependencies in the trace, so that
every simulator runs the same order. Times are integers of any unit; the generator uses nanoseconds.

Sources: GPipe (Huang et al. 2019), 1F1B (PipeDream-flush; Narayanan et al. 2021, arXiv 2104.04473, sections 2.2 and
2.3 for the interleaved form), zero bubble (Qi et al. 2024, arXiv 2401.10241, figures 2 and 3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from chakra.errors import ConfigError, UsageError
from chakra.io.digits import is_whole
from chakra.io.files import read_bytes


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


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """One stage working on one micro-batch of one of its model chunks."""

    phase: Phase
    micro_batch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.phase}{self.micro_batch}" + (f".{self.chunk}" if self.chunk else "")


#: one list of actions per stage
Schedule = tuple[tuple[Action, ...], ...]


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


def _one_f_one_b(stages: int, micro_batches: int) -> Schedule:
    rows = []
    for stage in range(stages):
        warm_up = min(micro_batches, stages - 1 - stage)
        row = [Action(Phase.FORWARD, m) for m in range(warm_up)]
        for m in range(micro_batches - warm_up):
            row += [Action(Phase.FORWARD, m + warm_up), Action(Phase.BACKWARD, m)]
        row += [Action(Phase.BACKWARD, m) for m in range(micro_batches - warm_up, micro_batches)]
        rows.append(tuple(row))
    return tuple(rows)


def _interleaved(stages: int, micro_batches: int, chunks: int) -> Schedule:
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
            warm_up = min(total, (stages - 1 - stage) * 2 + (chunks - 1) * stages)
        row = [action(k, Phase.FORWARD) for k in range(warm_up)]
        for k in range(total - warm_up):
            row += [action(k + warm_up, Phase.FORWARD), action(k, Phase.BACKWARD)]
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


def build_schedule(kind: ScheduleKind, stages: int, micro_batches: int, chunks: int = 1) -> Schedule:
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
        Model chunks per stage (virtual stages), v; more than one only with the interleaved schedule.

    Raises
    ------
    UsageError
        Sizes below one, chunks with a schedule that has none, or M not a multiple of P when interleaved.
    """
    for what, number in (
        ("pipeline size", stages),
        ("micro-batches", micro_batches),
        ("virtual stages", chunks),
    ):
        if number < 1:
            raise UsageError(f"{what} must be at least 1, not {number}")
    if chunks > 1 and kind is not ScheduleKind.INTERLEAVED:
        raise UsageError(f"virtual stages ({chunks}) need the interleaved schedule, not {kind}")
    if kind is ScheduleKind.GPIPE:
        return _gpipe(stages, micro_batches)
    if kind is ScheduleKind.ONE_F_ONE_B:
        return _one_f_one_b(stages, micro_batches)
    if kind is ScheduleKind.INTERLEAVED:
        return _interleaved(stages, micro_batches, chunks)
    return _zero_bubble(stages, micro_batches, deep=kind is ScheduleKind.ZB_H2)


def forward_only(stages: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """Schedule of inference: every micro-batch once forward through all chunks."""
    row = tuple(Action(Phase.FORWARD, m, c) for m in range(micro_batches) for c in range(chunks))
    return tuple(row for _ in range(stages))


def read_schedule(path: str | Path, stages: int, micro_batches: int, chunks: int = 1) -> Schedule:
    """Schedule from a CSV file: one line per stage, one cell per action, for instance ``F0,F1,B0,F2,B1``.

    A cell is a phase letter (F, B, I, W), the micro-batch, and ``.chunk`` for chunks after the first. Empty cells are
    pauses in the drawing and are skipped.

    Raises
    ------
    ConfigError
        A cell that does not parse, a wrong number of lines, or work that is missing, repeated or in a deadlock.
    """
    text = read_bytes(path, error=ConfigError).decode("utf-8", "replace")
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        row = [_action(cell.strip(), f"{path}: line {number}") for cell in line.split(",") if cell.strip()]
        if row:
            rows.append(tuple(row))
    schedule = tuple(rows)
    if len(schedule) != stages:
        raise ConfigError(f"{path}: {len(schedule)} lines with actions, but the pipeline has {stages} stages")
    try:
        check_schedule(schedule, micro_batches, chunks)
        run_schedule(schedule, ActionTimes(1, 1, 1), chunks)
    except UsageError as error:
        raise ConfigError(f"{path}: {error}") from None
    return schedule


def _action(cell: str, where: str) -> Action:
    name, _, chunk = cell[1:].partition(".")
    good = cell[0] in "FBIW" and all(is_whole(part, 7) for part in (name, chunk or "0"))
    if not good:
        raise ConfigError(f"{where}: {cell[:40]!r} is not an action such as F0, B3 or W2.1")
    return Action(Phase(cell[0]), int(name), int(chunk or 0))


def check_schedule(schedule: Schedule, micro_batches: int, chunks: int = 1) -> None:
    """Raise UsageError unless every stage does every micro-batch of every chunk exactly once, forward and backward."""
    for stage, row in enumerate(schedule):
        done = dict.fromkeys(row, 0)
        for action in row:
            done[action] += 1
            if done[action] > 1:
                raise UsageError(f"stage {stage} does {action} twice")
            if action.micro_batch >= micro_batches or action.chunk >= chunks:
                raise UsageError(
                    f"stage {stage} does {action}, but there are {micro_batches} micro-batches and {chunks} chunks"
                )
        for m in range(micro_batches):
            for c in range(chunks):
                if Action(Phase.FORWARD, m, c) not in done:
                    raise UsageError(f"stage {stage} never does {Action(Phase.FORWARD, m, c)}")
                whole = Action(Phase.BACKWARD, m, c) in done
                parts = [Action(phase, m, c) in done for phase in (Phase.INPUT, Phase.WEIGHT)]
                if whole == all(parts) or any(parts) != all(parts):
                    raise UsageError(
                        f"stage {stage}: micro-batch {m}, chunk {c} needs either B or both I and W"
                    )


def _needs(action: Action, stage: int, stages: int, chunks: int) -> list[tuple[int, Action]]:
    """Actions (with their stages) that must end before this one starts, besides the order on its own stage."""
    m, c = action.micro_batch, action.chunk
    if action.phase is Phase.FORWARD:
        if stage:
            return [(stage - 1, action)]
        return [(stages - 1, Action(Phase.FORWARD, m, c - 1))] if c else []
    if action.phase is Phase.WEIGHT:
        return [(stage, Action(Phase.INPUT, m, c))]
    needs = [(stage, Action(Phase.FORWARD, m, c))]
    if stage + 1 < stages:
        needs.append((stage + 1, action))
    elif c + 1 < chunks:
        needs.append((0, Action(action.phase, m, c + 1)))
    return needs


def run_schedule(schedule: Schedule, times: ActionTimes, chunks: int = 1) -> ScheduleRun:
    """Run a schedule on equal stages with free communication.

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
                needed = [ended.get(_either(need, ended)) for need in _needs(action, stage, stages, chunks)]
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
    """
    full = times.forward + times.input
    if kind is ScheduleKind.ZB_H1:
        return (stages - 1) * (full - times.weight)
    if kind is ScheduleKind.ZB_H2:
        return (stages - 1) * (full - 2 * times.weight)
    return (stages - 1) * (full + times.weight)
