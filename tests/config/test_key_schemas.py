"""JSON Schemas of configuration files take what the readers take, and nothing else."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from every_key import CASES, FILES, PLATFORM, ROOT, Values
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra import input_schemas
from chakra.errors import ChakraError
from chakra.io.yaml import parse_document
from chakra.platforms import all_platforms
from chakra.platforms.keys import SourcedNumber
from chakra.platforms.model import platform_from
from chakra.replay.config import load_groups, load_memory, load_network, load_system
from chakra.replay.config.key import Key, UnfitError
from chakra.replay.config.keys import (
    LINKS,
    ROUTES,
)
from chakra.replay.config.readers import MapOf, MapsOf
from chakra.sweep.keys import RANGE, STEP
from chakra.sweep.study import study_from

jsonschema = pytest.importorskip("jsonschema")

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.integers(-(2**62), 2**62),
    st.sampled_from([2**31 - 1, 2**31, 2**22, 2**53, 2**53 + 1, 10**400, -(10**400)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0, 1e40),
    st.text(max_size=4),
    st.sampled_from(
        ["grid", "scale_out", "direct4", "direct0", "oneDirect00012", "direct123456", "direct1\n"]
    ),
)


def words_in(schema: object) -> list[str]:
    """Every word of the closed sets of a schema, for values that come close to right ones."""
    if isinstance(schema, Mapping):
        here = [word for word in schema.get("enum", ()) if isinstance(word, str)]
        return here + [word for part in schema.values() for word in words_in(part)]
    return [word for part in schema for word in words_in(part)] if isinstance(schema, list) else []


def values_near(key: Key[object]) -> st.SearchStrategy[object]:
    words = words_in(key.schema())
    scalars = SCALARS | st.sampled_from(words + [word + "x" for word in words]) if words else SCALARS
    kinds = st.fixed_dictionaries({}, optional=dict.fromkeys(("random", "optuna", "seed", "batch"), scalars))
    return scalars | st.lists(scalars, max_size=3) | kinds


def has_whole_float(value: object) -> bool:
    """JSON does not tell 8.0 from 8, which a whole number of a YAML file does."""
    if isinstance(value, dict):
        return any(map(has_whole_float, value.values()))
    if isinstance(value, list):
        return any(map(has_whole_float, value))
    return isinstance(value, float) and value.is_integer()


#: readers that leave the inside of a value to functions of their own, or whose bound no schema can say
OF_THEIR_OWN = (LINKS, ROUTES, RANGE, STEP)


#: keys of several kinds of requests are the same
ONCE = {
    (key.name, repr(key.reader)): key
    for _, key in CASES
    if key not in OF_THEIR_OWN and not isinstance(key.reader, MapOf | MapsOf | SourcedNumber)
}


@pytest.mark.parametrize("key", ONCE.values(), ids=[name for name, _ in ONCE])
@settings(max_examples=12)
@given(data=st.data())
def test_the_schema_takes_what_the_reader_takes(key: Key[object], data: st.DataObject) -> None:
    """Ten values an example: to begin and end one takes four times what a value takes."""
    validator = jsonschema.Draft202012Validator(key.schema())
    whole = "integer" in json.dumps(key.schema())
    for value in data.draw(st.lists(values_near(key), min_size=10, max_size=10)):
        if whole and has_whole_float(value):
            continue
        try:
            key.reader.read(value)
            taken = True
        except UnfitError:
            taken = False
        assert validator.is_valid(value) is taken, (value, key.schema())


@pytest.mark.parametrize("name", input_schemas.names())
def test_every_schema_is_one(name: str) -> None:
    schema = input_schemas.load(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$id"] == name
    assert input_schemas.load(name.removeprefix("chakra.").removesuffix("/1")) == schema


def is_valid(name: str, value: object) -> bool:
    return bool(jsonschema.Draft202012Validator(input_schemas.load(f"config.{name}")).is_valid(value))


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("network", load_network),
        ("system", load_system),
        ("memory", load_memory),
        ("groups", load_groups),
        ("platform", lambda value: platform_from(value, "<platform>")),
        ("study", lambda value: study_from(value, "<study>")),
    ],
)
def test_schemas_of_files_agree_with_their_loaders(name: str, load: Callable[[Any], object]) -> None:
    """On right files, and on each with one thing wrong that a schema can say."""
    right = {
        "network": [
            FILES[0].right,
            FILES[1].right,
            {**FILES[1].right, "links": [{"from": "a", "to": 0}, [1, "a"]]},
        ],
        "system": [{}, FILES[2].right, {"all-reduce-implementation": ["ring", "direct4"], "boost-mode": 1}],
        "memory": [{}, FILES[3].right],
        "groups": [{}, {"tp": [0, 1], "7": [1]}],
        "platform": [PLATFORM],
        "study": [FILES[8].right],
    }[name]
    for document in right:
        load(document)
        assert is_valid(name, document), document
        for changed in wrong_forms(document, name):
            with pytest.raises(ChakraError):
                load(changed)
            assert not is_valid(name, changed), changed


def wrong_forms(document: Values, name: str) -> Iterable[Values]:
    """The document with an unknown key, without a required one, and with a value of another kind."""
    if name == "groups":
        yield from ({"": [0]}, {"0": [0]}, {"a": []}, {"a": [0, 0]}, {"a": [-1]}, {"a": ["0"]}, {"a": 3})
        return
    yield {**document, "nonsense": 1}
    for key, value in document.items():
        yield {**document, key: {"a": [None]} if not isinstance(value, dict) else 3}
        if key in ("topology", "links", "name", "dims", "workload"):
            yield {other: kept for other, kept in document.items() if other != key}


@pytest.mark.parametrize("platform", list(all_platforms()), ids=lambda platform: platform.name)
def test_presets_fit_the_schema_of_platforms(platform: Any) -> None:
    path = ROOT / "chakra" / "presets" / f"{platform.name}.yml"
    assert is_valid("platform", parse_document(path.read_text(encoding="utf-8"), "preset"))


def test_examples_of_the_reference_fit() -> None:
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    marks = {
        "topology": "network",
        "links": "network",
        "workload": "study",
        "memory-type": "memory",
        "scheduling-policy": "system",
    }
    seen = set()
    for kind, text in re.findall(r"^```(yaml|json)\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        value = json.loads(text) if kind == "json" else parse_document(text, "<example>")
        for name in {marks[mark] for mark in marks if mark in value}:
            assert is_valid(name, value)
            seen.add(name)
    assert seen == set(marks.values())
