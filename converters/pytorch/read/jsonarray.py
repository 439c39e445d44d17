"""Reading a JSON document that is one huge array and a few small keys, a piece at a time.

Profiler traces (``traceEvents``) and execution traces (``nodes``) reach gigabytes. The array is cut at
element boundaries into pieces of a few megabytes and each piece is decoded into typed structs, so memory
holds one piece. A boundary is found by the bytes that separate the first two elements and *verified* by
decoding: a cut inside a string or at another depth leaves unbalanced JSON, which does not decode; then the
boundary before it is tried.
"""

import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from chakra.converters.pytorch.read.first_bytes import describe_bytes
from chakra.errors import ConversionError
from chakra.io.digits import whole_number
from chakra.io.files import open_file, reason
from chakra.io.gunzip import GZIP_MAGIC, Unpacker

T = TypeVar("T")

#: What decoding bad JSON raises: RecursionError for brackets nested a thousand deep.
BAD_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
PIECE_BYTES = 8 << 20
MAX_PIECE_BYTES = 1 << 28
#: How many boundaries are tried, going backwards, before the piece is made larger instead.
TRIES = 6

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BAD_ESCAPE = re.compile(rb'\\(?:u(?![0-9a-fA-F]{4})|(?!["\\/bfnrtu]))')
_NOT_A_NUMBER = re.compile(rb"(?<=[:\[,])(\s*)(-?(?:NaN|nan|Infinity|inf))(?=\s*[,}\]])")
_BYTE_IN_MESSAGE = re.compile(r"\(byte ([0-9]+)\)")


class Source:
    """Bytes of a plain or gzip file (told apart by the magic bytes), read forward.

    A gzip stream that is cut off or damaged yields all bytes in front of the damage; `cut` then says so.
    What is only `looked_at` to see what it is, is no input (see `open_file`).
    """

    def __init__(self, path: str | Path, *, looked_at: bool = False) -> None:
        self.path = str(path)
        self.cut: str | None = None
        self._file = open_file(path, error=ConversionError, looked_at=looked_at)
        try:
            packed = self._file.peek(2)[:2] == GZIP_MAGIC  # a pipe cannot go back
        except OSError as error:
            raise ConversionError(f"{path}: cannot be read: {reason(error)}") from None
        self._packed = Unpacker(self._file) if packed else None

    def read(self, size: int) -> bytes:
        """Next bytes, at most ``size``; empty at the end."""
        try:
            return self._packed.piece(size) if self._packed else self._file.read(size)
        except EOFError:
            self.cut = "the gzip stream is cut off"
        except zlib.error as error:
            self.cut = f"the gzip stream is damaged ({error})"
        except OSError as error:
            raise ConversionError(f"{self.path}: cannot be read: {reason(error)}") from None
        self._packed = Unpacker(io.BytesIO())  # nothing more comes
        return b""

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def repair_bytes(piece: bytes) -> tuple[bytes, int]:
    """Replace what breaks JSON although its meaning is clear, byte count kept where possible.

    Invalid UTF-8 becomes ``?``, control characters a blank, unknown escapes a double backslash, NaN and
    infinities
    ``null``. Returns the new bytes and how many places were changed.
    """
    count = 0
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError:
        text = piece.decode("utf-8", "replace")
        count += text.count("\ufffd") - piece.count(b"\xef\xbf\xbd")
        piece = text.replace("\ufffd", "?").encode("utf-8")
    piece, n = _CONTROL.subn(b" ", piece)
    count += n
    piece, n = _BAD_ESCAPE.subn(lambda m: b"\\" + m.group(0), piece)
    count += n
    piece, n = _NOT_A_NUMBER.subn(rb"\1null", piece)
    count += n
    # A raw line break inside a string: an odd number of unescaped quotes before the end of the line.
    lines = piece.split(b"\n")
    out: list[bytes] = []
    open_string = False
    for line in lines:
        quotes = line.count(b'"') - line.count(b'\\"')
        if open_string:
            out[-1] += b" " + line
            count += 1
        else:
            out.append(line)
        open_string ^= bool(quotes & 1)
    joined = b"\n".join(out)
    return (joined, count) if not open_string else (piece, count)


def _first_element_end(buffer: bytes) -> int:
    """Offset just behind the first JSON object in ``buffer`` (which starts at it), or -1 if it is not
    whole.
    """
    return next((match.end() for match, depth in _closings(buffer) if depth == 0), -1)


