"""Arguments of public functions, held to their annotations where they enter.

What is inside may then rely on them. An argument that means the same in another type is brought into the annotated one
(a NumPy integer for an int, a text for a `Path` or a member of an enumeration, a list for a tuple or a set); any other
is refused in one line that names the function and the argument.
"""

import builtins
import functools
import os
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from pathlib import Path
from types import CodeType, NoneType, UnionType
from typing import (
    IO,
    Any,
    BinaryIO,
    Literal,
    ParamSpec,
    TextIO,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from chakra.errors import UsageError

_P = ParamSpec("_P")
_R = TypeVar("_R")

#: stands for the value of an argument that does not fit
_MISFIT: object = object()
#: accepted by behaviour, not by type: file-like objects rarely derive from these
_OPEN = (IO, TextIO, BinaryIO)
#: whole numbers have 64 bits, with or without sign
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


class _Rule:
    """What an annotation accepts: ``take`` gives the value to use or `_MISFIT`; ``one`` and ``many`` are words."""

    __slots__ = ("many", "one", "take")

    def __init__(self, take: Callable[[Any], Any], one: str, many: str = "") -> None:
        self.take, self.one, self.many = take, one, many or one


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Hold the arguments of a public function or method to their annotations.

    Parameters
    ----------
    function
        Its annotations are read when it is first called.

    Returns
    -------
    Callable
        The same function; it raises `UsageError` for an argument that does not fit.
    """
    code: CodeType = function.__code__
    names = code.co_varnames[: code.co_argcount]

    @functools.wraps(function)
    def entry(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        rules = _rules_of(function)
        given: list[Any] = list(args)
        for i, name in enumerate(names[: len(given)]):
            if name in rules:
                given[i] = _taken(function, name, rules[name], given[i])
        for name, value in kwargs.items():
            if name in rules:
                kwargs[name] = _taken(function, name, rules[name], value)
        return function(*given, **kwargs)

    return entry


def check_fields(value: object) -> None:
    """Hold the fields of a dataclass to their annotations; to be called by its ``__post_init__``.

    Raises
    ------
    UsageError
        A field that does not fit; the message names it.
    """
    owner: Any = type(value)
    rules = _rules_of(owner)
    for field in fields(owner):
        given = getattr(value, field.name)
        taken = _taken(owner, field.name, rules[field.name], given)
        if taken is not given:
            object.__setattr__(value, field.name, taken)


def _taken(owner: type | Callable[..., object], name: str, rule: _Rule, value: object) -> object:
    taken = rule.take(value)
    if taken is _MISFIT:
        title = owner.__qualname__.removesuffix(".__init__")
        raise UsageError(f"{title}: {name} must be {rule.one}, not {shown(value)}")
    return taken


def shown(value: object) -> str:
    """A value of any type as a message shows it: in one short line."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    try:
        text = reprlib.repr(value)
    except Exception:
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= 80 else text[:76] + "..."


# ---------------------------------------------------------------------------------------------------- annotations


@functools.cache
def _rules_of(owner: Any) -> dict[str, _Rule]:
    known = vars(builtins) | vars(sys.modules[owner.__module__])
    hints = get_type_hints(owner, None, _Names(known))
    return {name: _rule(hint) for name, hint in hints.items() if name != "return"}


class _Named:
    """Stands for a class that a module imports for type checkers alone: it is known by its name."""


class _Names(dict[str, object]):
    """What the names of annotations stand for."""

    def __missing__(self, name: str) -> object:
        return type(name, (_Named,), {})


def _rule(hint: Any) -> _Rule:
    simple = _SIMPLE.get(hint) if hint.__hash__ else None
    if simple is not None:
        return simple
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _union([_rule(part) for part in parts])
    if origin is Literal:
        return _choice({part: part for part in parts}, map(str, parts))
    if origin is not None and isinstance(origin, type):
        return _generic(origin, parts)
    if isinstance(hint, type):
        if issubclass(hint, Enum):
            words = (member.name if issubclass(hint, int) else str(member.value) for member in hint)
            return _choice({member.value: member for member in hint}, words)
        if hint in _OPEN:
            return _FILE
        return _protocol(hint) if getattr(hint, "_is_protocol", False) else _instance(hint)
    return _ANYTHING


def _generic(origin: type, parts: tuple[Any, ...]) -> _Rule:
    if issubclass(origin, np.ndarray):
        return _array(np.dtype(get_args(parts[1])[0]) if get_args(parts[1])[0] is not Any else None)
    if origin in _OPEN:
        return _FILE
    if getattr(origin, "_is_protocol", False):
        return _protocol(origin)
    if issubclass(origin, os.PathLike):
        return _PATH
    if issubclass(origin, Mapping) and len(parts) == 2:
        return _mapping(_rule(parts[0]), _rule(parts[1]), dict if origin is dict else Mapping)
    if issubclass(origin, tuple) and parts[-1:] != (Ellipsis,):
        return _pair([_rule(part) for part in parts])
    if issubclass(origin, Iterable) and not issubclass(origin, Mapping):
        return _items(origin, _rule(parts[0]))
    return _FUNCTION if issubclass(origin, Callable) else _instance(origin)  # type: ignore[arg-type]


def _protocol(kind: type) -> _Rule:
    """What is called is a function; what else a protocol asks for shows when it is used."""
    return _FUNCTION if "__call__" in vars(kind) else _ANYTHING


def _instance(kind: type) -> _Rule:
    name = kind.__name__

    def take(value: object) -> object:
        if issubclass(kind, _Named):
            return value if name in (base.__name__ for base in type(value).__mro__) else _MISFIT
        return value if isinstance(value, kind) else _MISFIT

    article = "an" if name[0] in "AEIO" else "a"
    return _Rule(take, f"{article} {name}", f"{name} objects")


def _union(rules: Sequence[_Rule]) -> _Rule:
    if any(rule is _ANYTHING for rule in rules):
        return _ANYTHING
    takes = [rule.take for rule in rules]

    def take(value: object) -> object:
        found = _MISFIT
        for one in takes:
            taken = one(value)
            if taken is value:
                return value
            if found is _MISFIT:
                found = taken
        return found

    return _Rule(
        take,
        " or ".join(dict.fromkeys(rule.one for rule in rules)),
        " or ".join(dict.fromkeys(rule.many for rule in rules)),
    )


def _choice(values: Mapping[Any, Any], words: Iterable[str]) -> _Rule:
    """One of some texts or numbers, or of the members of an enumeration, which go by their values too."""
    members = set(values.values())

    def take(value: object) -> object:
        if isinstance(value, str | int | Enum) and not isinstance(value, bool):
            return value if value in members and isinstance(value, Enum) else values.get(value, _MISFIT)
        return _MISFIT

    return _Rule(take, f"one of {', '.join(words)}")


def _items(origin: type, item: _Rule) -> _Rule:
    """Sequences, sets, and iterables that are walked once; a text is no list of texts."""
    walked = not issubclass(origin, Sequence) and origin not in (set, frozenset)
    make = origin if origin in (list, tuple, set, frozenset) else None

    def take(value: object) -> object:
        if isinstance(value, np.ndarray) and value.ndim == 1:
            items = value.tolist()
        elif isinstance(value, str | bytes | Mapping | np.ndarray) or not isinstance(value, Iterable):
            return _MISFIT
        elif not isinstance(value, Sequence | set | frozenset):
            return value if walked else _MISFIT
        elif isinstance(value, set | frozenset) and not walked and origin not in (set, frozenset):
            return _MISFIT  # it has no order
        else:
            items = value
        taken = items if item is _ANYTHING else [item.take(entry) for entry in items]
        if any(entry is _MISFIT for entry in taken):
            return _MISFIT
        if make is not None and not isinstance(value, make):
            return _made(make, taken)
        if not isinstance(value, np.ndarray) and all(a is b for a, b in zip(items, taken, strict=True)):
            return value
        return _made(make or list, taken)

    word = "a set" if origin in (set, frozenset) else "a list"
    of = "" if item is _ANYTHING else f" of {item.many}"
    return _Rule(take, f"{word}{of}", f"{word[2:]}s{of}")


def _made(make: Callable[[Any], object], taken: object) -> object:
    try:
        return make(taken)
    except TypeError:  # not hashable
        return _MISFIT


def _pair(rules: Sequence[_Rule]) -> _Rule:
    """A tuple of so many values."""

    def take(value: object) -> object:
        if not isinstance(value, tuple | list) or len(value) != len(rules):
            return _MISFIT
        taken = tuple(rule.take(entry) for rule, entry in zip(rules, value, strict=True))
        if any(entry is _MISFIT for entry in taken):
            return _MISFIT
        same = isinstance(value, tuple) and all(a is b for a, b in zip(value, taken, strict=True))
        return value if same else taken

    return _Rule(take, f"({', '.join(rule.one for rule in rules)})")


def _mapping(key: _Rule, entry: _Rule, kind: type) -> _Rule:
    def take(value: object) -> object:
        if not isinstance(value, Mapping) or not isinstance(value, kind):
            return _MISFIT
        if entry is _ANYTHING and kind is Mapping:  # a file's content, whose reader knows its keys
            return value
        taken = {key.take(k): entry.take(v) for k, v in value.items()}
        if _MISFIT in taken or any(v is _MISFIT for v in taken.values()):
            return _MISFIT
        same = all(a is b for a, b in zip(value.values(), taken.values(), strict=True))
        return value if same else taken

    if entry is _ANYTHING:
        return _Rule(take, "a dict", "dicts")
    return _Rule(take, f"a dict of {key.many} to {entry.many}", f"dicts of {key.many} to {entry.many}")


def _array(dtype: "np.dtype[Any] | None") -> _Rule:
    def take(value: Any) -> object:
        if not isinstance(value, np.ndarray):
            return _MISFIT
        if dtype is None or dtype == value.dtype:
            return value
        if value.dtype.kind not in "biu" or dtype.kind not in "biuf":
            return _MISFIT
        taken = value.astype(dtype)
        return taken if np.array_equal(taken, value) else _MISFIT

    return _Rule(take, "an array" if dtype is None else f"an array of {dtype}", "arrays")


def _whole(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not _LEAST <= value <= _MOST:
        return _MISFIT
    return value if type(value) is int or isinstance(value, Enum) else int(value)


def _number(value: object) -> object:
    """A number; what is not one (NaN) least of all."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return _MISFIT
    if value != value or (isinstance(value, int | np.integer) and not _LEAST <= value <= _MOST):
        return _MISFIT
    return value if isinstance(value, int | float) else value.item()


def _truth(value: object) -> object:
    return value if isinstance(value, bool) else bool(value) if isinstance(value, np.bool_) else _MISFIT


def _pathlike(value: object) -> object:
    return value if isinstance(value, os.PathLike) else _MISFIT


def _path(value: object) -> object:
    return value if isinstance(value, Path) else Path(value) if isinstance(value, str) else _MISFIT


_ANYTHING = _Rule(lambda value: value, "anything")
_FILE = _Rule(
    lambda value: value if hasattr(value, "read") or hasattr(value, "write") else _MISFIT, "an open file"
)
_FUNCTION = _Rule(lambda value: value if callable(value) else _MISFIT, "a function", "functions")
_PATH = _Rule(_pathlike, "a path", "paths")
_SIMPLE: dict[Any, _Rule] = {
    Any: _ANYTHING,
    object: _ANYTHING,
    int: _Rule(_whole, "a whole number of at most 64 bits", "whole numbers"),
    float: _Rule(_number, "a number", "numbers"),
    bool: _Rule(_truth, "True or False"),
    str: _Rule(lambda value: value if isinstance(value, str) else _MISFIT, "a text", "texts"),
    bytes: _Rule(lambda value: value if isinstance(value, bytes) else _MISFIT, "bytes"),
    NoneType: _Rule(lambda value: None if value is None else _MISFIT, "None"),
    Path: _Rule(_path, "a path", "paths"),
    os.PathLike: _PATH,
}
