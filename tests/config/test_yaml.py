"""The YAML reader: what its scalars mean, what it refuses, and that both forms of a file agree."""

from pathlib import Path

import pytest

from chakra.errors import ConfigError
from chakra.io.yaml import parse_document, read_document, read_entries


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
