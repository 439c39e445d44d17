"""Inline code that names a command, a public module or a public name leads to its reference.

`chakra replay` leads to the page of the command, `chakra convert text` to its section, `chakra.replay.simulate` to its
entry, and on pages of the Python reference also `ReplayResult` and `read_trace`. Code in headings, in links and in the
entry that it names stays as it is.
"""

import importlib
import re

import click
from command_reference import find
from docutils import nodes
from public_api import home_of, is_constant, page_of
from public_names import MODULES, names_of
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

_COMMAND = re.compile(r"chakra ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?\Z")
_DOTTED = re.compile(r"(chakra(?:\.\w+)*)\.(\w+)(?:\(\.*\))?\Z")
#: names that are hardly another word (of a parameter, say): with a capital inside, an underscore, long, or called
_SHORT = re.compile(r"([A-Z][a-z]\w*[A-Z]\w*|[a-z]+_\w+|[a-z]{8,}|[a-z]\w*(?=\(\)))(?:\(\))?\Z")


def load_homes(app: Sphinx) -> None:
    """Full name of the entry of every public name by its full and by its short name; ambiguous ones are left out."""
    full: dict[str, str] = {}
    short: dict[str, set[str]] = {}
    for module in MODULES:
        for name in names_of(module):
            home = f"{home_of(module, name)}.{name}"
            full[f"{module}.{name}"] = home
            if not is_constant(getattr(importlib.import_module(module), name)):
                short.setdefault(name, set()).add(home)
    app.chakra_full = full  # type: ignore[attr-defined]
    app.chakra_short = {name: homes.pop() for name, homes in short.items() if len(homes) == 1}  # type: ignore[attr-defined]


def connect(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Put links around inline code."""
    for node in list(doctree.findall(nodes.literal)):
        if not skipped(node) and (link := link_of(app, page, node)) is not None:
            node.replace_self(link)


def skipped(node: nodes.literal) -> bool:
    """Whether the code stands where no link belongs."""
    above = node.parent
    while above is not None:
        if isinstance(above, (nodes.reference, nodes.title, addnodes.desc_signature)):
            return True
        above = above.parent
    return False


def link_of(app: Sphinx, page: str, node: nodes.literal) -> nodes.reference | None:
    """The link for one piece of code; None if it names nothing of ours, or the very place where it stands."""
    text = node.astext()
    if (found := _COMMAND.match(text)) and (target := f"cli/{found[1]}") in app.env.found_docs:
        place = text.replace(" ", "-") if found[2] in sub_commands(found[1]) else ""
        return None if target == page else make_refnode(app.builder, page, target, place, node.deepcopy())
    if text in MODULES and text != "chakra":
        target = f"api/{page_of(text)}"
        return None if target == page else make_refnode(app.builder, page, target, "", node.deepcopy())
    name = None
    if found := _DOTTED.match(text):
        name = app.chakra_full.get(f"{found[1]}.{found[2]}")  # type: ignore[attr-defined]
    elif page.startswith("api/") and (found := _SHORT.match(text)):
        name = app.chakra_short.get(found[1])  # type: ignore[attr-defined]
    entry = app.env.domains.python_domain.objects.get(name) if name else None
    if entry is None or is_inside(node, entry.node_id):
        return None
    return make_refnode(app.builder, page, entry.docname, entry.node_id, node.deepcopy(), name)


def sub_commands(name: str) -> list[str]:
    """Names of the sub-commands of a command."""
    command, context = find(name)
    return command.list_commands(context) if isinstance(command, click.Group) else []


def is_inside(node: nodes.Node, entry: str) -> bool:
    """Whether a node belongs to an entry of the reference."""
    above = node.parent
    while above is not None:
        if isinstance(above, addnodes.desc) and above.children and entry in above.children[0].get("ids", ()):
            return True
        above = above.parent
    return False


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", load_homes, priority=900)  # after public_api has loaded the names
    app.connect("doctree-resolved", connect)
    return {"parallel_read_safe": True}
