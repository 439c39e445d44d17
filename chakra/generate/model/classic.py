"""Models beside transformers: multi-layer perceptron, ResNet-50, DLRM."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from chakra.errors import UsageError
from chakra.et.operators import Direction, KernelKind, MatrixProduct
from chakra.generate.model.ir import (
    NO_WORK,
    Edge,
    ElementTypes,
    Layer,
    Operator,
    OpKind,
    Weight,
    WeightGroup,
    Work,
    gemm,
    kernel,
)
from chakra.generate.model.placement import PARTIAL, REPLICATE, Placement, Shard
from chakra.generate.model.stage_model import StageModel, split_layers
from chakra.generate.parallel import ParallelConfig


@dataclass(frozen=True, slots=True)
class MlpConfig:
    """Widths of a perceptron: inputs first, then the outputs of every dense layer (each with a bias)."""

    widths: tuple[int, ...]
    name: str = "mlp"

    def __post_init__(self) -> None:
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise UsageError(f"an MLP needs at least two widths of at least 1, not {list(self.widths)}")

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return sum((k + 1) * n for k, n in pairwise(self.widths))


@dataclass(frozen=True, slots=True)
class DlrmConfig:
    """Recommendation model: dense features through a bottom MLP, sparse ones through tables, then a top MLP.

    ``rows`` is the number of rows of all ``tables`` together, ``pooling`` the lookups per table and sample.
    Source of the preset: MLPerf Training, dlrm_dcnv2 reference (Criteo 1TB, at most 40 million rows a table), with the
    dot interaction of Naumov et al. 2019, arXiv 1906.00091.
    """

    name: str
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    tables: int
    rows: int
    dim: int
    pooling: int = 1

    def __post_init__(self) -> None:
        for key in ("tables", "rows", "dim", "pooling"):
            if getattr(self, key) < 1:
                raise UsageError(f"model {self.name}: {key} must be at least 1, not {getattr(self, key)}")
        if len(self.bottom) < 2 or self.bottom[-1] != self.dim:
            raise UsageError(
                f"model {self.name}: the bottom MLP must end with the table width {self.dim}, not {list(self.bottom)}"
            )
        if not self.top:
            raise UsageError(f"model {self.name}: the top MLP needs at least one width")

    @property
    def interactions(self) -> int:
        """Inputs of the top MLP: pairs of the tables and the bottom output, and that output itself."""
        vectors = self.tables + 1
        return vectors * (vectors - 1) // 2 + self.dim

    @property
    def dense_parameters(self) -> int:
        """Parameters of both MLPs."""
        return MlpConfig(self.bottom).parameters + MlpConfig((self.interactions, *self.top)).parameters


DLRM = {
    "dlrm-criteo": DlrmConfig(
        "dlrm-criteo", (13, 512, 256, 128), (1024, 1024, 512, 256, 1), 26, 204_184_588, 128
    ),
}


def _need_data_parallel(what: str, parallel: ParallelConfig) -> None:
    for axis in ("tp", "cp", "ep"):
        if parallel.axis_sizes[axis] > 1:
            raise UsageError(
                f"{what} has no {axis} parallelism here: {axis} must be 1, not {parallel.axis_sizes[axis]}"
            )


class _Dense:
    """Dense layers for one batch, with weights split over tp by columns and rows in turn."""

    def __init__(self, batch: int, tp: int, itemsize: int, grad_itemsize: int, types: ElementTypes) -> None:
        self.batch, self.tp, self.itemsize, self.grad_itemsize = batch, tp, itemsize, grad_itemsize
        self.types = types

    def layer(self, name: str, number: int, width_in: int, width_out: int, *, activation: bool) -> Layer:
        """Dense layer ``number`` of a chain: even ones split columns, odd ones rows."""
        row = bool(number % 2) and self.tp > 1
        have = self._placement(number - 1) if number else {"tp": REPLICATE}
        need: dict[str, Placement] = {"tp": Shard("hidden")} if row else {"tp": REPLICATE}
        grad: dict[str, Placement] = {"tp": Shard("hidden")} if row else {"tp": PARTIAL}
        split = width_in if row else width_out
        if split % self.tp:
            raise UsageError(f"width {split} of {name} must be a multiple of tp ({self.tp})")
        k, n = (width_in // self.tp, width_out) if row else (width_in, width_out // self.tp)
        sharded_input = have == {"tp": Shard("hidden")} and self.tp > 1
        in_bytes = self.batch * (width_in // self.tp if sharded_input else width_in) * self.itemsize
        out_bytes = self.batch * n * self.itemsize
        forward, inputs, grads = gemm(
            self.batch, n, k, itemsize=self.itemsize, grad_itemsize=self.grad_itemsize, types=self.types
        )
        bias = Weight(n, copies=self.tp if row else 1)
        ops = [
            Operator(
                "gemm", OpKind.GEMM, (Edge(-1, in_bytes, have, need, grad),), forward, inputs, grads,
                (Weight(k * n), bias), output_bytes=out_bytes, saved_bytes=self.batch * k * self.itemsize,
            )
        ]  # fmt: skip
        if activation:
            # a sum must be complete before the activation
            place: dict[str, Placement] = {"tp": REPLICATE} if row else {"tp": Shard("hidden")}
            source: dict[str, Placement] = {"tp": PARTIAL} if row else place
            elements, kind = self.batch * n, KernelKind.ACTIVATION
            work = kernel(kind, elements, 2 * out_bytes, elements, types=self.types)
            back = kernel(kind, elements, 3 * out_bytes, elements, Direction.BACKWARD, self.types)
            ops.append(
                Operator(
                    "act", OpKind.ELEMENTWISE, (Edge(0, out_bytes, source, place, place),), work, back,
                    output_bytes=out_bytes, saved_bytes=out_bytes,
                )
            )  # fmt: skip
        return Layer(name, tuple(ops), in_bytes, out_bytes, recomputable=True)

    def _placement(self, number: int) -> dict[str, Placement]:
        if self.tp == 1 or number % 2:
            return {"tp": REPLICATE}
        return {"tp": Shard("hidden")}

    def chain(self, prefix: str, widths: Sequence[int]) -> list[Layer]:
        """All layers of a perceptron; every layer has an activation."""
        return [
            self.layer(f"{prefix}{i}", i, k, n, activation=True) for i, (k, n) in enumerate(pairwise(widths))
        ]


def mlp_stages(
    model: MlpConfig, parallel: ParallelConfig, batch: int, *, itemsize: int = 2, grad_itemsize: int = 4,
    types: ElementTypes = ElementTypes(),  # noqa: B008 - frozen
) -> StageModel:  # fmt: skip
    """A perceptron in pp*vp chunks; ``batch`` samples per micro-batch and replica.

    Raises
    ------
    UsageError
        Widths that tp does not divide, or context or expert parallelism.
    """
    for axis in ("cp", "ep"):
        if parallel.axis_sizes[axis] > 1:
            raise UsageError(
                f"an MLP has no {axis} parallelism: {axis} must be 1, not {parallel.axis_sizes[axis]}"
            )
    layers = _Dense(batch, parallel.tp, itemsize, grad_itemsize, types).chain("dense", model.widths)
    return _cut(layers, parallel, itemsize, grad_itemsize)


def _input_layer(layer: Layer) -> Layer:
    """The same layer without gradients of the model's input, which nobody needs."""
    ops = []
    for op in layer.operators:
        if op.edges and all(edge.producer < 0 for edge in op.edges):
            edges = tuple(replace(edge, grad=None) for edge in op.edges)
            op = replace(op, edges=edges, backward_input=NO_WORK)
        ops.append(op)
    return replace(layer, operators=tuple(ops))


