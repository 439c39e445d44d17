"""Small arithmetic and comparisons in study files (``tp * pp <= 64``), evaluated without Python's eval."""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from chakra.errors import ConfigError
from chakra.io.digits import decimal_number

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
#: longer texts are no constraint
_MAX_LENGTH = 500


class Expression:
    """A parsed expression over named values.

    Names are words; dots and dashes of parameter names become underscores (``workload.micro-batch`` is
    ``workload_micro_batch``). Allowed are numbers, texts in quotes, ``+ - * / // %``, comparisons (also chained),
    ``and``, ``or``, ``not`` and parentheses.

    Raises
    ------
    ConfigError
        Anything else in the text.
    """

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self._source = source
        if len(text) > _MAX_LENGTH:
            raise ConfigError(f"{source}: expression of more than {_MAX_LENGTH} characters")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConfigError(f"{source}: {text!r} is not an expression such as 'tp * pp <= 64'") from None
        self.names: set[str] = set()
        self._check(self._tree)

    def _check(self, node: ast.AST) -> None:
        allowed = (ast.BinOp, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Name, ast.Constant)
        if not isinstance(node, allowed):
            raise ConfigError(
                f"{self._source}: {self.text!r}: {type(node).__name__} is not allowed in an expression"
            )
        if isinstance(node, ast.Name):
            self.names.add(node.id)
            return
        if isinstance(node, ast.Constant):
            if type(node.value) not in (int, float, str, bool):
                raise ConfigError(f"{self._source}: {self.text!r}: only numbers and texts are allowed")
            if type(node.value) in (int, float):
                self._check_number(ast.get_source_segment(self.text.strip(), node) or "")
            return
        if isinstance(node, ast.BinOp) and type(node.op) not in _BINARY:
            raise ConfigError(
                f"{self._source}: {self.text!r}: operator {type(node.op).__name__} is not allowed"
            )
        if isinstance(node, ast.Compare) and any(type(op) not in _COMPARE for op in node.ops):
            raise ConfigError(f"{self._source}: {self.text!r}: only < <= > >= == != compare")
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.Not | ast.USub):
            raise ConfigError(f"{self._source}: {self.text!r}: only 'not' and '-' stand before a value")
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._check(child)

    def _check_number(self, written: str) -> None:
        """Refuse what Python writes as numbers and people do not: ``1_0``, ``0x10``, ``1e400``."""
        try:
            decimal_number(written)
        except ValueError as error:
            raise ConfigError(f"{self._source}: {self.text!r}: {error}") from None

    def value(self, names: Mapping[str, object]) -> object:
        """Evaluate with these values.

        Raises
        ------
        ConfigError
            A name without a value, or values that do not go together (a text in a sum, division by zero).
        """
        try:
            return self._value(self._tree, names)
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise ConfigError(f"{self._source}: {self.text!r}: {error}") from None

    def _value(self, node: ast.AST, names: Mapping[str, object]) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id not in names:
                known = ", ".join(sorted(names))
                raise ConfigError(
                    f"{self._source}: {self.text!r}: no value named {node.id!r}; there are: {known}"
                )
            return names[node.id]
        if isinstance(node, ast.BinOp):
            return _BINARY[type(node.op)](self._value(node.left, names), self._value(node.right, names))
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand, names)
            return not value if isinstance(node.op, ast.Not) else -value
        if isinstance(node, ast.BoolOp):
            values = (bool(self._value(item, names)) for item in node.values)
            return all(values) if isinstance(node.op, ast.And) else any(values)
        assert isinstance(node, ast.Compare)
        left = self._value(node.left, names)
        for op, item in zip(node.ops, node.comparators, strict=True):
            right = self._value(item, names)
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        return True


@lru_cache(maxsize=256)
def expression(text: str, source: str) -> Expression:
    """The expression of a text; a study asks it of each of its points.

    Raises
    ------
    ConfigError
        As `Expression`.
    """
    return Expression(text, source)


def plain_name(name: str) -> str:
    """Parameter name as a word of an expression."""
    return name.replace(".", "_").replace("-", "_")
