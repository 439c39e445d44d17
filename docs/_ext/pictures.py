"""Pictures: which follow the reader's light or dark theme by themselves, and a link to each at its full size."""

from pathlib import Path
from urllib.parse import quote

from docutils import nodes
from sphinx.application import Sphinx


def mark(app: Sphinx, doctree: nodes.document) -> None:
    """Class `adapts` for drawings with colours of their own for both themes; others get a light ground from the CSS."""
    for image in doctree.findall(nodes.image):
        path = Path(app.srcdir) / image["uri"]
        if path.suffix == ".svg" and path.is_file() and b"prefers-color-scheme" in path.read_bytes():
            image["classes"].append("adapts")


def link(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Let a picture that leads nowhere lead to itself: a page may show it smaller than it is."""
    up = "../" * page.count("/")
    for image in list(doctree.findall(nodes.image)):
        if image["uri"] not in app.env.images or isinstance(image.parent, nodes.reference):
            continue
        name = app.env.images[image["uri"]][1]
        reference = nodes.reference("", "", refuri=quote(f"{up}_images/{name}"), classes=["picture"])
        image.replace_self(reference)
        reference += image


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", mark, priority=900)  # after Sphinx has found the files
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True}
