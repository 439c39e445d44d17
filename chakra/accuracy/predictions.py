"""Predictions of cases: the workload generated, replayed on the machine's preset, one case after the other."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from chakra.accuracy.cases import Case, Quantity
from chakra.accuracy.machines import Machine, surfaces_at
from chakra.arguments import checked
from chakra.errors import ChakraError
from chakra.generate.plan.training import build_workload
from chakra.generate.verify.memory import stage_memory
from chakra.platforms import Platform
from chakra.replay.api import simulate


@dataclass(frozen=True, slots=True)
class Prediction:
    """A case with what the model says.

    Attributes
    ----------
    case
        The case.
    predicted
        Seconds of a step, or bytes; None where the prediction failed.
    reason
        Why it failed.
    """

    case: Case
    predicted: float | None
    reason: str = ""

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return (self.predicted or float("nan")) / self.case.measured - 1


@checked
def predict(cases: Iterable[Case]) -> Iterator[Prediction]:
    """Predict cases in their order.

    Parameters
    ----------
    cases
        From `chakra.accuracy.read_case`.
    """
    for case in cases:
        try:
            yield Prediction(case, predict_case(case))
        except ChakraError as error:
            yield Prediction(case, None, str(error))


@checked
def predict_case(case: Case) -> float:
    """Seconds or bytes of one case.

    Parameters
    ----------
    case
        The case.

    Raises
    ------
    ChakraError
        A workload that cannot be generated or replayed.
    """
    # merged operators take the same time, and a trace is as short as its communication
    request = replace(case.request, fuse=True)
    plan = request.plan()
    if case.quantity is not Quantity.STEP:
        memory = stage_memory(plan, plan.stages[0])
        return float(memory.states if case.quantity is Quantity.STATES else memory.activations)
    platform = _platform(case.machine)
    changes = {}
    if case.machine.surfaces is not None:
        changes["operator_model"] = surfaces_at(case.machine.surfaces, case.machine.preset)
    result = simulate(build_workload(plan, names=False), platform.system(**changes), platform.network())
    return float(result.finish_ns.max()) / 1e9


@lru_cache(maxsize=64)
def _platform(machine: Machine) -> Platform:
    return machine.platform()
