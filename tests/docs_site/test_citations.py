"""Every section and rule that a comment, a docstring or a page cites is in the project's own pages."""

import importlib.util
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def load() -> ModuleType:
    """The site's extension that knows what a citation is."""
    spec = importlib.util.spec_from_file_location("cited_places", DOCS / "_ext" / "cited_places.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cited_places"] = module
    spec.loader.exec_module(module)
    return module


cited = load()
SOURCES = sorted(
    path
    for folder in ("chakra", "replay", "converters", "schemas", "tests", "tools", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if path != Path(__file__) and not path.name.endswith("_pb2.py")
)
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "gallery"),
]
SEMANTICS = "spec/replay-semantics"


def remarks(source: str) -> str:
    """Comments and docstrings of a module, their lines joined: what stands between is left out."""
    kept: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            kept.append(token.string.lstrip("#: "))
        elif token.type == tokenize.STRING and token.string.startswith(('"""', 'r"""')):
            kept.append(token.string.strip('r"') + " .")
    return " ".join(" ".join(kept).split())


def wrong(text: str, page: str | None) -> list[str]:
    """Citations of a text that lead nowhere."""
    return [
        f"{text[max(0, citation.start - 40) : citation.end]!r}: {problem}"
        for citation in cited.citations(text, page)
        if (problem := cited.problem(citation))
    ]


def test_what_a_module_cites_exists() -> None:
    found = {}
    for path in SOURCES:
        page = SEMANTICS if path.is_relative_to(ROOT / "replay" / "engines") else None
        found[str(path)] = wrong(remarks(path.read_text(encoding="utf-8")), page)
    assert {path: problems for path, problems in found.items() if problems} == {}


def test_what_a_page_cites_exists() -> None:
    found = {}
    for path in PAGES:
        text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        name = path.with_suffix("").relative_to(DOCS).as_posix() if path.is_relative_to(DOCS) else ""
        own = name if name in cited.PAGES.values() else None
        found[str(path)] = wrong(" ".join(text.split()), own)
    assert {path: problems for path, problems in found.items() if problems} == {}


def all_citations() -> Iterator[tuple[Path, str]]:
    for path in SOURCES:
        for citation in cited.citations(remarks(path.read_text(encoding="utf-8")), SEMANTICS):
            yield path, citation.place


def test_citations_are_found_and_no_other_form_is_used() -> None:
    """Were the pattern to miss them, the tests above would pass; other ways to cite would escape them."""
    found = list(all_citations())
    assert len(found) > 150
    assert {"3.4", "4.1", "R-COMM", "R-SYNC", "D20", "C5"} <= {place for _, place in found}
    other = re.compile(
        r"\bspec(?:ification)?:? (?:section )?\d|shared/spec|link-and-convert|trace-formats|replay-semantics"
        r"|(?:replay semantics|trace formats),? \d"
    )
    texts = [(path, remarks(path.read_text(encoding="utf-8"))) for path in SOURCES]
    assert [(str(path), match[0]) for path, text in texts for match in other.finditer(text)] == []


@pytest.mark.parametrize(
    ("text", "page", "places"),
    [
        ("(replay semantics, section 3.4)", None, ["3.4"]),
        ("Sources: replay semantics, sections 3.1, 3.2 and 7.1; C3", None, ["3.1", "3.2", "7.1", "C3"]),
        ("Replay semantics, sections 4.1 to 4.8. See section 5.3.", None, ["4.1", "4.8", "5.3"]),
        ("rule R-COMM 3, and R-DUR.", None, ["R-COMM", "R-DUR"]),
        ("Korthikanti et al. 2022 (arXiv 2205.05198, section 4) says", None, []),
        ("section 2.1", SEMANTICS, ["2.1"]),
        ("(replay semantics, 4.1 and 4.2)", None, ["4.1", "4.2"]),
    ],
)
def test_citations_are_read_as_people_read_them(text: str, page: str | None, places: list[str]) -> None:
    assert [citation.place for citation in cited.citations(text, page)] == places
    assert wrong(text, page) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("(replay semantics, section 3.9)", "has no 3.9"),
        ("sections 3.1 and 7.1 of something", "of which page?"),
        ("trace formats, section 12", "has no 12"),
        ("rule R-NOWHERE", "has no R-NOWHERE"),
        ("rule R-COMM 30", "none is number 30"),
        ("(D99)", "has no D99"),
        ("correction C99", "has no C99"),
    ],
)
def test_a_citation_of_nothing_is_found(text: str, complaint: str) -> None:
    """The proof that the tests above can fail."""
    assert complaint in wrong(text, None)[0]
