"""Compiling kernels: the one place where numba is imported and configured.

A *kernel module* is plain Python over arrays and scalars. It runs unchanged as Python: that is the path for small
inputs (starting numba costs about half a second) and the plain version that tests compare with the compiled code.
`compiled(module)` returns the same module compiled: a namespace whose functions are numba dispatchers.

numba stamps a cache entry with the file of the kernel only, not with the files of the functions it calls (numba
issues 1833 and 9304), so an edited callee in another file leaves stale callers behind. Therefore the cache folder's name
carries a hash of the module's source and of every module of its package that it uses; a kernel calls only functions of
its own module or of those.
"""

import ast
import atexit
import hashlib
import importlib.util
import os
import shutil
import sys
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from chakra.jit_unit import pipelines

#: what a user is told who waits for the compiler
COMPILING = "compiling kernels (once, some ten seconds; `chakra warmup` does it ahead)"


def _tell_a_session() -> None:
    """Say it to a person at a prompt or in a notebook; a program's users have its own messages."""
    shell = sys.modules.get("IPython")
    notebook = shell is not None and shell.get_ipython() is not None
    if (notebook or hasattr(sys, "ps1")) and sys.stderr is not None:
        print(f"chakra: {COMPILING}", file=sys.stderr)  # noqa: T201


#: seconds that loading compiled code takes, from the cache and from the compiler
CHANGE_FROM_S = (0.5, 8.0)

#: called before a kernel module is compiled that is not in the cache, once a process; a command line tells its user
before_compiling: Callable[[], None] | None = _tell_a_session
_told = False


def _wanted_folder(source: bytes) -> Path:
    """Folder in which the compiled code of a module with this source text is looked for."""
    root = os.environ.get("CHAKRA_CACHE_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "chakra"
    )
    return Path(root) / f"kernels-{hashlib.sha256(source).hexdigest()[:16]}"


def cache_folder(source: bytes) -> str:
    """Folder for the compiled code of a module with this source text, made if needed; temporary if it can't be."""
    path = _wanted_folder(source)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(path)
    except OSError:
        import tempfile

        path = Path(tempfile.mkdtemp(prefix="chakra-kernels-"))
        atexit.register(shutil.rmtree, path, ignore_errors=True)
    return str(path)


def _is_loaded(module_name: str) -> bool:
    """Whether this process has compiled code of a module."""
    return f"{module_name}__compiled" in sys.modules


def is_cached(module_name: str) -> bool:
    """Whether compiled code of a module lies in the cache, so that using it costs no compilation."""
    return any(_wanted_folder(kernel_sources(module_name)[0]).rglob("*.nbi"))


def worth_compiling(
    module_name: str, loaded_from: int, cached_from: int, compiled_from: int, work: int
) -> bool:
    """Whether `work` (in units of the caller) pays for compiled code.

    The three bounds are for code that this process has loaded, code that lies in the cache, and code that must be
    compiled first.
    """
    if work < loaded_from:
        return False
    if work >= compiled_from or _is_loaded(module_name):
        return True
    return work >= cached_from and is_cached(module_name)


def worth_changing(module_name: str, seconds: float) -> bool:
    """Whether plain code that has run for so long goes on compiled: once it has taken as long as it takes to get that.

    An estimate of the work may be too low. With this rule a run takes at most twice what the better choice would have
    taken, whatever is still to come (the rule of the ski rental problem).
    """
    of_cached, of_compiling = CHANGE_FROM_S
    if seconds >= of_compiling:
        return True
    return seconds >= of_cached and (_is_loaded(module_name) or is_cached(module_name))


def compiled(module_name: str, *, boundscheck: bool = False) -> Any:
    """Compile a kernel module; returns a namespace with the dispatchers of its entry points.

    ``boundscheck`` is for kernels that read files from outside: an index past a buffer raises IndexError.

    The module is executed a second time with its functions jitted as they are defined, so that calls between them
    are calls between compiled functions while the imported module stays plain Python. The module names its
    ``ENTRY_POINTS`` (without the name: all its functions); only those can be called and are kept in the cache, and
    what they call is compiled as a part of them (see `chakra.jit_unit`).
    """
    global _told
    if before_compiling is not None and not _told and not _is_loaded(module_name):
        folder = cache_folder(kernel_sources(module_name)[0] + b"boundscheck" * boundscheck)
        if not any(Path(folder).rglob("*.nbi")):
            _told = True
            before_compiling()
    return _compiled(module_name, boundscheck=boundscheck)


