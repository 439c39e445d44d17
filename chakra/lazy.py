"""Public names of a package, imported when they are first asked for (PEP 562), so that the package imports fast."""

import sys
from collections.abc import Mapping
from importlib import import_module


def lazy_names(package: str, homes: Mapping[str, str]) -> None:
    """Give a package public names that live in other modules: it gets functions ``__getattr__`` and ``__dir__``.

    A name is looked up once; from then on it is an attribute of the package like any other. Type checkers see
    nothing of it, so the package imports the same names under ``TYPE_CHECKING``.

    Parameters
    ----------
    package
        Import name of the package.
    homes
        Public name -> module that defines it.
    """
    module = sys.modules[package]

    def find(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(module, name, value)
        return value

    module.__getattr__ = find  # type: ignore[method-assign]
    module.__dir__ = lambda: sorted({*vars(module), *homes})  # type: ignore[method-assign]
