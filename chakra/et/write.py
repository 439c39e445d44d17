"""Writing traces, and making them from whole columns at once."""

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from chakra.arguments import checked, shown
from chakra.arrays import I8, I32, I64, U8, U64, AnyArray
from chakra.errors import TraceError
from chakra.et.attributes import USUAL_KINDS, IntegerKind
from chakra.et.encode import AttributeColumn, Encodable, encode
from chakra.et.read import decode_trace
from chakra.et.schema import ABSENT, NodeType
from chakra.et.trace import Trace
from chakra.io import files
from chakra.io.readable import counted
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, IOInfo

#: Version text of the files we write.
VERSION = "1.0.0"


class TraceColumns:
    """A trace in the making: whole columns in, one immutable `Trace` out.

    For converters and generators; `chakra.builder` is the pleasant way for hand-written workloads.

    Parameters
    ----------
    n
        Number of nodes.

    Attributes
    ----------
    ids : (n,) uint64
        0 to n - 1 unless set.
    types : (n,) uint8
        `NodeType` values.
    start_micros, duration_micros : (n,) int64
        Microseconds. For shorter times set the attribute ``duration_ns``, which goes before
        ``duration_micros``.
    metadata
        First record of the file.

    Examples
    --------
    >>> columns = TraceColumns(3)
    >>> columns.types[:] = NodeType.COMP, NodeType.COMM_COLL, NodeType.COMP
    >>> columns.set_names(["forward", "all-reduce", "update"])
    >>> columns.set_data_deps([0, 0, 1, 2], [0, 1])
    >>> columns.set_bool("is_cpu_op", False)
    >>> columns.set_int("comm_type", [ABSENT, 0, ABSENT])
    >>> columns.set_int("comm_size", [ABSENT, 1 << 20, ABSENT])
    >>> columns.set_text("pg_name", [-1, 0, -1], ["7"])
    >>> trace = columns.build()
    >>> trace.node(1).attrs
    {'is_cpu_op': False, 'comm_type': 0, 'comm_size': 1048576, 'pg_name': '7'}
    """

    @checked
    def __init__(self, n: int) -> None:
        if n < 0:
            raise TraceError(f"a trace cannot have {counted(n, 'node')}")
        self.n = n
        self.ids: U64 = np.arange(n, dtype=np.uint64)
        self.types: U8 = np.full(n, NodeType.COMP, np.uint8)
        self.start_micros: I64 = np.zeros(n, np.int64)
        self.duration_micros: I64 = np.zeros(n, np.int64)
        self.metadata: GlobalMetadata = GlobalMetadata(version=VERSION)
        self._names: tuple[I32, tuple[str, ...]] = (np.zeros(n, np.int32), ("",))
        self._ctrl: tuple[I64, U64] = (np.zeros(n + 1, np.int64), np.zeros(0, np.uint64))
        self._data: tuple[I64, U64] = (np.zeros(n + 1, np.int64), np.zeros(0, np.uint64))
        self._inputs: tuple[I32, tuple[IOInfo, ...]] | None = None
        self._outputs: tuple[I32, tuple[IOInfo, ...]] | None = None
        self._attributes: dict[str, AttributeColumn] = {}

    # -------------------------------------------------------------------------------------------- fields

    @checked
    def set_names(self, names: Sequence[str] | npt.ArrayLike, table: Sequence[str] | None = None) -> None:
        """Set all names: one text a node, or (codes, table of distinct texts).

        Raises
        ------
        TraceError
            If they are neither.
        """
        if table is None:
            if not isinstance(names, Iterable) or any(not isinstance(name, str) for name in names):
                raise TraceError(
                    f"names: one text for each of {counted(self.n, 'node')} is needed, not {shown(names)}"
                )
            texts = [str(name) for name in cast("Sequence[str]", names)]
            distinct = {text: code for code, text in enumerate(dict.fromkeys(texts))}
            names, table = [distinct[text] for text in texts], list(distinct)
        self._names = (self._codes("names", names, len(table), optional=False), tuple(table))

    @checked
    def set_data_deps(self, offsets: npt.ArrayLike, ids: npt.ArrayLike) -> None:
        """Set data dependencies: those of node i are the node ids ``ids[offsets[i]:offsets[i + 1]]``."""
        self._data = self._csr("data dependencies", offsets, ids)

    @checked
    def set_ctrl_deps(self, offsets: npt.ArrayLike, ids: npt.ArrayLike) -> None:
        """Set control dependencies, as `set_data_deps`."""
        self._ctrl = self._csr("control dependencies", offsets, ids)

    @checked
    def set_inputs(self, codes: npt.ArrayLike, table: Sequence[IOInfo]) -> None:
        """Set the field ``inputs`` from a table of distinct messages; code -1 means none."""
        self._inputs = (self._codes("inputs", codes, len(table)), tuple(table))

    @checked
    def set_outputs(self, codes: npt.ArrayLike, table: Sequence[IOInfo]) -> None:
        """Set the field ``outputs`` from a table of distinct messages; code -1 means none."""
        self._outputs = (self._codes("outputs", codes, len(table)), tuple(table))

    # ---------------------------------------------------------------------------------------- attributes

    @checked
    def set_int(self, name: str, values: npt.ArrayLike, kind: IntegerKind | None = None) -> None:
        """Set an integer attribute; a scalar means the same for every node, ``ABSENT`` that a node does not
        have it.

        ``kind`` is the member of AttributeProto to write; by default the one that writers use for this
        attribute (int64 if it is not a known one, or if a value does not fit).

        Raises
        ------
        TraceError
            If a value does not fit ``kind``.
        """
        column = self._column(name, values, np.int64)
        present = column[column != ABSENT]
        low, high = (int(present.min()), int(present.max())) if len(present) else (0, 0)
        chosen = kind or USUAL_KINDS.get(name, "int64")
        if not _fits(chosen, low, high):
            if kind is not None:
                raise TraceError(f"attribute {name}: values from {low} to {high} do not fit {kind}")
            chosen = "int64"
        self._attributes[name] = AttributeColumn(name, f"{chosen}_val", column, None)

    @checked
    def set_bool(self, name: str, values: npt.ArrayLike) -> None:
        """Set a bool attribute; a scalar means the same for every node, -1 that a node does not have it.

        Raises
        ------
        TraceError
            A value other than 0, 1 and -1.
        """
        column: I8 = self._column(name, values, np.int8)
        wide = column.astype(np.int64)
        if len(wide) and (wide.min() < -1 or wide.max() > 1):
            raise TraceError(f"attribute {name}: a bool column holds 0, 1 or -1 (absent)")
        wide[wide < 0] = ABSENT
        self._attributes[name] = AttributeColumn(name, "bool_val", wide, None)

    @checked
    def set_text(self, name: str, codes: npt.ArrayLike, table: Sequence[str]) -> None:
        """Set a string attribute from a table of distinct texts; code -1 means that a node does not have
        it.
        """
        self.set_attribute(name, codes, [AttributeProto(name=name, string_val=text) for text in table])

    @checked
    def set_bools(self, name: str, codes: npt.ArrayLike, table: Sequence[Sequence[bool]]) -> None:
        """Set an attribute that is a list of bools (such as involved_dim) from a table of distinct lists."""
        messages = []
        for row in table:
            message = AttributeProto(name=name)
            message.bool_list.values.extend(bool(item) for item in row)
            message.bool_list.SetInParent()
            messages.append(message)
        self.set_attribute(name, codes, messages)

    @checked
    def set_ints(self, name: str, codes: npt.ArrayLike, table: Sequence[Sequence[int]]) -> None:
        """Set an attribute that is a list of integers (such as in_split_bytes) from a table of distinct lists.

        Raises
        ------
        TraceError
            If an integer does not fit 64 bits.
        """
        messages = []
        for row in table:
            message = AttributeProto(name=name)
            try:
                message.int64_list.values.extend(int(item) for item in row)
            except ValueError as error:
                raise TraceError(f"attribute {name}: {error}") from None
            message.int64_list.SetInParent()
            messages.append(message)
        self.set_attribute(name, codes, messages)

    @checked
    def set_attribute(self, name: str, codes: npt.ArrayLike, table: Sequence[AttributeProto]) -> None:
        """Set an attribute of any kind from a table of distinct messages; code -1 means that a node lacks
        it.
        """
        column = self._codes(name, codes, len(table))
        self._attributes[name] = AttributeColumn(name, "message", column, tuple(table))

    # --------------------------------------------------------------------------------------------- result

    def encode(self) -> bytes:
        """The bytes of the file: metadata record, then one record a node."""
        return encode(
            Encodable(
                metadata=self.metadata,
                ids=self._column("ids", self.ids, np.uint64),
                types=self._column("types", self.types, np.uint8),
                names=self._names,
                ctrl=self._ctrl,
                data=self._data,
                start_micros=self._column("start_micros", self.start_micros, np.int64),
                duration_micros=self._column("duration_micros", self.duration_micros, np.int64),
                inputs=self._inputs,
                outputs=self._outputs,
                attributes=tuple(self._attributes.values()),
            )
        )

    @checked
    def build(self, source: str = "<memory>") -> Trace:
        """Make the trace; ``source`` names it in messages.

        Raises
        ------
        TraceError
            If ids repeat, a dependency is absent or in a cycle, or a column has the wrong length or range.
        """
        trace = decode_trace(np.frombuffer(self.encode(), np.uint8), source)
        if trace.dropped_ctrl_deps:
            raise TraceError(
                f"{source}: {counted(trace.dropped_ctrl_deps, 'control dependency')} on nodes that do not exist"
            )
        trace.check()
        return trace

    # -------------------------------------------------------------------------------------------- checks

    def _column(self, what: str, values: npt.ArrayLike, dtype: type[np.generic]) -> AnyArray:
        given = _as_array(what, values)
        if given.ndim == 0:
            given = np.full(self.n, given)
        if given.shape != (self.n,):
            raise TraceError(f"{what}: {counted(given.size, 'value')} for {counted(self.n, 'node')}")
        return _integers(what, given, dtype)

    def _codes(self, what: str, codes: npt.ArrayLike, size: int, *, optional: bool = True) -> I32:
        column: I32 = self._column(what, codes, np.int32)
        if len(column) and (column.max() >= size or column.min() < (-1 if optional else 0)):
            raise TraceError(f"{what}: codes must index a table of {size}")
        return column

    def _csr(self, what: str, offsets: npt.ArrayLike, ids: npt.ArrayLike) -> tuple[I64, U64]:
        bounds, targets = _integers(what, offsets, np.int64), _integers(what, ids, np.uint64)
        if (
            bounds.shape != (self.n + 1,)
            or bounds[0] != 0
            or bounds[-1] != len(targets)
            or np.any(np.diff(bounds) < 0)
        ):
            raise TraceError(
                f"{what}: offsets must be {counted(self.n + 1, 'ascending number')} from 0 to {len(targets)}"
            )
        return bounds, targets


