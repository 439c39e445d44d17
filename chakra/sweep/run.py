"""Running a study: what is cached is taken, the rest is run, everything is recorded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from chakra.arguments import check_fields, checked
from chakra.errors import UsageError
from chakra.io.digits import is_whole, whole_number
from chakra.sweep.executors import Runner
from chakra.sweep.optimise import optimise
from chakra.sweep.outcomes import Progress, run_points
from chakra.sweep.preflight import check_study
from chakra.sweep.space import Point
from chakra.sweep.store import Outcome, Store
from chakra.sweep.study import Study
from chakra.sweep.ties import by_merit


@dataclass(frozen=True, slots=True)
class Shard:
    """Part ``index`` (from 1) of ``count``: every count-th point.

    Attributes
    ----------
    index
        From 1.
    count
        Number of shards.
    """

    index: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if not 1 <= self.index <= self.count:
            raise UsageError(f"a shard is i/n with 1 <= i <= n, such as 3/16, not {self.index}/{self.count}")

    @classmethod
    @checked
    def parse(cls, text: str) -> "Shard":
        """From ``i/n``.

        Raises
        ------
        UsageError
            Not two numbers with 1 <= i <= n.
        """
        first, slash, second = text.partition("/")
        if (
            not slash
            or not is_whole(first, 18)
            or not is_whole(second, 18)
            or not 1 <= whole_number(first) <= whole_number(second)
        ):
            raise UsageError(f"a shard is i/n with 1 <= i <= n, such as 3/16, not {text!r}")
        return cls(whole_number(first), whole_number(second))

    @checked
    def of(self, points: Sequence[Point]) -> list[Point]:
        """The points of this shard."""
        return list(points[self.index - 1 :: self.count])


@checked
def run_study(
    study: Study,
    store: Store,
    run: Runner,
    *,
    shard: Shard | None = None,
    retry_failed: bool = False,
    progress: Progress | None = None,
    begin: Callable[[int], None] | None = None,
    documents: bool = False,
) -> list[Outcome]:
    """Run a study to its end.

    Parameters
    ----------
    study, store, run
        What to run, where results are kept, and where points run.
    shard
        Run only these points of a grid or random study.
    retry_failed
        Run points again that failed before (infeasible ones stay).
    progress
        Told about every point.
    begin
        Told the number of points before the first is run.
    documents
        Keep the result documents of slow points in the store, for their pages.

    Returns
    -------
    list of Outcome
        In the order of the study's points, whatever order they were run in.

    Raises
    ------
    ConfigError
        A platform, model, parameter or option that is not there: found before anything runs.
    UsageError
        A shard of an optimised study, whose points depend on each other; a folder that cannot be written.
    """
    check_study(study)
    if study.method.kind == "optuna":
        if shard is not None and shard.count > 1:
            raise UsageError("an optimised study has no shards: each point depends on earlier ones")
        store.open()
        if begin:
            begin(study.method.number)
        return optimise(study, store, run, retry_failed=retry_failed, progress=progress, documents=documents)
    points = list(study.points())
    if shard is not None:
        points = shard.of(points)
    store.open()
    if begin:
        begin(len(points))
    outcomes: dict[int, Outcome] = {}
    for index, outcome in run_points(
        study, store, run, points, retry_failed=retry_failed, documents=documents
    ):
        outcomes[index] = outcome
        if progress:
            progress(len(outcomes), len(points), outcome)
    return [outcomes[index] for index in range(len(points))]


@checked
def ranked(study: Study, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Good points, best first by the objective; of those that are as good as the best, the cheapest first.

    Designs are equally good where their objectives differ by 0.1 % or less. Of these that with the least cost per hour
    comes first, or the fewest NPUs; else the order of the study.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points.
    """
    good = [outcome for outcome in outcomes if outcome.ok and study.objective in outcome.metrics]
    return by_merit(study, good)
