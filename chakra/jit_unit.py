"""Compiling a kernel and everything that it calls as one unit, in about a third of the time numba takes by itself.

numba compiles each function as a library of its own: it links in all that the function calls, optimizes the whole and
makes machine code of it. A helper ten calls deep is so optimized and emitted ten times, and most of that is thrown
away, because only the kernel's entry point is ever called from Python. Here a *part* (a function that only kernels
call) is typed and lowered to LLVM code and no more; a *whole* (an entry point) links the code of all parts below it,
optimizes once and emits machine code once. Two smaller things help as much: what an operator on numbers and arrays
returns is worked out once a process, not at each of thousands of places, and Python's cyclic garbage collector does
not search numba's growing heap again and again.

All of this uses numba's documented way to replace compiler passes (``pipeline_class``), but derives from classes that
are not documented. Therefore `pipelines` gives nothing, with a warning, where they are not as expected; kernels are
compiled as numba does it then, slower and with the same results.
"""

import contextlib
import importlib
import signal
import threading
import types
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from chakra.garbage import collecting_little

#: a class or an object of numba, which states no types
Numba: TypeAlias = Any

#: the newest numba (major, minor) this was tried with; a newer one has to compile and run an example first
TRIED = (0, 68)

#: passes of numba for what no kernel has: closures, ``with``, unrolled tuples, branches on None or on a type, raised
#: texts that are computed, arithmetic on whole arrays, diagnostics; a tenth of the time
UNNEEDED = frozenset(
    {
        "WithLifting",
        "InlineClosureLikes",
        "RewriteSemanticConstants",
        "DeadBranchPrune",
        "RewriteDynamicRaises",
        "MakeFunctionToJitFunction",
        "InlineInlinables",
        "FindLiterallyCalls",
        "LiteralUnroll",
        "LiteralPropagationSubPipelinePass",
        "NopythonRewrites",
        "AnnotateTypes",
        "DumpParforDiagnostics",
        "NoPythonSupportedFeatureValidation",
    }
)


class Pipelines(NamedTuple):
    """Compiler classes for ``numba.njit(pipeline_class=...)``."""

    part: Numba
    whole: Numba


