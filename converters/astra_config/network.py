"""Network files of ASTRA-sim 1.0."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from chakra.arguments import checked
from chakra.converters.astra_config._common import ConvertedConfig, error_at, nearest, plain, read_text
from chakra.errors import ConfigError
from chakra.io.readable import counted
from chakra.io.yaml import parse_document
from chakra.io.yaml_text import entry_text

#: Words for the building blocks of a dimension; AllToAll is the older name of FullyConnected.
TOPOLOGIES = {
    "Ring": "Ring",
    "Switch": "Switch",
    "FullyConnected": "FullyConnected",
    "AllToAll": "FullyConnected",
}

#: Keys that make a JSON object a network file of 1.0.
_NETWORK_MARKS = ("topologies-per-dim", "units-count", "links-count", "topology-name")

_NETWORK_LISTS = ("topologies-per-dim", "units-count", "links-count", "link-latency", "link-bandwidth")
_DELAY_LISTS = ("nic-latency", "router-latency", "hbm-latency", "hbm-bandwidth", "hbm-scale")
_NETWORK_KEYS = (
    "topology-name",
    "dimensions-count",
    *_NETWORK_LISTS,
    *_DELAY_LISTS,
    "dimension-type",
    "use-fast-version",
)


@dataclass(frozen=True, slots=True)
class OldDimension:
    """One dimension of a network of 1.0.

    Attributes
    ----------
    topology, npus
        Building block, by its word of today, and size.
    bandwidth_gibps
        GB/s of 2^30 B/s of one message: that of a link times the links it can use.
    latency_ns
        Per hop, what NIC and router add included.
    """

    topology: str
    npus: int
    bandwidth_gibps: float
    latency_ns: float


@dataclass(frozen=True, slots=True)
class OldNetwork:
    """A network of 1.0 and what was lost or changed in reading it.

    Attributes
    ----------
    dims
        Dimensions, dimension 0 first.
    notes
        What was lost or changed, one sentence each.
    """

    dims: tuple[OldDimension, ...]
    notes: tuple[str, ...]


@checked
def is_old_network(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a network file of 1.0 (a JSON object with its keys).

    Parameters
    ----------
    path
        Any file; one that cannot be read is none.
    """
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and any(key in value for key in _NETWORK_MARKS)


@checked
def read_old_network(path: str | os.PathLike[str]) -> OldNetwork:
    """Read a network file of 1.0.

    Parameters
    ----------
    path
        Network file of 1.0 (JSON).

    Raises
    ------
    ConfigError
        Naming file and key.
    """
    source = os.fspath(path)
    return old_network(json_object(read_text(path), source), source)


def old_network(value: Mapping[str, object], source: str) -> OldNetwork:
    for key in value:
        if key not in _NETWORK_KEYS:
            raise error_at(
                source, key, f"is not a key of a network file of ASTRA-sim 1.0{nearest(key, _NETWORK_KEYS)}"
            )
    name = value.get("topology-name", "Hierarchical")
    if name != "Hierarchical":
        raise error_at(
            source,
            "topology-name",
            f"is {name!r}; only 'Hierarchical' (a list of dimensions) can be converted",
        )
    given = value.get("topologies-per-dim")
    count = value.get("dimensions-count", len(given) if isinstance(given, list) else None)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise error_at(source, "dimensions-count", f"must be the number of dimensions, but is {count!r}")
    lists = {key: _list(value, key, count, source) for key in _NETWORK_LISTS}
    delays = {key: _list(value, key, count, source, default=0) for key in _DELAY_LISTS}
    notes: list[str] = []
    dims = [
        _dimension(
            k,
            {key: row[k] for key, row in lists.items()},
            {key: row[k] for key, row in delays.items()},
            source,
            notes,
        )
        for k in range(count)
    ]
    kept = tuple(dim for dim in dims if dim.npus > 1)
    if not kept:
        raise error_at(source, "units-count", "describes a single NPU")
    if len(kept) < len(dims):
        single = ", ".join(str(k) for k, dim in enumerate(dims) if dim.npus == 1)
        notes.append(
            f"dimension {single} of one NPU was dropped; take its entry out of the system file's algorithm "
            f"lists too"
        )
    return OldNetwork(kept, tuple(notes))


