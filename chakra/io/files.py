"""Reading and writing files: atomic writes, gzip by magic bytes, and saying what a file is."""

import contextlib
import gzip
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from chakra.errors import ChakraError, TraceError, UsageError
from chakra.io import inputs, leftovers
from chakra.io.gunzip import GZIP_MAGIC as GZIP_MAGIC
from chakra.io.gunzip import Unpacker
from chakra.io.limits import MAX_STREAM_BYTES
from chakra.io.rank_files import neighbour
from chakra.io.readable import counted

PathLike = str | os.PathLike[str]

_CHUNK = 1 << 20


# ------------------------------------------------------------------------------------------------- writing


class WriteError(UsageError):
    """A file that cannot be written.

    Attributes
    ----------
    path
        Its name, as it was asked for.
    why
        What the system says.
    """

    def __init__(self, path: PathLike, why: str) -> None:
        super().__init__(f"{path}: cannot be written: {why}")
        self.path, self.why = os.fspath(path), why


@contextmanager
def _atomic(path: PathLike) -> Iterator[Path]:
    """Yield a temporary file's path beside ``path``; it takes the place of ``path`` when the block
    succeeds.
    """
    with _beside(path) as (temporary, target):
        try:
            yield temporary
            # temporary files are private; a new file gets the usual permissions, an old one keeps its own.
            temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
            os.replace(temporary, target)
        except OSError as error:
            raise WriteError(path, reason(error)) from error


@contextmanager
def _beside(path: PathLike) -> Iterator[tuple[Path, Path]]:
    """A new file in the folder of ``path``, removed at the end if it is still there, and the file that is to be
    replaced: ``path``, or what it links to.
    """
    target = _resolved(path)
    expect_unread(path)
    with made_folder(target.parent, path):
        try:
            leftovers.remove(target.parent)
            handle, temporary = leftovers.new_file(target.parent, leftovers.prefix(target.name))
        except (OSError, ValueError) as error:
            raise WriteError(path, reason(error)) from error
        inputs.note_new(handle)
        try:
            yield temporary, target
        finally:
            leftovers.drop(handle, temporary)


def _resolved(path: PathLike) -> Path:
    """The file that is to be replaced: a link keeps its place.

    Raises
    ------
    UsageError
        It is a folder, or no name of a file.
    """
    text = os.fspath(path)
    if not text:
        raise UsageError("an empty name cannot be written: expected the name of a file")
    target = Path(path)
    try:
        if target.is_dir() or text.endswith(("/", os.sep)):
            raise UsageError(f"{path}: cannot be written: it is a folder")
        return target.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a ring
        raise UsageError(f"{path}: cannot be written: {reason(error)}") from error


@contextmanager
def made_folder(folder: PathLike, name: PathLike | None = None) -> Iterator[None]:
    """Make a folder with its parents; those that were made and are empty when the block ends go again.

    Parameters
    ----------
    folder
        The folder.
    name
        What messages call what cannot be written; the folder itself by default.

    Raises
    ------
    UsageError
        It cannot be made.
    """
    made: list[Path] = []
    try:
        try:
            at = Path(folder)
            while not at.exists():
                made.append(at)
                at = at.parent
            Path(folder).mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise UsageError(f"{name or folder}: cannot be written: {reason(error)}") from error
        yield
    finally:
        _drop_empty(made)


