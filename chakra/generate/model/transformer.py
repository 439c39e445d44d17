"""Layers of a transformer, dense or mixture of experts, as one rank computes them.

Layout: the residual stream is whole on every tp rank, or split along the sequence with sequence parallelism (``sp``);
query, key, value and first feed-forward matrices are split by columns, output projections by rows (Shoeybi et al. 2019,
arXiv 1909.08053; Korthikanti et al. 2022, arXiv 2205.05198). All collectives follow from these layouts through
:mod:`chakra.generate.model.placement`. Saved activations are those of Korthikanti et al., section 4.1.
"""

from dataclasses import replace

from chakra.et.operators import Direction, KernelKind, MatrixProduct
from chakra.generate.model.audio import AudioLayers
from chakra.generate.model.ir import (
    INPUT,
    NO_WORK,
    Edge,
    Layer,
    Operator,
    OpKind,
    Weight,
    WeightGroup,
    Work,
    gemm,
    kernel,
)
from chakra.generate.model.layer_kinds import STATE_SPACE, Feed, Mixer
from chakra.generate.model.placement import PARTIAL, REPLICATE, Shard, Shares
from chakra.generate.model.routing import sent_once

#: operations per element, for the memory-bound operators' operation counts (they are bandwidth-bound everywhere)
_ACTIVATION_OPS, _SOFTMAX_OPS = 8, 5


