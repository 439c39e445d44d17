"""What a compute node computes: the text attribute ``operator``, beside ``num_ops`` and ``tensor_size``.

A text is one operator, ``KIND key=value ...``, or several joined by `` + `` where a node stands for more than one, with
``COUNT *`` before what it does several times. It holds all that the time of an operator depends on but the machine, so
that a trace has few distinct texts, and it holds numbers and words of closed sets only. Keys that have their default are
left out.

>>> operator_text(MatrixProduct(m=4096, n=12288, k=4096, out="fp32", direction=Direction.WEIGHT))
'gemm m=4096 n=12288 k=4096 out=fp32 pass=weight'
>>> [(made.flops, count) for made, count in parse_operators("gemm m=8 n=4 k=2 + 3 * gemm m=8 n=8 k=8")]
[(128, 1), (1024, 3)]
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, TypeAlias

from chakra.errors import TraceError
from chakra.io.digits import is_whole, whole_number

#: name of the attribute
ATTRIBUTE = "operator"
#: name of the metadata attribute that says which framework's program a trace is
FRAMEWORK = "framework"
#: name of the metadata attribute that says in which order a rank's collectives run, and its value where those of every
#: stream are a chain of their own
COMM_ORDER, BY_STREAM = "comm_order", "stream"
#: name of the metadata attribute that says what all ranks of a generated step do together
TOTALS = "totals"
#: name of the metadata attribute that says which nodes of a generated inference make its requests' tokens
TOKEN_NODES = "token_nodes"
#: name of the metadata attribute that says which part of a generated workload a trace is of
PART = "part"
#: name of the metadata attribute that says which stage of its pipeline a generated trace is of, from 0 on
STAGE = "pipeline_stage"
#: key of the totals: share of a step that the ranks of its schedule wait, of equal stages with free communication
IDEAL_BUBBLE = "ideal_bubble_share"
#: counts in it of which rates are made
COUNTS = ("samples", "tokens", "matmul_flops", "recomputed_flops", "iterations")
#: between the operators of one node
JOIN = " + "
#: between a count and its operator
TIMES = " * "

#: bits of an element by type; the MX types and nvfp4 have a scale for each block beside
ELEMENT_BITS: Mapping[str, float] = {
    "fp64": 64, "fp32": 32, "tf32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "mxfp8": 8.25, "mxfp4": 4.25,
    "nvfp4": 4.5,
}  # fmt: skip
#: no size of an operator is larger
MOST = 1 << 62


class Direction(StrEnum):
    """Which pass of a step an operator belongs to."""

    FORWARD = "forward"
    #: gradient of the inputs
    BACKWARD = "backward"
    #: gradient of the weights
    WEIGHT = "weight"
    UPDATE = "update"


class KernelKind(StrEnum):
    """Operators that memory bounds."""

    NORM = "norm"
    ACTIVATION = "activation"
    #: an activation whose inputs are clamped (GPT-OSS)
    CLAMPED = "clamped"
    #: biases of experts, weighted for each token; others are part of their matrix product
    BIAS = "bias"
    ROPE = "rope"
    #: residual addition, with dropout where the model has it
    ADD = "add"
    LOSS = "loss"
    PERMUTE = "permute"
    POOL = "pool"
    EMBEDDING = "embedding"
    OPTIMIZER = "optimizer"
    #: causal convolution of each channel by itself, over few tokens (state-space layers)
    CONV = "conv1d"
    #: recurrence over a sequence (state-space layers)
    SCAN = "scan"
    CAST = "cast"
    COPY = "copy"
    #: several of these in one kernel that a compiler made
    FUSED = "fused"


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """``batch`` products of (m x k)(k x n).

    Attributes
    ----------
    m, n, k, batch
        Sizes; experts of a mixture are a batch.
    role
        ``""``, ``router``, ``convolution``, or ``scan`` (a product of activations in a state-space layer).
    bytes
        Bytes read and written, where they are not those of the three matrices (convolutions); 0: those.
    type, out
        Element types of the operands and of the result; ``out`` ``""`` is that of the operands, or bf16 where these have
        8 bits or fewer.
    direction
        Pass; the sizes are those of the product that this pass computes.
    """

    WORD: ClassVar[str] = "gemm"

    m: int
    n: int
    k: int
    batch: int = 1
    role: str = ""
    bytes: int = 0
    type: str = "bf16"
    out: str = ""
    direction: Direction = Direction.FORWARD

    def __post_init__(self) -> None:
        _check_sizes(self, ("m", "n", "k", "batch"))
        _check_words(self, {"role": ("", "router", "convolution", "scan")})

    @property
    def rows(self) -> int:
        """Rows of the activations, all products together: m, or k where the gradient of the weights is computed."""
        return (self.k if self.direction is Direction.WEIGHT else self.m) * self.batch

    def grouped(self, rows: int, batch: int) -> "MatrixProduct":
        """The same product of so many rows in all, as a batch of equal parts, rounded up."""
        each = -(-rows // batch)
        if self.direction is Direction.WEIGHT:
            return replace(self, k=each, batch=batch)
        return replace(self, m=each, batch=batch)

    @property
    def flops(self) -> int:
        """Operations, 2 for a multiplication with its addition."""
        return 2 * self.m * self.n * self.k * self.batch

    @property
    def result_type(self) -> str:
        """Element type of the result."""
        return self.out or (self.type if ELEMENT_BITS[self.type] >= 16 else "bf16")

    @property
    def moved_bytes(self) -> float:
        """Bytes of the three matrices, each once, or those given."""
        if self.bytes:
            return self.bytes
        inputs = (self.m * self.k + self.k * self.n) * ELEMENT_BITS[self.type]
        return self.batch * (inputs + self.m * self.n * ELEMENT_BITS[self.result_type]) / 8


@dataclass(frozen=True, slots=True)
class Attention:
    """Scores, softmax and weighted sum.

    Attributes
    ----------
    batch
        Sequences.
    heads, kv_heads
        Heads of queries, and of keys and values.
    queries, keys
        Queries and keys of a sequence; the last query is that of the last key.
    head, value_head
        Size of a head of queries and keys, and of values; ``value_head`` 0: the same.
    causal
        Whether masked blocks are left out.
    window
        Keys that a query sees; 0: all.
    sinks
        Whether each head has a sink in its softmax (GPT-OSS).
    latent
        Whether values are the first part of the keys (latent attention that decodes compressed), and read once with them.
    fused
        Whether scores stay on the chip (FlashAttention); otherwise they are written to memory and read.
    dropout
        Whether scores have a dropout mask (unfused).
    parts
        One of so many equal parts of this (steps round a ring of context ranks).
    type
        Element type.
    direction
        Pass.
    """

    WORD: ClassVar[str] = "attention"

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    head: int
    value_head: int = 0
    causal: bool = False
    window: int = 0
    sinks: bool = False
    latent: bool = False
    fused: bool = True
    dropout: bool = False
    parts: int = 1
    type: str = "bf16"
    direction: Direction = Direction.FORWARD

    def __post_init__(self) -> None:
        _check_sizes(self, ("batch", "heads", "kv_heads", "queries", "keys", "head", "parts"))
        _check_sizes(self, ("value_head", "window"), least=0)

    @property
    def seen(self) -> int:
        """Keys of a sequence that any of its queries sees."""
        return min(self.keys, self.window + self.queries - 1) if self.window else self.keys

    @property
    def pairs(self) -> int:
        """Pairs of query and key that a head of a sequence computes."""
        return attention_pairs(self.queries, self.keys, causal=self.causal, window=self.window)

    @property
    def flops(self) -> int:
        """Operations: two products a pair forward, four backward."""
        width = self.head + (self.value_head or self.head)
        forward = 2 * self.batch * self.heads * self.pairs * width
        return (forward if self.direction is Direction.FORWARD else 2 * forward) // self.parts


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operator that memory bounds.

    Attributes
    ----------
    kind
        What it does.
    elements
        Elements of its result, or parameters of an optimizer.
    bytes
        Bytes read and written.
    type
        Element type.
    direction
        Pass.
    """

    kind: KernelKind
    elements: int
    bytes: int
    type: str = "bf16"
    direction: Direction = Direction.FORWARD

    def __post_init__(self) -> None:
        _check_sizes(self, ("elements", "bytes"), least=0)


