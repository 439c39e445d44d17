"""Import from a checkout of the repository: there, three subpackages lie beside this folder instead of in it.

Python run in the repository's root takes `chakra` from there, whatever is installed, since the current folder comes
first on `sys.path`; without this the installed package's own subprocesses would not start there either.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

#: import name -> folder of the repository (the same table as in setup.py)
SIBLINGS = {"chakra.replay": "replay", "chakra.converters": "converters", "chakra.schemas": "schemas"}


class _SiblingFinder:
    """Finds the subpackages of `SIBLINGS` in the repository's root; `sys.meta_path` asks it last."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The subpackage's spec; None for any other module."""
        if name not in SIBLINGS:
            return None
        folder = self._root / SIBLINGS[name]
        file = folder / "__init__.py"
        if not file.is_file():
            return None
        return spec_from_file_location(name, file, submodule_search_locations=[str(folder)])


def find_siblings(package: Path) -> None:
    """Make the subpackages importable if `package`, the folder of `chakra`, is that of a checkout."""
    if not (package / "schemas").is_dir():
        sys.meta_path.append(_SiblingFinder(package.parent))
