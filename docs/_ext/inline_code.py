"""Marks short inline code, which the style sheet keeps on one line: `--nodes` never breaks after its hyphens."""

from docutils import nodes
from sphinx.application import Sphinx

#: longer code may break, so that it does not leave the page of a phone
SHORT = 28


def mark(app: Sphinx, doctree: nodes.document) -> None:
    """Give short literals a class."""
    for node in doctree.findall(nodes.literal):
        if len(node.astext()) <= SHORT:
            node["classes"].append("short")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", mark)
    return {"parallel_read_safe": True}
