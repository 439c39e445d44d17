"""Layers of a decoder-only transformer, dense or mixture of experts, as one rank computes them.

Layout: the residual stream is whole on every tp rank, or split along the sequence with sequence parallelism (``sp``);
query, key, value and first feed-forward matrices are split by columns, output projections by rows (Shoeybi et al. 2019,
arXiv 1909.08053; Korthikanti et al. 2022, arXiv 2205.05198). All collectives follow from these layouts through
:mod:`chakra.generate.model.placement`. Saved activations are those of Korthikanti et al., section 4.1.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from chakra.errors import UsageError
from chakra.et.operators import Attention, Direction, KernelKind, MatrixProduct
from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.ir import (
    NO_WORK,
    Edge,
    ElementTypes,
    Layer,
    Operator,
    OpKind,
    Ring,
    Weight,
    WeightGroup,
    Work,
    gemm,
    kernel,
)
from chakra.generate.model.placement import PARTIAL, REPLICATE, Placement, Shard
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
    """

    sequences: int
    queries: int
    context: int


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
    capacity_factor
        MoE: tokens per expert relative to an even share.
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
    capacity_factor: float = 1.0


#: operations per element, for the memory-bound operators' operation counts (they are bandwidth-bound everywhere)
_NORM_OPS, _ACTIVATION_OPS, _ROPE_OPS, _SOFTMAX_OPS = 5, 8, 6, 5


