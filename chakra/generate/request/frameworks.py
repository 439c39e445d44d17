"""Frameworks as named sets of parameters: what overlaps with what, what is sharded, recomputed, and in which type."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.generate.request.parameters import read_parameter
from chakra.io.nearest import nearest
from chakra.replay.config.key import Key


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework as parameters of a request; every one can be overridden.

    Attributes
    ----------
    name
        Name, as ``--framework`` takes it.
    title
        What it is, with the version whose facts these are.
    values
        Parameters by field of `TransformerRequest`.
    facts
        Why each is so, by the same fields.
    validated
        Whether measured rows were predicted with it.
    whole
        Parameters that are others where optimizer states are not sharded (``zero`` is 0): value and why, by field.
    """

    name: str
    title: str
    values: Mapping[str, object]
    facts: Mapping[str, str]
    validated: bool = True
    whole: Mapping[str, tuple[object, str]] = field(default_factory=dict)

    def values_at(self, zero: int) -> dict[str, object]:
        """Parameters of a job that shards as this stage of ZeRO does."""
        others = {} if zero else {name: value for name, (value, _) in self.whole.items()}
        return {**self.values, **others}


def _framework(
    name: str,
    title: str,
    facts: Mapping[str, tuple[object, str]],
    *,
    validated: bool = True,
    whole: Mapping[str, tuple[object, str]] | None = None,
) -> Framework:
    """A profile from what each parameter is, and why."""
    values = MappingProxyType({key: value for key, (value, _) in facts.items()})
    reasons = MappingProxyType({key: why for key, (_, why) in facts.items()})
    return Framework(name, title, values, reasons, validated, MappingProxyType(dict(whole or {})))


_FUSED = (True, "attention is one fused kernel")
_SKIPPED = (True, "the kernel leaves masked blocks out")
_AHEAD = (
    "ahead",
    "the host issues operators while the device runs; its costs are in the framework's constants",
)
_GATHERED_AGAIN = (True, "weights are freed after the forward pass, and gathered again for the backward pass")
_FULL_SHARDING = (3, "weights, gradients and optimizer states are sharded over all replicas, layer by layer")

_ALL = (
    _framework(
        "megatron", "Megatron-Core with its overlaps (2024 and later), as NeMo and Megatron-Bridge run it",
        {
            "zero": (1, "distributed optimizer: gradients are reduce-scattered, updated weights gathered, once a step"),
            "exposed": ("", "gradients run beside the backward pass, tp beside gradients of weights, pp beside passes"),
            "recompute": ("none", "recomputation is a choice of the job"),
            "grad_dtype": ("fp32", "gradients are added up over micro-batches, and reduced, in 32 bits"),
            "unquantised": ("head", "the output matrix is no layer of Transformer Engine, unless fp8_output_proj is set"),
            "bucket_mb": (40.0, "the generator's own size: the framework's follows from parameters and replicas"),
            "flash": _FUSED,
            "causal": _SKIPPED,
            "context": ("ring", "keys and values go round the context ranks by send and receive"),
            "host": _AHEAD,
        },
    ),
    _framework(
        "megatron-2022",
        "Megatron-LM of 2021 and 2022: no fused attention, no overlap of gradients, no distributed optimizer",
        {
            "zero": (0, "every replica holds all states, and gradients are all-reduced"),
            "exposed": ("tp,dp,pp", "every collective and message is waited for"),
            "recompute": ("full", "layers are computed again in the backward pass"),
            "grad_dtype": ("fp16", "gradients are reduced in the type of the weights"),
            "bucket_mb": (1e6, "gradients of a stage are reduced in one piece when the last backward pass is done"),
            "flash": (False, "scores are written to memory, and softmax and dropout read them"),
            "causal": (False, "masked scores are computed, too"),
            "host": ("synchronised", "the host waits for the device before each pass of a micro-batch"),
        },
    ),
    _framework(
        "fsdp1", "PyTorch FSDP 1",
        {
            "zero": _FULL_SHARDING,
            "reshard": _GATHERED_AGAIN,
            "prefetch": (1, "the weights of the next layer are gathered while one runs"),
            "exposed": ("dp", "a gather that has begun is waited for before the next layer is issued (limited gathers)"),
            "recompute": ("none", "recomputation is a choice of the job"),
            "flash": _FUSED,
            "causal": _SKIPPED,
            "host": _AHEAD,
        },
    ),
    _framework(
        "fsdp2", "PyTorch FSDP 2, as torchtitan runs it",
        {
            "zero": _FULL_SHARDING,
            "reshard": _GATHERED_AGAIN,
            "prefetch": (1, "the weights of the next layer are gathered while one runs"),
            "exposed": ("", "gathers and reductions run beside computation"),
            "grad_dtype": ("fp32", "gradients are reduced in 32 bits"),
            "unquantised": ("head", "the output layer is left out where linear layers are converted to 8 bits"),
            "recompute": ("none", "recomputation is a choice of the job"),
            "flash": _FUSED,
            "causal": _SKIPPED,
            "host": ("none", "nothing was measured of the host: it costs nothing"),
        },
        validated=False,
    ),
    _framework(
        "nanotron", "nanotron",
        {
            "zero": (1, "optimizer states are sharded, gradients reduced once a step"),
            "exposed": ("tp,dp,pp", "every collective and message is waited for"),
            "grad_dtype": ("fp32", "gradients are added up, and reduced, in 32 bits"),
            "recompute": ("none", "recomputation is a choice of the job"),
            "flash": _FUSED,
            "causal": _SKIPPED,
            "host": _AHEAD,
        },
        whole={
            "exposed": ("tp,pp", "DistributedDataParallel reduces buckets of gradients beside the last backward pass"),
            "bucket_mb": (52.4, "its buckets of 25 MiB of 16-bit gradients, which are added up and reduced in 32 bits"),
            "comm_order": ("stream", "each communicator has a stream of its own"),
        },
    ),
    _framework(
        "maxtext", "MaxText",
        {
            "zero": _FULL_SHARDING,
            "exposed": ("", "the compiler runs gathers and reductions beside computation"),
            "recompute": ("none", "recomputation is a choice of the job"),
            "flash": _FUSED,
            "causal": _SKIPPED,
            "host": ("none", "a step is one compiled program: the host launches nothing within it"),
        },
        validated=False,
    ),
)  # fmt: skip

FRAMEWORKS: dict[str, Framework] = {framework.name: framework for framework in _ALL}


@checked
def framework(name: str) -> Framework:
    """The profile of this name.

    Parameters
    ----------
    name
        Name.

    Raises
    ------
    UsageError
        No such profile; the message names the nearest, or lists those there are.
    """
    if name not in FRAMEWORKS:
        hint = nearest(name, list(FRAMEWORKS)) or f"; there are: {', '.join(FRAMEWORKS)}"
        raise UsageError(f"no framework {name!r}{hint}")
    return FRAMEWORKS[name]


def read_profile(values: Mapping[str, object], keys: Mapping[str, Key[object]]) -> dict[str, object]:
    """Those values of a profile that a request has, by field."""
    by_field = {key.field: key for key in keys.values()}
    return {name: read_parameter(by_field[name], value) for name, value in values.items() if name in by_field}
