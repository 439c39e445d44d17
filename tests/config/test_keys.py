"""The tables of keys say what the readers do: words, bounds, defaults, and what is refused."""

import importlib
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chakra.errors import ConfigError
from chakra.generate.request.requests import REQUESTS
from chakra.platforms import all_platforms
from chakra.platforms.keys import ACCELERATOR_KEYS, DIM_KEYS, NUMBER_KEYS, PLATFORM_KEYS
from chakra.platforms.model import platform_from
from chakra.replay.config import load_memory, load_network, load_system
from chakra.replay.config.keys import LINK_FIELDS, LINK_KEYS, MEMORY_KEYS, NETWORK_KEYS, SYSTEM_KEYS, Key
from chakra.replay.config.values_in_effect import explain_memory, explain_system
from chakra.sweep.keys import STUDY_KEYS, workload_keys
from chakra.sweep.study import study_from

ROOT = Path(__file__).resolve().parents[2]
NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
LINKS = {"npus_count": [2], "links": [[0, 1]], "bandwidth": 50, "latency": 500}
ROOFLINE = {"peak-perf": 900, "local-mem-bw": 1600}
NODE = {"memory-type": "PER_NODE_MEMORY_EXPANSION", "num-nodes": 1, "num-npus-per-node": 1}
NUMBER = {"value": 1, "status": "assumed", "source": "this test"}
PLATFORM = {
    "name": "x",
    "title": "X",
    "accelerator": {"name": "x", "peak_tflops": NUMBER, "mem_gbps": NUMBER, "memory_gb": NUMBER},
    "dims": [{"topology": "Ring", "npus": 2, "gbps": NUMBER, "latency_ns": NUMBER}],
}
STUDY = {"workload": {"kind": "mlp"}, "platform": "hgx-h100"}

Case = tuple[str, Key, Callable[[Any], Any]]


def cases() -> list[Case]:
    """(file, key, function that reads a file in which the key has a value)."""
    readers: list[tuple[str, tuple[Key, ...], Callable[[str, Any], Any]]] = [
        ("network", NETWORK_KEYS, lambda name, value: load_network({**NETWORK, name: value})),
        ("links", LINK_KEYS, lambda name, value: load_network({**LINKS, name: value})),
        ("system", SYSTEM_KEYS, lambda name, value: load_system({**ROOFLINE, name: value})),
        ("memory", MEMORY_KEYS, lambda name, value: load_memory({**NODE, name: value})),
        (
            "number",
            NUMBER_KEYS,
            lambda name, value: platform_from(_with(PLATFORM, "dims", name, value), "<platform>"),
        ),
    ]
    return [(kind, key, partial(read, key.name)) for kind, keys, read in readers for key in keys]


def _with(platform: dict[str, Any], part: str, key: str, value: Any) -> dict[str, Any]:
    """A platform whose first dimension's latency has a field with a value."""
    copy: dict[str, Any] = json.loads(json.dumps(platform))
    copy[part][0]["latency_ns"][key] = value
    return copy


IDS = [f"{kind}-{key.name}" for kind, key, _ in cases()]


def words_of(key: Key) -> list[str]:
    """The closed set of words that a key's `allowed` lists, or nothing."""
    text = key.allowed.removeprefix("list of ")
    words = [word.strip() for word in text.split(",")]
    closed = len(words) > 1 and all(re.fullmatch(r"[A-Za-z_]+", word) for word in words)
    return words if closed else []


@pytest.mark.parametrize(("kind", "key", "read"), cases(), ids=IDS)
def test_words_are_all_that_is_taken(kind: str, key: Key, read: Callable[[Any], Any]) -> None:
    words = words_of(key)
    if words:
        wrap = (lambda word: [word]) if key.allowed.startswith("list of ") else (lambda word: word)
        for word in words:
            read(wrap(word))
        for wrong in ("nonsense", words[0] + "x", 3, None):
            with pytest.raises(ConfigError, match=key.name):
                read(wrap(wrong))


@pytest.mark.parametrize(("kind", "key", "read"), cases(), ids=IDS)
def test_bounds_are_those_of_the_reader(kind: str, key: Key, read: Callable[[Any], Any]) -> None:
    bounds: dict[str, tuple[list[Any], list[Any]]] = {
        "number above 0": ([1e-3, 1], [0, -1, "1", True]),
        "number, 0 or more": ([0, 0.5], [-0.1, "1", True]),
        "whole number, 0 or more": ([0, 7], [-1, "1", True]),
        "whole number, 1 or more": ([1, 7], [0, -1, "1"]),
        "list of numbers above 0": ([[0.5]], [[0], [-1], 1]),
        "list of numbers, 0 or more": ([[0], [0.5]], [[-1], 1]),
        "list of whole numbers, 2 or more": ([[2]], [[1], [2.5], 2]),
        "true, false, 1 or 0": ([True, False, 1, 0], [2, "true", None]),
        "true or false": ([True, False], [1, "true", None]),
        "text": (["a"], [1, None]),
        "list of one path prefix": ([["a/b"]], [["a", "b"], "a", []]),
    }
    for words, (good, bad) in bounds.items():
        if key.allowed == words:
            for value in good:
                if (kind, key.name) != ("links", "npus_count"):
                    read(value)
            for value in bad:
                with pytest.raises(ConfigError, match=key.name):
                    read(value)
            return
    assert words_of(key) or "list of" in key.allowed or "path" in key.allowed, key.allowed


