"""Links from pages to files that are not pages: shipped with the site, so that they lead somewhere offline.

A file under ``docs/`` (pictures, timelines, reports of the gallery) is copied to the same place in the site. A file
elsewhere in the repository becomes a page ``files/PATH.html`` with its text; a binary one is copied to ``files/PATH``;
a folder becomes a page that lists it. A link to nothing stays as it is, for the builder to complain about.
"""

import os
import shutil
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
#: a page shows at most so much of a text file, in bytes
SHOWN_BYTES = 200_000


def target_of(destination: str, page: Path) -> Path | None:
    """The file or folder of the repository that a link from a page means; None if there is none."""
    path, _, _ = destination.partition("#")
    if not path or path.startswith("/") or ":" in path:
        return None
    target = (page.parent / path).resolve()
    return target if target.exists() and target.is_relative_to(ROOT) else None


def is_text(path: Path) -> bool:
    """Whether a file can be shown as text."""
    head = path.read_bytes()[:SHOWN_BYTES]
    if b"\0" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3 and len(head) == SHOWN_BYTES
    return True


def place_of(target: Path) -> str:
    """Where a file or folder is found in the site, from its root."""
    if target.is_relative_to(DOCS) and target.is_file():
        return target.relative_to(DOCS).as_posix()
    path = target.relative_to(ROOT).as_posix()
    if target.is_dir():
        return f"files/{path}/index.html"
    return f"files/{path}.html" if is_text(target) else f"files/{path}"


def mend_links(app: Sphinx, doctree: nodes.document) -> None:
    """Point links to files and folders at their places in the site, and remember to ship them."""
    env = app.env
    page = Path(env.doc2path(env.docname))
    shipped: set[str] = env.repository_files  # type: ignore[attr-defined]
    found = list(doctree.findall(addnodes.download_reference))
    found += [node for node in doctree.findall(addnodes.pending_xref) if node.get("reftype") == "myst"]
    for node in found:
        target = target_of(node["reftarget"], page)
        if target is None or env.path2doc(target) in env.found_docs:
            continue
        place = place_of(target)
        shipped.add(target.relative_to(ROOT).as_posix())
        up = "../" * env.docname.count("/")
        link = nodes.reference("", "", refuri=quote(up + place), classes=["repository-file"])
        link += [child.deepcopy() for child in node.children]
        node.replace_self(link)


def refuse_markup(app: Sphinx, doctree: nodes.document) -> None:
    """Warn of HTML in a page: mostly a `<word>` that was meant to be read, and vanishes."""
    for node in doctree.findall(nodes.raw):
        text = node.astext().strip()
        if node.get("format") == "html" and not text.startswith("<!--"):
            logger.warning("HTML in a page: %s (write it as code)", text, location=node, type="markup")


def start(app: Sphinx) -> None:
    """An empty list of files; the site is always built from nothing."""
    app.env.repository_files = set()  # type: ignore[attr-defined]


def file_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Pages for text files and folders; other files are copied as they are."""
    waiting = sorted(app.env.repository_files)  # type: ignore[attr-defined]
    done = set()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        source = ROOT / path
        place = place_of(source)
        if source.is_dir():
            body, more = folder_body(source)
            waiting += more
        elif place.endswith(f"{path}.html"):
            body = text_body(source)
        else:
            goal = Path(app.outdir) / place
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, goal)
            continue
        yield place.removesuffix(".html"), {"title": path, "body": body, "path": path}, "file.html"


def folder_body(folder: Path) -> tuple[str, list[str]]:
    """A list of the files of a folder, and the paths that it links to."""
    items, paths = [], []
    here = place_of(folder)
    for entry in sorted(folder.iterdir(), key=lambda entry: (entry.is_file(), entry.name)):
        if entry.name.startswith((".", "__pycache__")):
            continue
        paths.append(entry.relative_to(ROOT).as_posix())
        link = quote(os.path.relpath(place_of(entry), os.path.dirname(here)))
        items.append(f'<li><a href="{link}">{escape(entry.name)}{"/" if entry.is_dir() else ""}</a></li>')
    return f"<ul>{''.join(items)}</ul>", paths


def text_body(path: Path) -> str:
    """The text of a file with its syntax coloured."""
    text = path.read_bytes()[:SHOWN_BYTES].decode("utf-8", errors="ignore")
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    note = f"<p>The first {SHOWN_BYTES:,} bytes.</p>" if path.stat().st_size > SHOWN_BYTES else ""
    return f'{note}<div class="highlight-default notranslate">{highlight(text, lexer, HtmlFormatter())}</div>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", start)
    app.connect("doctree-read", mend_links, priority=100)  # before Sphinx collects downloads
    app.connect("doctree-read", refuse_markup)
    app.connect("html-collect-pages", file_pages)
    return {"parallel_read_safe": False}
