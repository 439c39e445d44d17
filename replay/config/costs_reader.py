"""The rule of `collective-costs` and `operator-model`: measured constants of a machine, by name, path or as they are."""

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
