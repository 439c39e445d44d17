"""Documents that commands write: strict JSON, in which what is no finite number is null."""

import json
import math


def document_text(value: object, indent: int | None = None) -> str:
    """A document as JSON (RFC 8259), which knows no NaN and no infinity: a figure that there is not is null.

    Parameters
    ----------
    value
        Plain data.
    indent
        Spaces of each level; None: one line.

    Examples
    --------
    >>> document_text({"mean": float("nan"), "rows": [1, float("inf")]})
    '{"mean": null, "rows": [1, null]}'
    """
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
