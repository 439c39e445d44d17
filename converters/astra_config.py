"""Configurations of ASTRA-sim 1.0 to those of 2.0: network JSON to YAML, system text to JSON.

Facts: spec, replay semantics, section 7.1. A network file of 1.0 gives each dimension a number of links per
NPU, which 2.0 folds into the bandwidth; a system file is a list of ``key: value`` lines whose algorithm lists
are one word joined by ``_``.
"""

import difflib
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from chakra.errors import ConfigError
from chakra.files import read_bytes

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

#: 1.0 charges 3 ns for every full 500,000 bytes that are reduced; 2.0 charges 3 ns for every ``local-mem-bw``
#: bytes.
LOCAL_MEM_BW_OF_1_0 = 500000


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
    """A network of 1.0 and what was lost or changed in reading it."""

    dims: tuple[OldDimension, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConvertedConfig:
    """A configuration in today's form.

    Attributes
    ----------
    kind
        "network" or "system".
    content
        Keys and values as the file of today has them.
    text
        The file: YAML for a network, JSON for a system.
    notes
        What was dropped or changed, one sentence each.
    """

    kind: str
    content: dict[str, Any]
    text: str
    notes: tuple[str, ...]


def convert_config(path: str | os.PathLike[str]) -> ConvertedConfig:
    """Convert a network or system file of ASTRA-sim 1.0; which it is shows in its content.

    Raises
    ------
    ConfigError
        Naming file, line or key, and what would be right.
    """
    source = os.fspath(path)
    text = _text(path)
    if text.lstrip().startswith(("{", "[")):
        return _network_file(_old_network(_json_object(text, source), source))
    lines = _key_lines(text, source)
    keys = [key for _, key, _ in lines]
    if "topology" in keys and ("npus_count" in keys or "npus-count" in keys):
        return _network_file(_congestion_network(text, source))
    if "num-npus" in keys or "num-packages" in keys:
        raise ConfigError(
            f"{source}: is a description for the Garnet network simulator, which has no counterpart; write "
            f"a network file with "
            f"topology, npus_count, bandwidth and latency"
        )
    return _system_file(lines, source)


def is_old_network(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a network file of 1.0 (a JSON object with its keys)."""
    try:
        value = json.loads(_text(path))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and any(key in value for key in _NETWORK_MARKS)


def read_old_network(path: str | os.PathLike[str]) -> OldNetwork:
    """Read a network file of 1.0.

    Raises
    ------
    ConfigError
        Naming file and key.
    """
    source = os.fspath(path)
    return _old_network(_json_object(_text(path), source), source)


# ------------------------------------------------------------------------------------------------- network


def _old_network(value: Mapping[str, Any], source: str) -> OldNetwork:
    for key in value:
        if key not in _NETWORK_KEYS:
            raise _error(
                source, key, f"is not a key of a network file of ASTRA-sim 1.0{_nearest(key, _NETWORK_KEYS)}"
            )
    name = value.get("topology-name", "Hierarchical")
    if name != "Hierarchical":
        raise _error(
            source,
            "topology-name",
            f"is {name!r}; only 'Hierarchical' (a list of dimensions) can be converted",
        )
    given = value.get("topologies-per-dim")
    count = value.get("dimensions-count", len(given) if isinstance(given, list) else None)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise _error(source, "dimensions-count", f"must be the number of dimensions, but is {count!r}")
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
        raise _error(source, "units-count", "describes a single NPU")
    if len(kept) < len(dims):
        single = ", ".join(str(k) for k, dim in enumerate(dims) if dim.npus == 1)
        notes.append(
            f"dimension {single} of one NPU was dropped; take its entry out of the system file's algorithm "
            f"lists too"
        )
    return OldNetwork(kept, tuple(notes))


def _dimension(
    k: int, row: dict[str, Any], delays: dict[str, Any], source: str, notes: list[str]
) -> OldDimension:
    word = row["topologies-per-dim"]
    if not isinstance(word, str) or word not in TOPOLOGIES:
        raise _error(
            source, "topologies-per-dim", f"entry {k} must be one of {', '.join(TOPOLOGIES)}, but is {word!r}"
        )
    topology = TOPOLOGIES[word]
    npus = _integer(row["units-count"], source, "units-count", k, least=1)
    links = _integer(row["links-count"], source, "links-count", k, least=1)
    latency = _number(row["link-latency"], source, "link-latency", k)
    bandwidth = _number(row["link-bandwidth"], source, "link-bandwidth", k)
    if bandwidth <= 0:
        raise _error(source, "link-bandwidth", f"entry {k} must be above 0 GB/s, but is {bandwidth:g}")
    usable = _links_of_a_message(topology, npus, links)
    if npus > 1 and usable == 0:
        needed = (
            "2 links (one each way)" if topology == "Ring" else f"{npus - 1} links (one to each other NPU)"
        )
        raise _error(
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


def _congestion_network(text: str, source: str) -> OldNetwork:
    """Network file of the 2023 tutorial's congestion backend: today's keys, but the topology is one word."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        value = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML: {str(error).splitlines()[0]}") from None
    keys = ("topology", "npus_count", "bandwidth", "latency")
    if not isinstance(value, dict):
        raise ConfigError(f"{source}: a network file is a map of the keys {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise _error(source, str(key), f"is not a key of a network file{_nearest(str(key), keys)}")
    words = value.get("topology")
    if isinstance(words, str):
        value["topology"] = words = [words]
    count = len(words) if isinstance(words, list) else 1
    rows = {key: _list(value, key, count, source) for key in keys}
    dims = []
    for k, word in enumerate(rows["topology"]):
        if not isinstance(word, str) or word not in TOPOLOGIES:
            raise _error(
                source, "topology", f"entry {k} must be one of {', '.join(TOPOLOGIES)}, but is {word!r}"
            )
        bandwidth = _number(rows["bandwidth"][k], source, "bandwidth", k)
        if bandwidth <= 0:
            raise _error(source, "bandwidth", f"entry {k} must be above 0 GB/s, but is {bandwidth:g}")
        npus = _integer(rows["npus_count"][k], source, "npus_count", k, least=2)
        latency = _number(rows["latency"][k], source, "latency", k)
        dims.append(OldDimension(TOPOLOGIES[word], npus, bandwidth, latency))
    return OldNetwork(tuple(dims), ())


def _network_file(network: OldNetwork) -> ConvertedConfig:
    dims = network.dims
    content: dict[str, list[Any]] = {
        "topology": [dim.topology for dim in dims],
        "npus_count": [dim.npus for dim in dims],
        "bandwidth": [_plain(dim.bandwidth_gibps) for dim in dims],
        "latency": [_plain(dim.latency_ns) for dim in dims],
    }
    units = {"bandwidth": "GB/s of 2^30 B/s, per message and direction", "latency": "ns per hop"}
    rows = []
    for key, values in content.items():
        row = f"{key}: [ {', '.join(str(item) for item in values)} ]"
        rows.append(f"{row}  # {units[key]}" if key in units else row)
    return ConvertedConfig("network", content, "\n".join(rows) + "\n", network.notes)


# -------------------------------------------------------------------------------------------------- system


def _word(*allowed: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}, but is {text!r}{_nearest(text, allowed)}")
        return text

    return read


def _alias(**names: str) -> Callable[[str], Any]:
    read_word = _word(*names)
    return lambda text: names[read_word(text)]


def _whole(text: str) -> int:
    if re.fullmatch(r"\d{1,18}", text) is None:
        raise ValueError(f"must be a whole number, but is {text!r}")
    return int(text)


def _real(text: str) -> float | int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"must be a number, 0 or more, but is {text!r}")
    return _plain(value)


_ALGORITHM = re.compile(
    r"ring|direct\d{0,5}|halvingDoubling|doubleBinaryTree|oneRing|oneDirect\d{0,5}|oneHalvingDoubling"
)
_ALGORITHMS = (
    "ring",
    "direct",
    "halvingDoubling",
    "doubleBinaryTree",
    "oneRing",
    "oneDirect",
    "oneHalvingDoubling",
)


def _algorithms(text: str) -> list[str]:
    names = text.split("_")
    for name in names:
        if _ALGORITHM.fullmatch(name) is None:
            raise ValueError(
                f"has {name!r}, which is not one of {', '.join(_ALGORITHMS)}{_nearest(name, _ALGORITHMS)}"
            )
    return names


#: Every key of a system file of 1.0 and how its value is read; None: dropped with a note.
_SYSTEM_KEYS: dict[str, Callable[[str], Any] | None] = {
    "scheduling-policy": _word("LIFO", "FIFO", "EXPLICIT"),
    "endpoint-delay": _whole,
    "active-chunks-per-dimension": _whole,
    "preferred-dataset-splits": _whole,
    "all-reduce-implementation": _algorithms,
    "all-gather-implementation": _algorithms,
    "reduce-scatter-implementation": _algorithms,
    "all-to-all-implementation": _algorithms,
    "collective-optimization": _word("baseline", "localBWAware"),
    "local-reduction-delay": _whole,
    "model-shared-bus": _whole,
    "L": _real,
    "o": _real,
    "g": _real,
    "G": _real,
    "intra-dimension-scheduling": _alias(
        FIFO="FIFO",
        RG="RG",
        SCF="smallestFirst",
        smallestFirst="smallestFirst",
        lessRemainingPhaseFirst="lessRemainingPhaseFirst",
    ),
    "inter-dimension-scheduling": _alias(
        baseline="ascending",
        ascending="ascending",
        themis="offlineGreedy",
        offlineGreedy="offlineGreedy",
        themisFlex="offlineGreedyFlex",
        offlineGreedyFlex="offlineGreedyFlex",
        roundRobin="roundRobin",
    ),
    "boost-mode": None,
    "seprate-log": None,
}

_DROPPED = {
    "boost-mode": "boost-mode was dropped: equal NPUs are found without it, and the answer is exact",
    "seprate-log": "seprate-log was dropped: the command line chooses the outputs",
}


def _system_file(lines: list[tuple[int, str, str]], source: str) -> ConvertedConfig:
    content: dict[str, Any] = {}
    notes: list[str] = []
    for line, key, text in lines:
        where = f"{source}: line {line}: key '{key}'"
        if key not in _SYSTEM_KEYS:
            raise ConfigError(
                f"{where} is not a key of a system file of ASTRA-sim 1.0{_nearest(key, _SYSTEM_KEYS)}"
            )
        read = _SYSTEM_KEYS[key]
        if read is None:
            notes.append(_DROPPED[key])
            continue
        if key in content:
            raise ConfigError(f"{where} is given twice")
        try:
            content[key] = read(text)
        except ValueError as error:
            raise ConfigError(f"{where} {error}") from None
    if not any(key.endswith("-implementation") for key in content):
        raise ConfigError(
            f"{source}: holds no algorithms (all-reduce-implementation, ...): not a system file of "
            f"ASTRA-sim 1.0"
        )
    content["local-mem-bw"] = LOCAL_MEM_BW_OF_1_0
    notes.append(
        f"local-mem-bw is {LOCAL_MEM_BW_OF_1_0} so that reductions cost what ASTRA-sim 1.0 charges: 3 ns "
        f"for every full "
        f"{LOCAL_MEM_BW_OF_1_0:,} bytes"
    )
    return ConvertedConfig("system", content, json.dumps(content, indent=2) + "\n", tuple(notes))


def _key_lines(text: str, source: str) -> list[tuple[int, str, str]]:
    """(line number, key, value) of every line ``key: value``; blank lines and ``#`` comments are skipped."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = re.fullmatch(r"([\w-]{1,60})\s*:\s*(.{1,500})", stripped)
        if match is None:
            raise ConfigError(f"{source}: line {number}: {stripped[:60]!r} is not of the form 'key: value'")
        found.append((number, match[1], match[2]))
    if not found:
        raise ConfigError(f"{source}: is empty")
    return found


# ------------------------------------------------------------------------------------------------- details


def _text(path: str | os.PathLike[str]) -> str:
    try:
        return read_bytes(path, error=ConfigError).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{os.fspath(path)}: byte {error.start}: not text (UTF-8 expected)") from None


def _json_object(text: str, source: str) -> dict[str, Any]:
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
        told = (
            "is a system file of ASTRA-sim 2.0 already"
            if "preferred-dataset-splits" in value
            else "has none of its keys"
        )
        raise ConfigError(
            f"{source}: not a network file of ASTRA-sim 1.0: {told} ({', '.join(_NETWORK_LISTS)})"
        )
    return value


def _list(value: Mapping[str, Any], key: str, count: int, source: str, *, default: Any = None) -> list[Any]:
    found = value.get(key, None if default is None else [default] * count)
    if found is None:
        raise _error(source, key, "is missing")
    if not isinstance(found, list) or len(found) != count:
        given = f"has {len(found)} entries" if isinstance(found, list) else f"is {found!r}"
        raise _error(
            source, key, f"must be a list with one entry for each of the {count} dimensions, but {given}"
        )
    return found


def _integer(value: Any, source: str, key: str, k: int, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 1 << 31:
        raise _error(source, key, f"entry {k} must be a whole number, at least {least}, but is {value!r}")
    return value


def _number(value: Any, source: str, key: str, k: int) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e18:
        raise _error(source, key, f"entry {k} must be a number, 0 or more, but is {value!r}")
    return float(value)


def _plain(value: float) -> float | int:
    """Whole numbers without a decimal point."""
    return int(value) if float(value).is_integer() else value


def _error(source: str, key: str, message: str) -> ConfigError:
    return ConfigError(f"{source}: key '{key}' {message}")


def _nearest(word: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, list(known), 1, 0.6)
    return f"; did you mean {close[0]}?" if close else ""
