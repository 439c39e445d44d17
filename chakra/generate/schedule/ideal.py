"""Share of a step that a pipeline's stages wait at least: equal stages, free communication."""

from chakra.generate.schedule.pipeline import (
    ActionTimes,
    Phase,
    Placement,
    Schedule,
    run_schedule,
)

#: a backward pass takes twice the time of a forward one, half of it for the gradients of weights
_TIMES = ActionTimes(1, 1, 1)


def ideal_bubble_share(schedule: Schedule, placement: Placement, *, closed: bool = False) -> float:
    """Time that stages do not work from the first start to the last end, mean over stages, as a share of it.

    Parameters
    ----------
    schedule
        Actions of each stage.
    placement
        Where the parts of the model lie.
    closed
        Whether the schedule is a built-in one of which the share is (P-1)/(vM+P-1) for P stages of v chunks, whatever the
        times: GPipe, 1F1B and the interleaved one. Others are run with a backward pass that takes twice the time of a
        forward one, half of it for the gradients of weights.

    Raises
    ------
    UsageError
        A schedule that deadlocks.

    Examples
    --------
    >>> from chakra.generate.schedule.pipeline import ScheduleKind, build_schedule, placed
    >>> schedule = build_schedule(ScheduleKind.ONE_F_ONE_B, 4, 8)
    >>> round(ideal_bubble_share(schedule, placed(ScheduleKind.ONE_F_ONE_B, 4), closed=True), 4)
    0.2727
    """
    stages = len(schedule)
    if closed:
        passes = sum(action.phase is Phase.FORWARD for action in schedule[0])
        return (stages - 1) / (passes + stages - 1)
    run = run_schedule(schedule, _TIMES, placement.chunks, placement)
    return 1 - sum(run.busy) / (stages * run.makespan)
