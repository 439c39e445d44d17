"""The YAML reader: what its scalars mean, what it refuses, and that both forms of a file agree."""

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.errors import ConfigError
from chakra.io.yaml import (
    entries_with_rows,
    general_entries,
    parse_document,
    read_document,
    read_entries,
    scalar,
)
from chakra.io.yaml_rows import without_rows


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e9", 1e9), ("10", 10), ("-3", -3), (".5", 0.5), ("010", "010"), ("0x8", "0x8"), (".nan", ".nan"),
        ("2026-01-02", "2026-01-02"), ("12:30", "12:30"), ("yes", "yes"), ("true", True), ("False", False),
        ("~", None), ("'5'", "5"), ('"true"', "true"), ("{a: [1, {b: 2}]}", {"a": [1, {"b": 2}]}),
    ],
)  # fmt: skip
def test_values_are_the_same_in_both_forms(text: str, value: object, tmp_path: Path) -> None:
    path = tmp_path / "f.yml"
    path.write_text(f"# first\nkey: {text}\n")
    assert read_document(path) == {"key": value}
    entry = read_entries(path)["key"]
    assert (entry.value, entry.line) == (value, 2)
    assert type(entry.value) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "key 'a' is given twice (first on line 1)"),
        ("a:\n  b: 1\n  b: 2", "key 'b' is given twice (first on line 2)"),
        ("a: [{from: 0, from: 1}]", "key 'from' is given twice (first on line 1)"),
        ("? [1, 2]\n: 3", "a key must be a word or a number"),
    ],
)
def test_keys_that_stand_twice_are_refused_at_any_depth(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "f.yml"
    path.write_text(text)
    for read in (read_entries, read_document):
        with pytest.raises(ConfigError) as caught:
            read(path)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["a: !!python/name:os.system x", "a: !own 1", "a: {<<: {b: 1}}", "<<: *x"])
def test_tags_and_merge_keys_are_refused_in_documents(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^doc: "):
        parse_document(text, "doc")


def test_an_alias_is_one_value() -> None:
    assert parse_document("a: &x [1, 2]\nb: *x", "doc") == {"a": [1, 2], "b": [1, 2]}
    with pytest.raises(ConfigError, match="nested without end"):
        parse_document("a: &x [*x]", "doc")


ITEMS = st.sampled_from(
    [
        "0",
        "leaf0",
        "m0.0.0",
        "a-b",
        "1.5",
        "1e9",
        "-",
        "-1",
        "-x",
        "+",
        ".5",
        "010",
        "true",
        "~",
        "...",
        "---",
        "a_b",
    ]
)
ROWS = st.builds(
    lambda indent, gap, pad, items, tail: f"{indent}-{gap}[{pad}{', '.join(items)}{pad}]{tail}",
    st.sampled_from(["", "", "", "  "]),
    st.sampled_from([" ", " ", "  ", ""]),
    st.sampled_from(["", " "]),
    st.lists(ITEMS, min_size=1, max_size=4),
    st.sampled_from(["", "", "", " # c", "# c", " ", "\t", "]"]),
)
OTHERS = st.sampled_from(
    ["links:", "links: # c", "links:  #", "null:", "on:", "routes:", "a: b", "a: [1, x]", "a: {b: [1]}", "a: [1,", "a:b",
     "a: 'x", "a: |", "a: &x [1]", "", "  ", "# c", "  # [", "- x", "- [*x]", "-", "x]", "---", "\x85", "a: b # ["]
)  # fmt: skip


def entries_or_problem(read: Any, text: str) -> Any:
    try:
        return {repr(key): (repr(entry.value), entry.line) for key, entry in read("x", text).items()}
    except ConfigError as error:
        return str(error)


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.one_of(ROWS, ROWS, OTHERS), max_size=7), st.booleans())
def test_rows_that_are_taken_out_are_read_as_by_the_yaml_library(lines: list[str], headed: bool) -> None:
    """The same values on the same lines, and the same problem at the same place."""
    text = "\n".join(["links:"] * headed + lines)
    assert entries_or_problem(entries_with_rows, text) == entries_or_problem(general_entries, text)


def test_long_lists_of_rows_are_read_in_no_time() -> None:
    """The library takes 15 s of these."""
    rows = [f"- [{npu}, leaf{npu // 8}, 50.0, 500]" for npu in range(50_000)]
    text = "\n".join(
        ["# links", "npus_count: [50000]", "links:  # from, to", *rows, "# end", "routing: hops"]
    )
    start = time.process_time()
    found = entries_with_rows("x", text)
    assert time.process_time() - start < 3
    assert {key: entry.line for key, entry in found.items()} == {
        "npus_count": 2,
        "links": 3,
        "routing": 50_005,
    }
    assert found["links"].value[8] == [8, "leaf1", 50.0, 500]
    assert len(found["links"].value) == 50_000
    rest, taken = without_rows(text, scalar)
    assert list(taken) == ["links"]
    assert rest.split() == [
        "#",
        "links",
        "npus_count:",
        "[50000]",
        "links:",
        "[]",
        "#",
        "end",
        "routing:",
        "hops",
    ]