def test_defaults_are_those_of_the_readers() -> None:
    """What check-config shows of an empty file is what the tables call the default."""
    for explained in (explain_system({}), explain_memory({})):
        for row in explained.rows:
            shown = row.default.split(":")[0]
            if shown == "none" or shown.startswith("required"):
                assert row.value is None, row.key
            elif isinstance(row.value, bool):
                assert row.value is {"true": True, "1": True, "false": False, "0": False}[shown], row.key
            elif isinstance(row.value, int | float):
                assert row.value == float(shown), row.key
            else:
                assert row.value == shown, row.key


@pytest.mark.parametrize("without", [key.name for key in NETWORK_KEYS if key.default == "required"])
def test_required_keys_of_a_network_are_missed(without: str) -> None:
    with pytest.raises(ConfigError, match=f"'{without}' is missing"):
        load_network({key: value for key, value in NETWORK.items() if key != without})


def test_keys_of_links() -> None:
    assert load_network(LINKS).npus == 2
    for field in LINK_FIELDS[:2]:
        whole = {"from": 0, "to": 1, "directed": False, "bandwidth": 1, "latency": 0}
        load_network({**LINKS, "links": [whole]})
        with pytest.raises(ConfigError, match=f"'{field.name}' is missing"):
            load_network({**LINKS, "links": [{k: v for k, v in whole.items() if k != field.name}]})
    with pytest.raises(ConfigError, match="'form' is unknown; did you mean 'from'"):
        load_network({**LINKS, "links": [{"form": 0, "to": 1}]})


def test_keys_of_platforms() -> None:
    assert len(list(all_platforms())) > 10
    for part, keys in ((None, PLATFORM_KEYS), ("accelerator", ACCELERATOR_KEYS), ("dims", DIM_KEYS)):
        for key in keys:
            copy = json.loads(json.dumps(PLATFORM))
            where = copy if part is None else copy["dims"][0] if part == "dims" else copy[part]
            assert (where.pop(key.name, None) is None) == (key.default != "required"), key.name
            if key.default == "required":
                with pytest.raises(ConfigError, match=key.name):
                    platform_from(copy, "<platform>")
        copy = json.loads(json.dumps(PLATFORM))
        where = copy if part is None else copy["dims"][0] if part == "dims" else copy[part]
        where["tittle" if part is None else "nme"] = 1
        with pytest.raises(ConfigError, match="unknown key"):
            platform_from(copy, "<platform>")
    with pytest.raises(ConfigError, match="kind must be machine"):
        platform_from({**PLATFORM, "kind": "toaster"}, "<platform>")


def test_keys_of_studies() -> None:
    study = study_from(STUDY, "s.yml")
    defaults = {key.name: key.default for key in STUDY_KEYS}
    assert study.method.kind == defaults["method"]
    assert study.objective == defaults["objective"]
    assert ", ".join(study.pareto) == defaults["pareto"]
    with pytest.raises(ConfigError, match="unknown key 'objectiv'"):
        study_from({**STUDY, "objectiv": "npus"}, "s.yml")


@pytest.mark.parametrize("kind", sorted(REQUESTS))
def test_parameters_of_workloads(kind: str) -> None:
    """Every name is taken by the request, with its default as text read back."""
    request = REQUESTS[kind]()
    for key in workload_keys(kind):
        name = key.name.replace("-", "_")
        assert hasattr(request, name)
        value = getattr(request, name)
        if isinstance(value, bool):
            assert str(value).lower() == key.default.replace("on", "true").replace("off", "false"), name
        elif isinstance(value, int | float):
            assert float(key.default) == value, name


def test_every_reader_of_the_reference_exists_and_every_example_loads() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    for reader in set(re.findall(r"Read by `([\w.]+)`", page)):
        parts = reader.split(".")
        for cut in range(len(parts) - 1, 0, -1):
            try:
                found: Any = importlib.import_module(".".join(parts[:cut]))
            except ModuleNotFoundError:
                continue
            for name in parts[cut:]:
                found = getattr(found, name)
            assert callable(found)
            break
    from chakra.io.yaml import parse_document

    for kind, text in re.findall(r"^```(yaml|json)\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        value = json.loads(text) if kind == "json" else parse_document(text, "<example>")
        if "topology" in value or "links" in value:
            load_network(value)
        elif "workload" in value:
            study_from(value, "<example>")
        elif "memory-type" in value:
            load_memory(value)
        elif "scheduling-policy" in value:
            load_system(value)