class TransformerLayers:
    """Builds the layers of one model for one parallelisation and token shape.

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
        self.tokens = shape.sequences * (shape.queries // cp if shape.queries > 1 else shape.queries)
        self.residual_tokens = self.tokens // tp if options.sp else self.tokens
        self.residual: Placement = Shard("sequence") if options.sp else REPLICATE
        self.residual_bytes = self.residual_tokens * model.hidden * options.itemsize
        self.full_bytes = self.tokens * model.hidden * options.itemsize
        self.q_width = model.attention_width // tp
        self.kv_heads = max(1, model.kv_heads // tp)
        self.kv_width = self.kv_heads * model.head_dim
        self.vocabulary = -(-model.vocabulary // tp)

    def _check(self) -> None:
        model, parallel, shape, options = self.model, self.parallel, self.shape, self.options
        tp, cp = parallel.tp, parallel.cp
        if shape.sequences < 1:
            raise UsageError(f"micro-batch must be at least 1, not {shape.sequences}")
        _divides("heads", model.heads, "tp", tp)
        if model.kv_heads % tp and tp % model.kv_heads:
            raise UsageError(f"kv-heads ({model.kv_heads}) and tp ({tp}): one must divide the other")
        if model.ffn and (not model.experts or model.dense_layers):
            _divides("ffn", model.ffn, "tp", tp)
        if model.experts:
            _divides("moe-ffn", model.moe_ffn, "tp", tp)
            _divides("experts", model.experts, "ep", parallel.ep)
        elif parallel.ep > 1:
            raise UsageError(f"expert parallelism (ep={parallel.ep}) needs a model with experts")
        if shape.queries > 1:
            _divides("sequence", shape.queries, "cp", cp)
            if options.sp:
                _divides("sequence/cp", shape.queries // cp, "tp", tp)
        elif options.sp:
            _divides("requests per micro-batch", shape.sequences, "tp", tp)
        if cp > 1 and shape.queries > 1 and options.context is ContextParallel.ULYSSES:
            _divides("heads/tp", model.heads // tp, "cp", cp)
            _divides("kv-heads/tp", max(1, model.kv_heads // tp), "cp", cp)

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
        work = kernel(kind, ops * elements, (reads + 1) * elements * item, elements, types=types)
        back = NO_WORK
        if backward:
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
    ) -> Operator:
        options = self.options
        forward, inputs, grads = gemm(
            rows, columns, inner, itemsize=options.itemsize, grad_itemsize=options.grad_itemsize, types=options.types
        )  # fmt: skip
        return Operator(
            name, OpKind.GEMM, (edge,), forward, inputs, grads, weights,
            output_bytes=rows * columns * options.itemsize, saved_bytes=self._saved(saved),
        )  # fmt: skip

    def _column_edge(self, producer: int) -> Edge:
        """Residual-stream tensor into a matrix split by columns: gathered under sp, gradients summed."""
        return Edge(
            producer, self.residual_bytes, {"tp": self.residual}, {"tp": REPLICATE}, {"tp": PARTIAL},
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
            name, (self._stay(producer, self.residual_bytes),), elements, ops=_NORM_OPS,
            kind=KernelKind.NORM, weights=(self._norm_weight(),), saved=saved,
        )  # fmt: skip

    def _column_input_saved(self) -> int:
        """What a column-parallel matrix keeps of its input: the shard when it gathers again, else all of it."""
        kept_shard = self.options.sp and self.options.regather
        return self.residual_bytes if kept_shard else self.full_bytes

    # ------------------------------------------------------------------ layers

    def decoder(self, index: int) -> Layer:
        """Transformer layer number ``index``: attention and a dense or MoE feed-forward."""
        ops = self._attention()
        ops += self._moe(len(ops)) if self.model.is_moe(index) else self._feed_forward(len(ops))
        return Layer(f"layer{index}", tuple(ops), self.residual_bytes, self.residual_bytes, recomputable=True)

    def _attention(self) -> list[Operator]:
        model, options = self.model, self.options
        item = options.itemsize
        q_bytes = self.tokens * self.q_width * item
        kv_bytes = self.tokens * self.kv_width * item
        ops = [self._norm("norm1", -1, self.residual_bytes)]
        width = self.q_width + 2 * self.kv_width
        ops.append(
            self._gemm(
                "qkv", self._column_edge(0), self.tokens, width, model.hidden, self._column_input_saved(),
                (Weight((self.q_width) * model.hidden), self._kv_weight(), *self._bias(width)),
            )
        )  # fmt: skip
        producer = 1
        if not model.learned_positions:
            edge = self._stay(producer, q_bytes + 2 * kv_bytes)
            elements = self.tokens * (self.q_width + self.kv_width)
            ops.append(self._elementwise("rope", (edge,), elements, ops=_ROPE_OPS, kind=KernelKind.ROPE))
            producer = 2
        ops.append(self._core(producer, q_bytes, kv_bytes))
        producer = len(ops) - 1
        ulysses = (
            self.parallel.cp > 1 and self.shape.queries > 1 and options.context is ContextParallel.ULYSSES
        )
        heads, sequence = {"cp": Shard("heads")}, {"cp": Shard("sequence")}
        edge = (
            Edge(producer, q_bytes, heads, sequence, sequence) if ulysses else self._stay(producer, q_bytes)
        )
        ops.append(
            self._gemm(
                "proj", edge, self.tokens, model.hidden, self.q_width, q_bytes,
                (Weight(self.q_width * model.hidden), *self._bias(model.hidden, whole=True)),
            )
        )  # fmt: skip
        ops.append(self._add("add1", len(ops) - 1, -1))
        return ops

    def _kv_weight(self) -> Weight:
        copies = max(1, self.parallel.tp // self.model.kv_heads)
        return Weight(2 * self.kv_width * self.model.hidden, copies=copies)

    def _core(self, producer: int, q_bytes: int, kv_bytes: int) -> Operator:
        """Scores, softmax and weighted sum: 2 products of s x d x s per head, 4*s*s*a*d FLOPs; backward twice that."""
        model, options, shape = self.model, self.options, self.shape
        item, cp = options.itemsize, self.parallel.cp
        split = cp > 1 and shape.queries > 1
        flops = 4 * self.tokens * shape.context * self.q_width
        if options.causal and shape.queries > 1:
            flops //= 2
        heads_here = model.heads // self.parallel.tp
        scores = shape.sequences * heads_here * (self.tokens // shape.sequences) * shape.context
        # keys and values of the whole context are read once per query block set: the model of a fused kernel
        keys = shape.sequences * shape.context * self.kv_width * item
        if split and options.context is ContextParallel.ULYSSES:
            keys //= cp
        moved = 2 * q_bytes + 2 * keys
        core_saved = 0
        if not options.flash:
            moved += 4 * scores * item
            core_saved = self._saved(scores * (2 * item + 1 if model.dropout else item))
        edges: tuple[Edge, ...]
        ring = None
        if not split:
            edges = (self._stay(producer, q_bytes + 2 * kv_bytes),)
        elif options.context is ContextParallel.ULYSSES:
            heads, sequence = {"cp": Shard("heads")}, {"cp": Shard("sequence")}
            edges = tuple(
                Edge(producer, size, sequence, heads, heads) for size in (q_bytes, kv_bytes, kv_bytes)
            )
        elif options.context is ContextParallel.ALL_GATHER:
            edges = (
                self._stay(producer, q_bytes),
                Edge(
                    producer, 2 * kv_bytes, {"cp": Shard("sequence")}, {"cp": REPLICATE}, {"cp": PARTIAL},
                    regather=options.training,
                ),
            )  # fmt: skip
        else:
            edges = (self._stay(producer, q_bytes + 2 * kv_bytes),)
            ring = Ring("cp", cp - 1, 2 * kv_bytes, 4 * kv_bytes)
        ulysses = cp if split and options.context is ContextParallel.ULYSSES else 1
        what = Attention(
            shape.sequences, heads_here // ulysses, max(1, self.kv_heads // ulysses),
            self.tokens // shape.sequences * ulysses, shape.context, model.head_dim, causal=options.causal,
            fused=options.flash, dropout=model.dropout and options.training, type=options.types.compute,
        )  # fmt: skip
        return Operator(
            "attention", OpKind.ATTENTION, edges, Work(flops, moved, what=what),
            Work(2 * flops, 2 * moved, what=replace(what, direction=Direction.BACKWARD)), output_bytes=q_bytes,
            saved_bytes=self._saved(2 * kv_bytes + q_bytes) + core_saved, core=True, core_bytes=core_saved, ring=ring,
        )  # fmt: skip

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

    def _feed_forward(self, base: int) -> list[Operator]:
        ops = [self._norm("norm2", base - 1, self.residual_bytes)]
        ops += self._mlp("fc", base, self.model.ffn, self._column_edge(base))
        ops.append(self._add("add2", base + 3, base - 1))
        return ops

    def _mlp(self, prefix: str, norm: int, width: int, edge: Edge) -> list[Operator]:
        """Two matrices with an activation (or gate) between; indices norm+1 .. norm+3."""
        model, options = self.model, self.options
        local = width // self.parallel.tp
        fan = 2 if model.gated else 1
        inner_bytes = self.tokens * local * options.itemsize
        return [
            self._gemm(
                f"{prefix}1", edge, self.tokens, fan * local, model.hidden, self._column_input_saved(),
                (Weight(fan * local * model.hidden), *self._bias(fan * local)),
            ),
            self._elementwise(
                f"{prefix}_act", (self._stay(norm + 1, fan * inner_bytes),), self.tokens * local, reads=fan,
                ops=_ACTIVATION_OPS, saved=fan * inner_bytes, kind=KernelKind.ACTIVATION,
            ),
            self._gemm(
                f"{prefix}2", self._stay(norm + 2, inner_bytes), self.tokens, model.hidden, local, inner_bytes,
                (Weight(local * model.hidden), *self._bias(model.hidden, whole=True)),
            ),
        ]  # fmt: skip

    def _moe(self, base: int) -> list[Operator]:
        """Router, dispatch, experts (split over ep and tp), combine, and shared experts beside them."""
        model, options = self.model, self.options
        item, rows = options.itemsize, self.residual_tokens
        # copies of tokens, one for each chosen expert (even routing)
        copies = _scaled(rows * model.experts_per_token, options.capacity_factor)
        router_bytes = rows * model.experts * item
        ops = [
            self._norm("norm2", base - 1, self.residual_bytes),
            self._router(base, router_bytes),
            self._elementwise(
                "permute", (self._stay(base, self.residual_bytes), self._stay(base + 1, router_bytes)),
                copies * model.hidden, kind=KernelKind.PERMUTE,
            ),
            *self._routed_mlp(base, copies),
        ]  # fmt: skip
        moved = copies * model.hidden
        works = [
            kernel(KernelKind.PERMUTE, 2 * moved, 2 * moved * item, moved, direction, options.types)
            for direction in (Direction.FORWARD, Direction.BACKWARD)
        ]
        ops.append(
            Operator(
                "unpermute", OpKind.ELEMENTWISE, (self._combine(base, copies), self._stay(base + 1, router_bytes)),
                works[0], works[1] if options.training else NO_WORK, output_bytes=self.residual_bytes,
                saved_bytes=self._saved(copies * model.hidden * item),
            )
        )  # fmt: skip
        extra: tuple[int, ...] = ()
        if model.shared_experts:
            shared = self._mlp(
                "shared", len(ops) + base - 1, model.shared_experts * model.moe_ffn, self._column_edge(base)
            )
            ops += shared
            extra = (base + len(ops) - 1,)
        elements = rows * model.hidden
        edges = (
            self._stay(base + 6, self.residual_bytes),
            self._stay(base - 1, self.residual_bytes),
            *(self._row_edge(other, self.full_bytes) for other in extra),
        )
        ops.append(
            Operator(
                "add2", OpKind.ELEMENTWISE, edges, self._sum(elements, len(extra)),
                output_bytes=self.residual_bytes,
            )
        )  # fmt: skip
        return ops

    def _router(self, base: int, output_bytes: int) -> Operator:
        """Scores of all experts for every token."""
        model, options = self.model, self.options
        forward, inputs, grads = gemm(
            self.residual_tokens, model.experts, model.hidden, itemsize=options.itemsize,
            grad_itemsize=options.grad_itemsize, types=options.types, role="router",
        )  # fmt: skip
        weight = Weight(model.hidden * model.experts, partial_tp=options.sp, copies=self.parallel.tp)
        edge = self._stay(base, self.residual_bytes)
        return Operator(
            "router", OpKind.GEMM, (edge,), forward, inputs, grads, (weight,),
            output_bytes=output_bytes, saved_bytes=self._saved(output_bytes),
        )  # fmt: skip

    def _routed(self, copies: int) -> int:
        """Copies of tokens that reach the experts of one rank after dispatch."""
        return copies * self.parallel.tp if self.options.sp else copies

    def _routed_mlp(self, base: int, copies: int) -> list[Operator]:
        """The experts of one rank, behind the dispatch of tokens to them."""
        model, parallel, item = self.model, self.parallel, self.options.itemsize
        routed = self._routed(copies)
        local, fan = model.moe_ffn // parallel.tp, 2 if model.gated else 1
        here, inner_bytes = model.experts // parallel.ep, routed * local * item
        experts = Shard("expert")
        dispatch = Edge(
            base + 2, copies * model.hidden * item, {"ep": Shard("token"), "tp": self.residual},
            {"ep": experts, "tp": REPLICATE}, {"ep": experts, "tp": PARTIAL},
        )  # fmt: skip
        return [
            self._experts(
                "expert1", dispatch, routed, fan * local, model.hidden, here, routed * model.hidden * item
            ),
            self._elementwise(
                "expert_act", (self._stay(base + 3, fan * inner_bytes),), routed * local, reads=fan,
                ops=_ACTIVATION_OPS, saved=fan * inner_bytes, kind=KernelKind.ACTIVATION,
            ),
            self._experts(
                "expert2", self._stay(base + 4, inner_bytes), routed, model.hidden, local, here, inner_bytes
            ),
        ]  # fmt: skip

    def _combine(self, base: int, copies: int) -> Edge:
        """Results of the experts, back to the ranks that have the tokens."""
        back = {"ep": Shard("token"), "tp": self.residual}
        routed_bytes = self._routed(copies) * self.model.hidden * self.options.itemsize
        return Edge(base + 5, routed_bytes, {"ep": Shard("expert"), "tp": PARTIAL}, back, back)

    def _experts(
        self, name: str, edge: Edge, rows: int, columns: int, inner: int, experts: int, saved: int
    ) -> Operator:
        """Grouped product of all local experts: FLOPs of the rows that arrive, bytes of every local expert's matrix."""
        options = self.options
        works = gemm(
            rows, columns, inner, itemsize=options.itemsize, grad_itemsize=options.grad_itemsize, types=options.types
        )  # fmt: skip
        matrix = columns * inner
        forward, inputs, grads = (
            _grouped(work, matrix * size, rows, experts)
            for work, size in zip(works, (options.itemsize, options.itemsize, options.grad_itemsize), strict=True)
        )  # fmt: skip
        return Operator(
            name, OpKind.GEMM, (edge,), forward, inputs, grads,
            (Weight(experts * columns * inner, WeightGroup.EXPERT),),
            output_bytes=rows * columns * options.itemsize, saved_bytes=self._saved(saved),
        )  # fmt: skip

    def embedding(self) -> Layer:
        """Vocabulary-parallel token embedding (a lookup: one operation an element) and learned positions."""
        model, options = self.model, self.options
        elements = self.tokens * model.hidden
        moved, kind = 2 * elements * options.itemsize, KernelKind.EMBEDDING
        grads = NO_WORK
        if options.training:
            updated = elements * (options.itemsize + 2 * options.grad_itemsize)
            grads = kernel(kind, elements, updated, elements, Direction.WEIGHT, options.types)
        lookup = Operator(
            "lookup", OpKind.LOOKUP, (), kernel(kind, elements, moved, elements, types=options.types), NO_WORK, grads,
            (Weight(self.vocabulary * model.hidden, tied=model.tied),), output_bytes=self.full_bytes,
        )  # fmt: skip
        weights: tuple[Weight, ...] = ()
        if model.learned_positions:
            rows = model.learned_positions * model.hidden
            weights = (Weight(rows, partial_tp=options.sp, copies=self.parallel.tp),)
        local = self.residual_tokens * model.hidden
        place = self._elementwise(
            "positions", (self._row_edge(0, self.full_bytes),), local, weights=weights,
            saved=local if model.dropout else 0, backward=options.training and model.dropout,
            kind=KernelKind.ADD,
        )  # fmt: skip
        return Layer("embedding", (lookup, place), 0, self.residual_bytes)

    def head(self, *, owns_weight: bool) -> Layer:
        """Final norm, output matrix and, in training, the vocabulary-parallel cross-entropy with its three sums.

        ``owns_weight`` is false where a tied embedding on the same stage already holds the matrix.
        """
        model, options = self.model, self.options
        weights = (Weight(self.vocabulary * model.hidden, tied=model.tied),) if owns_weight else ()
        ops = [self._norm("norm", -1, self.residual_bytes)]
        rows = self.tokens
        if not options.training and self.shape.queries > 1:
            rows = self.shape.sequences  # prefill needs the last token's logits only
        ops.append(
            self._gemm(
                "logits", self._column_edge(0), rows, self.vocabulary, model.hidden,
                self._column_input_saved(), weights,
            )
        )  # fmt: skip
        if options.training:
            ops += self._cross_entropy()
        return Layer("head", tuple(ops), self.residual_bytes, 0)

    def _cross_entropy(self) -> list[Operator]:
        """Megatron's vocabulary-parallel loss: all-reduces of the maximum, the target's logit and the sum of exps."""
        item = self.options.itemsize
        logits = self.tokens * self.vocabulary
        row_bytes = self.tokens * 4
        reduce_from = {"tp": PARTIAL}
        whole = {"tp": REPLICATE}

        def summed(producer: int) -> Edge:
            return Edge(producer, row_bytes, reduce_from, whole, None)

        def logits_edge(grad: bool) -> Edge:
            return Edge(1, logits * item, {}, {}, {} if grad else None)

        def op(
            name: str, edges: tuple[Edge, ...], work: Work, back: Work = NO_WORK, saved: int = 0
        ) -> Operator:
            return Operator(
                name,
                OpKind.ELEMENTWISE,
                edges,
                work,
                back,
                output_bytes=row_bytes,
                saved_bytes=self._saved(saved),
            )

        def loss(flops: int, moved: int, elements: int, direction: Direction = Direction.FORWARD) -> Work:
            return kernel(KernelKind.LOSS, flops, moved, elements, direction, self.options.types)

        read = loss(logits, logits * item, logits)
        gather = loss(self.tokens, self.tokens * item, self.tokens)
        final = loss(_SOFTMAX_OPS * logits, logits * (item + 4), logits, Direction.BACKWARD)
        return [
            op("loss_max", (logits_edge(grad=False),), read),
            op("loss_target", (summed(2),), gather),
            op("loss_sum", (summed(3), logits_edge(grad=False)), read),
            op(
                "loss", (summed(4), logits_edge(grad=True)), loss(self.tokens, row_bytes, self.tokens), final,
                saved=logits * 4,
            ),
        ]  # fmt: skip


def _divides(what: str, number: int, axis: str, size: int) -> None:
    if number % size:
        raise UsageError(f"{what} ({number}) must be a multiple of {axis} ({size})")


def _grouped(work: Work, matrix_bytes: int, rows: int, experts: int) -> Work:
    """A product of all rows as one of each expert's rows; every expert's matrix is read or written."""
    what = work.what
    if isinstance(what, MatrixProduct):
        what = what.grouped(rows, min(rows, experts))
    held = experts * matrix_bytes
    return Work(work.flops, work.bytes + held - matrix_bytes, expert_bytes=held, what=what)


def _scaled(count: int, factor: float) -> int:
    """``count`` times a capacity factor, rounded up."""
    scaled = count * factor
    return int(scaled) if scaled == int(scaled) else int(scaled) + 1
