"""Compiling kernels: the one place where numba is imported and configured.

A *kernel module* is plain Python over arrays and scalars. It runs unchanged as Python: that is the path for small
inputs (starting numba costs about half a second) and the twin that tests compare with the compiled code.
`compiled(module)` returns the same module compiled: a namespace whose functions are numba dispatchers.

numba stamps a cache entry with the file of the kernel only, not with the files of the functions it calls (numba
issues 1833 and 9304), so an edited callee in another file leaves stale callers behind. Therefore a kernel calls only
functions of its own module, and the cache folder's name carries a hash of that module's source.
"""

import hashlib
import os
import sys
import tempfile
import types
from functools import cache
from pathlib import Path
from typing import Any


def cache_folder(source: bytes) -> str:
    """Folder for the compiled code of a module with this source text; a temporary one if no cache can be written."""
    root = os.environ.get("CHAKRA_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "chakra"
    )
    path = Path(root) / f"kernels-{hashlib.sha256(source).hexdigest()[:16]}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(path)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="chakra-kernels-"))
    return str(path)


@cache
def compiled(module_name: str, *, boundscheck: bool = False) -> Any:
    """Compile every public and private function of a kernel module; returns a namespace with the dispatchers.

    ``boundscheck`` is for kernels that read files from outside: an index past a buffer raises IndexError.

    The module is executed a second time with its functions jitted as they are defined, so that calls between them
    are calls between compiled functions while the imported module stays plain Python. If the module names its
    ``ENTRY_POINTS``, only those are kept in the cache: what they call is part of them, and leaving it out halves the
    time to compile.
    """
    import importlib.util

    import numba  # type: ignore[import-untyped,unused-ignore]

    spec = importlib.util.find_spec(module_name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module_name)
    source = Path(spec.origin).read_bytes()
    twin = types.ModuleType(f"{module_name}__compiled")
    twin.__file__ = spec.origin
    sys.modules[twin.__name__] = twin
    exec(compile(source, spec.origin, "exec"), twin.__dict__)
    saved = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = cache_folder(source + b"boundscheck" * boundscheck)
    try:
        entries = vars(twin).get("ENTRY_POINTS")
        for name, value in list(vars(twin).items()):
            if isinstance(value, types.FunctionType) and value.__module__ == twin.__name__:
                vars(twin)[name] = numba.njit(
                    cache=entries is None or name in entries,
                    nogil=True,
                    error_model="numpy",
                    boundscheck=boundscheck,
                )(value)
    finally:
        numba.config.CACHE_DIR = saved
    return twin
