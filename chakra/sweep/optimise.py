"""Optimised studies: Optuna asks for points, the study's metrics answer. Needs the ``optimize`` extra."""

from typing import Any

from chakra.errors import UsageError
from chakra.sweep.executors import Runner
from chakra.sweep.metrics import METRICS
from chakra.sweep.outcomes import Progress, run_points
from chakra.sweep.space import Parameter, Point
from chakra.sweep.store import Outcome, Store
from chakra.sweep.study import Study


def optimise(
    study: Study,
    store: Store,
    run: Runner,
    *,
    retry_failed: bool = False,
    progress: Progress | None = None,
    documents: bool = False,
) -> list[Outcome]:
    """Ask for ``study.method.number`` points, a batch at a time, and tell their objective.

    The sampler is seeded and the batch is part of the study, so a study that is started again asks for the same points
    and finds them in the store.

    Raises
    ------
    UsageError
        Optuna is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise UsageError("an optimised study needs Optuna: pip install 'chakra-replay[optimize]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    directions = optuna.study.StudyDirection
    direction = directions.MAXIMIZE if METRICS[study.objective] else directions.MINIMIZE
    search = optuna.create_study(
        direction=direction, sampler=optuna.samplers.TPESampler(seed=study.method.seed)
    )
    outcomes: list[Outcome] = []
    while len(outcomes) < study.method.number:
        batch = min(study.method.batch, study.method.number - len(outcomes))
        trials = [search.ask() for _ in range(batch)]
        points: list[Point] = [{p.name: _suggest(trial, p) for p in study.parameters} for trial in trials]
        admitted = [i for i, point in enumerate(points) if study.admits(point)]
        found: dict[int, Outcome] = {}
        for index, outcome in run_points(
            study, store, run, [points[i] for i in admitted], retry_failed=retry_failed, documents=documents
        ):
            found[admitted[index]] = outcome
            if progress:
                progress(len(outcomes) + len(found), study.method.number, outcome)
        for i, trial in enumerate(trials):
            outcome = found.get(i) or Outcome(
                "", points[i], "infeasible", {}, "a constraint on parameters is not met"
            )
            outcomes.append(outcome)
            if outcome.ok and study.objective in outcome.metrics:
                search.tell(trial, outcome.metrics[study.objective])
            else:
                search.tell(trial, state=optuna.trial.TrialState.FAIL)
    return outcomes


def _suggest(trial: Any, parameter: Parameter) -> Any:
    if parameter.values or parameter.count is not None:
        # lists are no categories for Optuna: choose their index
        values = parameter.listed()
        return values[trial.suggest_categorical(parameter.name, list(range(len(values))))]
    if parameter.whole:
        step = 1 if parameter.step is None else int(parameter.step)
        return trial.suggest_int(
            parameter.name, int(parameter.low), int(parameter.high), step=step, log=parameter.log
        )
    return trial.suggest_float(
        parameter.name, parameter.low, parameter.high, step=parameter.step, log=parameter.log
    )
