# ruff: noqa: E501 - tables
"""Mutations that keep a file's form, so that a fuzzer gets past its parser.

Forms: ``et`` (length-prefixed protobuf messages), ``json``, ``yaml`` (any JSON document is YAML 1.2), ``words``
(lines of words), ``bytes``. A mutation takes bytes and a random generator and returns other bytes; what is not of its
form comes back unchanged.
"""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from chakra.et.schema import INT_COLUMNS
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, Node
from chakra.schemas.protolib import encode_varint

#: Values at the edges of what readers expect.
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 0.5, -0.0, 1e308, -1e-320, 1e999, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1,
    2**63, -(2**63), 2**64, 10**30, "", "0", "-1", "x", "Ring", "nan", "1e999", "9" * 30, "a\nb", "\x1b[31m", "\u202e",
    "\ud800", "<script>", "\0", [], {}, [[]], [None], {"": None}, [1, "a"], {"a": {"a": []}},
)  # fmt: skip
WORDS = (
    "", "0", "-1", "1", "2", "3.5", "1e999", "nan", "inf", "-inf", "9" * 25, "18446744073709551616", "0x10", "1_000", "NONE",
    "ALLREDUCE", "ALLGATHER", "[", "]", "{", "}", ":", "- ", "#", "&a", "*a", "!!python/object", "|", ">", "\t", "\0", "²",
    "\x1b[31m", "'", '"', "<a>", "</a>", "--", ",", "%", "\u2028", "٣",
)  # fmt: skip
_MEMBERS = [
    field.name for field in AttributeProto.DESCRIPTOR.fields if field.name not in ("name", "doc_string")
]
_NAMES = [*INT_COLUMNS, "comm_group", "is_cpu_op", "pg_name", "involved_dim", "peer_mode", "x"]


def mutated(form: str, data: bytes, rng: random.Random) -> bytes:
    """Another input of the same form."""
    return _BY_FORM[form](data, rng)


def _bytes(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data or b"\0")
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out)) if out else 0
        match rng.randrange(4):
            case 0 if out:
                out[at] = rng.randrange(256)
            case 1:
                out[at:at] = rng.randbytes(rng.randint(1, 4))
            case 2:
                del out[at : at + rng.randint(1, 8)]
            case _:
                out += out[at : at + 64]
    return bytes(out)


# ---------------------------------------------------------------------------------------------- documents


