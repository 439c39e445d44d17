"""Options that are numbers: a text becomes one by the rules of every other text (`chakra.io.digits`)."""

from typing import TYPE_CHECKING, SupportsFloat, SupportsIndex, SupportsInt

from click.types import FloatParamType, FloatRange, IntParamType, IntRange

from chakra.io.digits import decimal_number, signed_whole_number

if TYPE_CHECKING:
    from click import Context, Parameter

# what the types of options may be handed: a text, or a default that is a number already
_Whole = str | SupportsInt | SupportsIndex
_Decimal = str | SupportsFloat | SupportsIndex


class WholeNumber(IntParamType):
    """A whole number."""

    def convert(self, value: _Whole, param: "Parameter | None", ctx: "Context | None") -> int:
        """The number of an option's text."""
        if not isinstance(value, str):
            return super().convert(value, param, ctx)
        try:
            return signed_whole_number(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number.", param, ctx)


class WholeRange(IntRange):
    """A whole number within bounds."""

    def convert(self, value: _Whole, param: "Parameter | None", ctx: "Context | None") -> int:
        """The number of an option's text."""
        return super().convert(WholeNumber().convert(value, param, ctx), param, ctx)


class DecimalNumber(FloatParamType):
    """A finite number."""

    def convert(self, value: _Decimal, param: "Parameter | None", ctx: "Context | None") -> float:
        """The number of an option's text."""
        if not isinstance(value, str):
            return super().convert(value, param, ctx)
        try:
            return decimal_number(value)
        except ValueError:
            self.fail(f"{value!r} is not a number.", param, ctx)


class DecimalRange(FloatRange):
    """A finite number within bounds."""

    def convert(self, value: _Decimal, param: "Parameter | None", ctx: "Context | None") -> float:
        """The number of an option's text."""
        return super().convert(DecimalNumber().convert(value, param, ctx), param, ctx)
