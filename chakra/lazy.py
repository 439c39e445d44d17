"""Public names of a package, imported when they are first asked for (PEP 562), so that the package imports fast."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package whose public names live in other modules.

    A name is looked up once; from then on it is an attribute of the package like any other. Type checkers see
    neither function, so the package imports the same names under ``TYPE_CHECKING``.

    Parameters
    ----------
    package
        Import name of the package.
    homes
        Public name -> module that defines it.
    """

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return find, names
