"""What files of measured constants share: their maps as instances, and how far constants are from measurements."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from chakra.arguments import check_fields
from chakra.errors import ChakraError, ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FitError:
    """How far a model is from measurements of one kind.

    Attributes
    ----------
    rows, mean_error
        Measurements, and the mean of their absolute relative errors. Of products, those that were not fitted to.
    large_rows, large_error
        The same of large ones: products of more than 10^11 operations, collectives from 1 MiB up.
    """

    rows: int
    mean_error: float
    large_rows: int
    large_error: float

    def __post_init__(self) -> None:
        check_fields(self)


def instance_of(kind: type[T], values: object, where: str) -> T:
    """An instance of a dataclass from a map of a file; whole numbers stand for numbers.

    Raises
    ------
    ConfigError
        Not a map, a key that is not known or missing, or a value that does not fit.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: must be a map, not {values!r}")
    items = {item.name: item for item in fields(kind)}  # type: ignore[arg-type]
    for key in values:
        if key not in items:
            raise ConfigError(f"{where}: {key!r} is not one of {', '.join(items)}")
    for key, item in items.items():
        if key not in values and item.default is MISSING and item.default_factory is MISSING:
            raise ConfigError(f"{where}: {key} is missing")
    wanted: dict[str, Any] = {
        key: float(value) if items[key].type is float and type(value) is int else value
        for key, value in values.items()
    }
    try:
        return kind(**wanted)
    except ChakraError as exc:
        raise ConfigError(f"{where}: {exc}") from None