def _cut(layers: Sequence[Layer], parallel: ParallelConfig, itemsize: int, grad_itemsize: int) -> StageModel:
    layers = [_input_layer(layers[0]), *layers[1:]]
    spans = split_layers(len(layers), parallel.pp * parallel.vp)
    return StageModel(tuple(tuple(layers[i] for i in span) for span in spans), itemsize, grad_itemsize)


# ---------------------------------------------------------------------------------------------- ResNet-50


@dataclass(slots=True)
class _Convolutions:
    """Builds convolution operators (with batch norm and ReLU) of one layer, tracking sizes."""

    batch: int
    itemsize: int
    grad_itemsize: int
    types: ElementTypes
    ops: list[Operator]

    def conv(
        self, name: str, source: int, size_in: int, size_out: int, c_in: int, c_out: int, kernel: int
    ) -> int:
        """k x k convolution as a product of (b*oh*ow) x (c_in*k*k) x c_out, with bytes of the true tensors."""
        rows, inner = self.batch * size_out * size_out, c_in * kernel * kernel
        flops = 2 * rows * inner * c_out
        in_elements, out_elements = self.batch * size_in * size_in * c_in, rows * c_out
        weights = inner * c_out
        moved = (in_elements + out_elements + weights) * self.itemsize
        wide = (in_elements + out_elements) * self.itemsize + weights * self.grad_itemsize
        forward = self._product(rows, c_out, inner, moved, Direction.FORWARD)
        inputs = self._product(rows, inner, c_out, moved, Direction.BACKWARD)
        grads = self._product(inner, c_out, rows, wide, Direction.WEIGHT)
        self.ops.append(
            Operator(
                name, OpKind.GEMM, (Edge(source, in_elements * self.itemsize),), Work(flops, moved, what=forward),
                Work(flops, moved, what=inputs), Work(flops, wide, what=grads), (Weight(weights),),
                output_bytes=out_elements * self.itemsize, saved_bytes=in_elements * self.itemsize,
            )
        )  # fmt: skip
        return len(self.ops) - 1

    def _product(self, m: int, n: int, k: int, moved: int, direction: Direction) -> MatrixProduct:
        return MatrixProduct(
            m, n, k, role="convolution", bytes=moved, type=self.types.compute, direction=direction
        )

    def _kernel(self, kind: KernelKind, ops: int, elements: int, sizes: tuple[int, int]) -> tuple[Work, Work]:
        """Forward and backward with these bytes."""
        forward = kernel(kind, ops * elements, sizes[0], elements, types=self.types)
        return forward, kernel(kind, ops * elements, sizes[1], elements, Direction.BACKWARD, self.types)

    def norm(self, name: str, source: int, size: int, channels: int) -> int:
        """Batch norm (weight and bias), with the ReLU behind it."""
        elements = self.batch * size * size * channels
        item = self.itemsize
        self.ops.append(
            Operator(
                name, OpKind.ELEMENTWISE, (Edge(source, elements * item),),
                *self._kernel(KernelKind.NORM, 8, elements, (3 * elements * item, 4 * elements * item)),
                weights=(Weight(2 * channels),), output_bytes=elements * item, saved_bytes=elements * item,
            )
        )  # fmt: skip
        return len(self.ops) - 1

    def pool(self, name: str, source: int, size_in: int, size_out: int, channels: int) -> int:
        """Pooling: reads the input, writes the output."""
        item = self.itemsize
        inputs = self.batch * size_in * size_in * channels
        outputs = self.batch * size_out * size_out * channels
        moved = (inputs + outputs) * item
        self.ops.append(
            Operator(
                name,
                OpKind.ELEMENTWISE,
                (Edge(source, inputs * item),),
                *self._kernel(KernelKind.POOL, 1, inputs, (moved, moved)),
                output_bytes=outputs * item,
            )
        )
        return len(self.ops) - 1

    def add(self, name: str, a: int, b: int, size: int, channels: int) -> int:
        """Sum of two branches with ReLU."""
        elements = self.batch * size * size * channels
        size_bytes = elements * self.itemsize
        back = kernel(KernelKind.ADD, elements, 2 * size_bytes, elements, Direction.BACKWARD, self.types)
        self.ops.append(
            Operator(
                name, OpKind.ELEMENTWISE, (Edge(a, size_bytes), Edge(b, size_bytes)),
                kernel(KernelKind.ADD, 2 * elements, 3 * size_bytes, elements, types=self.types), back,
                output_bytes=size_bytes, saved_bytes=size_bytes,
            )
        )  # fmt: skip
        return len(self.ops) - 1

    def layer(self, name: str, input_bytes: int) -> Layer:
        """The operators so far as one layer."""
        return Layer(name, tuple(self.ops), input_bytes, self.ops[-1].output_bytes, recomputable=True)


