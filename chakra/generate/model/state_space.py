"""State-space layers as one rank computes them: Mamba (Gu and Dao 2023, arXiv 2312.00752) and Mamba-2 (Dao and Gu 2024,
arXiv 2405.21060).

Both widen the residual stream to ``inner`` channels by a matrix that tp splits by columns, run a causal convolution of a
few tokens and a recurrence over the sequence, and come back by a matrix split by rows: between these, a tp rank has its
own channels. Mamba-2's recurrence is computed in chunks of the sequence as matrix products (its paper, part 6):
scores inside a chunk, their weighted sum, the state that each chunk adds, and what earlier states give; states pass
from chunk to chunk. Mamba's is one kernel that memory bounds; what it needs of every channel (``dt_rank`` and twice the
state) is a sum over tp ranks.

Decoding keeps a state in the place of keys and values, whatever the context is: ``inner x state_size`` elements, and the
last ``conv_width`` inputs of the convolution.
"""

from dataclasses import replace

from chakra.et.operators import Direction, KernelKind, MatrixProduct
from chakra.generate.model.attention import AttentionLayers
from chakra.generate.model.blocks import NORM_OPS
from chakra.generate.model.ir import NO_WORK, Edge, Operator, OpKind, Weight, Work, kernel
from chakra.generate.model.layer_kinds import Mixer
from chakra.generate.model.placement import PARTIAL, REPLICATE

#: operations of the recurrence for an element of the state and a token (decay, input, update, output)
_SCAN_OPS = 7
#: operations an element beside the taps of the convolution (activation)
_CONV_OPS = 4