@cache
def _compiled(module_name: str, *, boundscheck: bool) -> Any:
    twin = vars(_compiled_twin(module_name, boundscheck=boundscheck))
    names = twin.get("ENTRY_POINTS")
    if names is None:
        names = [name for name, value in twin.items() if hasattr(value, "py_func")]
    return types.SimpleNamespace(**{name: twin[name] for name in names})


@cache
def _compiled_twin(module_name: str, *, boundscheck: bool) -> types.ModuleType:
    """A module executed again with its functions compiled when they are first called."""
    import numba  # type: ignore[import-untyped,unused-ignore]

    sources, origin = kernel_sources(module_name)
    package = module_name.rpartition(".")[0]
    twin = types.ModuleType(f"{module_name}__compiled")
    twin.__file__ = origin
    sys.modules[twin.__name__] = twin
    exec(compile(Path(origin).read_bytes(), origin, "exec"), twin.__dict__)
    for name, value in list(vars(twin).items()):
        where = value.__module__ if isinstance(value, types.FunctionType) else twin.__name__
        if where != twin.__name__ and where.rpartition(".")[0] == package:
            callee = _compiled_twin(where, boundscheck=boundscheck)
            vars(twin)[name] = getattr(callee, value.__name__)
    config: Any = numba.config
    saved = config.CACHE_DIR
    config.CACHE_DIR = cache_folder(sources + b"boundscheck" * boundscheck)
    try:
        entries = vars(twin).get("ENTRY_POINTS")
        # without allocations numba needs no reference counts, whose atomic operations cost more than short functions
        counted: dict[str, Any] = {} if vars(twin).get("ALLOCATES", True) else {"_nrt": False}
        njit: Any = numba.njit
        units = pipelines()
        for name, value in list(vars(twin).items()):
            if isinstance(value, types.FunctionType) and value.__module__ == twin.__name__:
                entry = entries is None or name in entries
                if units is not None:
                    counted["pipeline_class"] = units.whole if entry else units.part
                jitted = njit(
                    cache=entry,
                    nogil=True,
                    error_model="numpy",
                    boundscheck=boundscheck,
                    **counted,
                )(value)
                _compile_once(jitted)
                vars(twin)[name] = jitted
    finally:
        config.CACHE_DIR = saved
    return twin


def _compile_once(dispatcher: Any) -> None:
    """Let calls with constants share one compiled function.

    Between compiled functions numba makes one version of the callee for each constant argument: tens of versions of a
    helper that takes a code, and most of the compile time. Where numba has changed inside, it makes them.
    """
    from numba.core import types as numba_types

    plain: Any = getattr(numba_types, "unliteral", None)
    template = getattr(dispatcher, "get_call_template", None)
    if plain is None or template is None:
        return
    dispatcher.get_call_template = lambda args, kws: template([plain(a) for a in args], kws)


@cache
def kernel_sources(module_name: str) -> tuple[bytes, str]:
    """Text of a kernel module and of the modules of its package that it imports from, and the module's file.

    Behind the text stand the file's path, time and size: numba takes compiled code for that of this file only, so that
    what another installation has compiled is not in the cache for this one.
    """
    sources: dict[str, bytes] = {}
    waiting = [module_name]
    while waiting:
        name = waiting.pop()
        if name not in sources:
            sources[name], _, imported = _source(name)
            waiting += imported
    origin = _source(module_name)[1]
    found = os.stat(origin)
    stamp = f"\0{origin}\0{found.st_mtime_ns}\0{found.st_size}".encode(errors="surrogateescape")
    return b"".join(sources[name] for name in sorted(sources)) + stamp, origin


@cache
def _source(module_name: str) -> tuple[bytes, str, list[str]]:
    """Text and file of a module, and the modules of its package that it imports from."""
    spec = importlib.util.find_spec(module_name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module_name)
    text = Path(spec.origin).read_bytes()
    package = module_name.rpartition(".")[0]
    imported: list[str] = []
    for node in ast.parse(text).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.module == package:
            imported += [f"{package}.{alias.name}" for alias in node.names]
        elif (node.module or "").rpartition(".")[0] == package:
            imported.append(str(node.module))
    return text, spec.origin, imported