#: (blocks, width) of ResNet-50's four groups; He et al. 2016, table 1
_RESNET50 = ((3, 64), (4, 128), (6, 256), (3, 512))


def resnet50_stages(
    parallel: ParallelConfig,
    batch: int,
    *,
    image: int = 224,
    classes: int = 1000,
    itemsize: int = 2,
    grad_itemsize: int = 4,
    types: ElementTypes = ElementTypes(),  # noqa: B008 - frozen
) -> StageModel:
    """ResNet-50 (He et al. 2016, arXiv 1512.03385; stride in the 3x3 convolution) in pp*vp chunks.

    Raises
    ------
    UsageError
        Tensor, context or expert parallelism, an image whose side is no multiple of 32, or too many chunks.
    """
    _need_data_parallel("ResNet-50", parallel)
    if image < 32 or image % 32:
        raise UsageError(f"image side must be a multiple of 32, not {image}")
    if batch < 1 or classes < 1:
        raise UsageError(f"batch ({batch}) and classes ({classes}) must be at least 1")

    def maker() -> _Convolutions:
        return _Convolutions(batch, itemsize, grad_itemsize, types, [])

    stem = maker()
    half, size = image // 2, image // 4
    stem.conv("conv1", -1, image, half, 3, 64, 7)
    stem.norm("bn1", 0, half, 64)
    stem.pool("maxpool", 1, half, size, 64)
    layers = [stem.layer("stem", batch * image * image * 3 * itemsize)]
    channels = 64
    for group, (blocks, width) in enumerate(_RESNET50):
        for block in range(blocks):
            stride = 2 if group and not block else 1
            make, inner, out = maker(), size, size // stride
            input_bytes = batch * size * size * channels * itemsize
            a = make.norm("bn1", make.conv("conv1", -1, inner, inner, channels, width, 1), inner, width)
            a = make.norm("bn2", make.conv("conv2", a, inner, out, width, width, 3), out, width)
            a = make.norm("bn3", make.conv("conv3", a, out, out, width, 4 * width, 1), out, 4 * width)
            b = -1
            if not block:
                b = make.norm(
                    "bn_down", make.conv("down", -1, inner, out, channels, 4 * width, 1), out, 4 * width
                )
            make.add("add", a, b, out, 4 * width)
            layers.append(make.layer(f"group{group}.block{block}", input_bytes))
            size, channels = out, 4 * width
    head = maker()
    head.pool("avgpool", -1, size, 1, channels)
    head.conv("fc", 0, 1, 1, channels, classes, 1)
    op = head.ops[-1]
    head.ops[-1] = Operator(
        op.name, op.kind, op.edges, op.forward, op.backward_input, op.backward_weight,
        (*op.weights, Weight(classes)), output_bytes=op.output_bytes, saved_bytes=op.saved_bytes,
    )  # fmt: skip
    layers.append(head.layer("head", batch * size * size * channels * itemsize))
    return _cut(layers, parallel, itemsize, grad_itemsize)


