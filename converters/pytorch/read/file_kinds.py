"""Telling the files of this tool chain apart by content, so that a wrong file is named for what it is."""

from pathlib import Path

from chakra.converters.pytorch.read.first_bytes import HEAD_BYTES, FileKind, describe_bytes
from chakra.converters.pytorch.read.jsonarray import Source
from chakra.errors import ConversionError
from chakra.io.files import is_cut
from chakra.io.readable import counted


def read_head(source: Source, size: int) -> bytes:
    """First ``size`` bytes of a source (a single read may yield fewer)."""
    parts: list[bytes] = []
    while size > 0 and (data := source.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def head_and_kind(path: str | Path) -> tuple[bytes, FileKind]:
    """First bytes of a file (a megabyte; more where they do not say what it is), and what they say.

    Raises
    ------
    ConversionError
        The file cannot be read, or is cut off before anything says what it is.
    """
    source = Source(path, looked_at=True)
    try:
        size = HEAD_BYTES
        head = read_head(source, size)
        if describe_bytes(head) is FileKind.OTHER_JSON:
            # Much metadata before the array: look on.
            size += 16 * HEAD_BYTES
            head += read_head(source, 16 * HEAD_BYTES)
    finally:
        source.close()
    kind = describe_bytes(head)
    if kind in (FileKind.OTHER_JSON, FileKind.EMPTY) and source.cut:
        raise ConversionError(f"{path}: {source.cut} after {counted(len(head), 'uncompressed byte')}")
    if kind is FileKind.OTHER_JSON and len(head) < size and is_cut(head):
        raise ConversionError(
            f"{path}: cut off after {counted(len(head), 'byte')}: the file ends before any of its events or nodes"
        )
    return head, kind


def kind_of(path: str | Path) -> FileKind:
    """Kind of the file at ``path``.

    Raises
    ------
    ConversionError
        The file cannot be read, or is cut off before anything says what it is.
    """
    return head_and_kind(path)[1]


def expect(path: str | Path, *kinds: FileKind) -> FileKind:
    """Kind of the file, which must be one of ``kinds``.

    Raises
    ------
    ConversionError
        It is something else: the message names both.
    """
    kind = kind_of(path)
    if kind not in kinds:
        wanted = " or ".join(kinds)
        raise ConversionError(f"{path}: this is {kind}; expected {wanted}")
    return kind
