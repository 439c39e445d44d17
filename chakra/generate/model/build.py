"""Whole transformer models cut into pipeline chunks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from chakra.errors import UsageError
from chakra.generate.model.blocks import TokenShape, TransformerOptions
from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.ir import MEMORY, Layer, WeightGroup
from chakra.generate.model.layer_kinds import Feed
from chakra.generate.model.routing import Experts, dispatch_of
from chakra.generate.model.stage_model import StageModel, balanced, split_layers, split_stacks
from chakra.generate.model.transformer import TransformerLayers
from chakra.generate.parallel import ParallelConfig


def transformer_stages(
    model: TransformerConfig,
    parallel: ParallelConfig,
    shape: TokenShape,
    options: TransformerOptions,
    layers_per_chunk: Sequence[int] | None = None,
    experts: Experts | None = None,
    encoder_stages: int | None = None,
    places: Sequence[int] = (),
) -> StageModel:
    """Embedding, layers and head in pp*vp chunks, as a rank computes them; those of an encoder before them.

    Layers of one kind are built once and renamed, so the cost does not grow with the number of ranks or micro-batches.
    With ``experts`` the ranks are those of one expert-parallel position, and each layer with experts has its own load.
    ``encoder_stages`` of the stages are an encoder's, whose layers ``layers_per_chunk`` counts before the others; None:
    as many as it has of the layers. ``places`` are the stages of the chunks, if not in turn.

    Raises
    ------
    UsageError
        Sizes that do not divide by the parallel degrees, or parallelism that an encoder does not go with.
    """
    if parallel.ep > 1 and not model.has_experts:
        raise UsageError(f"expert parallelism (ep={parallel.ep}) needs a model with experts")
    count = parallel.pp * parallel.vp
    if model.encoder is None:
        if encoder_stages is not None:
            raise UsageError(f"model {model.name} has no encoder that encoder-stages could be of")
        if options.frozen_encoder:
            raise UsageError(f"model {model.name} has no encoder that freeze-encoder could be of")
        spans = split_layers(model.layers, count, layers_per_chunk)
    else:
        _check_encoder(model, parallel, frozen=options.frozen_encoder)
        shape = replace(shape, memory=model.source_tokens)
        if model.encoder.patch and encoder_stages is None and layers_per_chunk is None and count > 1:
            # its layers take a small part of the time of the others'
            encoder_stages = 1
        spans = split_stacks((model.encoder.layers, model.layers), count, encoder_stages, layers_per_chunk)
    parts = _Parts(model, parallel, shape, options, experts)
    stages = places or [number % parallel.pp for number in range(count)]
    chunks = [
        tuple(parts.chunk(stages[number], span, first=number == 0, last=number == count - 1))
        for number, span in enumerate(spans)
    ]
    memory = parts.make.memory_bytes()
    return StageModel(tuple(chunks), options.itemsize, options.grad_itemsize, memory, tuple(places))


def balanced_stages(
    model: TransformerConfig, parallel: ParallelConfig, shape: TokenShape, options: TransformerOptions
) -> list[int]:
    """Layers of each chunk, an encoder's first, so that the chunk with most matrix operations has least.

    Experts count as if they were visited evenly.

    Raises
    ------
    UsageError
        More chunks than layers, or sizes that do not divide by the parallel degrees.
    """
    if model.encoder is not None:
        shape = replace(shape, memory=model.source_tokens)
    costs = _Parts(model, parallel, shape, options, None).costs()
    return balanced(costs, parallel.pp * parallel.vp)


def _cost(*layers: Layer) -> int:
    """Matrix operations of layers; one that is trained goes backward, too, which takes twice as many."""
    return sum(
        op.forward.flops * (1 if layer.frozen else 3)
        for layer in layers
        for op in layer.operators
        if op.kind.is_matmul
    )


def _check_encoder(model: TransformerConfig, parallel: ParallelConfig, *, frozen: bool) -> None:
    if frozen and model.source_tokens:
        raise UsageError(
            f"model {model.name}: an encoder that layers attend to is trained with them: freeze-encoder is of one of "
            "images"
        )
    if parallel.cp > 1 and model.source_tokens:
        raise UsageError(
            f"model {model.name}: context parallelism splits one sequence, and a model with an encoder has two: cp must "
            f"be 1, not {parallel.cp}"
        )
    if parallel.vp > 1:
        raise UsageError(
            f"model {model.name}: an encoder's layers come before all others, and chunks would mix both on every "
            "stage: vp must be 1, and the schedule not dualpipev"
        )


class _Parts:
    """Makes the layers of a model's chunks; layers of one kind are built once."""

    def __init__(
        self,
        model: TransformerConfig,
        parallel: ParallelConfig,
        shape: TokenShape,
        options: TransformerOptions,
        experts: Experts | None,
    ) -> None:
        self.model, self.parallel, self.shape, self.options, self.experts = (
            model, parallel, shape, options, experts,
        )  # fmt: skip
        self.make = TransformerLayers(model, parallel, shape, options)
        self._encoder: TransformerLayers | None = None
        if model.encoder is not None:
            tokens, images = model.encoder.sequence, model.images if model.encoder.patch else 1
            source = TokenShape(shape.sequences * images, tokens, tokens)
            if model.encoder.patch:
                # images have no mask, and their tokens are not split
                options = replace(options, sp=False, causal=False)
            if options.frozen_encoder:
                options = replace(options, training=False)
            self._encoder = TransformerLayers(model.encoder, parallel, source, options)
        self._prototypes: dict[object, Layer] = {}
        #: stages that hold the embedding already
        self._holders: set[int] = set()

    def _owns(self, stage: int) -> bool:
        """Whether a stage has the embedding nowhere yet; it has it from now on."""
        owns = stage not in self._holders
        self._holders.add(stage)
        return owns

    def costs(self) -> list[int]:
        """What each layer costs, with what is before the first one, and behind an encoder's last and the last of all."""
        encoder, costs = self._encoder, []
        if encoder:
            one = _cost(self._of_encoder(self._prototype(("encoder", 0), encoder), ""))
            costs = [one] * encoder.model.layers
            costs[0] += _cost(self._of_encoder(encoder.embedding(), ""))
            costs[-1] += _cost(*self._behind_encoder(encoder))
        costs += [_cost(self._own_layer(index)) for index in range(self.model.layers)]
        costs[-1] += _cost(*self._predictors(-1), self.make.head(owns_weight=True))
        return costs

    def chunk(self, stage: int, span: range, *, first: bool, last: bool) -> Iterator[Layer]:
        """Layers of a chunk: those of an encoder have the first numbers of ``span``."""
        model, encoder = self.model, self._encoder
        before = encoder.model.layers if encoder else 0
        if first:
            yield self._before(stage) if encoder else self._embedding(stage)
        kept = 0
        for index in span:
            if encoder and index < before:
                yield self._of_encoder(self._prototype(("encoder", 0), encoder), f"encoder{index}")
                if index == before - 1:
                    yield from self._behind_encoder(encoder)
                continue
            if encoder and index == before:
                yield replace(self._embedding(stage), opens=True)
            layer = self._own_layer(index - before)
            if self.shape.memory and not kept:
                # the layers of a chunk read the same output of the encoder
                kept = self.make.kept_memory_bytes()
                layer = _keeping(layer, kept)
            yield layer
        if last:
            yield from self._predictors(stage)
            tied = model.tied
            yield self.make.head(owns_weight=self._owns(stage) if tied else True)

    def _predictors(self, stage: int) -> Iterator[Layer]:
        """The modules of multi-token prediction: their weights are the first one's where they are repeated."""
        model, options = self.model, replace(self.options, types=self.options.types.of("mtp"))
        for depth in range(model.mtp if options.training else 0):
            layers = [self.make.predictor(owns_weight=self._owns(stage))]
            for number, one in enumerate(model.mtp_layers()):
                # experts of a module are visited as those of a layer of the next number
                visited = self._dispatched(options, one, model.layers + depth)
                kind: object = ("mtp", one) if visited is options else ("mtp", one, depth)
                if kind not in self._prototypes:
                    made = TransformerLayers(one, self.parallel, self.shape, visited)
                    self._prototypes[kind] = made.layer()
                layers.append(replace(self._prototypes[kind], name=f"layer{number}"))
            for layer in layers:
                shared = depth >= model.mtp_modules
                yield replace(_without_weights(layer) if shared else layer, name=f"mtp{depth}.{layer.name}")

    def _before(self, stage: int) -> Layer:
        """What makes the tokens of the encoder."""
        assert self._encoder is not None
        shared = self.model.shared_embedding
        layer = self._encoder.embedding(owns_weight=self._owns(stage) if shared else True, shared=shared)
        return self._of_encoder(layer, "encoder_embedding")

    def _behind_encoder(self, encoder: TransformerLayers) -> Iterator[Layer]:
        closing = encoder.closing()
        if closing:
            yield self._of_encoder(closing, "encoder_norm")
        if encoder.model.patch:
            trained = replace(encoder.options, training=self.options.training)
            make = TransformerLayers(encoder.model, self.parallel, encoder.shape, trained)
            yield replace(make.projector(self.model.hidden), encoder=True)

    def _of_encoder(self, layer: Layer, name: str) -> Layer:
        """A layer of the encoder, with weights that are not trained where it is frozen."""
        layer = replace(layer, name=name, encoder=True)
        if not self.options.frozen_encoder:
            return layer
        operators = tuple(
            replace(op, weights=tuple(replace(w, group=WeightGroup.FROZEN) for w in op.weights))
            for op in layer.operators
        )
        return replace(layer, operators=operators, frozen=True, recomputable=False)

    def _embedding(self, stage: int) -> Layer:
        ahead = self.model.mtp > 0 and self.options.training
        shared = self.model.tied or self.model.shared_embedding or ahead
        return self.make.embedding(owns_weight=self._owns(stage) if shared else True, shared=shared)

    def _own_layer(self, index: int) -> Layer:
        """A layer behind the encoder."""
        one = self.model.at(index)
        kind: object = self.model.layer_key(index)
        here = self._dispatched(self.options, one, index)
        if here is not self.options:
            kind = index
        if kind not in self._prototypes:
            self._prototypes[kind] = _layer(self.model, index, self.parallel, self.shape, here)
        return replace(self._prototypes[kind], name=f"layer{index}")

    def _dispatched(
        self, options: TransformerOptions, one: TransformerConfig, index: int
    ) -> TransformerOptions:
        """Options of a layer of this number, with what its experts get where they are not visited evenly."""
        if self.experts is None or one.feed is not Feed.MOE:
            return options
        tokens = self.make.residual_tokens
        dispatch = dispatch_of(self.experts.load, one, index, tokens, self.parallel.ep, self.experts.position)
        return replace(options, dispatch=dispatch)

    def _prototype(self, kind: object, make: TransformerLayers) -> Layer:
        if kind not in self._prototypes:
            self._prototypes[kind] = TransformerLayers(
                make.model.at(0), self.parallel, make.shape, make.options
            ).layer()
        return self._prototypes[kind]


def _without_weights(layer: Layer) -> Layer:
    """A layer that multiplies by another one's matrices."""
    return replace(layer, operators=tuple(replace(op, weights=()) for op in layer.operators))


def _keeping(layer: Layer, kept_bytes: int) -> Layer:
    """A layer that keeps what it reads of the encoder's output for its gradients."""
    operators = tuple(
        replace(op, saved_bytes=op.saved_bytes + kept_bytes)
        if any(edge.producer == MEMORY for edge in op.edges)
        else op
        for op in layer.operators
    )
    return replace(layer, operators=operators, input_bytes=layer.input_bytes + kept_bytes)


def _layer(
    model: TransformerConfig,
    index: int,
    parallel: ParallelConfig,
    shape: TokenShape,
    options: TransformerOptions,
) -> Layer:
    """One layer of its own kind; what is wrong with it names its number where layers are listed."""
    try:
        return TransformerLayers(model.at(index), parallel, shape, options).layer()
    except UsageError as error:
        if not model.kinds:
            raise
        raise UsageError(f"{error} (layer {index})") from None
