"""Counts and their nouns agree, in the messages of every bad input and in the sources of all messages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: what messages count
NOUNS = (
    *(
        "NPU",
        "rank",
        "node",
        "layer",
        "member",
        "switch",
        "trace",
        "file",
        "row",
        "cell",
        "column",
        "size",
        "value",
    ),
    *(
        "factor",
        "entry",
        "line",
        "point",
        "design",
        "dimension",
        "chunk",
        "collective",
        "operator",
        "event",
        "machine",
    ),
    *("stage", "replica"),
)
#: a count of one and a plural; a name's number is followed by a verb: "NPU 1 sends"
ONE_OF_MANY = re.compile(
    r"(?<![\w.,-])1 ((?:\w+ )?(?:" + "|".join(f"{noun}(?:e?s|ies)" for noun in NOUNS) + r"))\b"
)
IS_PLURAL = re.compile(
    r" (?:more |other |[a-z]+ )?(" + "|".join(f"{noun}(?:s|es)" for noun in NOUNS) + r")\b"
)


def test_no_message_counts_one_of_many() -> None:
    found = {
        line.split("\t")[0]: ONE_OF_MANY.findall(line)
        for line in (ROOT / "tests/bad_inputs/expected.txt").read_text(encoding="utf-8").splitlines()
    }
    assert {name: words for name, words in found.items() if words} == {}
    assert ONE_OF_MANY.search("has 1 factors")
    assert ONE_OF_MANY.search("in 1 data nodes")


def _counts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines where a text puts the length of something before a plural."""
    for text in ast.walk(tree):
        if not isinstance(text, ast.JoinedStr):
            continue
        for value, after in zip(text.values, text.values[1:], strict=False):
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            counts = isinstance(value.value, ast.Call) and ast.unparse(value.value.func) == "len"
            if counts and (found := IS_PLURAL.match(str(after.value))):
                yield value.lineno, found[1]


def test_lengths_are_counted_with_their_noun() -> None:
    """`chakra.io.readable.counted`, but where the count was told to be above one."""
    above_one = {"replay/checks/partners.py", "chakra/cli/commands/report.py", "chakra/report/page.py"}
    found = {
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for folder in ("chakra", "replay", "converters")
        for path in (ROOT / folder).rglob("*.py")
        if str(path.relative_to(ROOT)) not in above_one
        for line, word in _counts(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set()
    assert list(_counts(ast.parse('f"{len(x)} ranks of {n}"'))) == [(1, "ranks")]
