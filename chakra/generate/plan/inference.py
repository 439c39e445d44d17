"""Inference: prefill of prompts and decoding with a growing key-value cache, over tp, pp, ep and replicas.

Every decode step has its own template, because the work of attention grows with the context. In a pipeline the last
stage sends the new token back to the first, so a micro-batch's next step waits for its last one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from chakra.errors import UsageError
from chakra.generate.model.blocks import TokenShape, TransformerOptions
from chakra.generate.model.build import transformer_stages
from chakra.generate.model.compilation import compiled
from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.ir import Layer
from chakra.generate.model.routing import ExpertLoad, Experts
from chakra.generate.model.stage_model import StageModel
from chakra.generate.parallel import ParallelConfig
from chakra.generate.plan.options import TrainingOptions
from chakra.generate.plan.passes import Kept, PassContext, forward
from chakra.generate.plan.stamp import Stamp
from chakra.generate.plan.template import EmitOptions, Template, TemplateBuilder
from chakra.generate.plan.training import StagePlan, StepPlan, check_passes, stage_ranks
from chakra.generate.schedule.pipeline import forward_only

#: bytes of a token number on its way back to the first stage
TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True)
class InferenceOptions:
    """One batch of requests.

    Attributes
    ----------
    requests
        Requests per micro-batch and replica.
    micro_batches
        Micro-batches that share the pipeline.
    prompt
        Tokens per request before the first decode step.
    prefill
        Whether the prompt is processed in this trace, or already in the cache.
    decode_steps
        Tokens generated per request after the prompt (after the one that prefill gives).
    """

    requests: int = 1
    micro_batches: int = 1
    prompt: int = 512
    prefill: bool = True
    decode_steps: int = 0

    def __post_init__(self) -> None:
        for key in ("requests", "micro_batches", "prompt"):
            if getattr(self, key) < 1:
                raise UsageError(f"{key.replace('_', '-')} must be at least 1, not {getattr(self, key)}")
        if self.decode_steps < 0:
            raise UsageError(f"decode steps must not be negative, not {self.decode_steps}")
        if not self.prefill and not self.decode_steps:
            raise UsageError("nothing to do: no prefill and no decode steps")

    @property
    def first_token(self) -> int:
        """The first token that is made, of which prefill makes number 0."""
        return 0 if self.prefill else 1

    def shapes(self) -> list[TokenShape]:
        """Token shape of every step in order; decoding has what it needs of an encoder in its cache."""
        steps = [TokenShape(self.requests, self.prompt, self.prompt)] if self.prefill else []
        return steps + [
            TokenShape(self.requests, 1, self.prompt + step + 1, cached_memory=True)
            for step in range(self.decode_steps)
        ]


@dataclass(slots=True)
class _StageSteps:
    """Templates of one stage: one per step and chunk."""

    stage: int
    parallel: ParallelConfig
    models: Sequence[StageModel]
    options: InferenceOptions
    emit: EmitOptions
    templates: list[Template] = field(default_factory=list)

    def build(self, step: int, chunk: int) -> int | None:
        """Index of the template of a step; None where the stage has nothing to do in it."""
        model = self.models[step]
        number = chunk * self.parallel.pp + self.stage
        last, first = len(model.chunks) - 1, self._first(step)
        if number < first:
            return None
        layers = self._layers(step, number)
        builder = TemplateBuilder(self.emit)
        builder.host_does("passes")
        inputs: list[int] = []
        memory: list[int] = []
        if number > first:
            inputs = [self._receive(builder, step, number - 1, model.boundary_bytes(number - 1))]
            if self._carries(step, number - 1):
                tag = self._tag(step, len(model.chunks) + number)
                memory = [builder.receive("recv.encoder", "pp", -1, model.memory_bytes, tag)]
        elif step and first != last:
            # the token comes back from the last stage
            size, back = self.options.requests * TOKEN_BYTES, -1 - first % self.parallel.pp
            inputs = [self._receive(builder, step - 1, last, size, back)]
        builder.required = [*inputs, *memory]
        for i, layer in enumerate(layers):
            if layer.opens and model.memory_bytes and not self._decodes(step):
                memory, inputs = inputs, []
            context = PassContext(
                builder, self.parallel.axis_sizes, self._ring_tag(step, number, i), memory=memory
            )
            inputs = forward(context, layer, inputs, kept=Kept.NOTHING)
        if number < last:
            self._send(builder, step, number, model.boundary_bytes(number), inputs)
            if self._carries(step, number):
                tag = self._tag(step, len(model.chunks) + number + 1)
                builder.send("send.encoder", "pp", 1, model.memory_bytes, tag, memory)
        elif step + 1 < len(self.models):
            first = self._first(step + 1)
            if first != last:
                back = 1 + first % self.parallel.pp
                self._send(builder, step, number, self.options.requests * TOKEN_BYTES, inputs, back)
        builder.flush_host()
        self.templates.append(builder.template)
        return len(self.templates) - 1

    def _layers(self, step: int, number: int) -> list[Layer]:
        """Layers of a chunk that run in a step."""
        chunk = self.models[step].chunks[number]
        return [layer for layer in chunk if not (layer.encoder and self._decodes(step))]

    @property
    def working_bytes(self) -> int:
        """The largest result of an operator of the stage: in the first step, or in the last, whose cache is longest."""
        chunks = range(self.stage, len(self.models[0].chunks), self.parallel.pp)
        return max(
            (
                op.output_bytes
                for step in {0, len(self.models) - 1}
                for number in chunks
                for layer in self._layers(step, number)
                for op in layer.operators
            ),
            default=0,
        )

    def _decodes(self, step: int) -> bool:
        """Whether a step is one token for each request, for which an encoder has nothing to do."""
        return bool(step) or not self.options.prefill

    def _first(self, step: int) -> int:
        """The first chunk that computes in a step."""
        return self.models[step].opened if self._decodes(step) else 0

    def _carries(self, step: int, boundary: int) -> bool:
        return not self._decodes(step) and self.models[step].carries_memory(boundary)

    def _tag(self, step: int, boundary: int) -> int:
        return (boundary * len(self.models) + step) * self.options.micro_batches

    def _ring_tag(self, step: int, chunk: int, layer: int) -> int:
        chunks = len(self.models[0].chunks)
        steps = max(1, self.parallel.cp - 1) * 64
        deepest = max(len(chunk) for chunk in self.models[0].chunks)
        slot = (step * chunks + chunk) * deepest + layer
        return self._tag(0, chunks) + slot * steps

    def _receive(
        self, builder: TemplateBuilder, step: int, boundary: int, size: int, offset: int = -1
    ) -> int:
        return builder.receive("recv", "pp", offset, size, self._tag(step, boundary))

    def _send(
        self, builder: TemplateBuilder, step: int, boundary: int, size: int, data: list[int], offset: int = 1
    ) -> None:
        builder.send("send", "pp", offset, size, self._tag(step, boundary), data)


def plan_inference(
    model: TransformerConfig,
    parallel: ParallelConfig,
    options: InferenceOptions,
    layout: TransformerOptions,
    emit: EmitOptions,
    layers_per_chunk: Sequence[int] | None = None,
    about: Mapping[str, object] | None = None,
    *,
    compile_layers: bool = False,
    load: ExpertLoad | None = None,
    encoder_stages: int | None = None,
) -> StepPlan:
    """Templates and stamps of every stage for one batch of requests.

    Raises
    ------
    UsageError
        Sizes that do not divide, or context parallelism with decode steps.
    """
    if parallel.cp > 1 and options.decode_steps:
        raise UsageError(f"decoding does not split the context: cp must be 1, not {parallel.cp}")
    steps = options.decode_steps + options.prefill
    check_passes(steps * parallel.pp * parallel.vp * options.micro_batches)
    layout = replace(layout, training=False)
    models = _step_models(
        model, parallel, options, layout, layers_per_chunk, compile_layers=compile_layers, load=load,
        encoder_stages=encoder_stages,
    )  # fmt: skip
    # of the last step, whose cache is the largest
    positions = [steps[-1] for steps in models] if load else []
    stages = []
    for stage in range(parallel.pp):
        for position, ranks in stage_ranks(parallel, stage, positions):
            builder = _StageSteps(stage, parallel, models[position or 0], options, emit)
            stamps = []
            for step in range(len(models[0])):
                templates = [builder.build(step, chunk) for chunk in range(parallel.vp)]
                for micro_batch in range(options.micro_batches):
                    for chunk in range(parallel.vp):
                        made = chunk * parallel.pp + stage == len(models[0][0].chunks) - 1
                        label = f"{'P' if options.prefill and not step else 'D'}{step}.{micro_batch}"
                        template = templates[chunk]
                        if template is not None:
                            token = options.first_token + step if made else -1
                            stamps.append(Stamp(template, micro_batch, label, token=token))
            stages.append(
                StagePlan(
                    stage, tuple(builder.templates), tuple(stamps), ranks, position, builder.working_bytes
                )
            )
    training = TrainingOptions(micro_batches=options.micro_batches)
    schedule = forward_only(parallel.pp, options.micro_batches, parallel.vp)
    last = models[0][-1]
    return StepPlan(
        parallel, last, schedule, training, tuple(stages), about or {}, positions=tuple(positions)
    )


def _step_models(
    model: TransformerConfig,
    parallel: ParallelConfig,
    options: InferenceOptions,
    layout: TransformerOptions,
    layers_per_chunk: Sequence[int] | None,
    *,
    compile_layers: bool,
    load: ExpertLoad | None,
    encoder_stages: int | None,
) -> list[list[StageModel]]:
    """The model of every step, for each expert-parallel position where experts are not visited evenly, else once."""
    out = []
    for experts in [Experts(load, position) for position in range(parallel.ep)] if load else [None]:
        models = [
            replace(
                transformer_stages(model, parallel, shape, layout, layers_per_chunk, experts, encoder_stages),
                training=False, cached_sequences=options.requests * options.micro_batches,
                cached_tokens=options.prompt + options.decode_steps, cache_shares=parallel.cp,
            )
            for shape in options.shapes()
        ]  # fmt: skip
        out.append([compiled(one, parallel.axis_sizes) for one in models] if compile_layers else models)
    return out