def _as_array(what: str, values: npt.ArrayLike) -> AnyArray:
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError):
        raise TraceError(f"{what}: integers are needed, not {shown(values)}") from None


def _integers(what: str, values: npt.ArrayLike, dtype: type[np.generic]) -> AnyArray:
    given = _as_array(what, values)
    if given.dtype.kind not in "biu" and given.size:
        raise TraceError(f"{what}: integers are needed, not {shown(values)}")
    if given.dtype.kind not in "biu":  # an empty list has no type
        return np.zeros(given.shape, dtype)
    converted = np.ascontiguousarray(given.astype(dtype))
    if given.dtype != converted.dtype and not np.array_equal(converted, given):
        raise TraceError(f"{what}: a value does not fit {np.dtype(dtype)}")
    return converted.reshape(given.shape)


def _fits(kind: str, low: int, high: int) -> bool:
    bits = 32 if kind.endswith("32") else 64
    least, most = (
        (0, 2**bits - 1) if kind.startswith(("uint", "fixed")) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    return bool(least <= low <= high <= most)


@checked
def write_trace(trace: Trace | TraceColumns, path: files.PathLike) -> None:
    """Write a trace; gzipped if the name ends in ``.gz``. The file appears whole or not at all.

    A trace that was read from a file is written with the same (uncompressed) bytes.

    Parameters
    ----------
    trace
        What to write; columns are checked first.
    path
        File name.

    Raises
    ------
    UsageError
        If the path cannot be written.
    TraceError
        If columns do not make a trace.
    """
    content = trace.build(str(path)).records.data if isinstance(trace, TraceColumns) else trace.records.data
    with files.atomic_bytes(path) as file:
        file.write(content.data)
