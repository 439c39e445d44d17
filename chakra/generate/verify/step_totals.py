"""What a planned step does, per rank of each stage: FLOPs, parameters, and bytes of every collective."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chakra.arguments import checked
from chakra.et import NodeType
from chakra.generate.plan.stages import EMBEDDING_GROUP, MIRROR_GROUP
from chakra.generate.plan.template import CACHE_GROUP, TOKEN_GROUP
from chakra.generate.plan.training import StagePlan, StepPlan
from chakra.generate.verify.closed_forms import sent_bytes
from chakra.generate.verify.memory import StageMemory, stage_memory
from chakra.io.digits import is_whole, whole_number
from chakra.replay.config.model import CollectiveKind


@dataclass(frozen=True, slots=True)
class Traffic:
    """Calls of one kind on one symbolic group by one rank in a step.

    ``size_bytes`` sums what the calls bring in (``comm_size``), ``sent_bytes`` what a ring sends.
    """

    group: str
    kind: str
    members: int
    calls: int
    size_bytes: int
    sent_bytes: float


@dataclass(frozen=True, slots=True)
class StageSummary:
    """Totals of one rank of one stage; ``part`` says of which part of the workload, where it has several,

    ``position`` of which expert-parallel position, where experts are not visited evenly; ``layers`` are the numbers of
    its layers, in words.
    """

    stage: int
    ranks: int
    nodes: int
    parameters: int
    matmul_flops: int
    recomputed_flops: int
    other_ops: int
    memory_traffic_bytes: int
    traffic: tuple[Traffic, ...]
    memory: StageMemory
    part: str = ""
    position: int | None = None
    layers: str = ""

    @property
    def title(self) -> str:
        """What tables call it: its number, with its part before and its expert-parallel position behind."""
        position = "" if self.position is None else f" ep {self.position}"
        return f"{self.part} {self.stage}{position}".lstrip()


def group_size(plan: StepPlan, name: str) -> int:
    """Members of a symbolic group."""
    if name == EMBEDDING_GROUP:
        return len(plan.model.tied_stages(plan.parallel.pp))
    if name in (MIRROR_GROUP, CACHE_GROUP, TOKEN_GROUP):
        return 2
    return plan.parallel.size(name.split("_"))


@checked
def summarize(plan: StepPlan) -> tuple[StageSummary, ...]:
    """Totals for every stage.

    Parameters
    ----------
    plan
        The step.
    """
    return tuple(_stage(part, stage) for part in plan.parts for stage in part.stages)


def _stage(plan: StepPlan, stage: StagePlan) -> StageSummary:
    uses = Counter(stamp.template for stamp in stage.stamps)
    nodes = matmul = again = ops = moved = 0
    calls: Counter[tuple[str, str, int]] = Counter()
    stays = Counter[tuple[str, str, int]]()
    for index, times in uses.items():
        t = stage.templates[index]
        nodes += times * len(t)
        matmul += times * t.matmul_flops
        again += times * t.recomputed_flops
        ops += times * sum(t.flops)
        moved += times * sum(t.bytes)
        for node_type, kind, group, size, shares in zip(
            t.types, t.kinds, t.groups, t.comm_bytes, t.shares, strict=True
        ):
            if node_type == NodeType.COMM_COLL and isinstance(kind, CollectiveKind):
                calls[group or "", kind.value, size] += times
                if shares and stage.position is not None:
                    stays[group or "", kind.value, size] += times * shares[0][stage.position]
            elif node_type == NodeType.COMM_SEND:
                calls[group or "", "SEND", size] += times
            elif node_type == NodeType.COMM_RECV:
                calls[group or "", "RECV", size] += times
    chunks = plan.chunks_of(stage)
    return StageSummary(
        stage.stage,
        plan.ranks_of(stage),
        nodes,
        sum(layer.parameters for chunk in chunks for layer in chunk),
        matmul,
        again,
        ops - matmul,
        moved,
        _traffic(plan, calls, stays),
        stage_memory(plan, stage),
        plan.name,
        stage.position,
        _layer_spans([layer.name for chunk in chunks for layer in chunk]),
    )


def _layer_spans(names: Sequence[str]) -> str:
    """The numbers of layers in words: those in a row as a span, an encoder's behind its name; and modules."""
    spans: list[tuple[str, int, int]] = []
    for name in names:
        stack = "encoder " if name.startswith("encoder") else ""
        digits = name.removeprefix("encoder").removeprefix("layer")
        if not is_whole(digits, 9):
            continue
        number = whole_number(digits)
        if spans and spans[-1][0] == stack and spans[-1][2] == number - 1:
            spans[-1] = (stack, spans[-1][1], number)
        else:
            spans.append((stack, number, number))
    said = [f"{stack}{first}" if first == last else f"{stack}{first}-{last}" for stack, first, last in spans]
    return ", ".join(
        said + [name.removesuffix(".predictor") for name in names if name.endswith(".predictor")]
    )


def _traffic(
    plan: StepPlan,
    calls: Mapping[tuple[str, str, int], int],
    stays: Mapping[tuple[str, str, int], int],
) -> tuple[Traffic, ...]:
    """Traffic by group and kind; ``stays`` is what does not leave its rank, of collectives of unequal shares."""
    merged: dict[tuple[str, str], list[float]] = {}
    for (group, kind, size), times in sorted(calls.items()):
        entry = merged.setdefault((group, kind), [0, 0, 0.0])
        entry[0] += times
        entry[1] += times * size
        if kind == "SEND":
            entry[2] += times * size
        elif (group, kind, size) in stays:
            entry[2] += times * size - stays[group, kind, size]
        elif kind != "RECV":
            entry[2] += times * sent_bytes(CollectiveKind(kind), size, group_size(plan, group))
    return tuple(
        Traffic(group, kind, group_size(plan, group), int(count), int(size), sent)
        for (group, kind), (count, size, sent) in merged.items()
    )


@checked
def total_parameters(plan: StepPlan) -> int:
    """Distinct parameters over all ranks: replicas, tensor-parallel copies and tied copies counted once.

    Parameters
    ----------
    plan
        The step.
    """
    total = 0
    # the first of the stages that hold a tied embedding counts for all of them
    others = plan.model.tied_stages(plan.parallel.pp)[1:]
    for number, chunk in enumerate(plan.model.chunks):
        for layer in chunk:
            for weight in layer.weights():
                if weight.tied and plan.model.stage_of(number, plan.parallel.pp) in others:
                    continue
                copies = plan.parallel.size(weight.group.replica_axes()) * plan.parallel.pp * weight.copies
                total += weight.elements * plan.parallel.world // copies
    return total


@checked
def total_matmul_flops(plan: StepPlan) -> int:
    """Matrix FLOPs of the step over all ranks.

    Parameters
    ----------
    plan
        The step.
    """
    return sum(stage.matmul_flops * stage.ranks for stage in summarize(plan))
