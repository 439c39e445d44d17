"""JSON, YAML, XML, CSV and DOT go through writers: no other module puts such text together from pieces.

What a writer is: `chakra.io.documents` (JSON), `chakra.io.yaml_text`, `chakra.io.markup` (XML, HTML), `csv`, `msgspec`,
ElementTree, Jinja with escapes on. They alone know quotes, escapes and separators, so that no name in a trace can break
a document.
"""

import ast
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from chakra.io.documents import ascii_text, json_text, lined_text, streamed, with_first_key
from chakra.io.markup import element, empty, nested
from chakra.io.yaml import parse_document
from chakra.io.yaml_text import block_text, entry_text

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("chakra", "replay", "converters", "schemas")
#: stands for a value that is put in
VALUE = "\0"

#: what only a document of a kind looks like
PATTERNS = {
    "JSON": re.compile(
        rf'[{{,\s]"[\w$ -]+"\s*:\s*["{VALUE}\[{{]|^\s*\{{\n|^\[\n|"{VALUE}"\s*:|^\{{[^ a-z]|^\s*\{{"'
    ),
    "YAML": re.compile(
        rf"^[ -]*[\w{VALUE}-]+: (\[ ?{VALUE}|\{{ ?{VALUE})|^[a-z_{VALUE}]+: {VALUE}\n$|^\s*- [\[{{]"
    ),
    "XML": re.compile(rf"</[a-z{VALUE}]|<[A-Za-z]+ [\w:-]+=|^<[a-z]+/?>|<\?xml"),
    "CSV": re.compile(rf"^{VALUE}([,;\t]{VALUE})+\n?$"),
    "DOT": re.compile(rf"\bdigraph\b|\[(label|shape)=|\brankdir=|{VALUE} -> .*\["),
}

#: module -> (kinds it may put together itself, why)
EXCEPTIONS = {
    "chakra/io/yaml_text.py": ("JSON", "is the writer: maps on one line"),
    "chakra/io/markup.py": ("XML", "is the writer"),
    "chakra/viz/formats/dot.py": (
        "DOT",
        "is the writer: millions of nodes as a stream, each text by `quoted`",
    ),
    "chakra/viz/formats/svg.py": (
        "XML CSV",
        "is the writer of drawings: millions of shapes as a stream; x,y of corners",
    ),
    "chakra/report/charts.py": ("XML", "drawings of numbers of ours; each text by `escape`"),
    "chakra/report/excerpt.py": ("XML", "drawings of numbers of ours; each text by `escape`"),
    "chakra/accuracy/picture.py": ("XML", "a drawing of numbers of ours; each text by `escape`"),
    "chakra/accuracy/words.py": ("CSV", "words of a table, read and not written"),
    "chakra/cli/commands/convert_msccl.py": ("JSON", "a sentence that shows a line of a system file"),
    "chakra/cli/commands/generate_workload.py": ("CSV", "a default as the option's help shows it"),
    "chakra/viz/graph/select.py": ("CSV", "an option as a message repeats it"),
}


def pieces(node: ast.AST) -> str | None:
    """A text put together, with `VALUE` for each value; None where nothing is put together."""
    match node:
        case ast.JoinedStr(values=values):
            texts = [constant(value) for value in values]
            return "".join(VALUE if text is None else text for text in texts) if None in texts else None
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return re.sub(r"%[-+ 0-9.]*[a-z]", VALUE, text)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            sides = [constant(side) if constant(side) is not None else pieces(side) for side in (left, right)]
            return "".join(side or VALUE for side in sides) if any(sides) else None
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return re.sub(r"\{\w*\}", VALUE, text)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="join")):
            return VALUE + text + VALUE
    return None


