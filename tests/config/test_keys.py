"""Every key of every configuration file: its default, its bounds, its messages."""

import importlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from every_key import CASES, FILES, ROOT, File, Values, each_key, wrong_values

from chakra.errors import ChakraError, ConfigError
from chakra.generate.request.parameters import Size
from chakra.io.yaml import parse_document
from chakra.replay.config import load_memory, load_network, load_system
from chakra.replay.config.key import Key, UnfitError, plain
from chakra.replay.config.keys import (
    LINK_FIELDS,
    LINKS,
    MEMORY_KEYS,
    PLUGIN_KEYS,
    SYSTEM_KEYS,
)
from chakra.replay.config.model import Memory, System
from chakra.replay.config.readers import Count
from chakra.replay.config.values_in_effect import values_in_effect
from chakra.sweep.keys import WORKLOAD_KEYS, Part
from chakra.sweep.study import study_from


@each_key
def test_a_default_written_out_reads_the_same(file: File, key: Key[object]) -> None:
    if key.required or key.default is None:
        return
    written = plain(key.default)
    assert key.reader.read(written) == key.default
    without = {name: value for name, value in file.right.items() if name != key.name}
    if key.name not in file.right:
        assert rid_of_marks(file.load({**without, key.name: written})) == rid_of_marks(file.load(without))


def rid_of_marks(made: object) -> object:
    """A system without its note of whether the endpoint delay was given."""
    return {**vars_of(made), "endpoint_delay_given": None} if isinstance(made, System) else made


def vars_of(made: object) -> Values:
    return {name: getattr(made, name) for name in getattr(made, "__slots__", ())}


@each_key
def test_a_wrong_value_is_told_in_one_line_with_file_key_and_what_is_right(
    file: File, key: Key[object]
) -> None:
    wrong = wrong_values(key)
    assert wrong or key.allowed in ("text", "map"), "a key that takes everything"
    for value in wrong:
        if isinstance(key.reader, Part) and key.name == "parameters" and value is None:
            continue
        if value is None and key.default is None and file.kind.startswith("request"):
            continue  # an option that is not given
        with pytest.raises(UnfitError) as unfit:
            key.reader.read(value)
        with pytest.raises(ChakraError) as caught:
            file.load({**file.right, key.name: value})
        told = str(caught.value)
        assert "\n" not in told
        assert key.name in told
        assert unfit.value.rule.removeprefix(": ") in told
        if not file.kind.startswith("request"):  # what calls a request names the file
            assert told.startswith("<")


@each_key
def test_a_required_key_is_missed(file: File, key: Key[object]) -> None:
    without = {name: value for name, value in file.right.items() if name != key.name}
    if key.required and key is not LINKS:  # without links a network is one of building blocks
        with pytest.raises(ConfigError, match=key.name):
            file.load(without)
    elif key.name not in file.right:
        file.load(without)


@each_key
def test_an_unknown_key_is_refused(file: File, key: Key[object]) -> None:
    with pytest.raises(ChakraError) as caught:
        file.load({**file.right, f"{key.name}x": 1})
    assert f"{key.name}x" in str(caught.value)


@pytest.mark.parametrize("kind", ["system", "memory"])
def test_values_in_effect_of_an_empty_file_are_the_defaults(kind: str) -> None:
    keys = {key.name: key for key in (SYSTEM_KEYS if kind == "system" else MEMORY_KEYS)}
    for row in values_in_effect(kind, {}).rows:
        assert row.value == plain(keys[row.key].default), row.key
        assert (row.source, row.default) == ("default", keys[row.key].default_in_words)


@pytest.mark.parametrize(("keys", "owner"), [(SYSTEM_KEYS, System()), (MEMORY_KEYS, Memory())])
def test_fields_are_those_of_the_values(keys: tuple[Key[object], ...], owner: object) -> None:
    """A field that a key names is there, and each field of the value has a key."""
    names = {key.field.split(".")[0] for key in keys} - {"boost_mode", "models_shared_bus"}
    assert names == set(vars_of(owner)) - {"source", "endpoint_delay_given"}


def test_fields_of_a_link() -> None:
    links = FILES[1].right
    whole = {"from": 0, "to": 1, "directed": False, "bandwidth": 1, "latency": 0}
    load_network({**links, "links": [whole]})
    for field in LINK_FIELDS:
        rest = {name: value for name, value in whole.items() if name != field.name}
        if field.required:
            with pytest.raises(ConfigError, match=f"'{field.name}' is missing"):
                load_network({**links, "links": [rest]})
        else:
            load_network({**links, "links": [rest]})
        for value in wrong_values(field):
            with pytest.raises(ConfigError, match="entry 0"):
                load_network({**links, "links": [{**whole, field.name: value}]})
    with pytest.raises(ConfigError, match="'form' is unknown; did you mean 'from'"):
        load_network({**links, "links": [{"form": 0, "to": 1}]})


def test_names_and_fields_are_given_once() -> None:
    for keys in (*(file.keys for file in FILES), LINK_FIELDS, PLUGIN_KEYS, WORKLOAD_KEYS):
        for names in ([key.name for key in keys], [key.field for key in keys]):
            assert len(set(names)) == len(names)


def test_bounds_of_whole_numbers_are_stated_by_the_readers() -> None:
    """The largest value passes and the next is refused, for readers that have one."""
    for _, key in CASES:
        if isinstance(key.reader, Count | Size):
            most = key.reader.most
            assert key.reader.read(most) == most
            with pytest.raises(UnfitError):
                key.reader.read(most + 1)


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
    examples: tuple[tuple[str, Callable[[Any], object]], ...] = (
        ("topology", load_network),
        ("links", load_network),
        ("workload", lambda value: study_from(value, "<example>")),
        ("memory-type", load_memory),
        ("scheduling-policy", load_system),
    )
    for kind, text in re.findall(r"^```(yaml|json)\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        value = json.loads(text) if kind == "json" else parse_document(text, "<example>")
        for mark, load in examples:
            if mark in value:
                load(value)