def _dimension(
    k: int, row: dict[str, object], delays: dict[str, object], source: str, notes: list[str]
) -> OldDimension:
    word = row["topologies-per-dim"]
    if not isinstance(word, str) or word not in TOPOLOGIES:
        raise error_at(
            source, "topologies-per-dim", f"entry {k} must be one of {', '.join(TOPOLOGIES)}, but is {word!r}"
        )
    topology = TOPOLOGIES[word]
    npus = _integer(row["units-count"], source, "units-count", k, least=1)
    links = _integer(row["links-count"], source, "links-count", k, least=1)
    latency = _number(row["link-latency"], source, "link-latency", k)
    bandwidth = _number(row["link-bandwidth"], source, "link-bandwidth", k)
    if bandwidth <= 0:
        raise error_at(source, "link-bandwidth", f"entry {k} must be above 0 GB/s, but is {bandwidth:g}")
    usable = _links_of_a_message(topology, npus, links)
    if npus > 1 and usable == 0:
        needed = (
            "2 links (one each way)"
            if topology == "Ring"
            else f"{counted(npus - 1, 'link')} (one to each other NPU)"
        )
        raise error_at(
            source, "links-count", f"entry {k} is {links}; a {topology} of {npus} needs at least {needed}"
        )
    nic, router, hbm, _, scale = (_number(delays[key], source, key, k) for key in _DELAY_LISTS)
    # 1.0 adds 2 NIC latencies to a message and one router latency on a switch, where a message makes two
    # hops.
    added = (2 * nic + router) / 2 if topology == "Switch" else 2 * nic
    if added:
        exact = "" if topology != "Ring" else " (exact for messages between neighbours)"
        notes.append(
            f"dimension {k}: NIC and router latency went into the latency per hop: +{added:g} ns{exact}"
        )
    if scale and hbm >= 0:
        notes.append(
            f"dimension {k}: hbm-latency, hbm-bandwidth and hbm-scale have no counterpart and were dropped "
            f"(1.0 takes the longer "
            f"of memory and network time)"
        )
    return OldDimension(topology, npus, bandwidth * max(usable, 1), latency + added)


def _links_of_a_message(topology: str, npus: int, links: int) -> int:
    """Links that one message uses at once."""
    if topology == "Ring":
        return links // 2 * 2
    if topology == "FullyConnected":
        return links // max(npus - 1, 1)
    return links


def congestion_network(text: str, source: str) -> OldNetwork:
    """Network file of the 2023 tutorial's congestion backend: today's keys, but the topology is one word."""
    value = parse_document(text, source)
    keys = ("topology", "npus_count", "bandwidth", "latency")
    if not isinstance(value, dict):
        raise ConfigError(f"{source}: a network file is a map of the keys {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise error_at(source, str(key), f"is not a key of a network file{nearest(str(key), keys)}")
    words = value.get("topology")
    if isinstance(words, str):
        value["topology"] = words = [words]
    count = len(words) if isinstance(words, list) else 1
    rows = {key: _list(value, key, count, source) for key in keys}
    dims = []
    for k, word in enumerate(rows["topology"]):
        if not isinstance(word, str) or word not in TOPOLOGIES:
            raise error_at(
                source, "topology", f"entry {k} must be one of {', '.join(TOPOLOGIES)}, but is {word!r}"
            )
        bandwidth = _number(rows["bandwidth"][k], source, "bandwidth", k)
        if bandwidth <= 0:
            raise error_at(source, "bandwidth", f"entry {k} must be above 0 GB/s, but is {bandwidth:g}")
        npus = _integer(rows["npus_count"][k], source, "npus_count", k, least=2)
        latency = _number(rows["latency"][k], source, "latency", k)
        dims.append(OldDimension(TOPOLOGIES[word], npus, bandwidth, latency))
    return OldNetwork(tuple(dims), ())


def network_file(network: OldNetwork) -> ConvertedConfig:
    dims = network.dims
    content: dict[str, list[object]] = {
        "topology": [dim.topology for dim in dims],
        "npus_count": [dim.npus for dim in dims],
        "bandwidth": [plain(dim.bandwidth_gibps) for dim in dims],
        "latency": [plain(dim.latency_ns) for dim in dims],
    }
    units = {"bandwidth": "GB/s of 2^30 B/s, per message and direction", "latency": "ns per hop"}
    rows = []
    for key, values in content.items():
        rows.append(entry_text(key, values, units.get(key, "")))
    return ConvertedConfig("network", content, "\n".join(rows) + "\n", network.notes)


def json_object(text: str, source: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{source}: line {error.lineno} column {error.colno}: not valid JSON ({error.msg})"
        ) from None
    except RecursionError:
        raise ConfigError(f"{source}: JSON nested too deeply") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{source}: a network file is a JSON object")
    if not any(key in value for key in _NETWORK_MARKS):
        if "preferred-dataset-splits" in value:
            raise ConfigError(f"{source}: is a system file of ASTRA-sim 2.0 already")
        raise ConfigError(
            f"{source}: not a network file of ASTRA-sim 1.0: has none of {', '.join(_NETWORK_LISTS)}"
        )
    return value


def _list(
    value: Mapping[str, object], key: str, count: int, source: str, *, default: object = None
) -> list[object]:
    found = value.get(key, None if default is None else [default] * count)
    if found is None:
        raise error_at(source, key, "is missing")
    if not isinstance(found, list) or len(found) != count:
        given = f"has {counted(len(found), 'entry')}" if isinstance(found, list) else f"is {found!r}"
        raise error_at(
            source,
            key,
            f"must be a list with one entry for each of the {counted(count, 'dimension')}, but {given}",
        )
    return found


def _integer(value: object, source: str, key: str, k: int, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 31:
        raise error_at(source, key, f"entry {k} must be a whole number, at least {least}, but is {value!r}")
    return value


def _number(value: object, source: str, key: str, k: int) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e18:
        raise error_at(source, key, f"entry {k} must be a number, 0 or more, but is {value!r}")
    return float(value)
