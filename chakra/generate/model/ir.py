"""The layer IR: operators with exact work, and edges with layouts; everything per rank and per micro-batch.

Sizes are plain integers already divided by the parallel degrees. Nothing about schedules or time is in here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from chakra.et.operators import Computed, Direction, Kernel, KernelKind, MatrixProduct
from chakra.generate.model.placement import Placements, Shares

#: producers of an edge outside its layer: the layer's input, and the output of the encoder before the model
INPUT, MEMORY = -1, -2


class OpKind(StrEnum):
    """Class of an operator; decides which roofline efficiency applies and how FLOPs are reported."""

    GEMM = "gemm"
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"
    LOOKUP = "lookup"
    OPTIMIZER = "optimizer"

    @property
    def is_matmul(self) -> bool:
        """Whether its operations are the matrix FLOPs that model-FLOPs formulas count."""
        return self in (OpKind.GEMM, OpKind.ATTENTION)


@dataclass(frozen=True, slots=True)
class Work:
    """What one execution costs: floating-point operations, and bytes read plus written in device memory.

    ``expert_flops`` and ``expert_bytes`` are the part of each that goes with the number of experts that a rank holds
    (their weights), so that a workload can be rescaled along expert parallelism.
    ``launches`` is how many single experts the host issues this for, where it is no matrix product.
    ``what`` says what is computed, for machines whose operator times are known.
    """

    flops: int = 0
    bytes: int = 0
    expert_flops: int = 0
    expert_bytes: int = 0
    what: Computed | None = None
    launches: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.flops + other.flops,
            self.bytes + other.bytes,
            self.expert_flops + other.expert_flops,
            self.expert_bytes + other.expert_bytes,
            self.what,
            self.launches + other.launches,
        )

    def __bool__(self) -> bool:
        return bool(self.flops or self.bytes)


NO_WORK = Work()


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor that an operator takes from another.

    Attributes
    ----------
    producer
        Index of the producing operator in the layer, `INPUT` or `MEMORY`.
    size_bytes
        Local bytes as produced (layout ``have``).
    have, need
        Layout as produced and as the consumer needs it.
    grad
        Layout of the gradient as the consumer makes it; None when no gradient flows back.
    regather
        Whether the converted input is not kept but converted again in the backward pass, for the weight gradient
        (Megatron's sequence parallelism).
    shares
        What the all-to-all of the forward pass sends and receives, where that is not even.
    """

    producer: int
    size_bytes: int
    have: Placements = field(default_factory=dict)
    need: Placements = field(default_factory=dict)
    grad: Placements | None = field(default_factory=dict)
    regather: bool = False
    shares: Shares | None = None


class WeightGroup(StrEnum):
    """Over which ranks a weight's gradient is reduced: all replicas, those that hold the same experts, or none."""

    DENSE = "dense"
    EXPERT = "expert"
    #: not trained: copies are equal, and no gradient exists
    FROZEN = "frozen"
    #: every rank holds its own part (embedding tables of recommendation models)
    LOCAL = "local"

    @classmethod
    def trained(cls) -> "tuple[WeightGroup, ...]":
        """Groups whose weights have gradients and optimizer states."""
        return tuple(group for group in cls if group is not cls.FROZEN)

    def replica_axes(self) -> tuple[str, ...]:
        """Axes over which copies of such weights lie."""
        if self in (WeightGroup.DENSE, WeightGroup.FROZEN):
            return ("dp", "cp")
        return ("edp",) if self is WeightGroup.EXPERT else ()


@dataclass(frozen=True, slots=True)
class Weight:
    """Parameters of an operator: local number of elements, and how copies are kept equal.

    ``partial_tp``: each tensor-parallel rank has seen other tokens (sequence parallelism), so gradients of this
    replicated weight are also summed over tp. ``copies``: tp ranks that hold the same elements (for exact totals).
    ``tied``: input and output embedding are this one matrix.
    """

    elements: int
    group: WeightGroup = WeightGroup.DENSE
    partial_tp: bool = False
    copies: int = 1
    tied: bool = False


