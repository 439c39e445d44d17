"""Which modules are public, and what their names say of themselves; used by the site and by its tests."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

#: public modules; ``docs/api/`` has a page for each. The names are those of their ``__all__``.
MODULES = (
    "chakra",
    "chakra.et",
    "chakra.feeder",
    "chakra.builder",
    "chakra.replay",
    "chakra.replay.config",
    "chakra.replay.topologies",
    "chakra.replay.networks",
    "chakra.replay.collectives.steps",
    "chakra.replay.collectives.library",
    "chakra.converters.text",
    "chakra.converters.pytorch",
    "chakra.converters.astra_config",
    "chakra.converters.msccl",
    "chakra.generate",
    "chakra.rescale",
    "chakra.platforms",
    "chakra.calibrate",
    "chakra.sweep",
    "chakra.capture",
    "chakra.anonymize",
    "chakra.accuracy",
    "chakra.viz",
    "chakra.timeline",
    "chakra.report",
    "chakra.compare",
    "chakra.schemas.protolib",
    "chakra.errors",
)


def names_of(module: str) -> list[str]:
    """Public names of a module: its ``__all__`` without `__version__`, else the functions and classes that it defines."""
    loaded = importlib.import_module(module)
    if hasattr(loaded, "__all__"):
        return [name for name in loaded.__all__ if not name.startswith("__")]
    return [
        name
        for name, value in vars(loaded).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module
    ]


def publics() -> Iterator[tuple[str, str, Any]]:
    """Every public module, name and object."""
    for module in MODULES:
        loaded = importlib.import_module(module)
        for name in names_of(module):
            yield module, name, getattr(loaded, name)


def constant_doc(module: str, name: str) -> str:
    """The comment ``#:`` above a constant, or the text after it, in the module that defines it."""
    source = inspect.getsource(importlib.import_module(module))
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and any(a.name == name for a in node.names):
            return constant_doc(node.module, name)
    for here, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        targets = here.targets if isinstance(here, ast.Assign) else []
        if isinstance(here, ast.AnnAssign):
            targets = [here.target]
        if not any(isinstance(target, ast.Name) and target.id == name for target in targets):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            return inspect.cleandoc(str(after.value.value))
        lines = source.splitlines()[: here.lineno - 1]
        comment: list[str] = []
        while lines and lines[-1].startswith("#:"):
            comment.insert(0, lines.pop()[2:].strip())
        return "\n".join(comment)
    return ""
