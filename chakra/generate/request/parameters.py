"""Parameters of requests as keys: for options, study files, JSON Schemas and messages alike."""

import math
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from chakra.errors import UsageError
from chakra.io.limits import MAX_GENERATED_LAYERS, MAX_GENERATED_NPUS
from chakra.replay.config.key import Key, Reader, Schema, UnfitError
from chakra.replay.config.readers import MAX_NUMBER, Flag, Text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

EnumT = TypeVar("EnumT", bound=Enum)

#: no size of a model or a batch is larger
MOST_SIZE = 1 << 40


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a field of a request does not say itself.

    Attributes
    ----------
    meaning
        What it is, with its unit.
    unit
        The unit, where the meaning does not spell it out as a word of its own.
    default_said
        What a parameter that is not given stands for, where that is no plain value.
    least
        0 for numbers that some workloads do not look at; sizes that they do are checked with the plan.
    most
        Bound of a whole number.
    """

    meaning: str
    unit: str = ""
    default_said: str = ""
    least: float = -math.inf
    most: int = MOST_SIZE


PARAMETERS = {
    "framework": Parameter(
        "Framework whose parameters these are where not given, and whose times a replay takes: megatron, megatron-2022, "
        "fsdp1, nanotron; not validated: fsdp2 (torchtitan), maxtext"
    ),
    "tp": Parameter("Tensor-parallel ranks", most=MAX_GENERATED_NPUS),
    "cp": Parameter("Context-parallel ranks", most=MAX_GENERATED_NPUS),
    "ep": Parameter("Expert-parallel ranks (cut out of cp x dp)", most=MAX_GENERATED_NPUS),
    "dp": Parameter("Data-parallel replicas", default_said="npus/(tp*cp*pp), or 1", most=MAX_GENERATED_NPUS),
    "pp": Parameter("Pipeline stages", most=MAX_GENERATED_NPUS),
    "vp": Parameter("Model chunks per pipeline stage (interleaved schedule)", most=MAX_GENERATED_NPUS),
    "npus": Parameter("Ranks in all; dp follows", most=MAX_GENERATED_NPUS),
    "order": Parameter("Rank order, fastest axis first"),
    "micro_batch": Parameter("Sequences (samples, requests) per micro-batch and replica"),
    "micro_batches": Parameter("Micro-batches per step", default_said="1", most=1 << 20),
    "global_batch": Parameter("Sequences (samples) per step over all replicas, instead of micro-batches"),
    "dtype": Parameter("Element type of activations and weights: fp32, bf16, fp16, fp8"),
    "grad_dtype": Parameter("Element type of weight gradients"),
    "matmul_dtype": Parameter(
        "Element type of linear layers' operands where it is another: fp8, mxfp8, nvfp4"
    ),
    "unquantised": Parameter(
        "Parts of a transformer whose matrix products stay in dtype where matmul-dtype is another: any of head (the "
        "output matrix), mtp"
    ),
    "schedule": Parameter("Pipeline schedule"),
    "schedule_file": Parameter("CSV file with the schedule: a line per stage, cells such as F0, B0, I1, W1"),
    "paired": Parameter(
        "Forward passes beside backward passes of other micro-batches: while one exchanges tokens with experts, the "
        "other computes (1f1b and interleaved)"
    ),
    "recompute": Parameter("Activations computed again in the backward pass"),
    "zero": Parameter("ZeRO stage: 0 none, 1 optimizer, 2 gradients, 3 weights (FSDP)"),
    "iterations": Parameter("Training steps, one after the other", default_said="1", most=1 << 20),
    "shard": Parameter(
        "Data-parallel ranks that ZeRO shards over, a divisor of dp; the others have copies (hybrid sharding)",
        default_said="dp",
        most=MAX_GENERATED_NPUS,
    ),
    "bucket_mb": Parameter("Size of gradient buckets, MB of 10^6 bytes", unit="MB of 10^6 B"),
    "reshard": Parameter("ZeRO-3: gather weights again for the backward pass"),
    "reduce_once": Parameter("ZeRO-3: reduce gradients once a step, not once per micro-batch"),
    "prefetch": Parameter("ZeRO-3: layers gathered ahead", least=0, most=1 << 20),
    "optimizer_bytes": Parameter("Bytes of optimizer state per parameter", least=0),
    "optimizer_step": Parameter("End the step with the optimizer"),
    "overlap": Parameter("Communication beside computation"),
    "exposed": Parameter("Communication that computation waits for all the same: any of tp (cp, ep), dp, pp"),
    "host": Parameter(
        "Nodes for the host thread that issues operators: it runs ahead, or waits for the device at each pass"
    ),
    "graphs": Parameter(
        "Passes are recorded graphs (CUDA graphs), which the host launches as one operator each"
    ),
    "compiled": Parameter("Memory-bound operators that follow each other are one kernel (torch.compile)"),
    "comm_order": Parameter("One chain of collectives per rank (program), or one per stream"),
    "fuse": Parameter("Merge operators that have no communication between them"),
    "peak_tflops": Parameter(
        "Peak of the accelerator, 10^12 operations per second; with mem-gbps nodes carry durations",
        unit="10^12 op/s",
    ),
    "mem_gbps": Parameter("Device memory bandwidth, 10^9 bytes per second", unit="10^9 B/s"),
    "matmul_efficiency": Parameter("Reachable share of the peak, 0 to 1", least=0),
    "memory_efficiency": Parameter("Reachable share of the memory bandwidth, 0 to 1", least=0),
    "launch_ns": Parameter("Fixed cost of every operator, ns", unit="ns", least=0),
    "operator_model": Parameter("Machine preset whose operator times nodes carry as durations"),
    "model": Parameter("Model preset (see --list-models)"),
    "layers": Parameter("Layers", most=MAX_GENERATED_LAYERS),
    "layer_file": Parameter(
        "CSV file with the layers of a model whose layers are not all alike: a line for each run of them"
    ),
    "layer_pattern": Parameter(
        "Layers by letters, repeated to fill layers: M Mamba-2, m Mamba, * attention, - perceptron, E experts"
    ),
    "hidden": Parameter("Hidden width"),
    "heads": Parameter("Attention heads"),
    "kv_heads": Parameter("Key-value heads"),
    "head_dim": Parameter("Width of a head"),
    "ffn": Parameter("Feed-forward width"),
    "vocabulary": Parameter("Vocabulary size"),
    "gated": Parameter("Gated feed-forward (three matrices)"),
    "experts": Parameter("Experts per MoE layer", most=1 << 16),
    "experts_per_token": Parameter("Experts that each token visits", least=0),
    "moe_ffn": Parameter("Width of one expert", least=0),
    "shared_experts": Parameter("Experts that every token visits", least=0, most=1 << 16),
    "moe_latent": Parameter("Width that tokens are compressed to for experts, 0 for none", least=0),
    "mtp": Parameter(
        "Multi-token prediction: modules behind the last layer that predict one token more each",
        least=0,
        most=1 << 8,
    ),
    "q_rank": Parameter("Latent attention: width that queries are compressed to, 0 for none", least=0),
    "kv_rank": Parameter("Latent attention: width that keys and values are compressed to", least=0),
    "rope_dim": Parameter("Latent attention: width of a head's rotary part, beside head-dim", least=0),
    "value_dim": Parameter("Latent attention: width of a head's values", least=0),
    "window": Parameter("Sliding window: keys that a query sees, 0 for all", least=0),
    "full_every": Parameter(
        "Every so many layers one sees all keys in spite of the window, 0 for none", least=0
    ),
    "sinks": Parameter("Learned sinks in the softmax of each head"),
    "inner": Parameter("State-space layers: channels (twice the hidden width in published models)", least=0),
    "state_size": Parameter("State-space layers: elements of each channel's state", least=0),
    "state_heads": Parameter("Mamba-2: heads of the channels", least=0),
    "state_groups": Parameter("Mamba-2: groups of heads with one input and output of the state", least=0),
    "conv_width": Parameter("State-space layers: tokens that the convolution sees", least=0),
    "chunk": Parameter("Mamba-2: tokens of a chunk of the scan", least=0),
    "dt_rank": Parameter("Mamba: width that step sizes are computed from", least=0),
    "seq": Parameter(
        "Tokens per sequence (training) or prompt (inference)",
        default_said="the model's; of a prompt behind an encoder 1",
    ),
    "mode": Parameter(
        "Training step, prefill, decode, serve (prefill, then decode) or disaggregated (each on ranks of its own)"
    ),
    "decode_steps": Parameter("Tokens generated per request", most=1 << 20),
    "decode_tp": Parameter("Tensor-parallel ranks of decoding", default_said="tp", most=MAX_GENERATED_NPUS),
    "decode_ep": Parameter("Expert-parallel ranks of decoding", default_said="ep", most=MAX_GENERATED_NPUS),
    "decode_dp": Parameter("Replicas that decode", default_said="dp", most=MAX_GENERATED_NPUS),
    "decode_pp": Parameter("Pipeline stages of decoding", default_said="pp", most=MAX_GENERATED_NPUS),
    "decode_batch": Parameter(
        "Requests that a decode replica takes in together, a multiple of micro-batch",
        default_said="micro-batch",
    ),
    "sp": Parameter("Sequence parallelism along tp"),
    "regather": Parameter("With --sp: gather inputs again in the backward pass"),
    "context": Parameter("Kind of context parallelism"),
    "flash": Parameter("Fused attention without a matrix of scores in memory"),
    "causal": Parameter("Count only the unmasked half of attention"),
    "capacity": Parameter("MoE capacity factor"),
    "dispatch_domain": Parameter(
        "Neighbouring ranks of ep (a node's) that get a token once and pass it on; 0 sends a copy for each expert",
        least=0,
    ),
    "expert_load": Parameter(
        "How often experts are visited: uniform, or zipf:EXPONENT, such as zipf:1.2", default_said="uniform"
    ),
    "expert_seed": Parameter(
        "With zipf: seed of which expert is visited how often", default_said="0", least=0
    ),
    "expert_load_file": Parameter(
        "CSV file with the share of each expert: columns expert, share, perhaps layer"
    ),
    "stage_layers": Parameter("Layers of each pipeline chunk, comma-separated"),
    "balance_stages": Parameter(
        "Cut the layers so that the pipeline chunk with most matrix operations has least, not into even numbers"
    ),
    "widths": Parameter("Widths, inputs first, comma-separated"),
    "image": Parameter("Side of the image, pixels"),
    "patch": Parameter("Side of an image's patches, pixels", least=0),
    "encoder_layers": Parameter(
        "Layers of an encoder that the model attends to",
        default_said="the model's",
        most=MAX_GENERATED_LAYERS,
    ),
    "encoder_seq": Parameter(
        "Tokens per sequence that the encoder reads (of sound: two frames each)", default_said="the model's"
    ),
    "encoder_stages": Parameter(
        "Pipeline stages that have the encoder's layers",
        default_said="a share of pp like the encoder's of all layers",
        most=MAX_GENERATED_NPUS,
    ),
    "images": Parameter("Images of a sequence, of models of text with images", default_said="the model's"),
    "freeze_encoder": Parameter("The encoder of images is not trained: no gradients, no optimizer states"),
    "classes": Parameter("Number of classes"),
    "bottom": Parameter("Bottom MLP widths, comma-separated"),
    "top": Parameter("Top MLP widths, comma-separated"),
    "tables": Parameter("Embedding tables"),
    "rows": Parameter("Rows of all tables together"),
    "dim": Parameter("Width of embeddings"),
    "pooling": Parameter("Lookups per table and sample"),
}


@dataclass(frozen=True, slots=True)
class Amount:
    """Reader of a number of a request."""

    least: float = -math.inf
    missing: str = ""

    @property
    def allowed(self) -> str:
        """Kind of number."""
        return "number"

    def read(self, value: object, compat: str | None = None) -> float:
        """The number."""
        if type(value) not in (int, float) or not isinstance(value, (int, float)):
            raise UnfitError("must be a number")
        # a whole number of more than 308 digits is none to reckon with, either
        if isinstance(value, int) and abs(value) > MAX_NUMBER:
            value = math.inf
        _check_bounds(value, self.least)
        return float(value)

    def schema(self) -> Schema:
        """A number within its bound."""
        return {"type": "number", **_bounds(max(self.least, -MAX_NUMBER), MAX_NUMBER)}


@dataclass(frozen=True, slots=True)
class Size:
    """Reader of a whole number of a request."""

    least: float = -math.inf
    most: int = MOST_SIZE
    missing: str = ""

    @property
    def allowed(self) -> str:
        """Kind of number."""
        return "whole number"

    def read(self, value: object, compat: str | None = None) -> int:
        """The number."""
        if type(value) is not int:
            raise UnfitError("must be a whole number")
        _check_bounds(value, self.least)
        if value > self.most:
            raise UnfitError(f"must be at most {self.most}", str(value) if value < 10**40 else "that many")
        return value

    def schema(self) -> Schema:
        """A whole number within its bounds."""
        return {"type": "integer", **_bounds(self.least, self.most)}


def _check_bounds(value: float, least: float) -> None:
    finite = isinstance(value, int) or math.isfinite(value)
    if not finite or value < least:
        raise UnfitError(
            f"must be {'a number of at least 0' if least == 0 else 'a finite number'}", str(value)
        )


def _bounds(least: float, most: float) -> Schema:
    bounds = {"minimum": least, "maximum": most}
    return {name: bound for name, bound in bounds.items() if math.isfinite(bound)}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Reader of a list of whole numbers of a request."""

    allowed: str = "list of whole numbers"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> tuple[int, ...]:
        """The numbers."""
        if not isinstance(value, list | tuple) or not all(type(item) is int for item in value):
            raise UnfitError("must be a list of whole numbers")
        return tuple(value)

    def schema(self) -> Schema:
        """A list of whole numbers."""
        return {"type": "array", "items": {"type": "integer"}}


