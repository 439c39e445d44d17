"""What Whisper's encoder has in the place of an embedding: two convolutions over a spectrum.

Radford et al. 2022 (arXiv 2212.04356), section 2.2: the first makes a vector of each three neighbouring frames, the
second one of every second three of these, each with a GELU behind it. Every tensor-parallel rank has both, and repeats
them.
"""

from dataclasses import replace

from chakra.et.operators import Direction, KernelKind, MatrixProduct
from chakra.generate.model.ir import NO_WORK, Operator, OpKind, Weight, Work
from chakra.generate.model.vision import VisionLayers

#: frames that a convolution sees, and frames of a token
_WIDTH, _STRIDE = 3, 2
#: operations an element of the activation
_ACTIVATION_OPS = 8


class AudioLayers(VisionLayers):
    """Tokens from a spectrum."""

    def _spectrum_operators(self) -> list[Operator]:
        """Convolutions with their activations; a spectrum has no gradient. The last gives whole tokens on every rank."""
        frames, hidden = _STRIDE * self.tokens, self.model.hidden
        first = self._convolution("conv1", -1, frames, frames, self.model.mel)
        return [
            replace(first, edges=(), backward_input=NO_WORK),
            self._activated("conv1_act", 0, frames * hidden),
            self._convolution("conv2", 1, frames, self.tokens, hidden),
            self._activated("conv2_act", 2, self.tokens * hidden),
        ]

    def _activated(self, name: str, producer: int, elements: int) -> Operator:
        size = elements * self.options.itemsize
        return self._elementwise(
            name, (self._stay(producer, size),), elements, ops=_ACTIVATION_OPS, saved=size, kind=KernelKind.ACTIVATION
        )  # fmt: skip

    def _convolution(self, name: str, producer: int, rows_in: int, rows: int, channels: int) -> Operator:
        """A convolution with its bias, as a product of rows with the frames that each sees; bytes are the tensors'."""
        options, hidden, copies = self.options, self.model.hidden, self.parallel.tp
        inner = _WIDTH * channels
        size_in, size_out = rows_in * channels * options.itemsize, rows * hidden * options.itemsize
        matrix = inner * hidden
        moved = size_in + size_out + matrix * options.itemsize
        wide = size_in + size_out + matrix * options.grad_itemsize

        def work(m: int, n: int, k: int, size: int, direction: Direction) -> Work:
            what = MatrixProduct(
                m, n, k, role="convolution", bytes=size, type=options.types.compute, direction=direction
            )
            return Work(what.flops, size, what=what)

        return Operator(
            name, OpKind.GEMM, (self._stay(producer, size_in),),
            work(rows, hidden, inner, moved, Direction.FORWARD),
            work(rows, inner, hidden, moved, Direction.BACKWARD),
            work(inner, hidden, rows, wide, Direction.WEIGHT),
            (Weight(matrix, copies=copies), Weight(hidden, copies=copies)),
            output_bytes=size_out, saved_bytes=self._saved(size_in),
        )  # fmt: skip
