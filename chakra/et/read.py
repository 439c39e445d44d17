"""Reading execution traces: plain, gzipped or JSON-encoded; equal content of many ranks is read and stored
once.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from chakra.arguments import checked
from chakra.arrays import U8
from chakra.errors import TraceError
from chakra.et.codec import decode_records, frame
from chakra.et.trace import Trace, make_trace
from chakra.et.wire import make_records, parse_metadata
from chakra.io import files, inputs
from chakra.io.rank_files import neighbour, traces_beside
from chakra.io.readable import counted
from chakra.schemas.protolib import encode_varint

#: Files above this size are mapped instead of copied into memory.
_MAP_ABOVE_BYTES = 1 << 28

#: a JSON file up to this size is looked through for its end where nothing says what it is
_SHORT = 1 << 24

Progress = Callable[[int, int], None]


@checked
def read_trace(path: files.PathLike, *, repair: bool = False) -> Trace:
    """Read one execution trace.

    Reads current files (plain or gzip, known by its magic bytes) and the JSON-encoded form of older tools.
    Control dependencies on nodes that are not in the file are dropped and counted
    (``Trace.dropped_ctrl_deps``).

    Parameters
    ----------
    path
        The file.
    repair
        Drop, and count, data dependencies on nodes that are not in the file, and control dependencies that
        close a cycle. The trace's encoded form is then rewritten without the dropped dependencies, so that
        writing it gives a file that every tool reads.

    Raises
    ------
    TraceError
        In one line, with byte offset or node id: the file cannot be read, is cut off, is another kind of file
        or an older wire format, repeats an id, lacks a data dependency, holds an attribute of the wrong kind
        or a cycle of data dependencies.
    """
    source = os.fspath(path)
    return decode_trace(_load(source), source, repair=repair)


@checked
def read_traces(
    paths: Iterable[files.PathLike], *, repair: bool = False, progress: Progress | None = None
) -> list[Trace]:
    """Read the traces of many ranks; files of equal content share one `Trace` (whose source is the first of
    them).

    Equal paths and links to one file are recognised without reading, other equal files by their hash.

    Parameters
    ----------
    paths
        One file per rank; a path may repeat.
    repair
        As for `read_trace`.
    progress
        Called with (ranks done, ranks in all) from time to time.

    Raises
    ------
    TraceError
        As `read_trace`, for the first bad file.
    """
    names = [os.fspath(path) for path in paths]
    by_path: dict[str, Trace] = {}
    by_file: dict[tuple[int, int], Trace] = {}
    by_size: dict[int, _SameSize] = {}
    traces: list[Trace] = []
    for done, name in enumerate(names):
        trace = by_path.get(name)
        if trace is None:
            try:
                stat = os.stat(name)
            except (OSError, ValueError) as error:
                raise TraceError(f"{name}: cannot be read: {files.reason(error)}") from error
            identity = (stat.st_dev, stat.st_ino)
            trace = by_file.get(identity) if stat.st_ino else None
            if trace is None:
                trace = by_size.setdefault(stat.st_size, _SameSize()).read(name, repair=repair)
                by_file[identity] = trace
            by_path[name] = trace
        traces.append(trace)
        if progress is not None and (done % 64 == 63 or done + 1 == len(names)):
            progress(done + 1, len(names))
    return traces


@dataclass(slots=True)
class _SameSize:
    """Traces of files of one size. The first is only hashed when a second one comes."""

    first: tuple[str, Trace] | None = None
    by_hash: dict[bytes, Trace] = field(default_factory=dict)

    def read(self, name: str, *, repair: bool) -> Trace:
        """Read a file unless one of equal content was read before."""
        raw = _read_raw(name)
        if self.first is None and not self.by_hash:
            trace = decode_trace(_unpack(raw, name), name, repair=repair)
            self.first = (name, trace)
            return trace
        if self.first is not None:
            self.by_hash[_hash(_read_raw(self.first[0]))] = self.first[1]
            self.first = None
        key = _hash(raw)
        if key not in self.by_hash:
            self.by_hash[key] = decode_trace(_unpack(raw, name), name, repair=repair)
        return self.by_hash[key]


def _hash(raw: U8) -> bytes:
    return hashlib.blake2b(raw.data, digest_size=16).digest()


def _read_raw(name: str) -> U8:
    """The file's bytes as they are on disk; big files are mapped."""
    try:
        found = os.stat(name)
        if found.st_size > _MAP_ABOVE_BYTES and os.path.isfile(name):
            inputs.note_input(found)
            return np.memmap(name, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise TraceError(f"{name}: cannot be read: {files.reason(error)}{neighbour(name)}") from error
    return np.frombuffer(files.read_raw(name), np.uint8)


def _unpack(raw: U8, name: str) -> U8:
    if raw[:2].tobytes() == files.GZIP_MAGIC:
        return np.frombuffer(files.gunzip(raw.tobytes(), name), np.uint8)
    return raw


def _load(name: str) -> U8:
    return _unpack(_read_raw(name), name)


def decode_trace(data: U8, source: str, *, repair: bool = False) -> Trace:
    """Make a trace from the uncompressed bytes of a file; see `read_trace`."""
    head = data[: 1 << 16].tobytes()
    kind = files.kind_of(head)
    if kind == files.JSON_ET:
        from chakra.et.json_et import encode_json_et

        data = np.frombuffer(encode_json_et(data.tobytes(), source), np.uint8)
    elif kind == files.JSONIZED_ET:
        raise TraceError(f"{source}: this is a {kind}; turn it back with `chakra jsonize {source} OUT.et`")
    elif kind not in (files.EXECUTION_TRACE, files.UNKNOWN, files.EMPTY, files.TEXT):
        raise TraceError(f"{source}: this is a {kind}, not an execution trace{advice(kind, data, source)}")
    try:
        records = make_records(data, *frame(data, source), source)
    except TraceError as error:
        if kind == files.TEXT:
            raise TraceError(f"{source}: this is a {kind}, not an execution trace") from error
        raise
    parse_metadata(records.data, records.meta_start, records.meta_end, source)
    columns = decode_records(records, source)
    trace = make_trace(columns, records, source, repair=repair)
    if repair and (trace.dropped_ctrl_deps or trace.dropped_data_deps):
        return _rewritten(trace)
    return trace


def advice(kind: str, data: U8, source: str) -> str:
    """What to do with a file that is no trace but of this kind; for the end of a message."""
    if kind == files.JSON and len(data) <= _SHORT and files.is_cut(data.tobytes()):
        return f": it is cut off after {counted(len(data), 'byte')}, before anything says what it is"
    if kind in (files.KINETO, files.HOST_TRACE):
        return "; `chakra link` joins it with its partner into one"
    if kind == files.LINKED:
        return f"; `chakra convert pytorch --input {source} -o OUT.et` turns it into one"
    if kind == files.MANIFEST:
        beside = traces_beside(source)
        return f"; one of the traces that it names is {beside[0]}" if beside else "; it names its traces"
    if kind == files.TEXT_WORKLOAD:
        return "; `chakra convert text` turns it into one"
    return ""


def _rewritten(trace: Trace) -> Trace:
    """The same trace with its dropped dependencies gone from the encoded form as well."""
    records = trace.records
    pieces = [_record(trace.records.data[records.meta_start : records.meta_end].tobytes())]
    for i in range(trace.n_nodes):
        payload = records.message(i)
        node = trace.node_proto(i)
        view = trace.node(i)
        ctrl, data = view.ctrl_deps, view.data_deps
        if len(ctrl) != len(node.ctrl_deps) or len(data) != len(node.data_deps):
            node.ctrl_deps[:] = ctrl
            node.data_deps[:] = data
            payload = node.SerializeToString()
        pieces.append(_record(payload))
    content = np.frombuffer(b"".join(pieces), np.uint8)
    return replace(trace, records=make_records(content, *frame(content, trace.source), trace.source))


def _record(payload: bytes) -> bytes:
    return encode_varint(len(payload)) + payload
