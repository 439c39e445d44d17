"""System files: scheduling, algorithms, compute and memory model of every NPU (replay semantics, section 1.3)."""

from typing import TypeVar

from chakra.arguments import checked
from chakra.errors import ConfigError
from chakra.io.yaml import read_entries
from chakra.replay.config.files import Source
from chakra.replay.config.key import UnfitError
from chakra.replay.config.keys import (
    COLLECTIVE_COSTS,
    COLLECTIVE_LIBRARY,
    ENDPOINT_DELAY,
    LOCAL_MEM_BW,
    PEAK_PERF,
    ROOFLINE,
    SYSTEM_KEYS,
)
from chakra.replay.config.model import CollectiveKind, SharedBus, System
from chakra.replay.config.readers import Text
from chakra.replay.config.section import Section

T = TypeVar("T")

#: what a node of a per-node file maps to
NODE_PREFIX = Text("must map to a path prefix")


@checked
def load_system(src: Source | System, *, compat: str | None = None) -> System:
    """Read a system description.

    Parameters
    ----------
    src
        path of a JSON file, a dict with the same keys, or a System
    compat
        "astra-sim": read as ASTRA-sim HEAD does (C14: any value but the number 0 switches on, unknown keys
        and the scheduling keys of 1.0 are ignored); "astra-sim-1.0": a list may be one text joined by ``_``

    Raises
    ------
    ConfigError
        naming file and key

    Examples
    --------
    >>> load_system({"preferred-dataset-splits": 4, "all-reduce-implementation": ["ring"]}).splits
    4
    """
    if isinstance(src, System):
        return src
    section = Section.of(src, kind="system", compat=compat)
    section.refuse_unknown(SYSTEM_KEYS)
    _check_roofline(section)
    if section.read(COLLECTIVE_LIBRARY) is not None and not section.given(COLLECTIVE_COSTS):
        raise section.error(
            COLLECTIVE_COSTS.name, f"is missing: '{COLLECTIVE_LIBRARY.name}' needs the costs of a machine"
        )
    fields = section.fields(SYSTEM_KEYS)
    del fields["boost_mode"]  # results are always those of the full simulation
    # the bus's numbers are checked in any case
    bus, on = SharedBus(**fields.pop("shared_bus")), fields.pop("models_shared_bus")
    implementations, custom = _by_kind(fields.pop("implementations")), _by_kind(fields.pop("custom"))
    return System(
        **fields,
        endpoint_delay_given=section.given(ENDPOINT_DELAY),
        implementations=implementations,
        custom=custom,
        shared_bus=bus if on else None,
        source=section.source,
    )


def _by_kind(values: dict[str, T | None]) -> dict[CollectiveKind, T]:
    """What is given of the keys that every kind of collective has."""
    return {CollectiveKind(kind): value for kind, value in values.items() if value is not None}


def _check_roofline(section: Section) -> None:
    """A roofline without its two bounds is refused; ASTRA-sim takes 0 and goes on."""
    if section.as_head or not section.read(ROOFLINE):
        return
    if section.read(PEAK_PERF) is None:
        raise section.error(PEAK_PERF.name, f"is missing: '{ROOFLINE.name}' needs it (TFLOP/s)")
    if section.read(LOCAL_MEM_BW) == 0:
        raise section.error(LOCAL_MEM_BW.name, f"must be above 0 (GB/s): '{ROOFLINE.name}' needs it")


@checked
def load_per_node_custom(path: str) -> dict[int, str]:
    """Read the YAML map node id -> path prefix of `per-node-custom-implementation` (sections 1.3 and 4.6).

    Parameters
    ----------
    path
        The YAML file.

    Raises
    ------
    ConfigError
        naming file, line and key
    """
    found: dict[int, str] = {}
    for key, entry in read_entries(path).items():
        if isinstance(key, bool) or not isinstance(key, int) or key < 0:
            raise ConfigError(f"{path}:{entry.line}: key '{key}' must be a node id (a whole number from 0)")
        try:
            found[key] = NODE_PREFIX.read(entry.value)
        except UnfitError as unfit:
            raise ConfigError(f"{path}:{entry.line}: key '{key}' {unfit.told(entry.value)}") from None
    return found
