"""What vision transformers have in the place of a text's embedding and output.

They are those of Dosovitskiy et al. 2021 (arXiv 2010.11929). An image is cut into square patches; one matrix makes a
token of each, a learned class token stands beside them, and positions are learned. Every token sees every other. The
class token alone goes into the classifier, whose classes tp splits as it splits a vocabulary; the matrix of the patches
is whole on every tp rank.
"""

from dataclasses import replace

from chakra.et.operators import KernelKind
from chakra.generate.model.ir import NO_WORK, Operator, Weight
from chakra.generate.model.state_space import StateSpaceLayers


class VisionLayers(StateSpaceLayers):
    """Patches before the layers of a vision transformer, and its class token behind them."""

    def _patch_operators(self) -> list[Operator]:
        """Patches to tokens (images have no gradient), and positions with the class token."""
        model, copies = self.model, self.parallel.tp
        pixels = model.channels * model.patch**2
        rows = self.shape.sequences * (model.sequence - 1)
        inputs = rows * pixels * self.options.itemsize
        weights = [Weight(pixels * model.hidden, copies=copies)]
        if model.biases:
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

    def _class_token(self) -> Operator:
        """The first token of every image, behind the last norm."""
        elements = self.shape.sequences * self.model.hidden
        return self._elementwise(
            "class_token", (self._stay(0, self.residual_bytes),), elements, kind=KernelKind.POOL,
        )  # fmt: skip
