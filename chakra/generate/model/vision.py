"""What vision transformers have in the place of a text's embedding and output.

They are those of Dosovitskiy et al. 2021 (arXiv 2010.11929). An image is cut into square patches; one matrix makes a
token of each, a learned class token stands beside them, and positions are learned. Every token sees every other. The
class token alone goes into the classifier, whose classes tp splits as it splits a vocabulary; the matrix of the patches
is whole on every tp rank.
"""

from dataclasses import replace

from chakra.errors import UsageError
from chakra.et.operators import KernelKind
from chakra.generate.model.ir import INPUT, NO_WORK, Edge, Layer, Operator, OpKind, Weight
from chakra.generate.model.placement import PARTIAL, REPLICATE
from chakra.generate.model.state_space import StateSpaceLayers

#: operations an element of the activation
_ACTIVATION_OPS = 8


class VisionLayers(StateSpaceLayers):
    """Patches before the layers of a vision transformer, and its class token behind them."""

    def _patch_operators(self) -> list[Operator]:
        """Patches to tokens (images have no gradient), and positions with the class token."""
        model, copies = self.model, self.parallel.tp
        pixels = model.channels * model.patch**2
        rows = self.shape.sequences * (model.sequence - 1)
        inputs = rows * pixels * self.options.itemsize
        weights = [Weight(pixels * model.hidden, copies=copies)]
        if model.biases and model.patch_bias:
            weights.append(Weight(model.hidden, copies=copies))
        made = self._gemm(
            "patches", self._stay(-1, inputs), rows, model.hidden, pixels, inputs, tuple(weights)
        )
        # nothing comes before it
        patches = replace(made, edges=(), backward_input=NO_WORK)
        places = Weight((model.learned_positions + 1) * model.hidden, copies=copies)
        positions = self._elementwise(
            "positions", (self._stay(0, rows * model.hidden * self.options.itemsize),), self.tokens * model.hidden,
            weights=(places,), backward=self.options.training, kind=KernelKind.ADD,
        )  # fmt: skip
        return [patches, positions]

    def projector(self, width: int) -> Layer:
        """Tokens of another model's ``width`` from the patches, by two matrices; the class token is left out.

        tp splits the first by columns, the second by rows. Nothing before an encoder that is not trained has a gradient.
        """
        model, options, tp = self.model, self.options, self.parallel.tp
        rows, local = self.shape.sequences * (model.sequence - 1), width // tp
        if width % tp:
            raise UsageError(f"hidden ({width}) must be a multiple of tp ({tp})")
        size_in, inner = (rows * n * options.itemsize for n in (model.hidden, local))
        whole = {"tp": REPLICATE}
        first = self._gemm(
            "project1", Edge(INPUT, size_in, whole, whole, {"tp": PARTIAL}), rows, local, model.hidden, size_in,
            (Weight(model.hidden * local), Weight(local)),
        )  # fmt: skip
        if options.frozen_encoder:
            edges = tuple(replace(edge, grad=None) for edge in first.edges)
            first = replace(first, edges=edges, backward_input=NO_WORK)
        act = self._elementwise(
            "project_act", (self._stay(0, inner),), rows * local, ops=_ACTIVATION_OPS, saved=inner,
            kind=KernelKind.ACTIVATION,
        )  # fmt: skip
        second = self._gemm(
            "project2", self._stay(1, inner), rows, width, local, inner, (Weight(local * width),)
        )
        size = rows * width * options.itemsize
        summed = Operator(
            "projected", OpKind.ELEMENTWISE, (Edge(2, size, {"tp": PARTIAL}, whole, whole),), NO_WORK,
            weights=(Weight(width, copies=tp),), output_bytes=size,
        )  # fmt: skip
        return Layer("projector", (first, act, second, summed), size_in, size)

    def _class_token(self) -> Operator:
        """The first token of every image, behind the last norm."""
        elements = self.shape.sequences * self.model.hidden
        return self._elementwise(
            "class_token", (self._stay(0, self.residual_bytes),), elements, kind=KernelKind.POOL,
        )  # fmt: skip
