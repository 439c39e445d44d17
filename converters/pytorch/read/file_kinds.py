"""Telling the files of this tool chain apart by content, so that a wrong file is named for what it is."""

from pathlib import Path

from chakra.converters.pytorch.read.first_bytes import HEAD_BYTES, FileKind, describe_bytes
from chakra.converters.pytorch.read.jsonarray import Source
from chakra.errors import ConversionError


def read_head(source: Source, size: int) -> bytes:
    """First ``size`` bytes of a source (a single read may yield fewer)."""
    parts: list[bytes] = []
    while size > 0 and (data := source.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def kind_of(path: str | Path) -> FileKind:
    """Kind of the file at ``path`` (reads at most the first megabyte).

    Raises
    ------
    ConversionError
        The file cannot be read.
    """
    source = Source(path)
    try:
        head = read_head(source, HEAD_BYTES)
        if describe_bytes(head) is FileKind.OTHER_JSON:
            # Much metadata before the array: look on.
            head += read_head(source, 16 * HEAD_BYTES)
    finally:
        source.close()
    if source.cut and not head:
        raise ConversionError(f"{path}: {source.cut}")
    return describe_bytes(head)


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
