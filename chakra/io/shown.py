"""Values and keys of files as messages show them: short, on one line."""

import json


def describe(value: object) -> str:
    """A value in JSON's words; lists and objects by kind only."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    if value is None or isinstance(value, (bool, str)):
        shown = json.dumps(value, ensure_ascii=False)
        return shown if len(shown) <= 60 else shown[:56] + '..."'
    shown = str(value)
    return shown if len(shown) <= 40 else shown[:36] + "..."


def shortened(key: object) -> str:
    """A key."""
    text = str(key)
    return text if len(text) <= 60 else text[:56] + "..."
