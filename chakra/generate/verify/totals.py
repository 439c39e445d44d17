"""What all ranks of a generated step do together: what rates and shares of the peak are made of."""

from dataclasses import dataclass

from chakra.et.memory_need import MEMORY, MemoryNeed
from chakra.et.operators import IDEAL_BUBBLE, TOTALS
from chakra.generate.plan.training import StepPlan
from chakra.generate.request.base import Request
from chakra.generate.request.transformers import Mode, TransformerRequest
from chakra.generate.schedule.ideal import ideal_bubble_share
from chakra.generate.schedule.pipeline import ScheduleKind, placed
from chakra.generate.verify.step_totals import StageSummary, summarize
from chakra.io.documents import document_text

#: count of what sequences are made of
TOKENS = "tokens"
#: schedules whose bubble has the same share whatever forward and backward passes take
_EVEN = (ScheduleKind.GPIPE, ScheduleKind.ONE_F_ONE_B, ScheduleKind.INTERLEAVED)


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Totals of a generated step, as a trace's metadata and a study's points have them.

    Attributes
    ----------
    counts
        ``npus``; ``matmul_flops`` of all ranks and ``recomputed_flops``, the part of them that is done again in the
        backward pass; ``samples``; ``tokens`` that are trained on, or that requests are given where
        they decode; ``iterations`` where there are several, all
        of which the others count.
    memory
        What a rank of the fullest stage needs.
    ideal_bubble_share
        Share of the step that stages wait by the schedule alone; None without a pipeline, and of decoding.
    """

    counts: dict[str, float]
    memory: MemoryNeed
    ideal_bubble_share: float | None = None

    def fact(self) -> dict[str, str]:
        """The same as metadata of a trace, by which a replay knows them."""
        ideal = {} if self.ideal_bubble_share is None else {IDEAL_BUBBLE: self.ideal_bubble_share}
        return {TOTALS: document_text({**self.counts, **ideal, MEMORY: self.memory.fact()}, sort_keys=True)}


def counts_of(kind: type[Request], mode: Mode) -> set[str]:
    """Names of the counts that every step of a kind of workload has.

    Parameters
    ----------
    kind
        The kind.
    mode
        What it does, if it is a transformer. A prefill gives its requests their first tokens only: that is no throughput.
    """
    names = {"npus", "matmul_flops", "recomputed_flops", "samples"}
    return names | {TOKENS} if mode is not Mode.PREFILL and issubclass(kind, TransformerRequest) else names


def totals_of(request: Request, plan: StepPlan) -> StepTotals:
    """What all ranks of a generated step do together, and what the fullest needs."""
    stages = summarize(plan)
    samples = request.micro_batch * plan.training.passes * plan.parallel.dp
    counts: dict[str, float] = {
        "npus": plan.world,
        "matmul_flops": sum(stage.matmul_flops * stage.ranks for stage in stages),
        "recomputed_flops": sum(stage.recomputed_flops * stage.ranks for stage in stages),
        "samples": samples,
    }
    if isinstance(request, TransformerRequest) and TOKENS in counts_of(type(request), request.mode):
        given = request.decode_steps + request.mode.prefills
        counts[TOKENS] = samples * (request.config().sequence if plan.model.training else given)
    if plan.training.iterations > 1:
        counts["iterations"] = plan.training.iterations
    return StepTotals(counts, memory_need(stages), _ideal_bubble(request, plan))


def _ideal_bubble(request: Request, plan: StepPlan) -> float | None:
    """What the schedule alone lets stages wait; tokens of decoding wait for those before them, which no schedule says."""
    decodes = isinstance(request, TransformerRequest) and request.mode.decodes
    if decodes or plan.parallel.pp == 1:
        return None
    training, parallel = plan.training, plan.parallel
    if not plan.model.training:
        placement = placed(ScheduleKind.INTERLEAVED, parallel.pp, parallel.vp)
        return ideal_bubble_share(plan.schedule, placement, closed=parallel.vp == 1)
    closed = training.schedule in _EVEN and not training.paired and not training.schedule_file
    placement = placed(training.schedule, parallel.pp, parallel.vp)
    return ideal_bubble_share(plan.schedule, placement, closed=closed)


def memory_need(stages: tuple[StageSummary, ...]) -> MemoryNeed:
    """What a rank of the stage that needs most needs; of equal ones the first."""
    fullest = max(stages, key=lambda stage: stage.memory.total)
    memory = fullest.memory
    title = fullest.title if len(stages) > 1 else ""
    return MemoryNeed(title, memory.states, memory.activations, memory.transient, memory.cache)
