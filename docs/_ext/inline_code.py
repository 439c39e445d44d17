"""Marks inline code by how it may break: `--nodes` never does after its hyphens, a long key does."""

from docutils import nodes
from sphinx.application import Sphinx

#: code up to so many characters stays on one line, in the text and in a table
SHORT, SHORT_IN_TABLE = 28, 20


def mark(app: Sphinx, doctree: nodes.document) -> None:
    """Class `short`: one line; class `words`: breaks between words only."""
    cells = {id(code) for entry in doctree.findall(nodes.entry) for code in entry.findall(nodes.literal)}
    for node in doctree.findall(nodes.literal):
        text = node.astext()
        if len(text) <= (SHORT_IN_TABLE if id(node) in cells else SHORT):
            node["classes"].append("short")
        elif " " in text and max(len(word) for word in text.split()) <= SHORT:
            node["classes"].append("words")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", mark)
    return {"parallel_read_safe": True}