def _drop_empty(folders: Iterable[Path]) -> None:
    """Remove folders, the innermost first, as far as they are empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def expect_writable(paths: Iterable[PathLike]) -> None:
    """Find out before any work that files cannot be written, so that of several none is written alone.

    Raises
    ------
    UsageError
        One of them is a folder, or its folder takes no new file.
    """
    tried: set[Path] = set()
    for path in paths:
        if not _is_special(path) and (folder := _resolved(path).parent) not in tried:
            tried.add(folder)
            with _beside(path):
                pass


def expect_unread(path: PathLike) -> None:
    """Refuse to write over a file that the command has read (`inputs_kept`).

    Raises
    ------
    UsageError
        It has been read.
    """
    if inputs.is_input(path):
        raise UsageError(f"{path}: would overwrite an input")


def expect_apart(targets: Iterable[PathLike], read: Iterable[PathLike]) -> None:
    """Find out before any work that no file to write is one of those that are read.

    Raises
    ------
    UsageError
        One is: by its path, or as another name of the same file.
    """
    given = {same for path in read for same in _names(path)}
    for target in targets:
        if any(same in given for same in _names(target)):
            raise UsageError(f"{target}: would overwrite an input")


def _names(path: PathLike) -> Iterator[object]:
    """What two names of one file have in common, one by one: the path without links, and the number of a file that is
    there. Terminals and pipes are read and written at once.
    """
    with contextlib.suppress(OSError, ValueError):
        found = os.stat(path) if os.path.exists(path) else None
        if found is None or stat.S_ISREG(found.st_mode):
            yield os.path.realpath(path)
        if found is not None and stat.S_ISREG(found.st_mode):
            yield inputs.number(found)


def expect_prefix(prefix: PathLike) -> Path:
    """The beginning of the names of files to write, such as ``traces/job``.

    Raises
    ------
    UsageError
        It is empty or names a folder: the files would be hidden, or lie where nobody looks for them.
    """
    text = os.fspath(prefix)
    if not text:
        raise UsageError("an empty prefix: expected the beginning of file names, such as traces/job")
    path = Path(text)
    if not path.name or path.name == ".." or text.endswith(("/", os.sep)) or os.path.isdir(text):
        raise UsageError(f"{text}: is a folder; expected the beginning of file names, such as {path / 'job'}")
    return path


def reason(error: BaseException) -> str:
    """What the system says is wrong, for a message."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _is_special(path: PathLike) -> bool:
    """Whether ``path`` exists and is a pipe, terminal or device (such as /dev/stdout), to be written in
    place.
    """
    target = Path(path)
    try:
        return target.exists() and not target.is_file() and not target.is_dir()
    except OSError:  # a name that cannot be; the writer says so
        return False


@contextmanager
def atomic_bytes(path: PathLike, *, compress: bool | None = None) -> Iterator[IO[bytes]]:
    """Open ``path`` for binary writing; the file appears, whole, only when the block ends without an error.

    Parameters
    ----------
    path
        Target. Missing parent folders are made.
    compress
        Write gzip (without a time stamp, so that equal content gives equal files). Default: by the suffix
        ``.gz``.

    Raises
    ------
    UsageError
        If the target cannot be written.
    """
    if compress is None:
        compress = os.fspath(path).endswith(".gz")
    if _is_special(path):
        with open(path, "wb") as file:
            yield file
        return
    with _atomic(path) as temporary, open(temporary, "wb") as file:
        if compress:
            with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield file


@contextmanager
def atomic_text(path: PathLike, *, encoding: str = "utf-8") -> Iterator[IO[str]]:
    """Open ``path`` for writing text; the file appears, whole, only when the block ends without an error.

    Raises
    ------
    UsageError
        If the target cannot be written.
    """
    if _is_special(path):
        with open(path, "w", encoding=encoding) as file:
            yield file
        return
    with _atomic(path) as temporary, open(temporary, "w", encoding=encoding, newline="\n") as file:
        yield file


# ------------------------------------------------------------------------------------------------- reading


