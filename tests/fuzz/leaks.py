"""A secret planted in every field of the files that `chakra anonymize` takes, and the search for it in what comes out."""

import base64
import copy
import gzip
import hashlib
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chakra.anonymize import anonymize
from chakra.anonymize.pytorch import _EVENT_INTS, _HOST_INTS
from chakra.et import jsonize
from chakra.et.manifest import SUFFIX
from chakra.io import files
from chakra.schemas.protolib import encode_varint

#: a name, an address, a date, a time, a name of thousands of digits, one with digits in front
SECRETS = (
    "falconQ7x", "10.17.23.42", "2026-09-17", "1789634533", "20260917", "3141592653" * 500, "20260917-falconQ7x",
)  # fmt: skip
#: keys whose whole numbers are kept, as the guide says: digits there are numbers
_NUMBERS = {
    *_HOST_INTS, *_EVENT_INTS, "ts", "dur", "rank", "ranks", "world_size", "pg_count", "pg_size", "group_size",
    "group_count", "shapes", "Input Dims", "input_shapes", "output_shapes", "Process Group Ranks", "In split size",
    "Out split size", "in_split_size", "out_split_size",
}  # fmt: skip
#: a trace of no nodes
_EMPTY_TRACE = b"\x07\n\x051.0.0"
#: a file's name that the search may make
_PLAIN_NAME = re.compile(r"(?!input|made|beside)[\w. -]+\.et")
#: words of the formats, without which nothing is read: left alone more often
_WORDS = {"ph", "cat", "schema", "type", "types", "name"}


def traces_of(text: str) -> Iterator[bytes]:
    """What would give a text away: itself in any case and usual encoding, and its digests."""
    for form in {text, text.lower(), text.upper(), text[::-1]}:
        raw = form.encode()
        yield from (raw, form.encode("utf-16-le"), form.encode("utf-16-be"), raw.hex().encode())
        for shift in range(3):  # base64 at any position
            code = base64.b64encode(b"\0" * shift + raw)
            yield code[4 if shift else 0 : -4]
        for name in ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s"):
            digest = hashlib.new(name, raw).digest()
            yield from (digest[:8], digest.hex().encode()[:12], base64.b64encode(digest)[:10])
    parts = re.findall(r"\d+", text)
    if len(parts) > 2:  # an address or a date, read as a list of numbers
        yield from (join.join(parts).encode() for join in (", ", ",", ".", "-"))
    if text.isdigit():
        yield from (text[at : at + 8].encode() for at in range(0, min(len(text), 50) - 7, 8))
        if 2**32 <= int(text[:19]) < 2**63:
            yield encode_varint(int(text[:19]))


def opened(data: bytes) -> bytes:
    """The bytes inside gzip, if they are in one."""
    return gzip.decompress(data) if data.startswith(files.GZIP_MAGIC) else data


def _plant(
    value: Any, secret: str, rng: random.Random, often: float, key: str = "", *, open_keys: bool = True
) -> Any:
    """The document with the secret in keys, texts and system numbers, at some places or (often = 1) at all.

    ``open_keys``: whether the form takes keys that it does not know, and text where numbers are (protobuf does not).
    """
    if isinstance(value, dict):
        out = {k: _plant(v, secret, rng, often, k, open_keys=open_keys) for k, v in value.items()}
        if open_keys and rng.random() < often:
            out[secret] = {secret: [secret, {"a": secret}]}
            out["nested"] = secret
        if "pid" in out and str(value.get("cat", "")).lower().startswith(("cpu", "cuda")):
            out |= {k: int(secret[:12]) if secret.isdigit() else secret for k in ("pid", "tid")}
        return out
    if isinstance(value, list):
        return [_plant(item, secret, rng, often, key, open_keys=open_keys) for item in value]
    if (key in _NUMBERS and secret.isdigit()) or (key == "type" and not open_keys):
        return value
    if isinstance(value, str):
        if rng.random() > (often if key not in _WORDS else often / 4):
            return value
        if secret.isdigit() and not open_keys:  # plain digits may be the bytes of a tensor, which are kept
            secret = f"x{secret}"
        if key.lower().startswith("bytes"):  # protobuf's JSON has them in base64
            return base64.b64encode(secret.encode()).decode()
        return rng.choice(
            (secret, value + secret, secret + value, f"{value} {secret}", f"[{secret}]", f'{{"{secret}": 1}}')
        )
    return secret if open_keys and rng.random() < often / 8 else value


def search(case: Any, folder: Path) -> list[str]:
    """Make the case's file with its secret, let `anonymize` copy it, and say where the copy has the secret.

    A case: ``{"form": "host" | "kineto" | "et" | "et-json" | "groups" | "memory" | "manifest", "secret": 0, "seed": 1,
    "document": ...}``. Traces that a manifest names have the secret in their names.

    Raises
    ------
    ChakraError
        The file was refused, which leaks nothing.
    """
    case = case if isinstance(case, dict) else {}
    form, number = case.get("form"), case.get("secret")
    secret = SECRETS[number % len(SECRETS) if type(number) is int else 0]
    rng = random.Random(json.dumps(case.get("seed")))
    document = _plant(
        copy.deepcopy(case.get("document")), secret, rng, rng.choice((0.05, 0.3, 1.0)), open_keys=form != "et"
    )
    text = json.dumps(document).encode()
    if form == "et":
        text = jsonize.trace_bytes(text, str(folder / "input.et"))
    source, target = folder / f"input.{'et' if form == 'et' else 'json'}", folder / "made"
    source.write_bytes(gzip.compress(text, 1) if rng.random() < 0.3 else text)
    for path in folder.glob("made*"):
        path.unlink()
    beside: dict[str, str] = {}
    if form in ("groups", "memory"):
        beside[form] = str(source)
        source = folder / "beside.et"
        source.write_bytes(_EMPTY_TRACE)
    elif form == "manifest":
        source = source.rename(folder / f"input{SUFFIX}")
        names = document.get("traces") if isinstance(document, dict) else None
        for name in names if isinstance(names, list) else ():
            if isinstance(name, str) and len(name.encode()) < 200 and _PLAIN_NAME.fullmatch(name):
                (folder / name).write_bytes(_EMPTY_TRACE)
    anonymize(str(source), str(target), groups=beside.get("groups"), memory=beside.get("memory"))
    found = []
    leaks = [leak for leak in traces_of(secret) if len(leak) > 3]
    for path in folder.glob("made*"):
        data = opened(path.read_bytes())
        for leak in leaks:
            if leak in data:
                near = data[max(0, data.index(leak) - 60) :][:100]
                found.append(f"{form}: {leak[:40]!r} of {secret[:20]!r} at {near!r}")
    return found
