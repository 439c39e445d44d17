"""Requests: one flat set of named parameters per kind of workload, for the command line, YAML files and sweeps alike."""

from dataclasses import dataclass, replace

from chakra.errors import UsageError
from chakra.generate.model.classic import (
    DLRM,
    DlrmConfig,
    MlpConfig,
    dlrm_stages,
    mlp_stages,
    resnet50_stages,
)
from chakra.generate.plan.training import StepPlan
from chakra.generate.request.base import Request, fills_from_framework
from chakra.generate.request.transformers import MoeRequest, TransformerRequest
from chakra.io.nearest import nearest


@fills_from_framework
@dataclass(frozen=True, slots=True, kw_only=True)
class MlpRequest(Request):
    """A perceptron: ``widths`` inputs first, then each dense layer's outputs.

    Attributes
    ----------
    widths
        Inputs, then each layer's outputs.
    """

    widths: tuple[int, ...] = (1024, 4096, 4096, 4096, 1024)

    def plan(self) -> StepPlan:
        """Plan a training step.

        Raises
        ------
        UsageError
            Sizes that are not positive, or degrees that do not fit.
        """
        parallel, sizes = self.parallel(), self.itemsizes()
        if self.micro_batch < 1:
            raise UsageError(f"micro-batch must be at least 1, not {self.micro_batch}")
        stages = mlp_stages(
            MlpConfig(self.widths), parallel, self.micro_batch, itemsize=sizes[0], grad_itemsize=sizes[1],
            types=self.types(),
        )  # fmt: skip
        return self._step([stages], parallel, "mlp")


@fills_from_framework
@dataclass(frozen=True, slots=True, kw_only=True)
class ResnetRequest(Request):
    """ResNet-50 on square images of ``image`` pixels a side, ``classes`` outputs.

    Attributes
    ----------
    image
        Pixels a side.
    classes
        Outputs.
    """

    image: int = 224
    classes: int = 1000

    def plan(self) -> StepPlan:
        """Plan a training step."""
        parallel, sizes = self.parallel(), self.itemsizes()
        stages = resnet50_stages(
            parallel,
            self.micro_batch,
            image=self.image,
            classes=self.classes,
            itemsize=sizes[0],
            grad_itemsize=sizes[1],
            types=self.types(),
        )
        return self._step([stages], parallel, "resnet")


@fills_from_framework
@dataclass(frozen=True, slots=True, kw_only=True)
class DlrmRequest(Request):
    """DLRM: preset, with sizes that replace the preset's (as in `DlrmConfig`).

    Attributes
    ----------
    model
        Name of the preset.
    bottom, top
        Widths of the two perceptrons.
    tables, rows, dim
        Embedding tables, rows of all of them, and their width.
    pooling
        Lookups per table and sample.
    """

    model: str = "dlrm-criteo"
    bottom: tuple[int, ...] | None = None
    top: tuple[int, ...] | None = None
    tables: int | None = None
    rows: int | None = None
    dim: int | None = None
    pooling: int | None = None

    def config(self) -> DlrmConfig:
        """Model sizes.

        Raises
        ------
        UsageError
            An unknown preset, or sizes that do not fit together.
        """
        if self.model not in DLRM:
            hint = nearest(self.model, list(DLRM)) or f"; there are: {', '.join(DLRM)}"
            raise UsageError(f"no DLRM preset {self.model!r}{hint}")
        keys = ("bottom", "top", "tables", "rows", "dim", "pooling")
        return replace(
            DLRM[self.model], **{k: getattr(self, k) for k in keys if getattr(self, k) is not None}
        )

    def plan(self) -> StepPlan:
        """Plan a training step."""
        parallel, sizes = self.parallel(), self.itemsizes()
        stages = dlrm_stages(
            self.config(),
            parallel,
            self.micro_batch,
            itemsize=sizes[0],
            grad_itemsize=sizes[1],
            types=self.types(),
        )
        return self._step([stages], parallel, "dlrm")


REQUESTS: dict[str, type[Request]] = {
    "transformer": TransformerRequest,
    "moe": MoeRequest,
    "mlp": MlpRequest,
    "resnet": ResnetRequest,
    "dlrm": DlrmRequest,
}