def _closings(buffer: bytes) -> Iterator[tuple[re.Match[bytes], int]]:
    """Closing brackets outside of strings, and how deep the text is behind each."""
    depth = 0
    for match in re.finditer(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', buffer, re.DOTALL):
        token = match.group()
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            yield match, depth


class ArrayReader(Generic[T]):
    """Iterates over pieces (lists of ``element``) of the array ``key`` of a JSON file.

    After the iteration ``header`` holds all other top-level keys, ``repaired`` the number of places with odd
    bytes and ``lost_bytes`` what was cut off at the end (only with ``repair``).

    Raises
    ------
    ConversionError
        The file cannot be read or is not JSON of this form; says the byte offset and the cause.
    """

    def __init__(
        self, path: str | Path, key: str, element: type[T], *, repair: bool = False, piece: int = PIECE_BYTES
    ) -> None:
        self.path = str(path)
        self.key = key
        self.header: dict[str, object] = {}
        self.repaired = 0
        self.lost_bytes = 0
        self._piece = piece
        self._repair = repair
        self._list = msgspec.json.Decoder(list[element])  # type: ignore[valid-type]
        document = msgspec.defstruct("Document", [(key, list[element], msgspec.field(default_factory=list))])  # type: ignore[valid-type]
        self._document = msgspec.json.Decoder(document)
        self._source = Source(path)
        self._buffer = b""
        self._offset = 0  # file offset of the buffer's first byte
        self._ended = False
        self._bare = False
        self._separator: bytes | None = None

    def __iter__(self) -> Iterator[list[T]]:
        try:
            self._open_array()
            while not self._ended:
                elements = self._next_piece()
                if elements is not None:
                    yield elements
            yield self._last_piece()
        finally:
            self._source.close()

    # -- pieces ------------------------------------------------------------------------------------------

    def _fill(self, size: int) -> None:
        parts = [self._buffer]
        have = len(self._buffer)
        while have < size:
            data = self._source.read(min(size - have, 4 << 20))
            if not data:
                self._ended = True
                break
            parts.append(data)
            have += len(data)
        self._buffer = b"".join(parts)

    def _open_array(self) -> None:
        self._fill(min(self._piece, 1 << 16))
        start = re.match(rb"(?:\xef\xbb\xbf)?\s*\[", self._buffer)
        if start:
            self._bare = True
            self._advance(start.end())
            return
        pattern = re.compile(b'"' + self.key.encode() + rb'"\s*:\s*\[')
        while not (match := pattern.search(self._buffer)):
            if self._ended:
                raise self._wrong_document()
            self._fill(2 * len(self._buffer))
        text = self._buffer[: match.end()] + b"]}"
        try:
            self.header = self._decode_header(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._error(error, 0, "the part before the array") from None
        self._advance(match.end())

    def _decode_header(self, text: bytes) -> dict[str, object]:
        try:
            decoded = msgspec.json.decode(text)
        except BAD_JSON:
            text, count = repair_bytes(text)
            decoded = msgspec.json.decode(text)
            self.repaired += count
        if not isinstance(decoded, dict):
            raise msgspec.DecodeError("not an object")
        decoded.pop(self.key, None)
        return decoded

    def _advance(self, n: int) -> None:
        self._buffer = self._buffer[n:]
        self._offset += n

    def _learn_separator(self) -> bytes | None:
        """The bytes from the line break before the first element's closing brace to the next one's first
        key.
        """
        start = len(self._buffer) - len(self._buffer.lstrip())
        end = _first_element_end(self._buffer[start : start + (1 << 20)])
        if end < 0:
            return None
        end += start
        begin = end - 1
        while begin > start and self._buffer[begin - 1] in b" \t\r\n":
            begin -= 1
        match = re.compile(rb'\s*,\s*\{\s*"[^"]{0,40}"').match(self._buffer, end)
        return self._buffer[begin : match.end()] if match else None

    def _next_piece(self) -> list[T] | None:
        size = self._piece
        while True:
            self._fill(size)
            if self._ended:
                return None
            if self._separator is None:
                self._separator = self._learn_separator()
            elements = self._cut(self._separator) if self._separator else None
            if elements is not None:
                return elements
            size *= 2
            if size > MAX_PIECE_BYTES:
                raise ConversionError(
                    f"{self.path}: byte {self._offset}: no boundary between two elements of {self.key!r} "
                    f"in {MAX_PIECE_BYTES >> 20} MiB"
                )

    def _cut(self, separator: bytes) -> list[T] | None:
        """Decode up to the last boundary that holds; None if there is none among the last few."""
        close = separator.index(b"}") + 1
        end = len(self._buffer)
        for _ in range(TRIES):
            at = self._buffer.rfind(separator, 0, end)
            if at < 0:
                return None
            piece = b"[" + self._buffer[: at + close] + b"]"
            elements = self._try(piece)
            if elements is not None:
                comma = self._buffer.index(b",", at + close)
                self._advance(comma + 1)
                return elements
            end = at + close
        return None

    def _try(self, piece: bytes) -> list[T] | None:
        try:
            return self._list.decode(piece)
        except BAD_JSON:
            pass
        mended, count = repair_bytes(piece)
        if not count:
            return None
        try:
            elements = self._list.decode(mended)
        except BAD_JSON:
            return None
        self.repaired += count
        return elements

    # -- the end -----------------------------------------------------------------------------------------

    def _split_tail(self, buffer: bytes) -> tuple[bytes, bytes] | None:
        """Elements and what follows the closing bracket; None if there is no closing bracket."""
        for match, depth in _closings(buffer):
            if depth < 0:
                return buffer[: match.start()], buffer[match.end() :]
        return None

    def _whole_tail(self) -> list[T] | None:
        """Decode all that is left in one go: the normal end of a sound file."""
        try:
            if self._bare:
                return self._list.decode(b"[" + self._buffer)
            text = b'{"' + self.key.encode() + b'":[' + self._buffer
            elements: list[T] = getattr(self._document.decode(text), self.key)
            others = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            del others[self.key]
            self.header.update({name: msgspec.json.decode(raw) for name, raw in others.items()})
        except BAD_JSON:
            return None
        return elements

    def _last_piece(self) -> list[T]:
        elements = self._whole_tail()
        if elements is not None:
            return elements
        buffer = self._buffer
        split = self._split_tail(buffer)
        if split is None:
            mended, count = repair_bytes(buffer)
            if count and (split := self._split_tail(mended)):
                self.repaired += count
        if split is None:
            return self._broken_tail(self._source.cut or "the file ends inside the array")
        inner, tail = split
        elements = self._try(b"[" + inner + b"]")
        if elements is None and inner.rstrip().endswith(b","):
            elements = self._try(b"[" + inner.rstrip()[:-1] + b"]")
            self.repaired += elements is not None
        if elements is None:
            try:
                self._list.decode(b"[" + inner + b"]")
            except BAD_JSON as error:
                return self._broken_tail(self._cause(error, 1))
        at = self._offset + len(inner) + 1
        self._read_tail(tail, at)
        return elements or []

    def _read_tail(self, tail: bytes, at: int) -> None:
        body = tail.strip()
        if self._bare:
            if body:
                self._trailing(at, len(tail), body)
            return
        if not body:
            if not self._repair:
                raise ConversionError(
                    f"{self.path}: byte {at}: the file ends before the closing brace; --repair takes it as it is"
                )
            self.lost_bytes += 1
            return
        text = b"{" + body.lstrip(b",") if body.startswith(b",") else b"{" + body
        end = _first_element_end(text)
        if end < 0:
            if not self._repair:
                raise ConversionError(
                    f"{self.path}: byte {at + len(tail)}: the file ends inside the keys after {self.key!r}; "
                    f"--repair ignores them"
                )
            self.lost_bytes += len(tail)
            return
        try:
            self.header.update(self._decode_header(text[:end]))
        except (msgspec.DecodeError, RecursionError) as error:
            if not self._repair:
                raise self._error(error, at, f"the part after {self.key!r}") from None
            self.lost_bytes += len(tail)
            return
        rest = text[end:].strip()
        if rest:
            self._trailing(at + len(tail.rstrip()) - len(rest), len(rest), rest)

    def _trailing(self, at: int, size: int, rest: bytes) -> None:
        if self._repair:
            self.lost_bytes += size
            return
        what = (
            "a second JSON document begins (concatenated files?)" if rest[:1] in b"{[" else "trailing bytes"
        )
        raise ConversionError(f"{self.path}: byte {at}: {what}; --repair reads only the first document")

    def _broken_tail(self, cause: str) -> list[T]:
        """Cut at the last whole element (with ``repair``), or say where and why the file breaks."""
        buffer = self._buffer.rstrip().rstrip(b",")
        separator = self._separator or self._learn_separator() or b"}"
        end = len(buffer)
        best: list[T] | None = None
        cut = 0
        if buffer.endswith(b"}"):
            best, cut = self._try(b"[" + buffer + b"]"), len(buffer)
        closing = separator.find(b"}") + 1  # elements that are no objects have none
        for _ in range(64):
            if best is not None or (at := buffer.rfind(separator, 0, end)) < 0:
                break
            cut = at + closing
            best = self._try(b"[" + buffer[:cut] + b"]")
            end = cut
        where = self._offset + (cut if best is not None else 0)
        if not self._repair:
            raise ConversionError(
                f"{self.path}: broken after byte {where}: {cause}; --repair cuts the file there, "
                "at the last whole element"
            )
        self.lost_bytes += len(self._buffer) - cut if best is not None else len(self._buffer)
        return best or []

    # -- messages ----------------------------------------------------------------------------------------

    def _cause(self, error: Exception, shift: int) -> str:
        text = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        match = _BYTE_IN_MESSAGE.search(text)
        if not match:
            return text
        return _BYTE_IN_MESSAGE.sub(
            f"(byte {self._offset + whole_number(match.group(1)) - shift} of the file)", text
        )

    def _error(self, error: Exception, at: int, where: str) -> ConversionError:
        said = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        text = _BYTE_IN_MESSAGE.sub(lambda m: f"(byte {at + whole_number(m.group(1))})", said)
        return ConversionError(f"{self.path}: {where} is not valid JSON: {text}")

    def _wrong_document(self) -> ConversionError:
        found = describe_bytes(self._buffer[: 1 << 16])
        cut = f" ({self._source.cut})" if self._source.cut else ""
        return ConversionError(f"{self.path}: this is {found}; expected a file with {self.key!r}{cut}")