def constant(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def found(source: str) -> Iterator[tuple[int, str]]:
    """Line and kind of each text in a module's source that looks like part of a document."""
    for node in ast.walk(ast.parse(source)):
        text = pieces(node)
        for kind, pattern in PATTERNS.items():
            if isinstance(node, ast.expr) and text is not None and pattern.search(text):
                yield node.lineno, kind


def test_no_document_is_put_together_from_pieces() -> None:
    wrong = []
    used: set[tuple[str, str]] = set()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = path.relative_to(ROOT).as_posix()
            for line, kind in found(path.read_text(encoding="utf-8")):
                if kind in EXCEPTIONS.get(module, ("",))[0].split():
                    used.add((module, kind))
                else:
                    wrong.append(f"{module}:{line}: {kind}")
    assert not wrong, wrong
    named = {(module, kind) for module, (kinds, _) in EXCEPTIONS.items() for kind in kinds.split()}
    assert used == named, "exceptions that nothing needs"


#: modules that may call `json.dumps` themselves, and why: what they make is no document
DUMPS = {
    "chakra/anonymize/pytorch.py": "texts inside a host trace, of whole numbers",
    "chakra/anonymize/trace.py": "a text inside a trace, of whole numbers and labels",
    "chakra/builder.py": "a text inside a trace, of whole numbers and names",
    "chakra/et/jsonize.py": "a value in a message",
    "chakra/io/documents.py": "is the writer",
    "chakra/io/markup.py": "data inside a page; refuses what is no number",
    "chakra/io/shown.py": "a value in a message",
    "chakra/sweep/point.py": "a key by which points are found, no document",
    "chakra/sweep/nearest_fit.py": "a key of a cache",
    "converters/pytorch/deprofile.py": "a value in a message",
    "replay/compute/presets.py": "a key of a cache",
    "replay/config/costs_reader.py": "a key of a cache",
    "replay/config/files.py": "a key as a file has it, to find its line",
    "replay/workload/process_groups.py": "a value in a message",
}


def test_json_documents_go_through_the_writer() -> None:
    """Nothing else writes JSON, so that no NaN and no infinity gets into a document."""
    calling = set()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                match node:
                    case ast.Attribute(value=ast.Name(id="json"), attr="dump"):
                        pytest.fail(f"{path}:{node.lineno}: json.dump, which chakra.io.documents is for")
                    case ast.Attribute(value=ast.Name(id="json"), attr="dumps"):
                        calling.add(path.relative_to(ROOT).as_posix())
    assert calling == set(DUMPS)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("JSON", "f'{{\"name\": {name}}}'"),
        ("JSON", "'{\\n' + rows + '\\n}'"),
        ("JSON", "'\"%s\": %d' % (key, value)"),
        ("JSON", "'{' + ', '.join(rows) + '}'"),
        ("YAML", "f'{key}: [ {values} ]'"),
        ("YAML", "f'npus_count: [ {values} ]'"),
        ("YAML", "f'latency: {value}\\n'"),
        ("XML", "f'<node id=\"{node}\">'"),
        ("XML", "'<td>' + text + '</td>'"),
        ("XML", "'<td>{}</td>'.format(text)"),
        ("CSV", "f'{a},{b}\\n'"),
        ("CSV", "','.join(row)"),
        ("DOT", "f'n{a} -> n{b} [style=dotted];'"),
        ("DOT", "'digraph ' + name"),
    ],
)
def test_the_search_finds(kind: str, source: str) -> None:
    assert kind in {found_kind for _, found_kind in found(source)}


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.booleans())
def test_lines_of_keys_are_json(document: dict[str, Any], entries: bool) -> None:
    for line in (ascii_text, json_text):
        assert json.loads(lined_text(document, entries=entries, line=line)) == document


@given(st.dictionaries(NAMES, VALUES, max_size=3), st.lists(VALUES, max_size=3))
def test_streams_are_json(head: dict[str, Any], items: list[Any]) -> None:
    text = "".join(streamed(head, "\0last", map(json_text, items)))
    assert json.loads(text) == {**head, "\0last": items}


@given(st.dictionaries(NAMES, VALUES, max_size=3), st.sampled_from([None, 2]))
def test_a_key_in_front(document: dict[str, Any], indent: int | None) -> None:
    text = with_first_key(json.dumps(document, indent=indent), "\0first", {"rank": 1})
    assert json.loads(text) == {"\0first": {"rank": 1}, **document}


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4), st.booleans())
def test_yaml_reads_back(document: dict[str, Any], quoted: bool) -> None:
    document = {f"-{key}": value for key, value in document.items()}  # none is one of the keys below
    lists = {f"+{key}": value for key, value in document.items() if isinstance(value, list) and value}
    lines = [entry_text(key, value, quoted=quoted) for key, value in document.items()]
    lines += [block_text(key, value, quoted=quoted) for key, value in lists.items()]
    for comment in ("", "GB/s"):
        lines.append(entry_text(f"latency{comment}", [1, 2], comment))
    expected = {**document, **lists, "latency": [1, 2], "latencyGB/s": [1, 2]}
    assert parse_document("\n".join(lines), "made") == expected
    assert YAML(typ="safe", pure=True).load("\n".join(lines)) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, [-math.inf], {"a": math.nan}])
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        lined_text({"a": value})
    with pytest.raises(ValueError, match="no number"):
        entry_text("a", value)
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text(value)


@given(NAMES, NAMES)
def test_markup_is_escaped(name: str, text: str) -> None:
    name, text = ("".join(c for c in part if c.isprintable()) for part in (name, text))
    made = nested("a", element("b", text, {"c": name}) + empty("d", {"e": name}), {"f": name})
    root = ElementTree.fromstring(made)
    assert [root.attrib, root[0].attrib, root[1].attrib] == [{"f": name}, {"c": name}, {"e": name}]
    assert (root[0].text or "") == text


def test_shares_are_told_by_one_writer() -> None:
    """A share of 0.004 % reads 0.0 % where tenths are formatted: `percent_text` and `signed_percent_text` do not."""
    tenths = re.compile(r":\+?,?\.1f\} ?%|:\+?\.[01]%")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if tenths.search(line)
    ]
    assert found == []
