"""Parameters of requests: what each means, its unit, type and default; for options, study files and messages alike."""

from dataclasses import dataclass, fields
from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from chakra.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: what each parameter means, with its unit
MEANINGS = {
    "tp": "Tensor-parallel ranks.",
    "cp": "Context-parallel ranks.",
    "ep": "Expert-parallel ranks (cut out of cp x dp).",
    "dp": "Data-parallel replicas.",
    "pp": "Pipeline stages.",
    "vp": "Model chunks per pipeline stage (interleaved schedule).",
    "npus": "Ranks in all; dp follows.",
    "order": "Rank order, fastest axis first.",
    "micro_batch": "Sequences (samples, requests) per micro-batch and replica.",
    "micro_batches": "Micro-batches per step.",
    "global_batch": "Sequences (samples) per step over all replicas, instead of micro-batches.",
    "dtype": "Element type of activations and weights: fp32, bf16, fp16, fp8.",
    "grad_dtype": "Element type of weight gradients.",
    "schedule": "Pipeline schedule.",
    "schedule_file": "CSV file with the schedule: a line per stage, cells such as F0, B0, I1, W1.",
    "recompute": "Activations computed again in the backward pass.",
    "zero": "ZeRO stage: 0 none, 1 optimizer, 2 gradients, 3 weights (FSDP).",
    "bucket_mb": "Size of gradient buckets, MB of 10^6 bytes.",
    "reshard": "ZeRO-3: gather weights again for the backward pass.",
    "reduce_once": "ZeRO-3: reduce gradients once a step, not once per micro-batch.",
    "prefetch": "ZeRO-3: layers gathered ahead.",
    "optimizer_bytes": "Bytes of optimizer state per parameter.",
    "optimizer_step": "End the step with the optimizer.",
    "overlap": "Communication beside computation.",
    "comm_order": "One chain of collectives per rank (program), or one per stream.",
    "fuse": "Merge operators that have no communication between them.",
    "peak_tflops": "Peak of the accelerator, 10^12 operations per second; with mem-gbps nodes carry durations.",
    "mem_gbps": "Device memory bandwidth, 10^9 bytes per second.",
    "matmul_efficiency": "Reachable share of the peak, 0 to 1.",
    "memory_efficiency": "Reachable share of the memory bandwidth, 0 to 1.",
    "launch_ns": "Fixed cost of every operator, ns.",
    "model": "Model preset (see --list-models).",
    "layers": "Layers.",
    "hidden": "Hidden width.",
    "heads": "Attention heads.",
    "kv_heads": "Key-value heads.",
    "head_dim": "Width of a head.",
    "ffn": "Feed-forward width.",
    "vocabulary": "Vocabulary size.",
    "gated": "Gated feed-forward (three matrices).",
    "experts": "Experts per MoE layer.",
    "experts_per_token": "Experts that each token visits.",
    "moe_ffn": "Width of one expert.",
    "shared_experts": "Experts that every token visits.",
    "seq": "Tokens per sequence (training) or prompt (inference).",
    "mode": "Training step, prefill, decode, or serve (prefill, then decode).",
    "decode_steps": "Tokens generated per request.",
    "sp": "Sequence parallelism along tp.",
    "regather": "With --sp: gather inputs again in the backward pass.",
    "context": "Kind of context parallelism.",
    "flash": "Fused attention without a matrix of scores in memory.",
    "causal": "Count only the unmasked half of attention.",
    "capacity": "MoE capacity factor.",
    "stage_layers": "Layers of each pipeline chunk, comma-separated.",
    "widths": "Widths, inputs first, comma-separated.",
    "image": "Side of the image, pixels.",
    "classes": "Number of classes.",
    "bottom": "Bottom MLP widths, comma-separated.",
    "top": "Top MLP widths, comma-separated.",
    "tables": "Embedding tables.",
    "rows": "Rows of all tables together.",
    "dim": "Width of embeddings.",
    "pooling": "Lookups per table and sample.",
}

#: what a parameter that is not given stands for, where that is no plain value
DEFAULTS_IN_WORDS = {
    "dp": "npus/(tp*cp*pp), or 1",
    "micro_batches": "1",
    "seq": "the model's",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kind of request; `type` is its annotation without None."""

    name: str
    type: Any
    default: Any
    meaning: str
    default_in_words: str


def parameters_of(request: "type[DataclassInstance]") -> tuple[Parameter, ...]:
    """Every parameter of a request class, in its order."""
    hints = get_type_hints(request)
    return tuple(
        Parameter(
            item.name,
            without_none(hints[item.name])[0],
            item.default,
            MEANINGS[item.name],
            DEFAULTS_IN_WORDS.get(item.name, ""),
        )
        for item in fields(request)
    )


def without_none(hint: Any) -> tuple[Any, bool]:
    """An annotation without ``| None``, and whether it had that."""
    if get_origin(hint) not in (Union, UnionType):
        return hint, False
    return next(item for item in get_args(hint) if item is not type(None)), True


def coerce(name: str, value: Any, hint: Any) -> Any:
    """Check a plain value against the annotation of a parameter, and turn words into enumeration members."""
    shown = name.replace("_", "-")
    hint, optional = without_none(hint)
    if optional and value is None:
        return None
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple) or not all(type(item) is int for item in value):
            raise UsageError(f"{shown} must be a list of whole numbers, not {value!r}")
        return tuple(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        words = [str(member.value) for member in hint]
        if isinstance(value, hint):
            return value
        if value not in words:
            raise UsageError(f"{shown} must be one of {', '.join(words)}, not {value!r}")
        return hint(value)
    if hint is float and type(value) in (int, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise UsageError(f"{shown} must be a finite number, not {value}")
        return float(value)
    if type(value) is not hint:
        word = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}.get(
            hint, str(hint)
        )
        raise UsageError(f"{shown} must be {word}, not {value!r}")
    return value