@dataclass(frozen=True, slots=True)
class Host:
    """What the host thread of a program does between two communications: it issues operators, and waits for none.

    Attributes
    ----------
    forward, again, backward
        Operators of a forward pass, of one that is computed again, and of a backward pass.
    experts
        Matrix products of single experts: a product of several experts is issued for each of them.
    collectives, messages
        Collectives; sends and receives.
    passes, steps
        Forward or backward passes of a micro-batch that begin; steps that end.
    """

    WORD: ClassVar[str] = "host"

    forward: int = 0
    again: int = 0
    backward: int = 0
    experts: int = 0
    collectives: int = 0
    messages: int = 0
    passes: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        _check_sizes(self, tuple(item.name for item in fields(self)), least=0)


Computed: TypeAlias = MatrixProduct | Attention | Kernel | Host


def attention_pairs(queries: int, keys: int, *, causal: bool, window: int = 0) -> int:
    """Pairs of query and key that a mask leaves; the last query stands at the place of the last key.

    Half of all where queries and keys are as many and only earlier keys count (the half of the diagonal is left out, as
    in model-FLOPs formulas).

    >>> attention_pairs(8, 8, causal=False), attention_pairs(8, 8, causal=True), attention_pairs(1, 8, causal=True)
    (64, 32, 8)
    >>> attention_pairs(8, 8, causal=True, window=2), attention_pairs(1, 8, causal=True, window=2)
    (15, 2)
    """
    if window and window < keys:
        # the first queries see fewer keys than the window has
        first = max(0, keys - queries)
        short = max(0, min(window, keys) - first) if causal else 0
        missing = short * (short - 1) // 2 if causal else 0
        return max(1, queries * window - missing)
    if not causal or queries == 1:
        return queries * keys
    if queries >= keys:
        return queries * keys // 2
    return queries * (2 * keys - queries) // 2