@dataclass(frozen=True, slots=True)
class Ring:
    """Ring exchange inside an attention operator: the neighbour's keys and values at every step."""

    axis: str
    steps: int
    forward_bytes: int
    backward_bytes: int


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator with its work in each pass.

    ``saved_bytes`` are the activations kept from forward to backward. ``core`` marks the attention core, which
    selective recomputation runs again; ``core_bytes`` is the part of ``saved_bytes`` that this drops. ``counted`` is true
    where the host reads from the device how many rows the operator has before it can issue it (experts that drop no
    token).
    """

    name: str
    kind: OpKind
    edges: tuple[Edge, ...]
    forward: Work
    backward_input: Work = NO_WORK
    backward_weight: Work = NO_WORK
    weights: tuple[Weight, ...] = ()
    output_bytes: int = 0
    saved_bytes: int = 0
    core: bool = False
    core_bytes: int = 0
    ring: Ring | None = None
    counted: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """A run of operators with one input and one output tensor (the last operator's).

    ``input_bytes`` is the local size of the input, which is all that full recomputation keeps. ``recomputable`` is
    false for embeddings and heads. ``cached_bytes`` is what a token leaves in the cache of an inference, and ``window``
    how many of the last tokens are kept there (0: all; 1 where one state stands for all tokens). ``cached_memory_bytes``
    is what a sequence leaves there whatever its tokens are: keys and values of the encoder's output.

    ``encoder`` marks layers before the model's own; ``frozen`` ones are not trained, and nothing before them is. The
    first of the model's own ``opens`` them: where layers attend to an encoder, what comes before it is not its input.
    """

    name: str
    operators: tuple[Operator, ...]
    input_bytes: int = 0
    output_bytes: int = 0
    recomputable: bool = False
    cached_bytes: int = 0
    window: int = 0
    cached_memory_bytes: int = 0
    encoder: bool = False
    frozen: bool = False
    opens: bool = False

    def weights(self) -> Iterator[Weight]:
        """All weights, in operator order."""
        for operator in self.operators:
            yield from operator.weights

    @property
    def parameters(self) -> int:
        """Local parameters."""
        return sum(weight.elements for weight in self.weights())

    @property
    def saved_bytes(self) -> int:
        """Activations kept per micro-batch without recomputation."""
        return sum(operator.saved_bytes for operator in self.operators)


#: parts of a model whose products may stay in the type of activations: the output matrix, and multi-token prediction
PARTS = ("head", "mtp")


@dataclass(frozen=True, slots=True)
class ElementTypes:
    """Names of element types, for what operators say of themselves; sizes in bytes are given beside them.

    ``compute`` is that of activations and weights, ``gradient`` that of weight gradients, ``matmul`` that of the operands
    of linear layers' products where it is another (8-bit recipes), but for the parts of the model in ``unquantised``
    (`PARTS`).
    """

    compute: str = "bf16"
    gradient: str = "fp32"
    matmul: str = ""
    unquantised: frozenset[str] = frozenset()

    def of(self, part: str) -> "ElementTypes":
        """Those of a part of the model."""
        return replace(self, matmul="") if part in self.unquantised else self


def gemm(
    m: int,
    n: int,
    k: int,
    *,
    itemsize: int,
    batch: int = 1,
    grad_itemsize: int | None = None,
    types: ElementTypes = ElementTypes(),
    role: str = "",
) -> list[Work]:
    """Work of an (m x k)(k x n) product, times ``batch``: forward, gradient of the input, gradient of the weight.

    2mnk FLOPs each; bytes are the three matrices once (m*k + k*n + m*n elements). The weight gradient is written in
    ``grad_itemsize``.
    """
    flops = 2 * m * n * k * batch
    moved = (m * k + k * n + m * n) * itemsize * batch
    wide = grad_itemsize if grad_itemsize is not None else itemsize
    weight = (m * k + m * n) * itemsize * batch + k * n * wide * batch
    operands = types.matmul if types.matmul and not role else types.compute
    result = "" if operands == types.compute else types.compute
    forward = MatrixProduct(m, n, k, batch, role, type=operands, out=result)
    inputs = MatrixProduct(m, k, n, batch, role, type=operands, out=result, direction=Direction.BACKWARD)
    grads = MatrixProduct(
        k, n, m, batch, role, type=operands, out=_result(types, operands), direction=Direction.WEIGHT
    )
    return [
        Work(flops, moved, what=forward),
        Work(flops, moved, what=inputs),
        Work(flops, weight, what=grads),
    ]


def _result(types: ElementTypes, operands: str) -> str:
    return "" if types.gradient == operands else types.gradient


def kernel(
    kind: KernelKind,
    flops: int,
    moved: int,
    elements: int,
    direction: Direction = Direction.FORWARD,
    types: ElementTypes = ElementTypes(),
) -> Work:
    """Work of an operator that memory bounds."""
    return Work(flops, moved, what=Kernel(kind, elements, moved, types.compute, direction))
