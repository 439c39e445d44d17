"""The rules of `collective-costs`, `operator-model`, `collective-times`: what was measured, by name, path or as it is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from chakra.replay.config.key import Schema, UnfitError


@dataclass(frozen=True, slots=True)
class Costs:
    """Name of a preset, path of a ``.yml`` file, or a map; what it holds is read where a run needs it.

    ``what`` names the numbers in messages.
    """

    what: str = "costs"
    allowed: str = "text, path or map"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> str:
        """A text as it is, a map as JSON."""
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            try:
                return json.dumps(value, sort_keys=True)
            except (TypeError, ValueError):
                raise UnfitError("must hold numbers, texts, lists and maps") from None
        if isinstance(value, str) and value:
            return value
        raise UnfitError(f"must be the name of a preset, a path or a map of {self.what}")

    def schema(self) -> Schema:
        """A text or a map."""
        return {"anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}]}


@dataclass(frozen=True, slots=True)
class Names:
    """A name, or a list of names; none are an empty list."""

    what: str
    allowed: str
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> tuple[str, ...]:
        """The names."""
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list | tuple) or not all(isinstance(one, str) and one for one in names):
            raise UnfitError(f"must be a name or a list of names of {self.what}")
        return tuple(names)

    def schema(self) -> Schema:
        """A text, or a list of texts."""
        text: Schema = {"type": "string", "minLength": 1}
        return {"anyOf": [text, {"type": "array", "items": text}]}
