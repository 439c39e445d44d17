"""The Python reference is made of docstrings: every public name has one, complete as far as a program can tell."""

import ast
import dataclasses
import enum
import importlib
import importlib.util
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("public_names", ROOT / "docs" / "_ext" / "public_names.py")
assert SPEC is not None
assert SPEC.loader is not None
NAMES = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(NAMES)
MODULES, constant_doc, publics = NAMES.MODULES, NAMES.constant_doc, NAMES.publics

#: constants
_PLAIN = (int, float, str, tuple, dict, frozenset)


def entries() -> dict[str, Any]:
    """Public functions and classes by full name, each once."""
    found: dict[int, tuple[str, Any]] = {}
    for module, name, value in publics():
        if not isinstance(value, _PLAIN) and (inspect.isclass(value) or inspect.isroutine(value)):
            found.setdefault(id(value), (f"{module}.{name}", value))
    return dict(sorted(found.values()))


def methods() -> dict[str, Any]:
    """Public methods and properties that public classes define themselves."""
    found = {}
    for name, value in entries().items():
        if not inspect.isclass(value):
            continue
        for member, raw in vars(value).items():
            if member.startswith("_") or not is_ours(raw):
                continue
            found[f"{name}.{member}"] = raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw
    return found


def is_ours(raw: Any) -> bool:
    """Whether a member of a class is a function or property written in it."""
    return isinstance(raw, (property, classmethod, staticmethod)) or inspect.isfunction(raw)


def section(doc: str, *titles: str) -> str:
    """The text of the sections of a NumPy docstring that have one of these titles; empty if there is none."""
    parts = re.split(r"^(\w[\w ]*)\n-{3,}\n", doc, flags=re.MULTILINE)
    return "\n".join(parts[k + 1] for k in range(1, len(parts) - 1, 2) if parts[k] in titles)


def described(doc: str, *titles: str) -> set[str]:
    """Names that a section describes: the heads of its entries, `a, b` or `a : type`."""
    text = section(doc, *titles)
    heads = [line.partition(" : ")[0] for line in text.splitlines() if line and not line.startswith(" ")]
    return {name.strip(" *`:") for head in heads for name in head.split(",")}


def parameters(function: Any) -> set[str]:
    """Names of the parameters that a caller gives."""
    names = list(inspect.signature(function).parameters)
    return {name for name in names if name not in ("self", "cls") and not name.startswith("_")}


def raised(function: Any) -> set[str]:
    """Errors of ours that a function raises itself, by the names in its source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError):
        return set()
    found = {
        node.exc.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
    }
    errors = importlib.import_module("chakra.errors")
    return {name for name in found if hasattr(errors, name)}


def unsaid(function: Any, doc: str) -> set[str]:
    """Errors that a function raises itself and does not list; the base of all covers every one."""
    told = described(doc, "Raises")
    return set() if "ChakraError" in told else raised(function) - told


ENTRIES = entries()
FUNCTIONS = {name: value for name, value in ENTRIES.items() if inspect.isroutine(value)}
CLASSES = {name: value for name, value in ENTRIES.items() if inspect.isclass(value)}
METHODS = methods()


@pytest.mark.parametrize("module", MODULES)
def test_a_public_module_says_what_it_is_and_what_it_offers(module: str) -> None:
    loaded = importlib.import_module(module)
    assert (loaded.__doc__ or "").strip()
    assert sorted(set(loaded.__all__)) == sorted(loaded.__all__)
    for name in loaded.__all__:
        assert hasattr(loaded, name), name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_describes_its_parameters_and_errors(name: str) -> None:
    doc = inspect.getdoc(FUNCTIONS[name]) or ""
    assert doc.splitlines()[:1], "no docstring"
    assert parameters(FUNCTIONS[name]) - described(doc, "Parameters", "Other Parameters") == set()
    assert unsaid(FUNCTIONS[name], doc) == set()


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_describes_what_it_holds_or_takes(name: str) -> None:
    value = CLASSES[name]
    doc = inspect.cleandoc(value.__dict__.get("__doc__") or "")
    assert doc, "no docstring"
    assert not doc.startswith(f"{value.__name__}("), "the signature that a dataclass writes is no docstring"
    if issubclass(value, (enum.Enum, Exception)) or is_protocol(value):
        return
    told = described(doc, "Parameters", "Attributes", "Other Parameters") | commented(value)
    for base in value.__mro__[1:-1]:
        told |= described(inspect.cleandoc(base.__dict__.get("__doc__") or ""), "Parameters", "Attributes")
        told |= commented(base)
    if dataclasses.is_dataclass(value):
        wanted = {field.name for field in dataclasses.fields(value) if not field.name.startswith("_")}
    else:
        wanted = parameters(value.__init__) if "__init__" in vars(value) else set()
    assert wanted - told == set()


def is_protocol(value: type) -> bool:
    """Whether a class only says what others must have."""
    return bool(getattr(value, "_is_protocol", False))


def commented(value: type) -> set[str]:
    """Fields of a class that carry a comment ``#:`` or a text after them."""
    try:
        lines, _ = inspect.getsourcelines(value)
    except (OSError, TypeError):
        return set()
    names = set()
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        found = re.match(r"\s+(\w+)\s*(?::[^=]|=)", line)
        if found and (before.strip().startswith("#:") or "#:" in line or after.strip().startswith('"""')):
            names.add(found[1])
    return names


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_docstring(name: str) -> None:
    method = METHODS[name]
    doc = inspect.getdoc(method) or ""
    assert doc, "no docstring"
    if isinstance(method, property):
        return
    if section(doc, "Parameters"):  # if it lists parameters, then all of them
        assert parameters(method) - described(doc, "Parameters") == set()
    assert unsaid(method, doc) == set()


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, name, value in publics() if isinstance(value, _PLAIN)]
)
def test_a_constant_carries_a_comment(module: str, name: str) -> None:
    assert constant_doc(module, name)


def test_the_check_finds_what_is_missing() -> None:
    """Its own parts, on a docstring that lacks a parameter and an error."""
    doc = "What it does.\n\nParameters\n----------\na, b : int\n    Two.\nc\n    One.\n\n"
    doc += "Raises\n------\nTraceError\n    Ever."
    assert described(doc, "Parameters") == {"a", "b", "c"}
    assert described(doc, "Raises") == {"TraceError"}
    assert described("What it does.", "Parameters") == set()