@cache
def pipelines() -> Pipelines | None:
    """The compilers of parts and wholes, or None where this numba has no room for them."""
    import numba  # type: ignore[import-untyped,unused-ignore]

    try:
        made = _make()
        if tuple(int(word) for word in numba.__version__.split(".")[:2]) > TRIED:
            try_out(made)
    except Exception as error:
        warnings.warn(
            f"kernels take longer to compile: numba {numba.__version__} is not as expected ({error!r})",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return made


def try_out(made: Pipelines) -> None:
    """Compile and run a whole of one part.

    Raises
    ------
    RuntimeError
        If the result is wrong.
    """
    import numba

    njit: Numba = numba.njit
    part = njit(_example_part, pipeline_class=made.part)
    whole = types.FunctionType(_example_whole.__code__, {"_example_part": part})
    got = njit(whole, pipeline_class=made.whole)(5)
    if got != 30:
        raise RuntimeError(f"{got} instead of 30")


def _example_part(value: int) -> int:
    return value * value


def _example_whole(count: int) -> int:
    total = 0
    for value in range(count):
        total += _example_part(value)
    return total


def _make() -> Pipelines:
    compiler: Numba = importlib.import_module("numba.core.compiler")
    machinery: Numba = importlib.import_module("numba.core.compiler_machinery")
    codegen: Numba = importlib.import_module("numba.core.codegen")
    part_library, whole_library = _libraries(codegen.JITCodeLibrary)
    lowering: Numba = importlib.import_module("numba.core.typed_passes").NativeLowering

    class LowerPart(lowering):  # type: ignore[misc]
        """Lowering to LLVM code that waits to be linked; nothing is made for calls from Python."""

        def run_pass(self, state: Numba) -> Numba:
            state.library = part_library(state.targetctx.codegen(), state.func_id.func_qualname)
            # On this function only: what it calls is typed under the flags on numba's stack.
            state.flags.no_cpython_wrapper = True
            state.flags.no_cfunc_wrapper = True
            return super().run_pass(state)

    class LowerWhole(lowering):  # type: ignore[misc]
        """Lowering of an entry point: links all parts below it."""

        def run_pass(self, state: Numba) -> Numba:
            state.library = whole_library(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
            state.flags.no_cfunc_wrapper = True
            return super().run_pass(state)

    flags = _flags(compiler.Flags)

    def pipeline(replacement: Numba) -> Numba:
        chosen = machinery.register_pass(mutates_CFG=True, analysis_only=False)(replacement)

        class Compiler(compiler.CompilerBase):  # type: ignore[misc]
            def __init__(self, *args: Numba) -> None:
                super().__init__(*args)
                self.state.flags = flags(self.state.flags)
                self.state.typingctx = self.state.targetctx.typing_context = _remembering(
                    self.state.typingctx
                )

            def compile_extra(self, func: Numba) -> Numba:
                with collecting_little():
                    return super().compile_extra(func)

            def define_pipelines(self) -> list[Numba]:
                manager: Numba = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
                manager.passes = [
                    (chosen if item is lowering else item, why)
                    for item, why in manager.passes
                    if item.__name__ not in UNNEEDED
                ]
                manager.finalize()
                return [manager]

        return Compiler

    return Pipelines(pipeline(LowerPart), pipeline(LowerWhole))


@contextlib.contextmanager
def _signals_after() -> Iterator[None]:
    """Answer Ctrl-C and SIGTERM at the end of the block.

    LLVM calls Python back with the code that it has made, and what a handler raises there is lost, and the code with it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mine = {number: handler for number, handler in before.items() if callable(handler)}
    for number in mine:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in mine.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def _libraries(base: Numba) -> tuple[Numba, Numba]:
    """Code libraries of a part and of a whole."""

    class Unset:
        """A code generator that has no environment to set: a part has no machine code of its own."""

        def __init__(self, codegen: Numba) -> None:
            self._codegen = codegen

        def __getattr__(self, name: str) -> Numba:
            return getattr(self._codegen, name)

        def set_env(self, *_: Numba) -> None:
            """Do nothing."""

    class Part(base):  # type: ignore[misc]
        """LLVM code of one function that is neither linked nor optimized nor emitted."""

        @property
        def codegen(self) -> Numba:
            return Unset(self._codegen)

        def _optimize_functions(self, ll_module: Numba) -> None:
            ll_module.data_layout = self._codegen._data_layout

        def finalize(self) -> None:
            self._raise_if_finalized()
            self.defined = [item.name for item in self._final_module.functions if not item.is_declaration]
            self._finalized = True

        def get_pointer_to_function(self, _: str) -> int:
            """No address."""
            self._ensure_finalized()
            return 0

    class Whole(base):  # type: ignore[misc]
        """An entry point with the code of everything below it."""

        def __init__(self, codegen: Numba, name: str) -> None:
            super().__init__(codegen, name)
            self._parts: list[str] = []

        def add_linking_library(self, library: Numba) -> None:
            known = set(self._linking_libraries)
            waiting = [library]
            while waiting:
                item = waiting.pop()
                if item not in known:
                    known.add(item)
                    super().add_linking_library(item)
                    if isinstance(item, Part):
                        self._parts += item.defined
                        waiting += item._linking_libraries

        def finalize(self) -> None:
            with _signals_after():
                super().finalize()

        def _optimize_final_module(self) -> None:
            for name in self._parts:  # called from here only: may be inlined where else it would stand twice
                self._final_module.get_function(name).linkage = "internal"
            super()._optimize_final_module()

    return Part, Whole


def _flags(base: Numba) -> Numba:
    """numba's compiler flags, compared by what is set: numba compares all of them at each use of an operator."""

    class Flags(base):  # type: ignore[misc]
        __slots__ = ("_hashed",)
        _hashed: int

        def __hash__(self) -> int:
            try:
                known: int = self._hashed
            except AttributeError:
                known = self._hashed = super().__hash__()
            return known

        def __eq__(self, other: object) -> bool:
            if not isinstance(other, base):
                return NotImplemented
            there: Numba = other
            return all(
                getattr(self, k) == getattr(there, k) for k in self._values.keys() | there._values.keys()
            )

    return Flags


@cache
def _remembering(context: Numba) -> Numba:
    """A numba typing context that works out once what an operator on numbers and arrays returns."""
    known: Numba = importlib.import_module("numba.core.types")
    base: Numba = type(context)
    plain = (known.Integer, known.Float, known.Boolean, known.Array)
    results: dict[Numba, Numba] = {}
    operators: dict[int, Numba] = {}

    class Operator(known.Function):  # type: ignore[misc]
        """An operator as numba types it, with a memory."""

        def get_call_type(self, context: Numba, args: Numba, kws: Numba) -> Numba:
            if kws or not all(isinstance(item, plain) for item in args):
                return super().get_call_type(context, args, kws)
            key = (self.typing_key, *(known.unliteral(item) for item in args))
            found = results.get(key)
            if found is None:
                found = results[key] = super().get_call_type(context, args, kws)
            return found

    class Remembering(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.__dict__ = context.__dict__

        def __hash__(self) -> int:
            return hash(context)

        def __eq__(self, other: object) -> bool:
            return other is self or other is context

        def resolve_value_type(self, value: Numba) -> Numba:
            return with_memory(super().resolve_value_type(value))

        def _lookup_global(self, value: Numba) -> Numba:
            return with_memory(super()._lookup_global(value))

    def with_memory(found: Numba) -> Numba:
        if type(found) is not known.Function or found.typing_key.__module__ != "_operator":
            return found
        made = operators.get(id(found))
        if made is None:
            made = operators[id(found)] = object.__new__(Operator)
            made.__dict__ = found.__dict__
        return made

    return Remembering()
