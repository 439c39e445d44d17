"""The directive ``chakra-module``: the reference of a public module, made from its ``__all__`` by autodoc.

Every name is described once, on the page of the module that is its home: the one that it is made in if that is public,
else the first that offers it. Other modules that offer it point there.
"""

import dataclasses
import enum
import importlib
import inspect
import re
from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from public_names import MODULES, constant_doc, names_of
from sphinx import addnodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import stringify_signature
from sphinx.util.nodes import make_refnode

#: `name` of docstrings, which reStructuredText would set in italics
_SINGLE = re.compile(r"(?<![`:\w])`([^`\n]+)`(?![`_])")
#: texts of properties between two steps of their processing
_TEXTS: dict[str, list[str]] = {}


def load_names(app: Sphinx) -> None:
    """Bind names that a module imports only when they are asked for: autodoc looks at what a module holds."""
    for module in MODULES:
        loaded = importlib.import_module(module)
        for name in names_of(module):
            setattr(loaded, name, getattr(loaded, name))


def home_of(module: str, name: str) -> str:
    """The public module whose page describes what `module` offers as `name`."""
    value = getattr(importlib.import_module(module), name)
    if is_constant(value):
        return module
    made_in = f"{getattr(value, '__module__', module)}."
    offering = [
        m for m in MODULES if any(getattr(importlib.import_module(m), n) is value for n in names_of(m))
    ]
    inside = [m for m in offering if made_in.startswith(f"{m}.")]
    return max(inside, key=len) if inside else offering[0]


def page_of(module: str) -> str:
    """Name of the page of a module beside the others."""
    return module.rpartition(".")[2]


def is_constant(value: Any) -> bool:
    """Whether a public name is a value, not a function or class."""
    return not (inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value))


class ChakraModule(SphinxDirective):
    """Writes the reference of one module; belongs into a block of reStructuredText."""

    required_arguments = 1
    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """The nodes of the reference."""
        module = self.arguments[0]
        loaded = importlib.import_module(module)
        lines = [f".. automodule:: {module}", "   :no-members:", ""]
        elsewhere = []
        for name in names_of(module):
            value = getattr(loaded, name)
            home = home_of(module, name)
            if home != module:
                elsewhere.append(f":py:obj:`{name} <{home}.{name}>` of :doc:`{home} <{page_of(home)}>`")
            elif inspect.isclass(value):
                lines += [f".. autoclass:: {module}.{name}", "   :members:", ""]
                if issubclass(value, Exception):
                    lines.insert(len(lines) - 1, "   :show-inheritance:")
            elif inspect.isroutine(value):
                lines += [f".. autofunction:: {module}.{name}", ""]
            else:
                lines += [f".. autodata:: {module}.{name}", "   :no-value:", ""]
        if elsewhere:
            lines += ["Described with the modules that they come from:", ""]
            lines += [f"- {item}" for item in elsewhere] + [""]
        holder = nodes.Element()
        self.state.nested_parse(StringList(lines, f"<{module}>"), self.content_offset, holder)
        return holder.children


