"""Checking a document against the part of JSON Schema that our schemas use."""

from typing import Any

TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}
KNOWN = {
    *("$schema", "$id", "title", "description", "type", "required", "properties"),
    *("additionalProperties", "items", "enum", "const", "anyOf"),
}


def problems(value: Any, schema: dict[str, Any], where: str = "$") -> list[str]:
    """What is wrong; a key that the schema does not name is wrong as well, so that none comes undocumented."""
    assert set(schema) <= KNOWN, f"{where}: {set(schema) - KNOWN}"
    if "anyOf" in schema:
        tries = [problems(value, option, where) for option in schema["anyOf"]]
        return [] if not all(tries) else min(tries, key=len)
    if "const" in schema:
        return [] if value == schema["const"] else [f"{where}: {value!r} is not {schema['const']!r}"]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{where}: {value!r} is none of {schema['enum']}"]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fits = [
        k for k in kinds if isinstance(value, TYPES[k]) and (k == "boolean" or not isinstance(value, bool))
    ]
    if kinds and not fits:
        return [f"{where}: {str(value)[:60]!r} is no {' or '.join(kinds)}"]
    out: list[str] = []
    if isinstance(value, dict):
        out += [f"{where}: {key} is missing" for key in schema.get("required", ()) if key not in value]
        rest = schema.get("additionalProperties", {} if not schema.get("properties") else None)
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, rest)
            out += (
                [f"{where}: undocumented key {key}"]
                if inner is None
                else problems(item, inner, f"{where}.{key}")
            )
    elif isinstance(value, list):
        for i, item in enumerate(value):
            out += problems(item, schema.get("items", {}), f"{where}[{i}]")
    return out
