"""What a JSON document can hold, as a type."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
else:
    Json = (
        Any  # msgspec takes whatever stands there; a type that holds itself could not be resolved at run time
    )

#: a decoded object: its keys and values are not checked yet
JsonObject: TypeAlias = dict[str, Json]
