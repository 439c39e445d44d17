"""Every kind of configuration file with its keys, a right content and what reads it; for tests."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chakra.generate.request.requests import REQUESTS
from chakra.platforms.keys import ACCELERATOR_KEYS, DIM_KEYS, NUMBER_KEYS, PLATFORM_KEYS
from chakra.platforms.model import platform_from
from chakra.replay.config import load_memory, load_network, load_system
from chakra.replay.config.key import Key, UnfitError
from chakra.replay.config.keys import (
    LINK_KEYS,
    MEMORY_KEYS,
    NETWORK_KEYS,
    SYSTEM_KEYS,
)
from chakra.replay.config.packet_keys import PACKET_KEYS
from chakra.sweep.keys import RANGE_KEYS, STUDY_KEYS, workload_keys
from chakra.sweep.space import parameter_from
from chakra.sweep.study import study_from

ROOT = Path(__file__).resolve().parents[2]
Values = dict[str, Any]

RING: Values = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
NUMBER: Values = {"value": 1, "status": "assumed", "source": "this test"}
ACCELERATOR: Values = {"name": "x", "peak_tflops": NUMBER, "mem_gbps": NUMBER, "memory_gb": NUMBER}
DIM: Values = {"topology": "Ring", "npus": 2, "gbps": NUMBER, "latency_ns": NUMBER}
PLATFORM: Values = {"name": "x", "title": "X", "accelerator": ACCELERATOR, "dims": [DIM]}


@dataclass(frozen=True)
class File:
    """A kind of file or of a part of one, with a right content and what reads it."""

    kind: str
    keys: tuple[Key[object], ...]
    right: Values
    load: Callable[[Values], object]


def _requests() -> Iterable[File]:
    for kind, request in REQUESTS.items():
        yield File(f"request.{kind}", workload_keys(kind), {}, request.from_mapping)


FILES = (
    File(
        "network",
        NETWORK_KEYS,
        RING,
        load_network,
    ),
    File(
        "links",
        LINK_KEYS,
        {"npus_count": [2], "links": [[0, 1]], "bandwidth": 50, "latency": 500},
        load_network,
    ),
    File("system", SYSTEM_KEYS, {"peak-perf": 900, "local-mem-bw": 1600}, load_system),
    File(
        "memory",
        MEMORY_KEYS,
        {"memory-type": "PER_NODE_MEMORY_EXPANSION", "num-nodes": 1, "num-npus-per-node": 1},
        load_memory,
    ),
    File("platform", PLATFORM_KEYS, PLATFORM, lambda values: platform_from(values, "<platform>")),
    File(
        "accelerator",
        ACCELERATOR_KEYS,
        ACCELERATOR,
        lambda values: platform_from({**PLATFORM, "accelerator": values}, "<platform>"),
    ),
    File("dim", DIM_KEYS, DIM, lambda values: platform_from({**PLATFORM, "dims": [values]}, "<platform>")),
    File(
        "number",
        NUMBER_KEYS,
        NUMBER,
        lambda values: platform_from({**PLATFORM, "dims": [{**DIM, "latency_ns": values}]}, "<platform>"),
    ),
    File(
        "study",
        STUDY_KEYS,
        {"workload": {"kind": "mlp"}, "platform": "hgx-h100"},
        lambda values: study_from(values, "<study>"),
    ),
    File("range", RANGE_KEYS[1:], {"range": [1, 4]}, lambda values: parameter_from("p.q", values, "<study>")),
    File("values", RANGE_KEYS[:1], {"values": [1]}, lambda values: parameter_from("p.q", values, "<study>")),
    File("packets", PACKET_KEYS, {}, lambda values: load_network({**RING, "packets": values}).packets),
    *_requests(),
)
CASES = [(file, key) for file in FILES for key in file.keys]
IDS = [f"{file.kind}-{key.name}" for file, key in CASES]
each_key = pytest.mark.parametrize(("file", "key"), CASES, ids=IDS)

#: values of every kind, for finding some that a key does not take
CANDIDATES: tuple[object, ...] = (
    -1,
    0,
    0.5,
    2**33,
    2**60,
    10**400,
    "nonsense",
    "",
    True,
    None,
    [],
    ["x", "y"],
    {"x": 1},
)


def wrong_values(key: Key[object]) -> list[object]:
    """Candidates that the key's reader refuses."""
    found: list[object] = []
    for value in CANDIDATES:
        try:
            key.reader.read(value)
        except UnfitError:
            found.append(value)
    return found