def complete(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Give constants the comment that stands above them, and enumerations a list of their values."""
    module, _, short = name.rpartition(".")
    if what == "data" and module in MODULES:
        lines[:] = [*constant_doc(module, short).splitlines(), ""]
    if what == "class" and isinstance(obj, type) and issubclass(obj, enum.Enum):
        values = ", ".join(f"``{member.name}`` = ``{member.value!r}``" for member in obj)
        lines += ["", f"Values: {values}.", ""]


def remember(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep the text of properties: napoleon takes what stands before a colon in the first line for a type."""
    lines[:] = [_SINGLE.sub(r"``\1``", line) for line in lines]
    if what == "class":
        for base in obj.__mro__[1:]:  # fields of a base that is not public are the class's own to its users
            if base.__module__.startswith("chakra.") and not is_offered(base):
                _, _, fields = inspect.cleandoc(base.__doc__ or "").partition("\nAttributes\n")
                lines += ["", "Attributes", *fields.splitlines(), ""] if fields else []
    if what in ("attribute", "property") and not any(line.startswith("---") for line in lines):
        _TEXTS[name] = list(lines)


def restore(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Put it back after napoleon."""
    if name in _TEXTS:
        lines[:] = _TEXTS.pop(name)
    lines[:] = [line for line in lines if not (line.startswith(":vartype") and "ndarray[" in line)]
    # "a, b" would be read as a type and a name
    lines[:] = [
        re.sub(r"^:ivar [^:]+:", lambda m: f":ivar {m[0][6:].replace(' ', '')}", line) for line in lines
    ]


def shorter(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, returns: str) -> Any:
    """The signature of a class, if it helps.

    That of an enumeration, and of a class which is made by functions, is left out: their parameters are no public
    types. Of a class that has another's fields, too, those are left to the other.
    """
    if what != "class" or not signature:
        return None
    if issubclass(obj, enum.Enum):
        return "", returns
    own = inspect.signature(obj)
    hints = [p.annotation for p in own.parameters.values()]
    if any(inspect.isclass(h) and h.__module__.startswith("chakra.") and not is_offered(h) for h in hints):
        return "", returns
    for base in obj.__mro__[1:]:
        if is_offered(base) and dataclasses.is_dataclass(base):
            taken = {field.name for field in dataclasses.fields(base)}
            rest = [p for p in own.parameters.values() if p.name not in taken]
            rest.append(inspect.Parameter(base.__name__.lower(), inspect.Parameter.VAR_KEYWORD))
            return stringify_signature(
                own.replace(parameters=rest, return_annotation=inspect.Signature.empty),
                unqualified_typehints=True,
            ), returns
    return None


def is_offered(value: Any) -> bool:
    """Whether a class is public."""
    return any(getattr(importlib.import_module(m), n) is value for m in MODULES for n in names_of(m))


def simplify(app: Sphinx, doctree: nodes.document) -> None:
    """Attributes for Variables, `a, b` for names that share a description, a dash before the description."""
    for node in doctree.findall(nodes.field_name):
        if node.astext() == "Variables":
            node.children = [nodes.Text("Attributes")]
    for node in doctree.findall(addnodes.literal_strong):
        if "," in (text := node.astext()):
            node.children = [nodes.Text(", ".join(text.split(",")))]
    for field in doctree.findall(nodes.field_body):
        for text in list(field.findall(nodes.Text)):
            if text.startswith(" -- "):
                text.parent.replace(text, nodes.Text(" \N{EN DASH} " + text.removeprefix(" -- ")))


def shorten_arrays(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Write `ndarray[int64]` for the annotation of an array; its shape is in the text."""
    array = re.compile(r"ndarray\[tuple\[(?:Any|int), \.\.\.\], dtype\[(\w+)\]\]")
    for kind in (addnodes.desc_annotation, addnodes.desc_returns, addnodes.desc_sig_name):
        for node in doctree.findall(kind):
            text = "".join(child.astext() for child in node.children)
            if "ndarray[tuple" in text:
                node.children = []
                node += nodes.Text(array.sub(r"ndarray[\1]", text))


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Node | None:
    """Where a name of ours leads that is not that of a page's entry.

    A name by the module that it is made in leads to its public one. A type behind the public modules has no entry:
    its name is shown as text. A name that does not exist is left alone, and reported.
    """
    target = str(node.get("reftarget", ""))
    if node.get("refdomain") != "py" or not target.startswith("chakra."):
        return None
    module, _, name = target.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return None
    for public in MODULES:
        for other in names_of(public):
            if getattr(importlib.import_module(public), other) is value and not is_constant(value):
                full = f"{home_of(public, other)}.{other}"
                entry = env.domains.python_domain.objects.get(full)
                if entry:
                    return make_refnode(
                        app.builder, node["refdoc"], entry.docname, entry.node_id, content, full
                    )
    return content


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("chakra-module", ChakraModule)
    app.connect("builder-inited", load_names)
    app.connect("autodoc-process-docstring", complete)
    app.connect("autodoc-process-docstring", remember, priority=100)  # before napoleon, whose priority is 500
    app.connect("autodoc-process-docstring", restore, priority=900)
    app.connect("autodoc-process-signature", shorter)
    app.connect("doctree-read", simplify)
    app.connect("doctree-resolved", shorten_arrays)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True}
