"""Whole transformer models cut into pipeline chunks."""

from collections.abc import Sequence
from dataclasses import replace

from chakra.errors import UsageError
from chakra.generate.model.blocks import TokenShape, TransformerOptions
from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.ir import Layer
from chakra.generate.model.layer_kinds import Feed
from chakra.generate.model.routing import Experts, dispatch_of
from chakra.generate.model.stage_model import StageModel, split_layers
from chakra.generate.model.transformer import TransformerLayers
from chakra.generate.parallel import ParallelConfig


def transformer_stages(
    model: TransformerConfig,
    parallel: ParallelConfig,
    shape: TokenShape,
    options: TransformerOptions,
    layers_per_chunk: Sequence[int] | None = None,
    experts: Experts | None = None,
) -> StageModel:
    """Embedding, decoder layers and head in pp*vp chunks, as a rank computes them.

    Layers of one kind are built once and renamed, so the cost does not grow with the number of ranks or micro-batches.
    With ``experts`` the ranks are those of one expert-parallel position, and each layer with experts has its own load.

    Raises
    ------
    UsageError
        Sizes that do not divide by the parallel degrees.
    """
    if parallel.ep > 1 and not model.has_experts:
        raise UsageError(f"expert parallelism (ep={parallel.ep}) needs a model with experts")
    make = TransformerLayers(model, parallel, shape, options)
    count = parallel.pp * parallel.vp
    prototypes: dict[object, Layer] = {}
    chunks = []
    for number, span in enumerate(split_layers(model.layers, count, layers_per_chunk)):
        layers: list[Layer] = [make.embedding()] if number == 0 else []
        for index in span:
            one = model.at(index)
            kind: object = model.layer_key(index)
            here = options
            if experts is not None and one.feed is Feed.MOE:
                kind = index
                tokens = make.residual_tokens
                dispatch = dispatch_of(experts.load, one, index, tokens, parallel.ep, experts.position)
                here = replace(options, dispatch=dispatch)
            if kind not in prototypes:
                prototypes[kind] = _layer(model, index, parallel, shape, here)
            base = prototypes[kind]
            layers.append(replace(base, name=f"layer{index}"))
        if number == count - 1:
            layers.append(make.head(owns_weight=not model.tied or count > 1))
        chunks.append(tuple(layers))
    return StageModel(
        tuple(chunks), options.itemsize, options.grad_itemsize, tied_copy=model.tied and parallel.pp > 1
    )


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
