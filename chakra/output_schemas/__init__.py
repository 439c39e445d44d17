"""JSON Schemas of every JSON document that the commands write, by the document's own name and version.

A document names its schema in its first key, such as ``"schema": "chakra.validate/1"``. Within a version keys are
only added; a key that goes, or means something else, makes the next version. A reader ignores keys it does not know.
"""

import json
from importlib.resources import files
from typing import Any

from chakra.errors import UsageError
from chakra.io.digits import whole_number


def names() -> list[str]:
    """Names of all schemas, sorted: ``chakra.validate/1``."""
    found = (entry.name for entry in files(__name__).iterdir() if entry.name.endswith(".json"))
    return sorted("/".join(name.removesuffix(".json").rsplit("-", 1)) for name in found)


def load(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of documents of this name; the version may be left out for the newest.

    Raises
    ------
    UsageError
        If there is no such schema.
    """
    known = names()
    matches = [k for k in known if name in (k, k.rsplit("/", 1)[0], k.removeprefix("chakra."))]
    matches = matches or [k for k in known if k.removeprefix("chakra.").rsplit("/", 1)[0] == name]
    if not matches:
        raise UsageError(f"there is no schema {name!r}; there are: {', '.join(known)}")
    newest = max(matches, key=lambda k: whole_number(k.rsplit("/", 1)[1]))
    text = files(__name__).joinpath(newest.replace("/", "-") + ".json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
