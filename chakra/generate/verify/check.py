"""Checking a planned training step of a transformer against the closed forms (``--check``)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.ir import Layer, WeightGroup
from chakra.generate.model.layer_kinds import Feed, Mixer
from chakra.generate.model.placement import joined
from chakra.generate.plan.options import Recompute, Zero
from chakra.generate.plan.training import StepPlan
from chakra.generate.request.transformers import Mode, TransformerRequest
from chakra.generate.schedule.pipeline import ScheduleKind
from chakra.generate.verify import closed_forms as closed
from chakra.generate.verify.step_totals import StageSummary, summarize, total_matmul_flops, total_parameters
from chakra.io.digits import whole_number
from chakra.replay.config.model import CollectiveKind


@dataclass(frozen=True, slots=True)
class Check:
    """One figure of a step: the closed form's value, the generated one, and whether they are the same."""

    name: str
    expected: float
    found: float
    unit: str

    @property
    def passed(self) -> bool:
        """Whether both agree exactly."""
        return self.expected == self.found


def check_step(request: TransformerRequest, plan: StepPlan) -> list[Check]:
    """Compare a plan with the closed forms of :mod:`chakra.generate.verify.closed_forms`.

    Every check is exact. Vocabularies that tp does not divide are padded, and key-value heads fewer than tp are
    copied; the closed forms then speak of the padded model. FLOPs are left out where `why_no_flops` says so.
    """
    return list(_checks(request, plan))


def why_no_flops(request: TransformerRequest, plan: StepPlan) -> str:
    """Why the FLOPs of a step are not compared with a closed form; empty: they are."""
    tps = [plan.parallel.tp, *(beside.parallel.tp for beside in plan.beside)]
    for tp in tps:
        reason = _copied(request, tp)
        if reason:
            return f"{reason}, and the closed forms count that once"
    if request.capacity != 1.0:
        return f"with capacity {request.capacity:g} experts do not compute on what each token sends"
    if request.mode is not Mode.TRAIN and request.causal:
        return "those of causal products are known of training alone"
    return ""


