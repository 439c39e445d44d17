"""Decompressing gzip forward, member by member, within a bound against files made to exhaust memory."""

import io
import zlib
from typing import IO

from chakra.io.limits import GZIP_FREE_BYTES, GZIP_MAX_RATIO
from chakra.io.readable import counted

GZIP_MAGIC = b"\x1f\x8b"

_BLOCK = 1 << 18
_PIECE = 1 << 20
#: What a new member is fed first. What it leaves is copied, and a file may be members of twenty bytes.
_FIRST_FEED = 1 << 9
_MOST_FEED = 1 << 16


class Unpacker(io.RawIOBase):
    """The uncompressed bytes of a gzip file of one or more members.

    Parameters
    ----------
    file
        The compressed bytes; closed with this.

    Raises
    ------
    EOFError
        On reading, where the data is cut off.
    zlib.error
        On reading, where it is damaged, or where something that is not gzip follows.
    OSError
        On reading, where it grows out of proportion.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._block = memoryview(b"")
        self._at = 0
        self._feed = _FIRST_FEED
        self._member: zlib._Decompress | None = None
        #: compressed bytes taken and uncompressed bytes given so far
        self.taken = self.given = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def close(self) -> None:
        """Close the file as well."""
        if not self.closed:
            self._file.close()
        super().close()

    def readinto(self, buffer: "io.BufferedWriter | memoryview") -> int:  # type: ignore[override]
        """Fill a buffer with the next bytes; 0 at the end."""
        view = memoryview(buffer)  # type: ignore[arg-type]
        piece = self.piece(len(view)) if len(view) else b""
        view[: len(piece)] = piece
        return len(piece)

    def piece(self, most: int = _PIECE) -> bytes:
        """The next bytes, at least one and at most ``most``; empty at the end."""
        while True:
            if self._at >= len(self._block) and not self._refill():
                if self._member is None:
                    return b""
                raise EOFError(f"the gzip data is cut off after {counted(self.given, 'uncompressed byte')}")
            if self._member is None and not self._next_member():
                continue
            data = self._inflate(most)
            if data:
                self.given += len(data)
                if self.given > max(GZIP_FREE_BYTES, self.taken * GZIP_MAX_RATIO):
                    raise OSError(f"{self.taken} bytes of gzip grow beyond {self.given} bytes: refused")
                return data

    def _refill(self) -> bool:
        self._block, self._at = memoryview(self._file.read(_BLOCK)), 0
        return len(self._block) > 0

    def _next_member(self) -> bool:
        """Begin a member; False if there is only padding in the block."""
        while self._at < len(self._block) and self._block[self._at] == 0 and self.taken:
            self._at += 1
        if self._at >= len(self._block):
            return False
        if self.taken and self._block[self._at] != GZIP_MAGIC[0]:
            left = len(self._block) - self._at
            raise zlib.error(f"{left} bytes that are not gzip follow the gzip data")
        self._member, self._feed = zlib.decompressobj(wbits=31), _FIRST_FEED
        return True

    def _inflate(self, most: int) -> bytes:
        assert self._member is not None
        feed = self._block[self._at : self._at + self._feed]
        data = self._member.decompress(feed, most)
        left = len(self._member.unused_data if self._member.eof else self._member.unconsumed_tail)
        self._at += len(feed) - left
        self.taken += len(feed) - left
        self._feed = min(2 * self._feed, _MOST_FEED)
        if self._member.eof:
            self._member = None
        return data
