"""Writing a timeline to a file; the suffix says the format."""

import os
from pathlib import Path
from typing import Final

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.files import PathLike, atomic_bytes
from chakra.timeline.chrome import chrome_pieces
from chakra.timeline.model import Timeline
from chakra.timeline.perfetto import perfetto_pieces

#: Suffix -> format.
SUFFIXES: Final = {".json": "json", ".pftrace": "perfetto", ".perfetto-trace": "perfetto", ".pb": "perfetto"}


def format_of(path: PathLike, wanted: str | None = None) -> str:
    """``json`` or ``perfetto``, as asked for or as the suffix says; ``.gz`` after it is fine.

    Raises
    ------
    UsageError
        If neither says it.
    """
    if wanted is not None:
        known = sorted(set(SUFFIXES.values()))
        if wanted not in known:
            raise UsageError(f"format {wanted!r} is not one of {', '.join(known)}")
        return wanted
    name = os.fspath(path).lower().removesuffix(".gz")
    suffix = Path(name).suffix
    if suffix not in SUFFIXES:
        raise UsageError(
            f"{path}: unknown suffix; the name must end in one of {', '.join(SUFFIXES)} (or give --format)"
        )
    return SUFFIXES[suffix]


@checked
def write_timeline(timeline: Timeline, path: PathLike, file_format: str | None = None) -> int:
    """Write Chrome JSON or a Perfetto trace, gzipped if the name ends in .gz; the file's uncompressed size in
    bytes.

    Parameters
    ----------
    timeline
        The timeline.
    path
        ``.json`` or ``.pftrace``; ``.gz`` may follow.
    file_format
        "json" or "perfetto"; by default as the suffix says.

    Raises
    ------
    UsageError
        If the format is unknown or the file cannot be written.
    """
    chosen = format_of(path, file_format)
    size = 0
    with atomic_bytes(path) as file:
        if chosen == "json":
            buffer: list[str] = []
            for piece in chrome_pieces(timeline):
                buffer.append(piece)
                if len(buffer) >= 8192:
                    size += file.write("".join(buffer).encode("ascii"))
                    buffer.clear()
            size += file.write("".join(buffer).encode("ascii"))
        else:
            for block in perfetto_pieces(timeline):
                size += file.write(block)
    return size