class TransformerLayers(AudioLayers):
    """Builds the layers of one model for one parallelisation and token shape.

    A layer is of one kind: where they are several, each is built from the model as `TransformerConfig.at` gives it.
    """

    def layer(self) -> Layer:
        """A layer: what mixes tokens, and a dense or MoE feed-forward, or one of them alone."""
        model = self.model
        ops: list[Operator] = []
        cached = window = 0
        if model.mixer is Mixer.ATTENTION:
            window = model.window
            ops += self._attention(window)
            if self.shape.memory:
                ops += self._cross(len(ops))
            # what sees all keys at once leaves none for later
            cached = self.cached_bytes() if model.masked else 0
        elif model.mixer in STATE_SPACE:
            # one state, whatever the context is
            window = 1
            ops += self._state_space()
            cached = self.state_bytes()
        if model.feed is Feed.MOE:
            ops += self._moe(len(ops))
        elif model.feed is Feed.MLP:
            ops += self._feed_forward(len(ops))
        if not ops:
            # neither: the residual stream passes through, and no node is made
            edge = self._stay(-1, self.residual_bytes)
            nothing = Operator(
                "nothing", OpKind.ELEMENTWISE, (edge,), NO_WORK, output_bytes=self.residual_bytes
            )
            return Layer("layer", (nothing,), self.residual_bytes, self.residual_bytes)
        return Layer(
            "layer", tuple(ops), self.residual_bytes, self.residual_bytes, recomputable=True, window=window,
            cached_bytes=0 if self.options.training else cached,
            cached_memory_bytes=0 if self.options.training else self.cached_memory_bytes(),
        )  # fmt: skip

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
                ops=_ACTIVATION_OPS, saved=fan * inner_bytes, kind=self._activation,
            ),
            self._gemm(
                f"{prefix}2", self._stay(norm + 2, inner_bytes), self.tokens, model.hidden, local, inner_bytes,
                (Weight(local * model.hidden), *self._bias(model.hidden, whole=True)),
            ),
        ]  # fmt: skip

    @property
    def _activation(self) -> KernelKind:
        return KernelKind.CLAMPED if self.model.clamped else KernelKind.ACTIVATION

    def _moe(self, base: int) -> list[Operator]:
        """Router, dispatch, experts (split over ep and tp), combine, and shared experts beside them.

        With a latent width two matrices stand around dispatch and combine, whole on every tp rank as the router is.
        """
        model, options = self.model, self.options
        item, rows, width = options.itemsize, self.residual_tokens, model.expert_hidden
        # copies of tokens, one for each chosen expert (even routing)
        copies = _scaled(rows * model.experts_per_token, options.capacity_factor)
        router_bytes = rows * model.experts * item
        ops = [
            self._norm("norm2", base - 1, self.residual_bytes),
            self._router(base, router_bytes),
        ]
        if model.moe_latent:
            ops.append(self._latent_matrix("latent_down", base, width, model.hidden))
        sent = base + len(ops) - 1 if model.moe_latent else base
        ops.append(
            self._elementwise(
                "permute", (self._stay(sent, rows * width * item), self._stay(base + 1, router_bytes)),
                copies * width, kind=KernelKind.PERMUTE,
            )
        )  # fmt: skip
        ops += self._routed_mlp(base + len(ops) - 1, copies)
        moved = copies * width
        works = [
            kernel(KernelKind.PERMUTE, 2 * moved, 2 * moved * item, moved, direction, options.types)
            for direction in (Direction.FORWARD, Direction.BACKWARD)
        ]
        ops.append(
            Operator(
                "unpermute", OpKind.ELEMENTWISE,
                (self._combine(base + len(ops) - 1, copies), self._stay(base + 1, router_bytes)),
                works[0], works[1] if options.training else NO_WORK, output_bytes=rows * width * item,
                saved_bytes=self._saved(copies * width * item),
            )
        )  # fmt: skip
        if model.moe_latent:
            ops.append(self._latent_matrix("latent_up", base + len(ops) - 1, model.hidden, width))
        combined = base + len(ops) - 1
        extra: tuple[int, ...] = ()
        if model.shared_experts:
            shared = self._mlp(
                "shared", len(ops) + base - 1, model.shared_experts * model.moe_ffn, self._column_edge(base)
            )
            ops += shared
            extra = (base + len(ops) - 1,)
        elements = rows * model.hidden
        edges = (
            self._stay(combined, self.residual_bytes),
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

    def _latent_matrix(self, name: str, producer: int, columns: int, inner: int) -> Operator:
        """A matrix between the residual stream's width and the experts'."""
        weight = Weight(columns * inner, partial_tp=self.options.sp, copies=self.parallel.tp)
        held = self.residual_tokens * inner * self.options.itemsize
        return self._gemm(
            name, self._stay(producer, held), self.residual_tokens, columns, inner, held, (weight,)
        )

    def _router(self, base: int, output_bytes: int) -> Operator:
        """Scores of all experts for every token."""
        model, options = self.model, self.options
        forward, inputs, grads = gemm(
            self.residual_tokens, model.experts, model.hidden, itemsize=options.itemsize,
            grad_itemsize=options.grad_itemsize, types=options.types, role="router",
        )  # fmt: skip
        elements = model.hidden * model.experts + (model.experts if model.biases else 0)
        weight = Weight(elements, partial_tp=options.sp, copies=self.parallel.tp)
        edge = self._stay(base, self.residual_bytes)
        return Operator(
            "router", OpKind.GEMM, (edge,), forward, inputs, grads, (weight,),
            output_bytes=output_bytes, saved_bytes=self._saved(output_bytes),
        )  # fmt: skip

    def _sent(self, copies: int) -> int:
        """Copies of tokens that travel to experts."""
        domain = self.options.dispatch_domain
        if not domain:
            return copies
        model = self.model
        return min(
            copies,
            sent_once(
                self.residual_tokens, model.experts, model.experts_per_token, self.parallel.ep // domain
            ),
        )

    def _routed(self, copies: int) -> int:
        """Copies of tokens that reach the experts of one rank after dispatch."""
        if self.options.dispatch is not None:
            copies = self.options.dispatch.rows
        return copies * self.parallel.tp if self.options.sp else copies

    def _shares(self) -> Shares | None:
        """What dispatch sends to and receives from each expert-parallel rank, where that is not even."""
        dispatch = self.options.dispatch
        if dispatch is None or len(dispatch.sent) == 1:
            return None
        token_bytes = self.model.expert_hidden * self.options.itemsize
        sent = tuple(copies * token_bytes for copies in dispatch.sent)
        return Shares(sent, (dispatch.received * token_bytes,) * len(sent))

    def _routed_mlp(self, permuted: int, copies: int) -> list[Operator]:
        """The experts of one rank, behind the dispatch of tokens to them; indices ``permuted`` + 1 and on."""
        model, parallel, item = self.model, self.parallel, self.options.itemsize
        width = model.expert_hidden
        routed = self._routed(copies)
        local, fan = model.moe_ffn // parallel.tp, 2 if model.gated else 1
        here, inner_bytes = model.experts // parallel.ep, routed * local * item
        experts = Shard("expert")
        dispatch = Edge(
            permuted, self._sent(copies) * width * item, {"ep": Shard("token"), "tp": self.residual},
            {"ep": experts, "tp": REPLICATE}, {"ep": experts, "tp": PARTIAL}, shares=self._shares(),
        )  # fmt: skip
        ops = [
            replace(
                self._experts(
                    "expert1", dispatch, routed, fan * local, width, here, routed * width * item
                ),
                counted=True,
            ),
            self._elementwise(
                "expert_act", (self._stay(permuted + 1, fan * inner_bytes),), routed * local, reads=fan,
                ops=_ACTIVATION_OPS, saved=fan * inner_bytes, kind=self._activation,
            ),
            self._experts(
                "expert2", self._stay(permuted + 2, inner_bytes), routed, width, local, here, inner_bytes, whole=True
            ),
        ]  # fmt: skip
        if model.biases:
            # p (x W + b): with the probability of a token, which no product has
            elements = routed * width
            bias = self._elementwise(
                "expert_bias", (self._stay(permuted + 3, elements * item),), elements, kind=KernelKind.BIAS
            )
            launches = min(routed, here)
            ops.append(
                replace(
                    bias,
                    forward=replace(bias.forward, launches=launches),
                    backward_input=replace(bias.backward_input, launches=launches),
                )
            )
        return ops

    def _combine(self, producer: int, copies: int) -> Edge:
        """Results of the experts, back to the ranks that have the tokens."""
        back = {"ep": Shard("token"), "tp": self.residual}
        routed_bytes = self._routed(self._sent(copies)) * self.model.expert_hidden * self.options.itemsize
        shares = self._shares()
        return Edge(
            producer, routed_bytes, {"ep": Shard("expert"), "tp": PARTIAL}, back, back,
            shares=shares.back() if shares else None,
        )  # fmt: skip

    def _experts(
        self,
        name: str,
        edge: Edge,
        rows: int,
        columns: int,
        inner: int,
        experts: int,
        saved: int,
        *,
        whole: bool = False,
    ) -> Operator:
        """Grouped product of all local experts: FLOPs of the rows that arrive, bytes of every local expert's matrix.

        ``whole``: a matrix split by rows, whose biases are whole on every tp rank.
        """
        options = self.options
        # experts that nobody visits compute nothing
        works = [NO_WORK] * 3
        if rows:
            works = gemm(
                rows, columns, inner, itemsize=options.itemsize, grad_itemsize=options.grad_itemsize,
                types=options.types,
            )  # fmt: skip
        matrix = columns * inner
        biases: tuple[Weight, ...] = ()
        if self.model.biases:
            copies = self.parallel.tp if whole else 1
            biases = (Weight(experts * columns, WeightGroup.EXPERT, copies=copies),)
        busy = experts if options.dispatch is None else options.dispatch.busy
        forward, inputs, grads = (
            _grouped(work, matrix * size, rows, busy) if rows else work
            for work, size in zip(works, (options.itemsize, options.itemsize, options.grad_itemsize), strict=True)
        )  # fmt: skip
        return Operator(
            name, OpKind.GEMM, (edge,), forward, inputs, grads,
            (Weight(experts * columns * inner, WeightGroup.EXPERT), *biases),
            output_bytes=rows * columns * options.itemsize, saved_bytes=self._saved(saved),
        )  # fmt: skip

    def embedding(self, *, owns_weight: bool = True, shared: bool = False) -> Layer:
        """What makes the tokens that the layers take: of words, patches or a spectrum; with positions.

        ``owns_weight`` is false where the matrix is that of another layer of the stage, ``shared`` true where it is
        that of another layer of the model.
        """
        model = self.model
        if model.patch:
            ops = self._patch_operators()
            if model.embedding_norm:
                ops.append(self._norm("embedding_norm", 1, self.residual_bytes))
            return Layer("embedding", tuple(ops), 0, self.residual_bytes)
        ops = self._spectrum_operators() if model.mel else [self._lookup(owns_weight, model.tied or shared)]
        if model.image_tokens and not self.shape.cached_memory:
            ops.append(self._images())
        ops.append(self._positions(len(ops) - 1))
        if model.relative_buckets:
            ops.append(self._relative_positions(len(ops) - 1))
        if model.embedding_norm:
            ops.append(self._norm("embedding_norm", len(ops) - 1, self.residual_bytes))
        return Layer("embedding", tuple(ops), 0, self.residual_bytes)

    def _lookup(self, owns_weight: bool, tied: bool) -> Operator:
        """Vocabulary-parallel token embedding (a lookup: one operation an element)."""
        model, options = self.model, self.options
        elements = self.tokens * model.hidden
        moved, kind = 2 * elements * options.itemsize, KernelKind.EMBEDDING
        grads = NO_WORK
        if options.training:
            updated = elements * (options.itemsize + 2 * options.grad_itemsize)
            grads = kernel(kind, elements, updated, elements, Direction.WEIGHT, options.types)
        weights = (Weight(self.vocabulary * model.hidden, tied=tied),) if owns_weight else ()
        return Operator(
            "lookup", OpKind.LOOKUP, (), kernel(kind, elements, moved, elements, types=options.types), NO_WORK, grads,
            weights, output_bytes=self.full_bytes,
        )  # fmt: skip

    def _positions(self, producer: int) -> Operator:
        """Learned positions added to tokens, and their dropout."""
        model, options = self.model, self.options
        weights: tuple[Weight, ...] = ()
        if model.learned_positions:
            rows, copies = model.learned_positions * model.hidden, self.parallel.tp
            weights = (Weight(rows, partial_tp=options.sp, copies=copies),)
            if model.fixed_positions:
                weights = (Weight(rows, WeightGroup.FROZEN, copies=copies),)
        local = self.residual_tokens * model.hidden
        place = {"tp": self.residual}
        # tokens of a spectrum are whole on every rank, those of words terms of a sum
        edge = self._row_edge(producer, self.full_bytes)
        if producer and not model.mel:
            edge = self._stay(producer, self.residual_bytes)
        if model.mel:
            edge = Edge(producer, self.full_bytes, {"tp": REPLICATE}, place, place)
        return self._elementwise(
            "positions", (edge,), local, weights=weights, saved=local if model.dropout else 0,
            backward=options.training and model.dropout, kind=KernelKind.ADD,
        )  # fmt: skip

    def _images(self) -> Operator:
        """Tokens of images, put in the place of those that were looked up for them."""
        tokens = self.shape.sequences * self.model.image_tokens
        size, place = tokens * self.model.hidden * self.options.itemsize, {"tp": self.residual}
        here = tokens * self.model.hidden // (self.parallel.tp if self.options.sp else 1)
        images = Edge(INPUT, size, {"tp": REPLICATE}, place, place)
        edges = (self._row_edge(0, self.full_bytes), images)
        return replace(
            self._elementwise("images", edges, here, kind=KernelKind.COPY), output_bytes=self.residual_bytes
        )

    def _relative_positions(self, producer: int) -> Operator:
        """Numbers by distance that the scores of all layers get: a row of the table for each pair of positions."""
        model, options = self.model, self.options
        elements = self.heads_here * self.shape.queries * self.shape.context
        found = self._elementwise(
            "relative", (self._stay(producer, self.residual_bytes),), elements,
            weights=(Weight(model.relative_buckets * self.heads_here),), saved=elements * options.itemsize,
            backward=options.training, kind=KernelKind.EMBEDDING,
        )  # fmt: skip
        return replace(found, output_bytes=self.residual_bytes)

    def closing(self) -> Layer | None:
        """The norm behind the last layer of an encoder; None where norms stand behind what they norm."""
        if not self.model.final_norm:
            return None
        return Layer(
            "norm", (self._norm("norm", -1, self.residual_bytes),), self.residual_bytes, self.residual_bytes
        )

    def head(self, *, owns_weight: bool) -> Layer:
        """Final norm, output matrix and, in training, the vocabulary-parallel cross-entropy with its three sums.

        ``owns_weight`` is false where a tied embedding on the same stage already holds the matrix.
        """
        model, options = self.model, self.options
        weights = (Weight(self.vocabulary * model.hidden, tied=model.tied),) if owns_weight else ()
        if model.patch:
            return self._classifier([self._norm("norm", -1, self.residual_bytes)], weights)
        ops = self._logits("", 0, weights, normed=model.final_norm)
        if options.training and model.mtp:
            losses = [len(ops) - 1]
            for depth in range(model.mtp):
                owns = depth < model.mtp_modules
                ops += self._logits(f"mtp{depth}_", len(ops), (), owns_norm=owns)
                losses.append(len(ops) - 1)
            # the sum of the losses, from which all of them go backward
            edges = tuple(self._stay(loss, self.tokens * 4) for loss in losses)
            ops.append(Operator("losses", OpKind.ELEMENTWISE, edges, NO_WORK))
        return Layer("head", tuple(ops), self.residual_bytes, 0)

    def _logits(
        self,
        prefix: str,
        base: int,
        weights: tuple[Weight, ...],
        *,
        normed: bool = True,
        owns_norm: bool = True,
    ) -> list[Operator]:
        """A norm, the output matrix and, in training, its loss; operators ``base`` and on."""
        model, options = self.model, self.options
        ops = [self._norm(f"{prefix}norm", -1, self.residual_bytes)] if normed else []
        if not owns_norm:
            ops = [replace(op, weights=()) for op in ops]
        rows = self.tokens
        if not options.training and self.shape.queries > 1:
            rows = self.shape.sequences  # prefill needs the last token's logits only
        ops.append(
            self._gemm(
                f"{prefix}logits", self._column_edge(base if normed else -1), rows, self.vocabulary, model.hidden,
                self._column_input_saved(), weights, part="head",
            )
        )  # fmt: skip
        if options.training:
            ops += self._cross_entropy(self.tokens, base + len(ops) - 1, prefix)
        return ops

    def predictor(self, *, owns_weight: bool) -> Layer:
        """What a module of multi-token prediction has before its layers: from hidden state and token ahead to one state.

        ``owns_weight`` is false where the stage has the embedding already.
        """
        model, item = self.model, self.options.itemsize
        width = 2 * model.hidden
        elements = self.residual_tokens * width
        columns = model.hidden // self.parallel.tp
        looked = self._row_edge(0, self.full_bytes)
        joined = (self._stay(1, self.residual_bytes), self._stay(2, self.residual_bytes))
        place = {"tp": self.residual}
        split = Edge(4, self.tokens * columns * item, {"tp": Shard("hidden")}, place, place)
        ops = (
            self._lookup(owns_weight, tied=True),
            replace(self._norm("token_norm", 0, self.residual_bytes), edges=(looked,)),
            self._norm("state_norm", INPUT, self.residual_bytes),
            self._elementwise("join", joined, elements, kind=KernelKind.COPY),
            self._gemm(
                "project", self._column_edge(3, width), self.tokens, columns, width, self._column_input_saved(width),
                (Weight(columns * width),), part="mtp",
            ),
            # columns of all ranks, as the residual stream is laid out
            Operator("gathered", OpKind.ELEMENTWISE, (split,), NO_WORK, output_bytes=self.residual_bytes),
        )  # fmt: skip
        return Layer("predictor", ops, self.residual_bytes, self.residual_bytes)

    def _classifier(self, ops: list[Operator], weights: tuple[Weight, ...]) -> Layer:
        """The classes of every image, and in training the cross-entropy of its class."""
        rows, width = self.shape.sequences, self.model.hidden
        size = rows * width * self.options.itemsize
        ops.append(self._class_token())
        edge = Edge(1, size, {"tp": REPLICATE}, {"tp": REPLICATE}, {"tp": PARTIAL})
        ops.append(
            self._gemm(
                "logits", edge, rows, self.vocabulary, width, size, (*weights, *self._bias(self.vocabulary))
            )
        )
        if self.options.training:
            ops += self._cross_entropy(rows, 2)
        return Layer("head", tuple(ops), self.residual_bytes, 0)

    def _cross_entropy(self, rows: int, base: int, prefix: str = "") -> list[Operator]:
        """Megatron's vocabulary-parallel loss: all-reduces of the maximum, the target's logit and the sum of exps.

        ``base`` is the operator that gives the logits of ``rows``; ``prefix`` stands before the names.
        """
        item = self.options.itemsize
        logits = rows * self.vocabulary
        row_bytes = rows * 4
        reduce_from = {"tp": PARTIAL}
        whole = {"tp": REPLICATE}

        def summed(producer: int) -> Edge:
            return Edge(producer, row_bytes, reduce_from, whole, None)

        def logits_edge(grad: bool) -> Edge:
            return Edge(base, logits * item, {}, {}, {} if grad else None)

        def op(
            name: str, edges: tuple[Edge, ...], work: Work, back: Work = NO_WORK, saved: int = 0
        ) -> Operator:
            return Operator(
                prefix + name,
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
        gather = loss(rows, rows * item, rows)
        final = loss(_SOFTMAX_OPS * logits, logits * (item + 4), logits, Direction.BACKWARD)
        return [
            op("loss_max", (logits_edge(grad=False),), read),
            op("loss_target", (summed(base + 1),), gather),
            op("loss_sum", (summed(base + 2), logits_edge(grad=False)), read),
            op(
                "loss", (summed(base + 3), logits_edge(grad=True)), loss(rows, row_bytes, rows), final,
                saved=logits * 4,
            ),
        ]  # fmt: skip


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
