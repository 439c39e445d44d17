"""What the layers of a transformer are built of: matrices split by columns or rows, norms, and residual additions."""

from dataclasses import dataclass
from enum import StrEnum

from chakra.errors import UsageError
from chakra.et.operators import Direction, KernelKind
from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.ir import (
    NO_WORK,
    Edge,
    ElementTypes,
    Operator,
    OpKind,
    Weight,
    Work,
    gemm,
    kernel,
)
from chakra.generate.model.layer_kinds import STATE_SPACE, Feed, Mixer
from chakra.generate.model.placement import PARTIAL, REPLICATE, Placement, Shard
from chakra.generate.model.routing import Dispatch
from chakra.generate.parallel import ParallelConfig


class ContextParallel(StrEnum):
    """How attention reaches keys and values of the other context ranks."""

    RING = "ring"
    ALL_GATHER = "all-gather"
    ULYSSES = "ulysses"


@dataclass(frozen=True, slots=True)
class TokenShape:
    """One micro-batch as this rank sees it.

    Attributes
    ----------
    sequences
        Sequences (or requests) per micro-batch and replica, b.
    queries
        Query tokens per sequence over all context ranks: s in training and prefill, 1 in decoding.
    context
        Keys per query: s in training and prefill, tokens so far in decoding.
    memory
        Tokens per sequence that an encoder gives, which the layers attend to; 0: there is no encoder.
    cached_memory
        Whether their keys and values are in the cache.
    """

    sequences: int
    queries: int
    context: int
    memory: int = 0
    cached_memory: bool = False


@dataclass(frozen=True, slots=True)
class TransformerOptions:
    """Choices about layout and kernels that are not sizes.

    Attributes
    ----------
    sp
        Sequence parallelism along tp.
    regather
        With ``sp``: gather inputs again in the backward pass instead of keeping them whole.
    context
        Kind of context parallelism, when cp > 1.
    flash
        Fused attention: no a*s^2 tensor in memory.
    causal
        Count only the unmasked half of the attention core's work, as kernels that skip masked blocks do.
    itemsize
        Bytes per activation and weight.
    grad_itemsize
        Bytes per element of weight gradients.
    types
        Names of the element types, for what operators say of themselves.
    training
        Save activations and compute the loss; otherwise inference.
    frozen_encoder
        The encoder is not trained.
    capacity_factor
        MoE: tokens per expert relative to an even share.
    dispatch
        MoE: tokens that this rank sends and receives in this layer, where experts are not visited evenly.
    dispatch_domain
        MoE: neighbouring expert-parallel ranks that get a token once, whatever number of their experts it visits, and
        pass it on; 0: a copy travels for each expert.
    """

    sp: bool = False
    regather: bool = True
    context: ContextParallel = ContextParallel.RING
    flash: bool = True
    causal: bool = False
    itemsize: int = 2
    grad_itemsize: int = 4
    types: ElementTypes = ElementTypes()  # noqa: RUF009 - frozen
    training: bool = True
    frozen_encoder: bool = False
    capacity_factor: float = 1.0
    dispatch: Dispatch | None = None
    dispatch_domain: int = 0


#: operations per element of a norm, for the operation count (memory-bound everywhere)
NORM_OPS = 5


