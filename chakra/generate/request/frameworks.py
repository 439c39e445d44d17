"""Frameworks as named sets of parameters: what overlaps with what, what is sharded, recomputed, and in which type."""

from collections.abc import Mapping
from dataclasses import dataclass
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
        Why each is so, in the order of the documentation.
    validated
        Whether measured rows were predicted with it.
    """

    name: str
    title: str
    values: Mapping[str, object]
    facts: tuple[str, ...]
    validated: bool = True


_ALL = (
    Framework(
        "megatron",
        "Megatron-Core with its overlaps (2024 and later), as NeMo and Megatron-Bridge run it",
        MappingProxyType({
            "zero": 1, "flash": True, "causal": True, "context": "ring", "grad_dtype": "fp32", "host": "ahead",
        }),
        (),
    ),
    Framework(
        "megatron-2022",
        "Megatron-LM of 2021 and 2022: no fused attention, no overlap of gradients, no distributed optimizer",
        MappingProxyType({
            "zero": 0, "flash": False, "causal": False, "grad_dtype": "fp16", "bucket_mb": 1e6, "exposed": "tp,dp,pp",
            "recompute": "full", "host": "synchronised",
        }),
        (),
    ),
    Framework(
        "fsdp1", "PyTorch FSDP 1",
        MappingProxyType({
            "zero": 3, "flash": True, "causal": True, "reshard": True, "prefetch": 1, "exposed": "dp", "host": "ahead",
        }),
        (),
    ),
    Framework(
        "fsdp2", "PyTorch FSDP 2",
        MappingProxyType({"zero": 3, "flash": True, "causal": True}),
        (), validated=False,
    ),
    Framework(
        "nanotron", "nanotron",
        MappingProxyType({
            "zero": 1, "flash": True, "causal": True, "grad_dtype": "fp32", "exposed": "tp,dp,pp", "host": "ahead",
        }),
        (),
    ),
    Framework("maxtext", "MaxText", MappingProxyType({"zero": 3, "flash": True, "causal": True}), (), validated=False),
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