def open_file(
    path: PathLike, *, error: type[ChakraError] = TraceError, looked_at: bool = False
) -> io.BufferedReader:
    """Open a file or a pipe for binary reading, as it is on disk.

    Parameters
    ----------
    path
        The file.
    error
        Class of what is raised.
    looked_at
        Whether it is only looked at, to see what it is: it is no input then (`inputs_kept`), and may be overwritten.

    Raises
    ------
    ChakraError
        Of the class ``error`` if it cannot be opened, or is a device: some of them never end.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - handed to the caller
    except (OSError, ValueError) as cause:  # ValueError: a NUL in the name
        raise error(f"{os.fspath(path)}: cannot be read: {reason(cause)}{neighbour(path)}") from cause
    found = os.fstat(file.fileno())
    mode = found.st_mode
    if not looked_at:
        inputs.note_input(found)
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not file.isatty() and not _is_null(file)):
        file.close()
        raise error(f"{os.fspath(path)}: cannot be read: it is a device, not a file")
    return file


def _is_null(file: io.BufferedReader) -> bool:
    return os.path.exists(os.devnull) and os.path.samestat(os.fstat(file.fileno()), os.stat(os.devnull))


def open_stream(
    path: PathLike, *, error: type[ChakraError] = TraceError, looked_at: bool = False
) -> IO[bytes]:
    """Open a file for binary reading, decompressing gzip (known by its magic bytes, whatever the name).

    The parameters are those of `open_file`.

    Raises
    ------
    ChakraError
        Of the class ``error`` if the file cannot be opened. gzip data that is damaged or grows out of proportion
        raises OSError, EOFError or zlib.error on reading.
    """
    file = open_file(path, error=error, looked_at=looked_at)
    try:
        magic = file.peek(2)[:2]  # a pipe cannot go back
    except OSError as cause:
        file.close()
        raise error(f"{os.fspath(path)}: cannot be read: {reason(cause)}") from cause
    return file if magic != GZIP_MAGIC else io.BufferedReader(Unpacker(file), _CHUNK)


def read_raw(path: PathLike, *, error: type[ChakraError] = TraceError, most: int | None = None) -> bytes:
    """The bytes of a file as they are on disk, or of a pipe.

    Parameters
    ----------
    most
        Bytes that it may have; by default a file may have any number, a pipe `MAX_STREAM_BYTES`.

    Raises
    ------
    ChakraError
        Of the class ``error``: it cannot be read, does not end within the bound, or does not fit the memory.
    """
    name = os.fspath(path)
    try:
        with open_file(path, error=error) as file:
            size = os.fstat(file.fileno()).st_size
            if most is not None and size > most:
                raise error(f"{name}: {size} bytes, where at most {most} are read")
            pieces = [file.read(size)]
            left = most if most is not None else MAX_STREAM_BYTES
            while piece := file.read(_CHUNK):
                pieces.append(piece)
                left -= len(piece)
                if left < 0:
                    raise error(
                        f"{name}: cannot be read: it does not end within {most or MAX_STREAM_BYTES} bytes"
                    )
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    except OSError as cause:
        raise error(f"{name}: cannot be read: {reason(cause)}") from cause
    except MemoryError as cause:
        raise error(f"{name}: cannot be read: it does not fit the memory") from cause


def read_bytes(path: PathLike, *, error: type[ChakraError] = TraceError) -> bytes:
    """Read a whole file, decompressing gzip (known by its magic bytes), within a bound against gzip bombs.

    Raises
    ------
    ChakraError
        Of the class ``error``: the file cannot be read, its gzip data is damaged or grows out of proportion.
    """
    raw = read_raw(path, error=error)
    return gunzip(raw, os.fspath(path), error=error) if raw.startswith(GZIP_MAGIC) else raw


def gunzip(packed: bytes, source: str, *, error: type[ChakraError] = TraceError) -> bytes:
    """Decompress gzip data of one or more members; ``source`` names it in messages.

    Raises
    ------
    ChakraError
        Of the class ``error`` if the data is damaged, cut off or grows out of proportion.
    """
    pieces: list[bytes] = []
    unpacker = Unpacker(io.BytesIO(packed))
    try:
        while piece := unpacker.piece():
            pieces.append(piece)
        return b"".join(pieces)
    except zlib.error as cause:
        if "not gzip" in str(cause):
            raise error(f"{source}: {cause}") from cause
        raise error(
            f"{source}: the gzip data is damaged after {counted(unpacker.given, 'uncompressed byte')} ({cause})"
        ) from cause
    except (EOFError, OSError) as cause:
        raise error(f"{source}: {cause}") from cause
    except MemoryError as cause:
        raise error(f"{source}: its uncompressed bytes do not fit the memory") from cause


# ------------------------------------------------------------------------------------------- kinds of file

KINETO = "Kineto trace"
HOST_TRACE = "PyTorch host trace"
LINKED = "linked PyTorch trace"
EXECUTION_TRACE = "execution trace"
JSON_ET = "JSON-encoded ET"
JSONIZED_ET = "jsonized execution trace"
MANIFEST = "workload manifest"
JSON = "JSON file"
YAML = "YAML file"
TEXT_WORKLOAD = "text workload"
RESULT = "replay result"
TIMELINE = "timeline that chakra wrote"
TEXT = "text file"
EMPTY = "empty file"
UNKNOWN = "unknown file"

#: What a timeline in Chrome's format says of who wrote it, and how it begins: its events look like those of a recording.
#: Those of 0.1.0 name no writer, and no profiler says first what they do.
TIMELINE_WRITER = "chakra timeline"
OWN_TIMELINE = re.compile(
    rb'\{\s*("otherData"\s*:\s*\{\s*"writer"\s*:\s*"'
    + TIMELINE_WRITER.encode()
    + rb'"|"displayTimeUnit": "ns",\s*"otherData": \{"source":)'
)
#: What stands in the nodes of a linked trace alone: linkers keep the keys of the host trace.
_OF_LINKED = re.compile(r'"(exclusive_dur|inter_thread_dep|sync_dep)"\s*:')
#: What a top-level JSON key says about the file.
_JSON_KEYS = {
    "traceEvents": KINETO,
    "deviceProperties": KINETO,
    "workload_graph": JSON_ET,
    "nodes": HOST_TRACE,
}


def kind_of_keys(keys: Iterable[object]) -> str:
    """What a JSON object of these keys is; empty if they say nothing."""
    return next((_JSON_KEYS[key] for key in keys if isinstance(key, str) and key in _JSON_KEYS), "")


_POLICIES = (
    *("DATA", "MODEL", "MICRO", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", "HYBRID_TRANSFORMER"),
    *("HYBRID_TRANSFORMER_FWD_IN_BCKWD", "HYBRID_DLRM", "HYBRID_DLRM_ENHANCED", "HYBRID_CUSTOMIZED"),
    *("DISTRIBUTED_INFERENCE", "DATA_REORDER"),
)

_HEAD = 1 << 16


def sniff_kind(path: PathLike, *, error: type[ChakraError] = TraceError) -> str:
    """Name what a file is, by its content: one of this module's constants such as ``KINETO`` ("Kineto
    trace").

    Raises
    ------
    ChakraError
        Of the class ``error`` if the file cannot be read.
    """
    try:
        with open_stream(path, error=error, looked_at=True) as file:
            head = file.read(_HEAD)
    except (OSError, EOFError, zlib.error) as cause:
        raise error(f"{os.fspath(path)}: cannot be read: {cause}") from cause
    return kind_of(head)


def kind_of(head: bytes) -> str:
    """Name what a file is from its first bytes (uncompressed; 64 KiB are enough)."""
    if not head:
        return EMPTY
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _is_text(head):
        if text[:1] in (b"{", b"["):
            return _json_kind(text)
        words = text.split(None, 1)
        if words and words[0].decode("ascii", "replace").rstrip(":") in _POLICIES:
            return TEXT_WORKLOAD
        if re.search(rb"(?m)^(topology|npus_count|bandwidth|latency)\s*:", text):
            return YAML
        return TEXT
    return EXECUTION_TRACE if _looks_like_records(head) else UNKNOWN


def _is_text(head: bytes) -> bool:
    """Whether it is UTF-8 without control characters (record lengths and tags are such), or opens like
    JSON.
    """
    if _is_json(head):
        return True
    piece = head[:4096]
    try:
        piece.decode()
    except UnicodeDecodeError as error:
        if error.start < len(piece) - 3:  # not just a character that the end of the piece cuts
            return False
    return head[:1] != b"\n" and not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", piece)


def _is_json(head: bytes) -> bool:
    """Whether it opens like a JSON object or array: brace, white space, then a quote or another bracket."""
    return (
        re.match(rb"(\xef\xbb\xbf)?\s*[{\[]\s*([\"{\[\]}]|\Z)", head) is not None and b"\0" not in head[:64]
    )


def _json_kind(text: bytes) -> str:
    if OWN_TIMELINE.match(text):
        return TIMELINE
    decoded = text.decode("utf-8", "replace")
    depth_one = _top_level_keys(decoded)
    if any(key == "schema" for key in depth_one) and '"chakra.replay.result' in decoded[:4096]:
        return RESULT
    if '"chakra.et.json' in decoded[:4096]:
        return JSONIZED_ET
    if '"chakra.workload/' in decoded[:4096] and "format" in depth_one:
        return MANIFEST
    for key in depth_one:
        if key in _JSON_KEYS:
            kind = _JSON_KEYS[key]
            return LINKED if kind == HOST_TRACE and _OF_LINKED.search(decoded) else kind
    if decoded.startswith("[") and re.match(r'\[\s*\{[^{}]{0,400}"(ph|cat|ts)"\s*:', decoded):
        return KINETO
    return JSON


def _top_level_keys(text: str) -> list[str]:
    """Keys of the outermost JSON object that begin within ``text`` (which may be cut off)."""
    keys: list[str] = []
    depth = 0
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\[\]]', text):
        token = match.group(0)
        if token in "{[":
            depth += 1
        elif token in "}]":
            depth -= 1
        elif depth == 1 and match.group(2):
            keys.append(match.group(1))
    return keys


def _looks_like_records(head: bytes) -> bool:
    """Whether the first bytes can be the length of a record and the tag of a metadata or node field."""
    position = 0
    while position < 5 and position < len(head) and head[position] >= 0x80:
        position += 1
    if position + 1 >= len(head):
        return len(head) == 1 and head[0] == 0
    return head[0] == 0 or head[position + 1] in (0x0A, 0x12, 0x08, 0x10, 0x18)


def unusable_json(cause: Exception) -> str:
    """Why Python's decoder gave up on text that may be JSON, without its hint how to change Python's settings."""
    if isinstance(cause, RecursionError):
        return "nested too deeply"
    digits = re.search(r"value has ([0-9]+) digits", str(cause))
    return (
        f"a number of {digits[1]} digits; 64 bits have at most 20" if digits else str(cause).partition(";")[0]
    )


_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|["{}\[\]]', re.DOTALL)


def is_cut(text: bytes) -> bool:
    """Whether what opens like a JSON object or array ends before it is closed, as files of killed writers do."""
    depth = 0
    for match in _TOKENS.finditer(text):
        token = match.group()
        if token == b'"':
            return True
        depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
    return depth > 0


def json_fault(cause: Exception) -> str:
    """What is wrong with a text that Python's decoder refused: where it stops being JSON, or why it cannot be used."""
    if isinstance(cause, json.JSONDecodeError):
        text = cause.doc.encode(errors="surrogatepass")
        cut = (
            f"; the text ends inside a bracket or string, after {counted(len(text), 'byte')}"
            if is_cut(text)
            else ""
        )
        return f"line {cause.lineno} column {cause.colno}: not JSON ({cause.msg}{cut})"
    return f"not usable JSON: {unusable_json(cause)}"


def read_json(path: PathLike, *, error: type[ChakraError] = TraceError) -> object:
    """Read a JSON document (may be gzipped).

    Raises
    ------
    ChakraError
        Of the class ``error``, with line and column where the text stops being JSON.
    """
    data = read_bytes(path, error=error)
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as cause:
        raise error(f"{os.fspath(path)}: byte {cause.start}: not UTF-8 text") from cause
    except (ValueError, RecursionError) as cause:
        raise error(f"{os.fspath(path)}: {json_fault(cause)}") from cause