def _checks(request: TransformerRequest, plan: StepPlan) -> Iterator[Check]:
    model, parallel = request.config(), plan.parallel
    padded = replace(model, vocabulary=-(-model.vocabulary // parallel.tp) * parallel.tp)
    yield Check("parameters", closed.parameters(padded), total_parameters(plan), "")
    stages = summarize(plan)
    micro_batches = plan.training.micro_batches
    flops_known = not why_no_flops(request, plan)
    if request.mode is Mode.TRAIN and flops_known:
        sequences = request.micro_batch * micro_batches * parallel.dp
        flops = closed.training_flops(
            padded, sequences, model.sequence, request.recompute, causal=request.causal,
            frozen_encoder=request.freeze_encoder,
        )  # fmt: skip
        flops *= plan.training.iterations
        yield Check("matrix FLOPs of all ranks", flops, total_matmul_flops(plan), "FLOP")
    if request.mode in (Mode.PREFILL, Mode.DECODE, Mode.SERVE) and request.capacity == 1.0:
        yield from _inference(request, plan, stages, padded, flops=flops_known)
    if request.mode is Mode.DISAGGREGATED:
        yield from _disaggregated(request, plan, stages, flops=flops_known)
    if request.mode is Mode.TRAIN:
        yield from _pipeline(request, plan, stages)
        yield from _data_parallel(plan, stages)
        yield from _sharded(plan, stages)
        yield from _expert_parallel(request, plan, stages)
        yield from _mirrored(plan, stages)
        yield from _tied(padded, plan, stages)
        if model.source_tokens:
            yield from _encoder_parallel(request, plan, stages)
        elif not model.has_experts and parallel.tp > 1 and _middle(plan):
            yield from _tensor_parallel(request, plan, stages[1])


def _copied(request: TransformerRequest, tp: int) -> str:
    """Which products tensor-parallel ranks repeat, in words; empty: none."""
    model = request.config()
    if tp == 1:
        return ""
    repeated = []
    # these work on whatever part of the residual stream a rank has, which is all of it without sequence parallelism
    if not request.sp:
        repeated += ["routers"] * model.has_experts
        repeated += ["compressing matrices of latent attention"] * bool(model.latent)
        repeated += ["the matrix of patches"] * (model.patch > 0)
    # whole on every rank in any case
    if model.encoder is not None:
        repeated += ["the encoder's matrix of patches"] * (model.encoder.patch > 0)
        repeated += ["the convolutions of the spectrum"] * (model.encoder.mel > 0)
    kinds = [*model.variants(), *model.mtp_layers()]
    repeated += ["copies of key-value heads"] * any(
        one.mixer is Mixer.ATTENTION and one.kv_heads < tp for one in kinds
    )
    repeated += ["copies of state-space layers' groups"] * any(
        one.mixer is Mixer.MAMBA2 and one.state_groups < tp for one in kinds
    )
    if not repeated:
        return ""
    return f"all {tp} tensor-parallel ranks work on {' and '.join(repeated)}"


def _sum(stage: StageSummary, group: str, kind: str) -> tuple[int, int]:
    found = [t for t in stage.traffic if t.group == group and t.kind == kind]
    return sum(t.calls for t in found), sum(t.size_bytes for t in found)


def _disaggregated(
    request: TransformerRequest, plan: StepPlan, stages: tuple[StageSummary, ...], *, flops: bool
) -> Iterator[Check]:
    """Every request's cache leaves the prefill ranks once for each copy that decode ranks keep, and so arrives."""
    model, decode = request.config(), plan.beside[0]
    requests = request.micro_batch * plan.training.micro_batches * plan.parallel.dp
    itemsize, tp = plan.model.itemsize, decode.parallel.tp
    expected = requests * closed.moved_cache_bytes(model, model.sequence, itemsize, tp)
    for kind, what in (("SEND", "sent"), ("RECV", "received")):
        found = sum(_sum(stage, "kv", kind)[1] * stage.ranks for stage in stages)
        yield Check(f"keys and values {what}", expected, found, "B")
    batches = plan.training.micro_batches * plan.parallel.dp
    for kind, what in (("SEND", "sent"), ("RECV", "received")):
        found = sum(_sum(stage, "token", kind)[0] * stage.ranks for stage in stages)
        yield Check(f"first tokens {what}, messages", batches * decode.parallel.tp, found, "")
    if flops:
        steps = tuple(model.sequence + step + 1 for step in range(request.decode_steps))
        padded = replace(model, vocabulary=-(-model.vocabulary // plan.parallel.tp) * plan.parallel.tp)
        later = replace(model, vocabulary=-(-model.vocabulary // decode.parallel.tp) * decode.parallel.tp)
        total = closed.inference_flops(padded, prompt=model.sequence)
        total += closed.inference_flops(later, contexts=steps)
        yield Check("matrix FLOPs of all ranks", requests * total, total_matmul_flops(plan), "FLOP")


def _inference(
    request: TransformerRequest,
    plan: StepPlan,
    stages: tuple[StageSummary, ...],
    padded: TransformerConfig,
    *,
    flops: bool,
) -> Iterator[Check]:
    """Matrix FLOPs of a batch of requests, and what it leaves in the caches of all ranks."""
    requests = request.micro_batch * plan.training.micro_batches * plan.parallel.dp
    prompt, steps = request.prompt(padded), 0 if request.mode is Mode.PREFILL else request.decode_steps
    if flops:
        contexts = tuple(prompt + step + 1 for step in range(steps))
        prefilled = prompt if request.mode is not Mode.DECODE else 0
        each = closed.inference_flops(padded, prompt=prefilled, contexts=contexts)
        if prefilled:
            # context-parallel ranks run one program: each has the logits of the last token that it holds
            each += 2 * (plan.parallel.cp - 1) * padded.hidden * padded.vocabulary
        yield Check("matrix FLOPs of all ranks", requests * each, total_matmul_flops(plan), "FLOP")
    if padded.encoder is not None:
        tokens = request.micro_batch * plan.training.micro_batches * plan.parallel.dp
        each = closed.kv_cache_bytes(padded, prompt + steps, plan.model.itemsize)
        copies = max(1, plan.parallel.tp // padded.kv_heads)
        found = sum(stage.memory.cache * stage.ranks for stage in stages)
        yield Check("keys and values in caches", tokens * each * copies, found, "B")


def _tied(model: TransformerConfig, plan: StepPlan, stages: tuple[StageSummary, ...]) -> Iterator[Check]:
    """Gradients of an embedding that several stages hold: V*h/T numbers, once a step, on each of them.

    From ZeRO 2 on a rank has those of its shard alone.
    """
    shards = plan.parallel.size(plan.parallel.sharding(WeightGroup.DENSE.replica_axes()))
    sharded = plan.training.zero >= Zero.GRADIENTS
    for stage in stages if model.source_tokens or model.mtp else ():
        held = stage.stage in _embedding_stages(model, plan)
        elements = model.vocabulary // plan.parallel.tp * model.hidden
        size = (-(-elements // shards) if sharded else elements) * plan.model.grad_itemsize
        expected = held * size * plan.training.iterations
        yield Check(
            f"tied embedding, stage {stage.title}, bytes",
            expected,
            _sum(stage, "embed", "ALL_REDUCE")[1],
            "B",
        )


def _middle(plan: StepPlan) -> bool:
    """Whether the second stage has layers of the model alone, neither an end of it nor an encoder."""
    return plan.parallel.pp > 2 and not any(
        layer.encoder or layer.opens for chunk in plan.layers_of(1) for layer in chunk
    )


def _embedding_stages(model: TransformerConfig, plan: StepPlan) -> set[int]:
    """Stages that look tokens up by one matrix or multiply by it, where these are several."""
    last = plan.model.stage_of(len(plan.model.chunks) - 1, plan.parallel.pp)
    held = ({0} if model.shared_embedding else set()) | {plan.model.opened}
    held |= {last} if model.tied or model.mtp else set()
    return held if len(held) > 1 else set()


def _pipeline(
    request: TransformerRequest, plan: StepPlan, stages: tuple[StageSummary, ...]
) -> Iterator[Check]:
    parallel = plan.parallel
    if parallel.pp == 1:
        return
    chains = parallel.world // parallel.pp
    # chunks before the one with the projector, the first part that is trained
    first = [any(layer.name == "projector" for layer in chunk) for chunk in plan.model.chunks]
    frozen = first.index(True) if request.freeze_encoder else 0
    expected = closed.pipeline_messages(
        stages=parallel.pp, chunks=parallel.vp, micro_batches=plan.training.passes, chains=chains,
        encoder_stages=plan.model.opened if plan.model.memory_bytes else None,
        folded=plan.training.schedule is ScheduleKind.DUALPIPEV, frozen=frozen,
    )  # fmt: skip
    for kind in ("SEND", "RECV"):
        yield Check(
            f"pipeline {kind.lower()}s", expected, sum(_sum(s, "pp", kind)[0] * s.ranks for s in stages), ""
        )


def _expert_parallel(
    request: TransformerRequest, plan: StepPlan, stages: tuple[StageSummary, ...]
) -> Iterator[Check]:
    """Bytes that all ranks bring into exchanges with experts: every copy of a token that travels goes there and back."""
    model, parallel = request.config(), plan.parallel
    if parallel.ep == 1 or request.capacity != 1.0:
        return
    tokens = request.micro_batch * model.sequence // parallel.cp
    if request.layout().sp:
        tokens //= parallel.tp
    passes = 6 if request.recompute is Recompute.FULL else 4
    domains = parallel.ep // request.dispatch_domain if request.dispatch_domain else 0
    copies = sum(
        count * closed.copies_sent(one, tokens, domains) * one.expert_hidden
        for one, count in [*model.variants().items(), *((one, model.mtp) for one in model.mtp_layers())]
        if one.feed is Feed.MOE
    )
    times = passes * plan.training.passes * (parallel.world // parallel.pp)
    expected = times * copies * plan.model.itemsize
    found = sum(_sum(stage, "ep", "ALL_TO_ALL")[1] * stage.ranks for stage in stages)
    yield Check("exchange with experts, all ranks", expected, found, "B")


def _data_parallel(plan: StepPlan, stages: tuple[StageSummary, ...]) -> Iterator[Check]:
    """Bytes of gradients on one rank of the first stage: independent of micro-batches unless sharded (ZeRO-2, 3)."""
    parallel, zero = plan.parallel, plan.training.zero
    if parallel.ep > 1 or parallel.dp == 1 or parallel.cp > 1 or zero is not Zero.NONE:
        return
    for stage in stages:
        # of a mixture of experts those of the experts go over a group of their own
        found = sum(_sum(stage, group, "ALL_REDUCE")[1] for group in ("dp", "edp"))
        trained = sum(
            sum(elements)
            for layers in plan.layers_of(stage.stage, stage.position)
            for elements in (_elements(layers, group) for group in WeightGroup.trained())
        )
        expected = trained * plan.model.grad_itemsize * plan.training.iterations
        yield Check(f"gradient bytes, stage {stage.title}", expected, found, "B")


def _sharded(plan: StepPlan, stages: tuple[StageSummary, ...]) -> Iterator[Check]:
    """ZeRO: bytes of gradients and weights on one rank of each stage, and of shards across the copies of the model."""
    parallel = plan.parallel
    if plan.training.zero is Zero.NONE:
        return
    for stage in stages:
        chunks = plan.layers_of(stage.stage)
        across = 0
        for group in (WeightGroup.DENSE, WeightGroup.EXPERT):
            axes = parallel.sharding(group.replica_axes())
            ranks = parallel.size(axes)
            scattered, summed = closed.sharded_reductions(
                _reductions(plan, chunks, group), ranks, parallel.rdp
            )
            across += summed
            if group is WeightGroup.DENSE and plan.training.zero is Zero.WEIGHTS:
                # weights that are not trained are gathered all the same, of frozen layers for the forward pass alone
                frozen = _gathers(plan, chunks, WeightGroup.FROZEN, ranks)
            else:
                frozen = 0
            # a group of context ranks has gathers of attention besides
            if not scattered or axes == ("cp",):
                continue
            expected = {
                "REDUCE_SCATTER": scattered,
                "ALL_GATHER": frozen + _gathers(plan, chunks, group, ranks),
            }
            for kind, size in expected.items():
                name = f"{joined(axes)} {kind.lower().replace('_', '-')}, stage {stage.title}"
                yield Check(f"{name}, bytes", size, _sum(stage, joined(axes), kind)[1], "B")
        if parallel.rdp > 1:
            found = _sum(stage, "rdp", "ALL_REDUCE")[1]
            yield Check(f"shards across copies, stage {stage.title}, bytes", across, found, "B")


def _mirrored(plan: StepPlan, stages: tuple[StageSummary, ...]) -> Iterator[Check]:
    """DualPipe: gradients, or their shards, summed with the stage that holds the same parts of the model."""
    if plan.training.schedule is not ScheduleKind.DUALPIPE:
        return
    for stage in stages:
        expected = 0
        for group in (WeightGroup.DENSE, WeightGroup.EXPERT):
            ranks = plan.parallel.size(plan.parallel.sharding(group.replica_axes()))
            if plan.training.zero is Zero.NONE:
                ranks = 1
            sizes = _reductions(plan, plan.layers_of(stage.stage), group)
            expected += closed.sharded_reductions(sizes, ranks, 2)[1]
        found = _sum(stage, "mirror", "ALL_REDUCE")[1]
        yield Check(f"gradients of both copies, stage {stage.title}, bytes", expected, found, "B")


def _elements(layers: Sequence[Layer], group: WeightGroup) -> list[int]:
    """Parameters of each layer that belong to a group of weights."""
    return [sum(weight.elements for weight in layer.weights() if weight.group is group) for layer in layers]


def _reductions(plan: StepPlan, chunks: Sequence[Sequence[Layer]], group: WeightGroup) -> list[int]:
    """Bytes of gradients that a rank reduces in a step: of layers (ZeRO-3) or of buckets."""
    training, itemsize = plan.training, plan.model.grad_itemsize
    sizes = []
    for layers in chunks:
        each = [elements * itemsize for elements in _elements(layers, group)]
        if training.zero is not Zero.WEIGHTS:
            each = closed.bucket_sizes(sum(each), training.bucket_bytes)
        sizes += each
    once = training.zero <= Zero.OPTIMIZER or (training.zero is Zero.WEIGHTS and training.reduce_once)
    return sizes * (training.iterations if once else training.passes)


def _gathers(plan: StepPlan, chunks: Sequence[Sequence[Layer]], group: WeightGroup, ranks: int) -> int:
    """Bytes that a rank brings into gathers of weights: of layers, twice a micro-batch (ZeRO-3), or of all, once."""
    training = plan.training
    elements = [number for layers in chunks for number in _elements(layers, group)]
    if training.zero is Zero.WEIGHTS:
        again = [
            number
            for layers in chunks
            for number in _elements([layer for layer in layers if not layer.frozen], group)
        ]
        once = closed.gathered_shards(elements, ranks, plan.model.itemsize)
        twice = closed.gathered_shards(again, ranks, plan.model.itemsize)
        return training.passes * (once + (twice if training.reshard_after_forward else 0))
    whole = [sum(elements)] if training.optimizer_step else []
    return training.iterations * closed.gathered_shards(whole, ranks, plan.model.itemsize)


def _tensor_parallel(request: TransformerRequest, plan: StepPlan, stage: StageSummary) -> Iterator[Check]:
    model, parallel = request.config(), plan.parallel
    message = request.micro_batch * model.sequence // parallel.cp * model.hidden * plan.model.itemsize
    # each chunk of a stage has the micro-batches of its way
    micro_batches = plan.training.passes // (2 if plan.training.schedule is ScheduleKind.DUALPIPE else 1)
    layers = [layer for chunk in plan.layers_of(stage.stage) for layer in chunk]
    sp = request.layout().sp
    full = request.recompute is Recompute.FULL
    if model.latent:
        for kind, expected in closed.latent_parallel_bytes(
            model, layers=len(layers), micro_batches=micro_batches,
            tokens=request.micro_batch * model.sequence // parallel.cp, itemsize=plan.model.itemsize, tp=parallel.tp,
            sp=sp, full_recompute=full, regather=request.regather,
        ).items():  # fmt: skip
            name = f"tp {kind.lower().replace('_', '-')}, stage {stage.title}"
            yield Check(f"{name}, bytes", expected, _sum(stage, "tp", kind.value)[1], "B")
        return
    kinds = [model.at(whole_number(layer.name.removeprefix("layer"))) for layer in layers]
    expected_calls = closed.tensor_parallel_calls(
        blocks=sum((one.mixer is not Mixer.NONE) + (one.feed is not Feed.NONE) for one in kinds),
        micro_batches=micro_batches, message_bytes=message, tp=parallel.tp, sp=sp, full_recompute=full,
        regather=request.regather,
    )  # fmt: skip
    if not sp:
        tokens = request.micro_batch * model.sequence
        for one in kinds:
            if one.mixer is Mixer.MAMBA:
                expected_calls += closed.mamba_parallel_calls(
                    one,
                    passes=micro_batches,
                    tokens=tokens,
                    itemsize=plan.model.itemsize,
                    full_recompute=full,
                )
        normed = sum(closed.summed_norm(one) for one in kinds)
        if normed:
            size = normed * plan.model.grad_itemsize
            expected_calls.append(
                closed.CallCount("tp", CollectiveKind.ALL_REDUCE, plan.training.iterations, size)
            )
    yield from _calls(stage, expected_calls)


def _encoder_parallel(
    request: TransformerRequest, plan: StepPlan, stages: tuple[StageSummary, ...]
) -> Iterator[Check]:
    """Tensor parallelism of stages that have layers alone: neither an embedding, nor the end of a stack."""
    model, parallel = request.config(), plan.parallel
    assert model.encoder is not None
    if parallel.tp == 1:
        return
    row_bytes = request.micro_batch * model.hidden * plan.model.itemsize
    source, own = model.encoder.sequence * row_bytes, model.sequence * row_bytes
    given: dict[str, Any] = {
        "tp": parallel.tp, "sp": request.layout().sp, "full_recompute": request.recompute is Recompute.FULL,
        "regather": request.regather,
    }  # fmt: skip
    passes = plan.training.passes
    for stage in stages:
        found = [layer for chunk in plan.layers_of(stage.stage) for layer in chunk]
        if not all(layer.recomputable for layer in found):
            continue
        layers = sum(not layer.encoder for layer in found)
        calls = closed.tensor_parallel_calls(
            blocks=2 * (len(found) - layers), micro_batches=passes, message_bytes=source, **given
        )
        calls += closed.tensor_parallel_calls(
            blocks=3 * layers, micro_batches=passes, message_bytes=own, **given
        )
        calls += closed.cross_parallel_calls(blocks=layers, passes=passes, message_bytes=source, **given)
        yield from _calls(stage, calls)


def _calls(stage: StageSummary, expected_calls: Sequence[closed.CallCount]) -> Iterator[Check]:
    """Calls and bytes on tensor-parallel groups by one rank of a stage."""
    for kind in dict.fromkeys(call.kind for call in expected_calls):
        of_kind = [call for call in expected_calls if call.kind is kind]
        calls, size = _sum(stage, "tp", kind.value)
        name = f"tp {kind.lower().replace('_', '-')}, stage {stage.title}"
        yield Check(f"{name}, calls", sum(call.calls for call in of_kind), calls, "")
        yield Check(f"{name}, bytes", sum(call.calls * call.size_bytes for call in of_kind), size, "B")