def _check_sizes(owner: Computed, names: tuple[str, ...], least: int = 1) -> None:
    for name in names:
        value = getattr(owner, name)
        if not least <= value <= MOST:
            if isinstance(value, int) and value > MOST:
                raise TraceError(
                    f"operator: {name} is {value}: 64 bits do not hold it; make the model or the batch smaller"
                )
            raise TraceError(f"operator: {name} must be a whole number of {least} to 2^62, not {value}")
    for name in ("type", "out"):
        word = getattr(owner, name, "")
        if word and word not in ELEMENT_BITS:
            raise TraceError(f"operator: {name} {word!r} is not one of {', '.join(ELEMENT_BITS)}")


def _check_words(owner: Computed, allowed: Mapping[str, tuple[str, ...]]) -> None:
    for name, words in allowed.items():
        if getattr(owner, name) not in words:
            raise TraceError(
                f"operator: {name} must be one of {', '.join(words)}, not {getattr(owner, name)!r}"
            )


# -------------------------------------------------------------------------------------------------------- as text


def _key(field: "Field[object]") -> str:
    return "pass" if field.name == "direction" else field.name


@lru_cache(maxsize=4096)
def operator_text(operator: Computed) -> str:
    """The text of one operator."""
    words = [operator.kind.value if isinstance(operator, Kernel) else operator.WORD]
    for item in fields(operator):
        value = getattr(operator, item.name)
        if item.name == "kind" or (item.default is not MISSING and value == item.default):
            continue
        words.append(f"{_key(item)}={int(value) if isinstance(value, bool) else value}")
    return " ".join(words)


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(text)
    return text == "1"


def _size(text: str) -> int:
    if not is_whole(text, 19):
        raise ValueError(text)
    return whole_number(text)


_READERS: dict[object, Callable[[str], object]] = {int: _size, bool: _flag, str: str, Direction: Direction}
_KINDS: dict[str, type[MatrixProduct] | type[Attention] | type[Host]] = {
    kind.WORD: kind for kind in (MatrixProduct, Attention, Host)
}
_KERNELS = {kind.value: kind for kind in KernelKind}


def operators_text(counts: Mapping[str, int]) -> str:
    """The text of a node that runs operators, given by their texts, so many times."""
    return JOIN.join(text if count == 1 else f"{count}{TIMES}{text}" for text, count in counts.items())


@lru_cache(maxsize=4096)
def parse_operators(text: str) -> tuple[tuple[Computed, int], ...]:
    """The operators of a node and how often it runs each; none for a text of another tool, which has other words.

    Raises
    ------
    TraceError
        An operator with an unknown key, without one it needs, or with a value out of range.
    """
    found: list[tuple[Computed, int]] = []
    for part in text.split(JOIN):
        count, times, one = part.partition(TIMES)
        if not times:
            count, one = "1", part
        word, *pairs = one.split(" ")
        if (
            (word not in _KINDS and word not in _KERNELS)
            or not pairs
            or not all("=" in pair for pair in pairs)
        ):
            return ()
        try:
            found.append((_parsed(word, pairs, one), max(1, _size(count))))
        except ValueError:
            raise TraceError(f"operator {part!r}: {count!r} is no count") from None
    return tuple(found)


def _parsed(word: str, pairs: list[str], part: str) -> Computed:
    kind: type[Computed] = _KINDS.get(word, Kernel)
    readers = {_key(item): item for item in fields(kind) if item.name != "kind"}
    values: dict[str, object] = {"kind": _KERNELS[word]} if kind is Kernel else {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name not in readers:
            raise TraceError(f"operator {part!r}: {name!r} is not one of {', '.join(readers)}")
        item = readers[name]
        try:
            values[item.name] = _READERS[item.type](value)
        except ValueError:
            raise TraceError(f"operator {part!r}: {name} cannot be {value!r}") from None
    missing = [key for key, item in readers.items() if item.default is MISSING and item.name not in values]
    if missing:
        raise TraceError(f"operator {part!r}: {missing[0]} is missing")
    made: Callable[..., Computed] = kind
    return made(**values)
