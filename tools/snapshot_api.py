"""Write tests/packaging/api.txt: every public name with its parameters, so that a change of the API is seen.

python tools/snapshot_api.py            rewrite the file
"""

import dataclasses
import enum
import functools
import importlib
import inspect
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "packaging" / "api.txt"

#: the public modules: those that the reference has pages for, and those that only lead to them
PUBLIC = (
    "chakra.converters",
    "chakra.schemas",
    *runpy.run_path(str(ROOT / "docs" / "_ext" / "public_names.py"))["MODULES"],
)


def lines(module: ModuleType) -> Iterator[str]:
    """The names of one package, and below classes their public members."""
    yield module.__name__
    for name in sorted(module.__all__):
        try:
            value = getattr(module, name)
        except AttributeError:  # a module that nobody has imported yet
            value = importlib.import_module(f"{module.__name__}.{name}")
        yield from entry(name, value, home=module.__name__)


def entry(name: str, value: Any, home: str) -> Iterator[str]:
    """One name. What the top of the package repeats stands there without members."""
    if isinstance(value, ModuleType):
        yield f"  {name}: module"
    elif inspect.isclass(value):
        bases = [base.__name__ for base in value.__bases__ if base not in (object, enum.Enum)]
        yield f"  class {name}" + (f"({', '.join(bases)})" if bases else "")
        if home != "chakra":
            yield from (f"    {line}" for line in members(value))
    elif callable(value):
        yield f"  {name}{parameters(value)}"
    else:
        yield f"  {name}: {type(value).__name__}"


def members(cls: type) -> Iterator[str]:
    """Public members that the class, or an internal class above it, defines; those of a public base stand there."""
    if issubclass(cls, enum.Enum):
        yield from (f"{member.name} = {member.value!r}" for member in cls)
        return
    above = [base for base in cls.__mro__[1:] if base in public_classes()]
    ours = [
        base
        for base in cls.__mro__
        if base.__module__.startswith("chakra") and not any(issubclass(top, base) for top in above)
    ]
    if "__init__" in {key for base in ours for key in vars(base)}:
        yield constructor(cls, above)
    fields = {field.name for field in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for name in sorted({key for base in ours for key in vars(base)} - fields):
        raw = inspect.getattr_static(cls, name)
        if name.startswith("_") and name != "__call__":
            continue
        if isinstance(raw, classmethod | staticmethod):
            yield f".{name}{parameters(getattr(cls, name))}"
        elif inspect.isfunction(raw):
            yield f".{name}{parameters(raw, method=True)}"
        elif isinstance(raw, int | str):
            yield f".{name} = {raw!r}"
        elif not inspect.ismemberdescriptor(raw):
            yield f".{name}"


@functools.cache
def public_classes() -> frozenset[type]:
    """Every class that some package names as public."""
    values = (getattr(module, name, None) for module in modules() for name in module.__all__)
    return frozenset(value for value in values if inspect.isclass(value))


def constructor(cls: type, above: list[type]) -> str:
    """Parameters of a class; those of a public base are left out."""
    known = inspect.signature(above[0]).parameters if above else {}
    own = [p for p in inspect.signature(cls).parameters.values() if not p.name.startswith("_")]
    shown = [_parameter(p) for p in own if p.name not in known]
    return f"({', '.join([f'*{above[0].__name__}', *shown] if known else shown)})"


def parameters(function: Any, *, method: bool = False) -> str:
    """Parameters in brackets, without annotations, whose text differs between versions of Python."""
    shown: list[str] = []
    starred = False
    for parameter in list(inspect.signature(function).parameters.values())[int(method) :]:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        starred |= parameter.kind is parameter.VAR_POSITIONAL
        shown.append(_parameter(parameter))
    return f"({', '.join(shown)})"


def _parameter(parameter: inspect.Parameter) -> str:
    marks: dict[object, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    stars = marks.get(parameter.kind, "")
    default = parameter.default
    if default is parameter.empty:
        return f"{stars}{parameter.name}"
    plain = default is None or isinstance(default, str | int | float | tuple)
    if isinstance(default, enum.Enum):
        return f"{parameter.name}={type(default).__name__}.{default.name}"
    # other objects print differently between versions
    return f"{parameter.name}={default!r}" if plain else f"{parameter.name}=..."


def modules() -> list[ModuleType]:
    """The public packages, imported."""
    return [importlib.import_module(name) for name in sorted(PUBLIC)]


def snapshot() -> str:
    """The whole public API as text."""
    return "\n".join(line for module in modules() for line in lines(module)) + "\n"


if __name__ == "__main__":
    FILE.write_text(snapshot(), encoding="utf-8")
