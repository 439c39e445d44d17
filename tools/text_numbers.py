"""A plugin of mypy: in the packages, texts become numbers by `chakra.io.digits` alone.

`int` and `float` of a text take ``1_0``, ``nan``, ``inf``, spaces and digits of other scripts. The type checker knows
which arguments are texts; a search for words does not.
"""

from collections.abc import Callable

from mypy.nodes import StrExpr
from mypy.plugin import FunctionContext, Plugin
from mypy.types import Instance, Type, UnionType, get_proper_type

#: what is refused, and where it is the mechanism itself
_READERS = frozenset({"builtins.int", "builtins.float", "decimal.Decimal", "fractions.Fraction"})
_PACKAGES = ".typing/chakra/"
_HOME = ".typing/chakra/io/digits.py"


def _may_be_text(kind: Type) -> bool:
    kind = get_proper_type(kind)
    if isinstance(kind, UnionType):
        return any(_may_be_text(item) for item in kind.items)
    return isinstance(kind, Instance) and kind.type.fullname == "builtins.str"


def _refuse_texts(context: FunctionContext) -> Type:
    path = context.api.path
    arguments = context.args[0] if context.args else []
    # a number that the program itself writes out, such as float("inf"), and digits of another base
    of_program = bool(arguments) and isinstance(arguments[0], StrExpr)
    based = len(context.args) > 1 and bool(context.args[1])
    in_packages = path.startswith(_PACKAGES) and path != _HOME
    if in_packages and arguments and not of_program and not based and _may_be_text(context.arg_types[0][0]):
        context.api.fail(
            "a text becomes a number by chakra.io.digits: whole_number, decimal_number", context.context
        )
    return context.default_return_type


class TextNumbers(Plugin):
    """Refuses `int`, `float`, `Decimal` and `Fraction` of a text."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """The check, for the calls that it is about."""
        return _refuse_texts if fullname in _READERS else None


def plugin(version: str) -> type[Plugin]:
    """What mypy asks for."""
    return TextNumbers