class Blocks:
    """Parts of the layers of one model for one parallelisation and token shape.

    Raises
    ------
    UsageError
        Sizes that do not divide by the parallel degrees; the message names both.
    """

    def __init__(
        self,
        model: TransformerConfig,
        parallel: ParallelConfig,
        shape: TokenShape,
        options: TransformerOptions,
    ) -> None:
        self.model, self.parallel, self.shape, self.options = model, parallel, shape, options
        tp, cp = parallel.tp, parallel.cp
        self._check()
        self.tokens = shape.sequences * (shape.queries // cp)
        self.residual_tokens = self.tokens // tp if options.sp else self.tokens
        self.residual: Placement = Shard("sequence") if options.sp else REPLICATE
        self.residual_bytes = self.residual_tokens * model.hidden * options.itemsize
        self.full_bytes = self.tokens * model.hidden * options.itemsize
        self.memory_tokens = shape.sequences * shape.memory
        self.heads_here = model.heads // tp
        self.q_width = model.attention_width // tp
        self.value_width = self.heads_here * model.value_head
        self.kv_heads = max(1, model.kv_heads // tp)
        self.kv_width = self.kv_heads * model.head_dim
        self.vocabulary = -(-model.vocabulary // tp)

    def _check(self) -> None:
        model, shape, options = self.model, self.shape, self.options
        tp, cp = self.parallel.tp, self.parallel.cp
        if shape.sequences < 1:
            raise UsageError(f"micro-batch must be at least 1, not {shape.sequences}")
        if model.patch:
            self._check_vision()
        if not model.kinds:
            # layers of several kinds are built, and checked, each by themselves
            self._check_layer()
        _divides("sequence", shape.queries, "cp", cp)
        if shape.queries > 1 and options.sp:
            _divides("sequence/cp", shape.queries // cp, "tp", tp)
        elif options.sp:
            what = "requests per micro-batch"
            if options.training:
                what = "sequences of one token are split as a whole: sequences per micro-batch"
            _divides(what, shape.sequences, "tp", tp)
        if model.kinds or model.mixer is not Mixer.ATTENTION:
            return
        if cp > 1 and shape.queries > 1 and options.context is ContextParallel.ULYSSES:
            _divides("heads/tp", model.heads // tp, "cp", cp)
            _divides("kv-heads/tp", max(1, model.kv_heads // tp), "cp", cp)

    def _check_layer(self) -> None:
        """Sizes of the layers, which are all of one kind or, with dense first layers, of two."""
        model, tp = self.model, self.parallel.tp
        if model.mixer is Mixer.ATTENTION:
            _divides("heads", model.heads, "tp", tp)
            if model.kv_heads % tp and tp % model.kv_heads:
                raise UsageError(f"kv-heads ({model.kv_heads}) and tp ({tp}): one must divide the other")
        elif model.mixer in STATE_SPACE:
            self._check_state_space()
        dense = model.feed is Feed.MLP or (model.feed is None and (not model.experts or model.dense_layers))
        if model.ffn and dense:
            _divides("ffn", model.ffn, "tp", tp)
        if model.experts and model.feed in (None, Feed.MOE):
            _divides("moe-ffn", model.moe_ffn, "tp", tp)
            _divides("experts", model.experts, "ep", self.parallel.ep)
            if self.options.dispatch_domain:
                _divides("ep", self.parallel.ep, "dispatch-domain", self.options.dispatch_domain)

    def _check_vision(self) -> None:
        name = f"model {self.model.name}"
        if self.options.sp or self.parallel.cp > 1:
            raise UsageError(
                f"{name}: patches and the class token of an image are not split: sp must be off, and cp 1"
            )
        if self.options.causal:
            raise UsageError(f"{name}: a vision model has no mask: causal must be off")
        if self.shape.queries == 1:
            raise UsageError(f"{name}: a vision model does not decode: mode must be train or prefill")

    def _check_state_space(self) -> None:
        model, tp, cp = self.model, self.parallel.tp, self.parallel.cp
        _divides("inner", model.inner, "tp", tp)
        if model.mixer is Mixer.MAMBA2:
            _divides("state-heads", model.state_heads, "tp", tp)
            if model.state_groups % tp and tp % model.state_groups:
                raise UsageError(
                    f"state-groups ({model.state_groups}) and tp ({tp}): one must divide the other"
                )
        if cp > 1:
            raise UsageError(
                f"state-space layers pass a state along the whole sequence, which is not split: cp must be 1, not {cp}"
            )

    # ------------------------------------------------------------------ building blocks

    def _saved(self, size_bytes: int) -> int:
        return size_bytes if self.options.training else 0

    def _norm_weight(self) -> Weight:
        elements = self.model.hidden * (2 if self.model.layer_norm else 1)
        return Weight(elements, partial_tp=self.options.sp, copies=self.parallel.tp)

    def _bias(self, elements: int, *, whole: bool = False) -> tuple[Weight, ...]:
        if not self.model.biases:
            return ()
        # a bias after a row-parallel matrix is whole on every tp rank
        if whole:
            return (Weight(elements, partial_tp=self.options.sp, copies=self.parallel.tp),)
        return (Weight(elements),)

    def _elementwise(
        self,
        name: str,
        edges: tuple[Edge, ...],
        elements: int,
        *,
        reads: int = 1,
        ops: int = 1,
        weights: tuple[Weight, ...] = (),
        saved: int = 0,
        backward: bool = True,
        kind: KernelKind,
    ) -> Operator:
        item, types = self.options.itemsize, self.options.types
        work = back = NO_WORK
        if elements:
            work = kernel(kind, ops * elements, (reads + 1) * elements * item, elements, types=types)
        if elements and backward:
            moved = (reads + 2) * elements * item
            back = kernel(kind, ops * elements, moved, elements, Direction.BACKWARD, types)
        return Operator(
            name,
            OpKind.ELEMENTWISE,
            edges,
            work,
            back,
            weights=weights,
            output_bytes=elements * item,
            saved_bytes=self._saved(saved),
        )

    def _gemm(
        self,
        name: str,
        edge: Edge,
        rows: int,
        columns: int,
        inner: int,
        saved: int,
        weights: tuple[Weight, ...],
        batch: int = 1,
        part: str = "",
    ) -> Operator:
        options = self.options
        forward, inputs, grads = gemm(
            rows, columns, inner, itemsize=options.itemsize, batch=batch, grad_itemsize=options.grad_itemsize,
            types=options.types.of(part),
        )  # fmt: skip
        return Operator(
            name, OpKind.GEMM, (edge,), forward, inputs, grads, weights,
            output_bytes=batch * rows * columns * options.itemsize, saved_bytes=self._saved(saved),
        )  # fmt: skip

    def _column_edge(self, producer: int, width: int | None = None, tokens: int | None = None) -> Edge:
        """Tensor of the residual stream's layout into a matrix split by columns: gathered under sp, gradients summed.

        ``tokens`` are those that the rank has of it, where they are others than the residual stream's.
        """
        rows = self.residual_tokens if tokens is None else tokens
        size = rows * (width or self.model.hidden) * self.options.itemsize
        return Edge(
            producer, size, {"tp": self.residual}, {"tp": REPLICATE}, {"tp": PARTIAL},
            regather=self.options.sp and self.options.regather and self.options.training,
        )  # fmt: skip

    def _row_edge(self, producer: int, size_bytes: int) -> Edge:
        """Output of a matrix split by rows, back into the residual stream."""
        place = {"tp": self.residual}
        return Edge(producer, size_bytes, {"tp": PARTIAL}, place, place)

    def _stay(self, producer: int, size_bytes: int) -> Edge:
        return Edge(producer, size_bytes)

    def _norm(self, name: str, producer: int, saved: int) -> Operator:
        elements = self.residual_tokens * self.model.hidden
        return self._elementwise(
            name, (self._stay(producer, self.residual_bytes),), elements, ops=NORM_OPS,
            kind=KernelKind.NORM, weights=(self._norm_weight(),), saved=saved,
        )  # fmt: skip

    def _column_input_saved(self, width: int | None = None) -> int:
        """What a column-parallel matrix keeps of its input: the shard when it gathers again, else all of it."""
        kept_shard = self.options.sp and self.options.regather
        tokens = self.residual_tokens if kept_shard else self.tokens
        return tokens * (width or self.model.hidden) * self.options.itemsize

    def _add(self, name: str, branch: int, residual: int, extra: tuple[int, ...] = ()) -> Operator:
        """Residual addition (with dropout): its backward is the identity, or the mask's product."""
        model, options = self.model, self.options
        elements = self.residual_tokens * model.hidden
        edges = (
            self._row_edge(branch, self.full_bytes),
            self._stay(residual, self.residual_bytes),
            *(self._row_edge(other, self.full_bytes) for other in extra),
        )
        work = self._sum(elements, len(extra))
        back = NO_WORK
        if model.dropout:
            moved = 2 * elements * options.itemsize + elements
            back = kernel(KernelKind.ADD, elements, moved, elements, Direction.BACKWARD, options.types)
        return Operator(
            name, OpKind.ELEMENTWISE, edges, work, back if options.training else NO_WORK,
            output_bytes=self.residual_bytes, saved_bytes=self._saved(elements if model.dropout else 0),
        )  # fmt: skip

    def _sum(self, elements: int, more: int) -> Work:
        """Work of adding ``more`` tensors and a residual to one."""
        moved = (3 + more) * elements * self.options.itemsize
        return kernel(KernelKind.ADD, (2 + more) * elements, moved, elements, types=self.options.types)


def _divides(what: str, number: int, axis: str, size: int) -> None:
    if number % size:
        raise UsageError(f"{what} ({number}) must be a multiple of {axis} ({size})")