# --------------------------------------------------------------------------------------------------- DLRM


def dlrm_stages(
    model: DlrmConfig, parallel: ParallelConfig, batch: int, *, itemsize: int = 4, grad_itemsize: int = 4,
    types: ElementTypes = ElementTypes(),  # noqa: B008 - frozen
) -> StageModel:  # fmt: skip
    """DLRM with data-parallel MLPs and tables spread evenly over the dp ranks (all-to-all of pooled vectors).

    ``batch`` are samples per rank. Tables are updated in place, so their gradients are never reduced.

    Raises
    ------
    UsageError
        Any other parallelism than dp.
    """
    _need_data_parallel("DLRM", parallel)
    if parallel.pp > 1:
        raise UsageError(f"DLRM has no pipeline here: pp must be 1, not {parallel.pp}")
    if batch < 1:
        raise UsageError(f"batch must be at least 1, not {batch}")
    item = itemsize
    dense = _Dense(batch, 1, itemsize, grad_itemsize, types)
    ops: list[Operator] = []
    # each rank looks up its share of the tables for the samples of all ranks: as many vectors as it then keeps
    vectors = batch * model.tables
    looked = vectors * model.pooling * model.dim * item
    pooled = vectors * model.dim * item
    elements = -(-model.rows * model.dim // parallel.dp)
    read, kind = vectors * model.pooling * model.dim, KernelKind.EMBEDDING
    updates = kernel(kind, read, pooled + 2 * looked, read, Direction.WEIGHT, types)
    ops.append(
        Operator(
            "tables", OpKind.LOOKUP, (), kernel(kind, read, looked + pooled, read, types=types), NO_WORK, updates,
            (Weight(elements, WeightGroup.LOCAL),), output_bytes=pooled,
        )
    )  # fmt: skip
    last = _chain(ops, dense.chain("bottom", model.bottom), -1)
    samples, tables = {"dp": Shard("sample")}, {"dp": Shard("table")}
    bottom_bytes = batch * model.dim * item
    count = model.tables + 1
    flops = 2 * batch * count * count * model.dim
    out_bytes = batch * model.interactions * item
    # the dot products of a sample: (count x dim)(dim x count), and the gradients of both factors
    dot = MatrixProduct(count, count, model.dim, batch, type=types.compute)
    back = MatrixProduct(count, model.dim, count, 2 * batch, type=types.compute, direction=Direction.BACKWARD)
    ops.append(
        Operator(
            "interaction", OpKind.GEMM, (Edge(0, pooled, tables, samples, samples), Edge(last, bottom_bytes)),
            Work(flops, pooled + bottom_bytes + out_bytes, what=dot),
            Work(2 * flops, 2 * (pooled + bottom_bytes) + out_bytes, what=back),
            output_bytes=out_bytes, saved_bytes=pooled + bottom_bytes,
        )
    )  # fmt: skip
    _chain(ops, dense.chain("top", (model.interactions, *model.top)), len(ops) - 1)
    layer = Layer("dlrm", tuple(ops), batch * model.bottom[0] * item, ops[-1].output_bytes)
    return _cut([layer], parallel, itemsize, grad_itemsize)


def _chain(ops: list[Operator], layers: Sequence[Layer], source: int) -> int:
    """Append layers' operators to one list, the first fed by ``source``; returns the last index."""
    for layer in layers:
        base = len(ops)
        for op in layer.operators:
            edges = tuple(
                replace(edge, producer=source if edge.producer < 0 else base + edge.producer)
                for edge in op.edges
            )
            ops.append(replace(op, name=f"{layer.name}.{op.name}", edges=edges))
        source = len(ops) - 1
    return source