class StateSpaceLayers(AttentionLayers):
    """State-space mixers between the residual stream and itself."""

    def state_bytes(self) -> int:
        """Bytes that a sequence leaves in one layer's cache on this rank, however long it is."""
        model = self.model
        state = self._inner * model.state_size
        return (state + self._conv_channels * model.conv_width) * self.options.itemsize

    @property
    def _inner(self) -> int:
        return self.model.inner // self.parallel.tp

    @property
    def _groups(self) -> int:
        """Groups of inputs and outputs of the state (B and C) on this rank; fewer than tp are copied."""
        return max(1, self.model.state_groups // self.parallel.tp)

    @property
    def _group_copies(self) -> int:
        return max(1, self.parallel.tp // self.model.state_groups)

    @property
    def _shared(self) -> int:
        """Width of B and C together on this rank."""
        return 2 * self._groups * self.model.state_size

    @property
    def _conv_channels(self) -> int:
        return self._inner + (self._shared if self.model.mixer is Mixer.MAMBA2 else 0)

    @property
    def _steps(self) -> bool:
        """Whether one token follows a state that is there."""
        return not self.options.training and self.shape.queries == 1

    def _state_space(self) -> list[Operator]:
        """Norm, matrices, convolution, recurrence, and the residual addition."""
        second = self.model.mixer is Mixer.MAMBA2
        ops = [self._norm("norm1", -1, self.residual_bytes)]
        ops += self._mamba2() if second else self._mamba()
        out_bytes = self.tokens * self._inner * self.options.itemsize
        producer = len(ops) - 1
        ops.append(
            self._gemm(
                "out_proj", self._stay(producer, out_bytes), self.tokens, self.model.hidden, self._inner, out_bytes,
                (Weight(self._inner * self.model.hidden),),
            )
        )  # fmt: skip
        ops.append(self._add("add1", len(ops) - 1, -1))
        return ops

    def _in_proj(self, width: int, weights: tuple[Weight, ...]) -> Operator:
        return self._gemm(
            "in_proj",
            self._column_edge(0),
            self.tokens,
            width,
            self.model.hidden,
            self._column_input_saved(),
            weights,
        )

    def _conv(self) -> Operator:
        """Causal convolution of each channel by itself, with its activation."""
        model, item = self.model, self.options.itemsize
        channels, elements = self._conv_channels, self.tokens * self._conv_channels
        taps = model.conv_width + 1
        weights = [Weight(taps * self._inner)]
        if channels > self._inner:
            weights.append(Weight(taps * (channels - self._inner), copies=self._group_copies))
        ops = 2 * model.conv_width + _CONV_OPS
        if self._steps:
            # the last inputs are read, moved on and written
            moved = 2 * elements * (model.conv_width + 1) * item
            work = kernel(KernelKind.CONV, ops * elements, moved, elements, types=self.options.types)
            return Operator(
                "conv", OpKind.ELEMENTWISE, (self._stay(1, elements * item),), work, weights=tuple(weights),
                output_bytes=elements * item,
            )  # fmt: skip
        return self._elementwise(
            "conv", (self._stay(1, elements * item),), elements, ops=ops, kind=KernelKind.CONV, weights=tuple(weights),
            saved=elements * item,
        )  # fmt: skip

    # ------------------------------------------------------------------ Mamba-2

    def _mamba2(self) -> list[Operator]:
        """Operators 1 and on of the layer: one matrix for gate, inputs, B, C and steps; scan; gated norm."""
        model, item, inner = self.model, self.options.itemsize, self._inner
        heads = model.state_heads // self.parallel.tp
        own = 2 * inner + heads
        ops = [
            self._in_proj(
                own + self._shared,
                (
                    Weight(own * model.hidden),
                    Weight(self._shared * model.hidden, copies=self._group_copies),
                ),
            ),
            self._conv(),
        ]
        inputs = self._stay(2, self.tokens * self._conv_channels * item)
        steps = self._stay(1, self.tokens * heads * item)
        y_bytes = self.tokens * inner * item
        parameters = (Weight(3 * heads),)
        if self._steps:
            ops.append(self._state_step((inputs, steps), parameters))
        else:
            ops += self._chunks(inputs, steps, parameters)
        producer = len(ops)
        ops.append(
            self._elementwise(
                "gate_norm", (self._stay(producer, y_bytes), self._stay(1, y_bytes)), self.tokens * inner, reads=2,
                ops=2 * NORM_OPS, kind=KernelKind.NORM, weights=(Weight(inner),), saved=2 * y_bytes,
            )
        )  # fmt: skip
        return ops

    def _chunks(self, inputs: Edge, steps: Edge, parameters: tuple[Weight, ...]) -> list[Operator]:
        """The recurrence over a sequence in chunks; operators 3 to 7 of the layer, the last gives all results."""
        model, item, shape = self.model, self.options.itemsize, self.shape
        size = min(model.chunk, shape.queries)
        chunks = shape.sequences * -(-shape.queries // size)
        heads = model.state_heads // self.parallel.tp
        head, state = model.inner // model.state_heads, model.state_size
        rows = chunks * size
        x_bytes, shared_bytes = rows * heads * head * item, rows * self._groups * state * item
        state_bytes = chunks * heads * head * state * item
        score_bytes = chunks * self._groups * size * size * item
        elements = chunks * heads * head * state
        types = self.options.types
        return [
            self._product(
                "chunk_states", (inputs, steps), head, state, size, chunks * heads,
                x_bytes + shared_bytes + state_bytes, state_bytes,
                saved=self.tokens * (self._conv_channels + heads) * item,
            ),
            Operator(
                "pass_states", OpKind.ELEMENTWISE, (self._stay(3, state_bytes),),
                kernel(KernelKind.SCAN, 2 * elements, 2 * state_bytes, elements, types=types),
                kernel(KernelKind.SCAN, 4 * elements, 3 * state_bytes, elements, Direction.BACKWARD, types),
                output_bytes=state_bytes, saved_bytes=self._saved(state_bytes),
            ),
            self._product(
                "chunk_scores", (inputs,), size, size, state, chunks * self._groups, 2 * shared_bytes + score_bytes,
                score_bytes,
            ),
            self._product(
                "chunk_sums", (self._stay(5, score_bytes), inputs), size, head, size, chunks * heads,
                score_bytes + 2 * x_bytes, x_bytes,
            ),
            self._product(
                "chunk_outputs", (self._stay(4, state_bytes), inputs, self._stay(6, x_bytes)), size, head, state,
                chunks * heads, state_bytes + shared_bytes + 2 * x_bytes, x_bytes, weights=parameters,
            ),
        ]  # fmt: skip

    def _product(
        self, name: str, edges: tuple[Edge, ...], m: int, n: int, k: int, batch: int, moved: int, output_bytes: int, *,
        saved: int = 0, weights: tuple[Weight, ...] = (),
    ) -> Operator:  # fmt: skip
        """A product of activations: its backward pass is two such products."""
        what = MatrixProduct(m, n, k, batch, "scan", moved, self.options.types.compute)
        back = replace(what, batch=2 * batch, bytes=2 * moved, direction=Direction.BACKWARD)
        return Operator(
            name, OpKind.GEMM, edges, Work(what.flops, moved, what=what), Work(back.flops, 2 * moved, what=back),
            weights=weights, output_bytes=output_bytes, saved_bytes=self._saved(saved),
        )  # fmt: skip

    def _state_step(self, edges: tuple[Edge, ...], parameters: tuple[Weight, ...]) -> Operator:
        """One token: the state is read, updated and written."""
        item = self.options.itemsize
        elements = self.tokens * self._inner * self.model.state_size
        moved = (2 * elements + self.tokens * (2 * self._inner + self._shared)) * item
        work = kernel(KernelKind.SCAN, _SCAN_OPS * elements, moved, elements, types=self.options.types)
        return Operator(
            "state_step", OpKind.ELEMENTWISE, edges, work, weights=parameters,
            output_bytes=self.tokens * self._inner * item,
        )  # fmt: skip

    # ------------------------------------------------------------------ Mamba

    def _mamba(self) -> list[Operator]:
        """Operators 1 and on of the layer: gate and inputs, what decides on the state, and the scan with its gate."""
        model, item, inner, tokens = self.model, self.options.itemsize, self._inner, self.tokens
        state, rank = model.state_size, model.dt_rank
        width = rank + 2 * state
        channel_bytes, small_bytes = tokens * inner * item, tokens * width * item
        ops = [self._in_proj(2 * inner, (Weight(2 * inner * model.hidden),)), self._conv()]
        # the input of x_proj is what the scan keeps
        ops.append(
            self._gemm(
                "x_proj", self._stay(2, channel_bytes), tokens, width, inner, 0, (Weight(inner * width),)
            )
        )
        # every rank's channels add to these few numbers, and their gradient is a sum over the channels of all ranks
        summed = Edge(3, small_bytes, {"tp": PARTIAL}, {"tp": REPLICATE}, {"tp": PARTIAL})
        if model.inner_norms:
            weight = Weight(width, partial_tp=True, copies=self.parallel.tp)
            ops.append(
                self._elementwise(
                    "x_norm", (summed,), tokens * width, ops=NORM_OPS, kind=KernelKind.NORM, weights=(weight,),
                    saved=small_bytes,
                )
            )  # fmt: skip
        else:
            ops.append(Operator("x_sum", OpKind.ELEMENTWISE, (summed,), NO_WORK, output_bytes=small_bytes))
        ops.append(
            self._gemm(
                "dt_proj", self._stay(4, tokens * rank * item), tokens, inner, rank, tokens * rank * item,
                (Weight(rank * inner), Weight(inner)),
            )
        )  # fmt: skip
        edges = (
            self._stay(2, channel_bytes),
            self._stay(5, channel_bytes),
            self._stay(4, tokens * 2 * state * item),
            self._stay(1, channel_bytes),
        )
        parameters = (Weight(inner * state), Weight(inner))
        if self._steps:
            ops.append(self._state_step(edges, parameters))
            return ops
        elements = tokens * inner
        types = self.options.types
        moved, shared = 4 * elements * item, 2 * tokens * state * item
        forward = kernel(KernelKind.SCAN, _SCAN_OPS * elements * state, moved + shared, elements, types=types)
        back = kernel(
            KernelKind.SCAN, 2 * _SCAN_OPS * elements * state, 7 * elements * item + 2 * shared, elements,
            Direction.BACKWARD, types,
        )  # fmt: skip
        ops.append(
            Operator(
                "scan", OpKind.ELEMENTWISE, edges, forward, back, weights=parameters, output_bytes=elements * item,
                saved_bytes=self._saved(3 * channel_bytes + tokens * 2 * state * item),
            )
        )  # fmt: skip
        return ops
