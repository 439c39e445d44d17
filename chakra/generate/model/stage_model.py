"""A model cut into the chunks of a pipeline: which layers each stage and chunk holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from chakra.errors import UsageError
from chakra.generate.model.ir import Layer
from chakra.io.limits import MAX_GENERATED_NODES
from chakra.io.readable import counted


@dataclass(frozen=True)
class StageModel:
    """A model cut into chunks: ``chunks[g]`` are the layers of global chunk g = chunk * P + stage.

    ``itemsize`` and ``grad_itemsize`` are bytes per weight and per gradient. ``memory_bytes`` is a rank's part of what an
    encoder gives to all layers behind it. ``places`` are the stages of the chunks, where these do not follow each other
    round the pipeline. ``cached_sequences`` and ``cached_tokens`` are the sequences of which a replica
    keeps keys and values (inference) and the tokens of each, which ``cache_shares`` ranks share.
    """

    chunks: tuple[tuple[Layer, ...], ...]
    itemsize: int
    grad_itemsize: int
    memory_bytes: int = 0
    places: tuple[int, ...] = ()
    training: bool = True
    cached_sequences: int = 0
    cached_tokens: int = 0
    cache_shares: int = 1

    def __post_init__(self) -> None:
        """Refuse exchanges round a ring of more steps than a trace can hold, before they are laid out."""
        for chunk in self.chunks:
            steps = sum(op.ring.steps for layer in chunk for op in layer.operators if op.ring)
            if 3 * steps > MAX_GENERATED_NODES:
                raise UsageError(
                    f"{counted(steps, 'step')} of attention round the ring of cp ranks: more than "
                    f"{MAX_GENERATED_NODES} nodes; "
                    "take fewer cp ranks, or --context all-gather"
                )

    def of_stage(self, stage: int, stages: int) -> tuple[tuple[Layer, ...], ...]:
        """Chunks of one stage, in the order of its chunk numbers."""
        return self.chunks[stage::stages]

    def stage_of(self, chunk: int, stages: int) -> int:
        """Stage of ``stages`` that has a chunk."""
        return self.places[chunk] if self.places else chunk % stages

    def tied_stages(self, stages: int) -> tuple[int, ...]:
        """Stages of ``stages`` that hold copies of one embedding; none where it is on one of them alone."""
        holders = {self.stage_of(number, stages) for number in self._tied_chunks}
        return tuple(sorted(holders)) if len(holders) > 1 else ()

    @cached_property
    def _tied_chunks(self) -> tuple[int, ...]:
        return tuple(
            number
            for number, chunk in enumerate(self.chunks)
            if any(weight.tied for layer in chunk for weight in layer.weights())
        )

    @cached_property
    def deepest(self) -> int:
        """Layers of the chunk that has most."""
        return max(len(chunk) for chunk in self.chunks)

    @property
    def opened(self) -> int:
        """The first chunk with layers behind an encoder; 0 where there is no encoder."""
        opens = (number for number, chunk in enumerate(self.chunks) if any(layer.opens for layer in chunk))
        return next(opens, 0)

    def returns_gradient(self, boundary: int) -> bool:
        """Whether a gradient goes back from the chunk behind a boundary: something before it is trained."""
        return any(not layer.frozen for chunk in self.chunks[: boundary + 1] for layer in chunk)

    def boundary_bytes(self, boundary: int) -> int:
        """Size of the tensor between chunks ``boundary`` and ``boundary + 1``; one without layers passes it on."""
        for chunk in self.chunks[boundary::-1]:
            if chunk:
                return chunk[-1].output_bytes
        return 0

    def carries_memory(self, boundary: int) -> bool:
        """Whether the encoder's output goes from chunk ``boundary`` to the next one beside the layers' own tensor."""
        return self.memory_bytes > 0 and self.opened <= boundary < len(self.chunks) - 1

    def cache_bytes(self, stage: int, stages: int) -> int:
        """Keys and values that a rank of this stage keeps."""
        tokens, sequences = self.cached_tokens, self.cached_sequences
        return sum(
            min(layer.window or tokens, tokens) * layer.cached_bytes * sequences // self.cache_shares
            + layer.cached_memory_bytes * sequences
            for chunk in self.of_stage(stage, stages)
            for layer in chunk
        )


def split_layers(layers: int, chunks: int, sizes: Sequence[int] | None = None) -> list[range]:
    """Ranges of layers for each global chunk.

    Without ``sizes`` they are as even as possible; when they do not divide, the middle chunks get one more, because
    the first and last also carry the embedding and the head.

    Raises
    ------
    UsageError
        More chunks than layers, or sizes that do not add up.
    """
    if sizes is None:
        if chunks > layers:
            raise UsageError(
                f"{counted(layers, 'layer')} cannot fill {counted(chunks, 'pipeline chunk')} (pp x vp)"
            )
        base, extra = divmod(layers, chunks)
        low = (chunks - extra) // 2
        sizes = [base + (low <= chunk < low + extra) for chunk in range(chunks)]
    if len(sizes) != chunks or sum(sizes) != layers or min(sizes) < 0:
        raise UsageError(
            f"layers per chunk {list(sizes)}: {counted(chunks, 'count')} of at least 0 are needed that add up to "
            f"{counted(layers, 'layer')}"
        )
    ends = list(accumulate(sizes))
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def balanced(costs: Sequence[int], chunks: int) -> list[int]:
    """How many layers each chunk gets so that the one with most to do has least; each gets one at least.

    Only the largest chunk counts: the others are filled one after the other up to it, and the last may have far less.

    Parameters
    ----------
    costs
        What each layer costs.
    chunks
        Parts to cut them into.

    Raises
    ------
    UsageError
        More chunks than layers.
    """
    if chunks > len(costs):
        raise UsageError(
            f"{counted(len(costs), 'layer')} cannot fill {counted(chunks, 'pipeline chunk')} (pp x vp)"
        )
    low, high = max(costs), sum(costs)
    while low < high:
        bound = (low + high) // 2
        if len(_filled(costs, bound, chunks)) <= chunks:
            high = bound
        else:
            low = bound + 1
    return _filled(costs, low, chunks)


def _filled(costs: Sequence[int], bound: int, chunks: int) -> list[int]:
    """Chunks of at most ``bound``, filled one after the other, that leave a layer for each of those behind them."""
    sizes, held = [0], 0
    for number, cost in enumerate(costs):
        left, needed = len(costs) - number, chunks - len(sizes)
        if sizes[-1] and (held + cost > bound or left <= needed):
            sizes.append(0)
            held = 0
        sizes[-1] += 1
        held += cost
    return sizes


def split_stacks(
    stacks: tuple[int, int], stages: int, encoder_stages: int | None, sizes: Sequence[int] | None = None
) -> list[range]:
    """Ranges of layers for each stage of an encoder and what is behind it, numbered through.

    The first ``encoder_stages`` have the encoder's layers, the others those behind it, each as even as possible; without,
    the encoder gets a share of the stages like its share of all layers. One stage has both. ``sizes`` says all of it.

    Raises
    ------
    UsageError
        Stages that one of both does not get, more stages than layers, or sizes that do not add up.
    """
    encoder, decoder = stacks
    if encoder_stages is not None and sizes is not None:
        raise UsageError(
            "stage-layers says what every stage has, the encoder's layers first: encoder-stages must not be given"
        )
    if sizes is not None or (stages == 1 and encoder_stages is None):
        return split_layers(encoder + decoder, stages, sizes)
    if encoder_stages is None:
        # the nearest share; of two as near the smaller, because layers behind the encoder do more
        both = encoder + decoder
        encoder_stages = min(max(-((both - 2 * stages * encoder) // (2 * both)), 1), stages - 1)
    if stages == 1:
        raise UsageError(
            "one stage has the encoder and what is behind it: encoder-stages needs pp of at least 2"
        )
    if not 1 <= encoder_stages < stages:
        raise UsageError(
            f"encoder-stages must leave the layers behind the encoder a stage: 1 to {stages - 1} of pp = {stages}, not "
            f"{encoder_stages}"
        )
    first = split_layers(encoder, encoder_stages)
    later = split_layers(decoder, stages - encoder_stages)
    return first + [range(encoder + span.start, encoder + span.stop) for span in later]
