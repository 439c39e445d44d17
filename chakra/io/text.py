"""Text files as one string."""

import os

from chakra.errors import ConfigError
from chakra.io.files import UNKNOWN, kind_of, read_raw
from chakra.io.limits import MAX_CONFIG_BYTES


def read_text(path: str | os.PathLike[str], *, most: int = MAX_CONFIG_BYTES) -> str:
    """Text of a UTF-8 file; a byte order mark is dropped.

    Parameters
    ----------
    path
        The file.
    most
        Bytes that it may have.

    Raises
    ------
    ConfigError
        When it cannot be read, is larger, or is not UTF-8; then with what its content looks like.
    """
    name = os.fspath(path)
    data = read_raw(name, error=ConfigError, most=most)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        kind = kind_of(data[: 1 << 16])
        hint = "" if kind == UNKNOWN else f"; its content is that of this kind: {kind}"
        raise ConfigError(f"{name}: not a text file (byte {error.start} is not UTF-8){hint}") from None


def cells_by_line(path: str | os.PathLike[str]) -> list[tuple[int, list[str]]]:
    """Number and cells, divided by commas, of the lines of a file; empty ones and those that begin with ``#`` left out.

    Raises
    ------
    ConfigError
        When the file cannot be read as text.
    """
    return [
        (number, [cell.strip() for cell in line.split(",")])
        for number, line in enumerate(read_text(path).splitlines(), start=1)
        if line.strip(" \t,") and not line.lstrip().startswith("#")
    ]
