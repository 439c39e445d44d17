"""XML and HTML piece by piece, for documents of any length: tags and escapes in one place."""

import json
from collections.abc import Mapping
from html import escape

from markupsafe import Markup

XML_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'


def escaped(text: str) -> str:
    """Text of an element."""
    return escape(text, quote=False)


def opening(name: str, attributes: Mapping[str, object] | None = None) -> str:
    """A start tag.

    >>> opening("node", {"id": 'a"b'})
    '<node id="a&quot;b">'
    """
    given = "".join(f' {key}="{escape(str(value))}"' for key, value in (attributes or {}).items())
    return f"<{name}{given}>"


def closing(name: str) -> str:
    """An end tag."""
    return f"</{name}>"


def nested(name: str, inner: str, attributes: Mapping[str, object] | None = None) -> str:
    """An element around markup."""
    return f"{opening(name, attributes)}{inner}</{name}>"


def element(name: str, text: object = "", attributes: Mapping[str, object] | None = None) -> str:
    """An element around text.

    >>> element("td", "a < b", {"class": "n"})
    '<td class="n">a &lt; b</td>'
    """
    return nested(name, escaped(str(text)), attributes)


def empty(name: str, attributes: Mapping[str, object] | None = None) -> str:
    """An XML element with nothing in it."""
    return opening(name, attributes)[:-1] + "/>"


def embedded_json(value: object) -> Markup:
    """JSON for a script element: no character in it can end the element or begin an entity."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
