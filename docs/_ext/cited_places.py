"""Places that comments, docstrings and pages cite: sections and rules of the specification, and corrections.

A citation is the title of a page and a section, ``replay semantics, section 3.4`` (also ``sections 3.1, 3.2 and 7.1`` or
``sections 4.1 to 4.8``), or the name of a rule: ``R-COMM``, ``R-COMM 3`` for its third point, ``D20``, ``C5``. Where a
file has named the page once, ``section 3.4`` alone means that page again; in ``replay/engines`` it means the replay
semantics from the start. ``tests/docs_site/test_citations.py`` resolves every citation of the source tree.

As an extension of Sphinx this module gives each place an identifier that does not depend on the words of its heading
(``#section-3-4``, ``#r-comm``, ``#d20``, ``#c5``) and makes links of the citations in pages and docstrings.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
#: pages with numbered sections, by the title that a citation names
PAGES = {
    "replay semantics": "spec/replay-semantics",
    "trace formats": "spec/trace-formats",
    "linking and conversion": "spec/linking-and-conversion",
    "synthetic workloads": "spec/synthetic-workloads",
}
#: pages with named rules, by the beginning of the names
RULES = {"R": "spec/linking-and-conversion", "D": "spec/replay-semantics", "C": "differences"}

_NUMBER = r"\d+(?:\.\d+)?"
_NUMBERS = rf"{_NUMBER}(?:(?:, | and | to |, and ){_NUMBER})*"
_SECTIONS = re.compile(
    rf"(?:\b(?P<page>{'|'.join(PAGES)}),? (?:sections? )?|\bsections? )(?P<numbers>{_NUMBERS})", re.IGNORECASE
)
_RULE = re.compile(r"\b(?P<rule>R-[A-Z]{2,}(?:-\d+)?|[CD]\d{1,2})\b(?! [a-z]\w*-)(?: (?P<point>\d+)\b)?")
#: a book or a paper has sections, too
_ELSEWHERE = re.compile(r"(?:et al\.|arXiv [\d.]+|\d{4}\)?)[^;]{0,30}$")


@dataclass(frozen=True, slots=True)
class Citation:
    """A page (its path below ``docs`` without suffix) and a section or rule of it, as the text says it.

    Attributes
    ----------
    page
        None where a section is named and no page is known.
    place
        ``3.4``, ``R-COMM``, ``D20``; of a range, the ends are two citations.
    point
        Number of the point of a rule, 0 if none is named.
    start, end
        Where in the text it stands.
    """

    page: str | None
    place: str
    point: int
    start: int
    end: int


def citations(text: str, page: str | None = None) -> Iterator[Citation]:
    """All citations of a text, whose lines are joined; `page` is the one that sections mean before any is named."""
    found = [*_SECTIONS.finditer(text), *_RULE.finditer(text)]
    for match in sorted(found, key=re.Match.start):
        if rule := match.groupdict().get("rule"):
            point = int(match["point"] or 0) if rule.startswith("R-") else 0
            yield Citation(RULES[rule[0]], rule, point, *match.span())
            continue
        if match["page"]:
            page = PAGES[match["page"].lower()]
        elif _ELSEWHERE.search(text[: match.start()]):
            continue
        first = match.start("numbers")
        for number in re.finditer(_NUMBER, match["numbers"]):
            start = match.start() if number.start() == 0 else first + number.start()
            yield Citation(page, number[0], 0, start, first + number.end())


def identifier(place: str) -> str:
    """The identifier of a place in the built page."""
    return f"section-{place.replace('.', '-')}" if place[0].isdigit() else place.lower()


def named_by(title: str) -> list[str]:
    """Places that a heading is: the number that it begins with, the rules that it names."""
    number = re.match(rf"({_NUMBER})\.? ", title)
    rules = re.findall(r"\bR-[A-Z]{2,}", title) or re.findall(r"^C\d+(?=:)", title)
    return [*([number[1]] if number else []), *rules]


@cache
def places(page: str) -> dict[str, int]:
    """Sections and rules of a page's Markdown, each with the number of its last numbered point."""
    found: dict[str, int] = {}
    here: list[str] = []
    for line in (DOCS / f"{page}.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"#{2,} (.*)", line):
            here = named_by(heading[1])
            found.update(dict.fromkeys(here, 0))
        elif rule := re.match(r"(?:\* |\| )(R-[A-Z]{2,}(?:-\d+)?|D\d+)\b", line):
            found.setdefault(rule[1], 0)
        elif point := re.match(r"(\d+)\. ", line):
            found.update(dict.fromkeys(here, int(point[1])))
    return found


def problem(citation: Citation) -> str:
    """Why a citation leads nowhere, or ""."""
    if citation.page is None:
        return f"section {citation.place} of which page?"
    known = places(citation.page)
    if citation.place not in known:
        return f"{citation.page}.md has no {citation.place}"
    if citation.point > known[citation.place]:
        return f"{citation.place} has {known[citation.place]} points, none is number {citation.point}"
    return ""


def add_identifiers(app: "Sphinx", doctree: "nodes.document") -> None:
    """Give every place of a page its identifier."""
    from docutils import nodes

    if app.env.docname not in {*PAGES.values(), *RULES.values()}:
        return
    used: set[str] = set()

    def mark(node: "nodes.Element", names: list[str]) -> None:
        new = [name for name in map(identifier, names) if name not in used]
        node["ids"] += new
        used.update(new)

    for section in doctree.findall(nodes.section):
        mark(section, named_by(section[0].astext()))
    for item in doctree.findall(nodes.list_item):
        mark(item, re.findall(r"^R-[A-Z]{2,}(?:-\d+)?\b", item.astext()))
    for row in doctree.findall(nodes.row):
        mark(row, re.findall(r"^D\d+$", row[0].astext()))


def link_citations(app: "Sphinx", doctree: "nodes.document", docname: str) -> None:
    """Make links of the citations in a page, but those of a page's own rules in its headings and tables of rules."""
    from docutils import nodes

    kept = (nodes.literal, nodes.literal_block, nodes.reference, nodes.title, nodes.raw)
    here = docname if docname in PAGES.values() else None
    for text in [*doctree.findall(nodes.Text)]:
        parent = text.parent
        if isinstance(parent, kept) or any(isinstance(parent, kind) for kind in kept):
            continue
        pieces: list[Any] = []
        at = 0
        for citation in citations(str(text), here):
            if problem(citation) or citation.page is None or citation.start < at:
                continue
            target = app.builder.get_relative_uri(docname, citation.page)
            target = "" if citation.page == docname else target
            words = str(text)[citation.start : citation.end]
            pieces += [nodes.Text(str(text)[at : citation.start])]
            pieces += [
                nodes.reference("", words, refuri=f"{target}#{identifier(citation.place)}", internal=True)
            ]
            at = citation.end
        if pieces:
            parent.replace(text, [*pieces, nodes.Text(str(text)[at:])])


def setup(app: "Sphinx") -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", add_identifiers)
    app.connect("doctree-resolved", link_citations)
    return {"parallel_read_safe": True}
