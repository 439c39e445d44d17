"""What all ranks of a generated step do together: what rates and shares of the peak are made of."""

from collections.abc import Mapping

from chakra.et.operators import TOTALS
from chakra.generate.plan.training import StepPlan
from chakra.generate.request.requests import Request, TransformerRequest
from chakra.generate.verify.step_totals import summarize
from chakra.io.documents import document_text


def totals_of(request: Request, plan: StepPlan) -> dict[str, float]:
    """What all ranks of a generated step do together, as a trace's metadata and a study's points have it.

    ``npus``; ``memory_gb`` of the fullest rank, 10^9 B; ``matmul_flops`` of all ranks and ``recomputed_flops``, the part
    of them that is done again in the backward pass; ``samples``; ``tokens`` where sequences are trained on;
    ``iterations`` where there are several, all of which the others count.
    """
    stages = summarize(plan)
    samples = request.micro_batch * plan.training.passes * plan.parallel.dp
    totals: dict[str, float] = {
        "npus": plan.world,
        "memory_gb": max(stage.memory.total for stage in stages) / 1e9,
        "matmul_flops": sum(stage.matmul_flops * stage.ranks for stage in stages),
        "recomputed_flops": sum(stage.recomputed_flops * stage.ranks for stage in stages),
        "samples": samples,
    }
    if isinstance(request, TransformerRequest) and plan.model.training:
        totals["tokens"] = samples * request.config().sequence
    if plan.training.iterations > 1:
        totals["iterations"] = plan.training.iterations
    return totals


def totals_fact(totals: Mapping[str, float]) -> dict[str, str]:
    """The same as metadata of a trace, by which a replay knows them."""
    return {TOTALS: document_text(dict(totals), sort_keys=True)}
