"""A model cut into the chunks of a pipeline: which layers each stage and chunk holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from chakra.errors import UsageError
from chakra.generate.model.ir import Layer
from chakra.io.limits import MAX_GENERATED_NODES


@dataclass(frozen=True, slots=True)
class StageModel:
    """A model cut into chunks: ``chunks[g]`` are the layers of global chunk g = chunk * P + stage.

    ``itemsize`` and ``grad_itemsize`` are bytes per weight and per gradient. ``tied_copy`` says that first and last
    stage hold copies of one embedding. ``cached_sequences`` and ``cached_tokens`` are the sequences of which a replica
    keeps keys and values (inference) and the tokens of each, which ``cache_shares`` ranks share.
    """

    chunks: tuple[tuple[Layer, ...], ...]
    itemsize: int
    grad_itemsize: int
    tied_copy: bool = False
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
                    f"{steps} steps of attention round the ring of cp ranks: more than {MAX_GENERATED_NODES} nodes; "
                    "take fewer cp ranks, or --context all-gather"
                )

    def of_stage(self, stage: int, stages: int) -> tuple[tuple[Layer, ...], ...]:
        """Chunks of one stage, in the order of its chunk numbers."""
        return self.chunks[stage::stages]

    def cache_bytes(self, stage: int, stages: int) -> int:
        """Keys and values that a rank of this stage keeps."""
        tokens, sequences = self.cached_tokens, self.cached_sequences
        return sum(
            min(layer.window or tokens, tokens) * layer.cached_bytes * sequences // self.cache_shares
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
            raise UsageError(f"{layers} layers cannot fill {chunks} pipeline chunks (pp x vp)")
        base, extra = divmod(layers, chunks)
        low = (chunks - extra) // 2
        sizes = [base + (low <= chunk < low + extra) for chunk in range(chunks)]
    if len(sizes) != chunks or sum(sizes) != layers or min(sizes) < 0:
        raise UsageError(
            f"layers per chunk {list(sizes)}: {chunks} counts of at least 0 are needed that add up to {layers} layers"
        )
    ends = list(accumulate(sizes))
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]
