"""Workloads for scripts: the traces of a plan, with what a replay says of the whole step."""

from collections.abc import Mapping

from chakra.arguments import checked
from chakra.et.manifest import WorkloadManifest
from chakra.generate.plan import training
from chakra.generate.plan.training import StepPlan
from chakra.generate.request.requests import REQUESTS
from chakra.generate.verify.totals import totals_of


@checked
def build_workload(
    plan: StepPlan,
    *,
    tensors: bool = False,
    names: bool = True,
    metadata: Mapping[str, str | int] | None = None,
) -> WorkloadManifest:
    """Traces, ranks and groups of a planned step.

    The traces say what was generated and what the step needs, as those of ``chakra generate`` do: a replay gives
    rates, memory and the interval, and notes a job that does not fit.

    Parameters
    ----------
    plan
        From the ``plan`` of a request.
    tensors
        Write activations as ``inputs`` and ``outputs`` for memory trackers.
    names
        Put the micro-batch before node names (``F3 layer0.qkv``).
    metadata
        Facts for every trace's first record, beside those.
    """
    facts = {**_facts(plan), **(metadata or {})}
    return training.build_workload(plan, tensors=tensors, names=names, metadata=facts)


def _facts(plan: StepPlan) -> dict[str, str]:
    """What was generated, and the totals of a step; nothing of plans that no request made."""
    kind, parameters = plan.about.get("workload"), plan.about.get("parameters")
    if not isinstance(kind, str) or kind not in REQUESTS or not isinstance(parameters, Mapping):
        return {}
    request = REQUESTS[kind].from_mapping(parameters)
    return {**request.facts(kind), **totals_of(request, plan).fact()}