@dataclass(frozen=True, slots=True)
class Member(Generic[EnumT]):
    """Reader of a member of an enumeration, by its value or as it is."""

    kind: type[EnumT]
    missing: str = ""

    @property
    def allowed(self) -> str:
        """The words."""
        return ", ".join(self.words)

    @property
    def words(self) -> list[str]:
        """Every value."""
        return [str(member.value) for member in self.kind]

    def read(self, value: object, compat: str | None = None) -> EnumT:
        """The member."""
        if isinstance(value, self.kind):
            return value
        if not isinstance(value, str) or value not in self.words:
            raise UnfitError(f"must be one of {', '.join(self.words)}")
        return self.kind(value)

    def schema(self) -> Schema:
        """The closed set of words."""
        return {"enum": self.words}


def keys_of(request: "type[DataclassInstance]") -> tuple[Key[object], ...]:
    """Every parameter of a request class, in its order.

    Parameters
    ----------
    request
        A dataclass whose fields `PARAMETERS` describes.
    """
    return _keys_of(request)


@cache
def _keys_of(request: "type[DataclassInstance]") -> tuple[Key[object], ...]:
    hints = get_type_hints(request)
    return tuple(_key(item.name, hints[item.name], item.default) for item in fields(request))


def _key(name: str, hint: object, default: object) -> Key[object]:
    about = PARAMETERS[name]
    reader = _reader(without_none(hint), about)
    return Key(name.replace("_", "-"), reader, default, about.unit, name, about.meaning, about.default_said)


def without_none(hint: object) -> object:
    """An annotation without ``| None``."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return next(item for item in get_args(hint) if item is not type(None))


def _reader(hint: object, about: Parameter) -> Reader[object]:
    """The reader of a field with this annotation."""
    if get_origin(hint) is tuple:
        return Sizes()
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Member(hint)
    readers: dict[object, Reader[object]] = {
        bool: Flag(),
        float: Amount(about.least),
        int: Size(about.least, about.most),
        str: Text(pattern=""),
    }
    return readers[hint]


def read_parameter(key: Key[object], value: object) -> object:
    """The value of a parameter; None stands for one that is not given, where nothing else does.

    Raises
    ------
    UsageError
        Naming the parameter and what is right.
    """
    if value is None and key.default is None:
        return None
    try:
        return key.reader.read(value)
    except UnfitError as unfit:
        raise UsageError(f"{key.name} {unfit.told_plainly(value)}") from None