def _places(value: Any, out: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """(container, key) of everything inside ``value``."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()
        for key in keys:
            out.append((here, key))
            waiting.append(here[key])
    return out


def _change(document: Any, rng: random.Random) -> Any:
    places = _places(document, [])
    if not places:
        return rng.choice(ODD)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = _places(document, [])
        if not places:
            break
        holder, key = rng.choice(places)
        match rng.randrange(8):
            case 0 | 1:
                holder[key] = copy.deepcopy(rng.choice(ODD))
            case 2:
                del holder[key]
            case 3:
                other, name = rng.choice(places)
                holder[key] = copy.deepcopy(other[name])
            case 4 if isinstance(holder, dict):
                names = [name for part, name in places if isinstance(part, dict)]
                holder[rng.choice(names)] = holder.pop(key)
            case 5 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 6:
                holder[key] = [holder[key]] if rng.random() < 0.5 else {"a": holder[key]}
            case _:
                value = holder[key]
                if isinstance(value, bool):
                    holder[key] = not value
                elif isinstance(value, int):
                    holder[key] = value + rng.choice((-1, 1, -value, value, 2**32, -2 * value))
                elif isinstance(value, float):
                    holder[key] = value * rng.choice((-1.0, 0.0, 1e300, 0.5, 1e-300))
                elif isinstance(value, str):
                    at = rng.randint(0, len(value))
                    holder[key] = value[:at] + rng.choice(WORDS) + value[at:]
                else:
                    holder[key] = str(value)[:50]
    return document


def _json(data: bytes, rng: random.Random) -> bytes:
    try:
        document = json.loads(data)
        changed = _change(document, rng)
        return json.dumps(
            changed, indent=rng.choice((None, None, 1)), ensure_ascii=rng.random() < 0.7
        ).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return _words(data, rng)


def _yaml(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.4:
        return _words(data, rng)
    try:
        return _json(json.dumps(json.loads(data)).encode(), rng)
    except (ValueError, RecursionError):
        pass
    from ruamel.yaml import YAML

    try:
        document = YAML(typ="safe", pure=True).load(data.decode())
        return json.dumps(_change(document, rng), allow_nan=False).encode("utf-8", "surrogatepass")
    except Exception:  # not YAML any more: whatever the library says of it
        return _words(data, rng)


def _words(data: bytes, rng: random.Random) -> bytes:
    lines = data.decode("utf-8", "replace").split("\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(lines))
        match rng.randrange(6):
            case 0:
                del lines[at]
                lines = lines or [""]
            case 1:
                lines.insert(at, lines[rng.randrange(len(lines))])
            case 2:
                lines[at] = lines[at][: rng.randint(0, len(lines[at]))]
            case _:
                words = lines[at].split(" ")
                where = rng.randrange(len(words))
                if rng.random() < 0.7:
                    words[where] = rng.choice(WORDS)
                else:
                    words.insert(where, rng.choice(WORDS))
                lines[at] = " ".join(words)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


# -------------------------------------------------------------------------------------------------- traces


def _split(data: bytes) -> list[bytes]:
    """Payloads of a file's messages; what cannot be framed ends the list."""
    out, at = [], 0
    while at < len(data):
        length = shift = 0
        while at < len(data) and shift < 63:
            byte = data[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        out.append(data[at : at + length])
        at += length
    return out


def _et(data: bytes, rng: random.Random) -> bytes:
    pieces = _split(data)
    if rng.random() < 0.15:
        return _bytes(data, rng)
    if len(pieces) < 2:
        return b"".join(
            encode_varint(len(piece)) + piece
            for piece in (b"\n\x050.0.4", Node(id=1, type="COMP_NODE").SerializeToString())
        )
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(pieces))
        match rng.randrange(7):
            case 0:
                pieces[at] = _bytes(pieces[at], rng)
            case 1:
                pieces.insert(at, pieces[rng.randrange(len(pieces))])
            case 2 if len(pieces) > 2:
                del pieces[at]
            case _:
                pieces[at] = _message(pieces[at], at == 0, rng)
    return b"".join(encode_varint(len(piece)) + piece for piece in pieces)


def _message(piece: bytes, first: bool, rng: random.Random) -> bytes:
    message = GlobalMetadata() if first else Node()
    try:
        message.ParseFromString(piece)
        if isinstance(message, Node):
            _change_node(message, rng)
        else:
            message.attr.append(_attribute(rng))
        return message.SerializeToString()
    except Exception:  # protobuf's own complaints of many kinds
        return piece


def _change_node(node: Node, rng: random.Random) -> None:
    match rng.randrange(6):
        case 0:
            node.id = rng.choice((0, 1, 2, 3, 2**63, 2**64 - 1))
        case 1:
            node.type = rng.randrange(9)  # type: ignore[assignment]
        case 2:
            rng.choice((node.data_deps, node.ctrl_deps)).append(rng.choice((0, 1, 2, 3, node.id, 2**64 - 1)))
        case 3:
            node.name = rng.choice(("", "x", "é", "\x1b[31m", "a\nb"))
        case 4 if node.attr:
            del node.attr[rng.randrange(len(node.attr))]
        case _:
            node.attr.append(_attribute(rng))


def _attribute(rng: random.Random) -> AttributeProto:
    attr = AttributeProto(name=rng.choice(_NAMES))
    member = rng.choice(_MEMBERS)
    value = rng.choice((0, 1, 2, 2**31 - 1, -1, 2**62, True, "x", b"x", 0.5))
    if member.endswith("_list"):
        getattr(attr, member).SetInParent()
        for _ in range(rng.choice((0, 1, 3, 70))):
            try:
                getattr(attr, member).values.append(value)
            except (TypeError, ValueError):
                break
    else:
        try:
            setattr(attr, member, value)
        except (TypeError, ValueError):
            attr.int64_val = 5
    return attr


_BY_FORM: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "bytes": _bytes,
    "json": _json,
    "yaml": _yaml,
    "words": _words,
    "et": _et,
}
