"""Attention of a transformer as one rank computes it: whole or grouped heads, latent, with sliding windows and sinks.

Latent attention (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1) compresses queries to ``q_rank`` and keys with values
to ``kv_rank``, and expands them by matrices that tp splits by heads. The compressing matrices are whole on every tp rank
and work on the residual stream as it lies, so that under sequence parallelism the compressed tensors are gathered and
not the residual stream. A head's keys are an expanded part and a rotary part that all heads share.

Decoding leaves keys and values compressed (``absorbed``): the expanding matrix of the keys is applied to the queries,
that of the values to the result, and all heads attend to one head of ``kv_rank`` and the rotary part, which is what the
cache holds.
"""

from collections.abc import Sequence
from dataclasses import replace

from chakra.et.operators import Attention, Direction, KernelKind, attention_pairs
from chakra.generate.model.blocks import NORM_OPS, Blocks, ContextParallel
from chakra.generate.model.ir import MEMORY, Edge, Operator, OpKind, Ring, Weight, Work
from chakra.generate.model.placement import PARTIAL, REPLICATE, Shard

#: operations an element of the rotary embedding
_ROPE_OPS = 6


class AttentionLayers(Blocks):
    """Attention between the residual stream and itself.

    Raises
    ------
    UsageError
        Sizes that do not divide by the parallel degrees; the message names both.
    """

    @property
    def absorbed(self) -> bool:
        """Whether keys and values stay compressed in the attention core: latent attention of one query."""
        return self.model.latent and not self.options.training and self.shape.queries == 1

    @property
    def masked(self) -> bool:
        """Whether masked pairs of query and key are left out."""
        return self.options.causal and self.model.masked

    def cached_bytes(self) -> int:
        """Bytes that a token leaves in the cache of one layer on this rank."""
        model = self.model
        if model.latent:
            return (model.kv_rank + model.rope_dim) * self.options.itemsize
        return 2 * self.kv_width * self.options.itemsize

    def _attention(self, window: int) -> list[Operator]:
        """Norm, projections, core and output of one layer, with the residual addition."""
        ops = [self._norm("norm1", -1, self.residual_bytes)]
        ops += self._latent(window) if self.model.latent else self._plain(window)
        model, out_bytes = self.model, self.tokens * self.value_width * self.options.itemsize
        producer = len(ops) - 1
        edge = self._stay(producer, out_bytes)
        if self._ulysses:
            heads, sequence = {"cp": Shard("heads")}, {"cp": Shard("sequence")}
            edge = Edge(producer, out_bytes, heads, sequence, sequence)
        ops.append(
            self._gemm(
                "proj", edge, self.tokens, model.hidden, self.value_width, out_bytes,
                (Weight(self.value_width * model.hidden), *self._bias(model.hidden, whole=True)),
            )
        )  # fmt: skip
        ops.append(self._add("add1", len(ops) - 1, -1))
        return ops

    # ------------------------------------------------------------------ projections

    def _plain(self, window: int) -> list[Operator]:
        """Queries, keys and values by one matrix."""
        model, item = self.model, self.options.itemsize
        q_bytes, kv_bytes = (self.tokens * width * item for width in (self.q_width, self.kv_width))
        width = self.q_width + 2 * self.kv_width
        ops = [
            self._gemm(
                "qkv", self._column_edge(0), self.tokens, width, model.hidden, self._column_input_saved(),
                (Weight((self.q_width) * model.hidden), self._kv_weight(), *self._qkv_bias()),
            )
        ]  # fmt: skip
        if model.rotary and not model.learned_positions:
            edge = self._stay(1, q_bytes + 2 * kv_bytes)
            elements = self.tokens * (self.q_width + self.kv_width)
            ops.append(self._elementwise("rope", (edge,), elements, ops=_ROPE_OPS, kind=KernelKind.ROPE))
        producer = len(ops)
        what = self._core_of(model.head_dim, 0, self.kv_heads, window)
        sources = [(producer, q_bytes), (producer, kv_bytes), (producer, kv_bytes)]
        biases = 0
        if model.relative_buckets:
            # the same numbers for all sequences
            biases = self.heads_here * what.queries * what.keys * item
        ops.append(self._core(what, sources, self.kv_width, self.kv_width, biases))
        return ops

    @property
    def _kv_copies(self) -> int:
        """Ranks of a tensor-parallel group that hold the same head of keys and values."""
        return max(1, self.parallel.tp // self.model.kv_heads)

    def _kv_weight(self) -> Weight:
        return Weight(2 * self.kv_width * self.model.hidden, copies=self._kv_copies)

    def _qkv_bias(self) -> tuple[Weight, ...]:
        return () if not self.model.biases else (Weight(self.q_width), *self._kv_bias())

    def _kv_bias(self) -> tuple[Weight, ...]:
        if not self.model.biases:
            return ()
        return (Weight((1 + self.model.key_bias) * self.kv_width, copies=self._kv_copies),)

    # ------------------------------------------------------------------ attention to an encoder

    def _cross(self, base: int) -> list[Operator]:
        """Attention to the encoder's output, behind operator ``base`` - 1: norm, projections, core, residual addition.

        Keys and values are those of the source, as many whatever the target is; decoding has them in its cache.
        """
        model, item = self.model, self.options.itemsize
        q_bytes = self.tokens * self.q_width * item
        ops = [self._norm("cross_norm", base - 1, self.residual_bytes)]
        ops.append(
            self._gemm(
                "cross_q", self._column_edge(base), self.tokens, self.q_width, model.hidden, self._column_input_saved(),
                (Weight(self.q_width * model.hidden), *self._bias(self.q_width)),
            )
        )  # fmt: skip
        queries = base + 1
        sources = [(queries, q_bytes)]
        if self.shape.cached_memory:
            # nothing is computed of the source again: its matrix is held all the same
            ops[-1] = replace(ops[-1], weights=(*ops[-1].weights, self._kv_weight(), *self._kv_bias()))
        else:
            ops.append(self._memory_keys())
            size = self.memory_tokens * self.kv_width * item
            sources += [(queries + 1, size), (queries + 1, size)]
        what = replace(
            self._core_of(model.head_dim, 0, self.kv_heads, 0), keys=self.shape.memory, causal=False
        )
        core = self._core(what, sources, self.kv_width, self.kv_width)
        ops.append(replace(core, name="cross_attention"))
        out_bytes = self.tokens * self.value_width * item
        producer = base + len(ops) - 1
        ops.append(
            self._gemm(
                "cross_proj", self._stay(producer, out_bytes), self.tokens, model.hidden, self.value_width, out_bytes,
                (Weight(self.value_width * model.hidden), *self._bias(model.hidden, whole=True)),
            )
        )  # fmt: skip
        ops.append(self._add("cross_add", producer + 1, base - 1))
        return ops

    def _memory_keys(self) -> Operator:
        """Keys and values of the encoder's output, which all layers of a chunk keep once between them."""
        hidden = self.model.hidden
        part = self.memory_tokens // (self.parallel.tp if self.options.sp else 1)
        return self._gemm(
            "cross_kv", self._column_edge(MEMORY, tokens=part), self.memory_tokens, 2 * self.kv_width, hidden, 0,
            (self._kv_weight(), *self._kv_bias()),
        )  # fmt: skip

    def memory_bytes(self) -> int:
        """Bytes of the encoder's output on this rank, as it travels between stages."""
        part = self.memory_tokens // (self.parallel.tp if self.options.sp else 1)
        return part * self.model.hidden * self.options.itemsize

    def kept_memory_bytes(self) -> int:
        """Bytes of it that stay for the gradients of the matrices that read it."""
        kept_shard = self.options.sp and self.options.regather
        part = self.memory_tokens // (self.parallel.tp if kept_shard else 1)
        return self._saved(part * self.model.hidden * self.options.itemsize)

    def cached_memory_bytes(self) -> int:
        """Bytes that the encoder's output leaves in the cache of one layer on this rank, for a sequence."""
        return 2 * self.kv_width * self.shape.memory * self.options.itemsize

    # ------------------------------------------------------------------ latent attention

    def _latent(self, window: int) -> list[Operator]:
        """Compressed queries, keys and values; operators 1 and on of the layer."""
        model, item = self.model, self.options.itemsize
        heads, latent, rope = self.heads_here, model.kv_rank, model.rope_dim
        ops: list[Operator] = []
        if model.q_rank:
            ops.append(self._down("q_down", model.q_rank, self.residual_bytes))
            ops.append(self._latent_norm("q_norm", 1, model.q_rank))
        narrow = model.q_rank or model.hidden
        queries = len(ops) + 1
        ops.append(
            self._gemm(
                "q_up" if model.q_rank else "q", self._column_edge(queries - 1, narrow), self.tokens, self.q_width,
                narrow, self._column_input_saved(narrow), (Weight(self.q_width * narrow),),
            )
        )  # fmt: skip
        compressed = len(ops) + 1
        # its input is what the matrix before keeps
        ops.append(self._down("kv_down", latent + rope, 0))
        ops.append(self._latent_norm("kv_norm", compressed, latent))
        # the rotary part of the keys: its gradient needs nothing gathered again
        shared = replace(self._column_edge(compressed, rope), regather=False)
        q_bytes = self.tokens * self.q_width * item
        if self.absorbed:
            ops.append(self._head_product("q_latent", queries, latent, model.head_dim))
            elements = self.tokens * rope * (heads + 1)
            edges: tuple[Edge, ...] = (self._stay(queries, q_bytes), shared)
            ops.append(self._elementwise("rope", edges, elements, ops=_ROPE_OPS, kind=KernelKind.ROPE))
            rotated = len(ops)
            what = replace(self._core_of(latent + rope, latent, 1, window), latent=True)
            part = self.tokens * heads * item
            sources = [(rotated - 1, part * latent), (rotated, part * rope)]
            sources.append((compressed + 1, self.tokens * latent * item))
            ops.append(self._core(what, sources, latent + rope, 0))
            ops.append(self._head_product("v_up", len(ops), model.value_head, latent))
            return ops
        wide = heads * (model.head_dim + model.value_head)
        ops.append(
            self._gemm(
                "kv_up", self._column_edge(compressed + 1, latent), self.tokens, wide, latent,
                self._column_input_saved(latent), (Weight(wide * latent),),
            )
        )  # fmt: skip
        expanded = len(ops)
        # the rotary part of queries in its place, and keys written whole
        elements = self.tokens * heads * (rope + model.head_dim + rope)
        edges = (
            self._stay(queries, q_bytes),
            self._stay(expanded, self.tokens * heads * model.head_dim * item),
            shared,
        )
        ops.append(self._elementwise("rope", edges, elements, ops=_ROPE_OPS, kind=KernelKind.ROPE))
        what = self._core_of(model.head_dim + rope, model.value_head, heads, window)
        rotated = len(ops)
        sources = [(rotated, q_bytes), (rotated, q_bytes), (expanded, self.tokens * self.value_width * item)]
        ops.append(self._core(what, sources, self.q_width, self.value_width))
        return ops

    def _down(self, name: str, width: int, saved: int) -> Operator:
        """A compressing matrix: whole on every tp rank, applied to the residual stream as it lies."""
        hidden = self.model.hidden
        weight = Weight(hidden * width, partial_tp=self.options.sp, copies=self.parallel.tp)
        edge = self._stay(0, self.residual_bytes)
        return self._gemm(name, edge, self.residual_tokens, width, hidden, saved, (weight,))

    def _latent_norm(self, name: str, producer: int, width: int) -> Operator:
        elements = self.residual_tokens * width
        size = elements * self.options.itemsize
        weight = Weight(width, partial_tp=self.options.sp, copies=self.parallel.tp)
        return self._elementwise(
            name, (self._stay(producer, size),), elements, ops=NORM_OPS, kind=KernelKind.NORM, weights=(weight,),
            saved=size,
        )  # fmt: skip

    def _head_product(self, name: str, producer: int, columns: int, inner: int) -> Operator:
        """Each head of a tensor times a matrix of its own."""
        heads = self.heads_here
        edge = self._stay(producer, self.tokens * heads * inner * self.options.itemsize)
        weight = Weight(heads * columns * inner)
        return self._gemm(name, edge, self.tokens, columns, inner, 0, (weight,), batch=heads)

    # ------------------------------------------------------------------ core

    @property
    def _split(self) -> bool:
        """Whether the queries of a sequence lie on several context ranks."""
        return self.parallel.cp > 1 and self.shape.queries > 1

    @property
    def _ulysses(self) -> bool:
        return self._split and self.options.context is ContextParallel.ULYSSES

    def _core_of(self, head: int, value_head: int, kv_heads: int, window: int) -> Attention:
        """What a rank's core computes."""
        options, shape = self.options, self.shape
        ulysses = self.parallel.cp if self._ulysses else 1
        queries, parts = self.tokens // shape.sequences * ulysses, 1
        if (self.masked or window) and self._split and not self._ulysses:
            # an equal share of all pairs that are left: ranks hold an early and a late piece of the sequence each
            queries, parts = shape.queries, self.parallel.cp
        return Attention(
            shape.sequences, self.heads_here // ulysses, max(1, kv_heads // ulysses), queries, shape.context, head,
            value_head=value_head if value_head != head else 0, causal=self.masked, window=window,
            sinks=self.model.sinks, fused=options.flash, dropout=self.model.dropout and options.training, parts=parts,
            type=options.types.compute,
        )  # fmt: skip

    def _core(
        self, what: Attention, sources: Sequence[tuple[int, int]], key_width: int, value_width: int, biases: int = 0
    ) -> Operator:  # fmt: skip
        """Scores, softmax and weighted sum: 2*(d_k + d_v) FLOPs for each pair and head; backward twice that.

        ``sources`` are producers and bytes of queries, keys and values; ``key_width`` and ``value_width`` those of a
        token's keys and values (0: the values are part of the keys), ``biases`` the bytes that are added to scores.
        """
        model, options, shape = self.model, self.options, self.shape
        item, cp = options.itemsize, self.parallel.cp
        heads = self.heads_here
        widths = heads * (what.head + (what.value_head or what.head))
        if what.window and what.window < what.keys:
            pairs = attention_pairs(shape.queries, what.keys, causal=what.causal, window=what.window)
            flops = 2 * shape.sequences * pairs * widths // (cp if self._split else 1)
        else:
            flops = 2 * self.tokens * what.keys * widths
            if what.causal and shape.queries > 1:
                flops //= 2
        scores = self.tokens * heads * what.keys
        # keys and values of all that is seen are read once per query block set: the model of a fused kernel
        keys = shape.sequences * what.seen * (key_width + value_width) * item
        if self._ulysses:
            keys //= cp
        moved = self.tokens * widths * item + keys + biases
        core_saved = 0
        if not options.flash:
            moved += 4 * scores * item
            core_saved = self._saved(scores * (2 * item + 1 if model.dropout else item))
        edges, ring = self._core_edges(what, sources)
        saved = sum(size for _, size in sources)
        return Operator(
            "attention", OpKind.ATTENTION, edges, Work(flops, moved, what=what),
            Work(2 * flops, 2 * moved, what=replace(what, direction=Direction.BACKWARD)),
            weights=(Weight(heads),) if model.sinks else (),
            output_bytes=self.tokens * heads * (what.value_head or what.head) * item,
            saved_bytes=self._saved(saved) + core_saved, core=True, core_bytes=core_saved, ring=ring,
        )  # fmt: skip

    def _core_edges(
        self, what: Attention, sources: Sequence[tuple[int, int]]
    ) -> tuple[tuple[Edge, ...], Ring | None]:
        """How queries, keys and values reach the core, and the ring round which keys and values go."""
        merged: dict[int, int] = {}
        for producer, size in sources:
            merged[producer] = merged.get(producer, 0) + size
        local = tuple(self._stay(producer, size) for producer, size in merged.items())
        if not self._split:
            return local, None
        if self._ulysses:
            heads, sequence = {"cp": Shard("heads")}, {"cp": Shard("sequence")}
            return tuple(Edge(producer, size, sequence, heads, heads) for producer, size in sources), None
        queries, *others = sources
        kv_bytes = sum(size for _, size in others)
        if self.options.context is ContextParallel.ALL_GATHER:
            gathered: dict[int, int] = {}
            for producer, size in others:
                gathered[producer] = gathered.get(producer, 0) + size
            return (
                self._stay(*queries),
                *(
                    Edge(
                        producer, size, {"cp": Shard("sequence")}, {"cp": REPLICATE}, {"cp": PARTIAL},
                        regather=self.options.training,
                    )
                    for producer, size in gathered.items()
                ),
            ), None  # fmt: skip
        steps = self.parallel.cp - 1
        if what.window:
            # no query of a block sees keys of blocks further back
            steps = min(steps, -(-(what.window - 1) // (self.tokens // self.shape.sequences)))
        return local, Ring("cp", steps, kv_bytes, 2 * kv_bytes) if steps else None
