"""From a graph to the bytes of each rank's trace.

All ranks run the same graph; their files differ at most in the numbers of their communicator groups. Those
numbers have equal lengths (`spans.SpanGroups`), so a rank's file is the common one with some digits
exchanged.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I32, I64, U8
from chakra.converters.text.grammar import TextWorkload
from chakra.converters.text.passes import COLLECTIVE, COMPUTE, PHASES, SPANS, UPDATE, Graph
from chakra.converters.text.policies import Span
from chakra.converters.text.spans import Dims, EvenGroups, Members, SpanGroups
from chakra.errors import ConversionError
from chakra.et import ABSENT, NodeType, TraceColumns
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata

#: What upstream's text converter calls the version of its files; readers look for it in the metadata.
SCHEMA = "1.0.2-chakra.1.0.0"


@dataclass(frozen=True, slots=True)
class Common:
    """The bytes that all ranks share.

    Attributes
    ----------
    data
        uint8: the file, with letters where group numbers go.
    places
        By kind of group: (m, digits) int64, where the digits of its number lie.
    """

    data: U8
    places: dict[EvenGroups, I64]


def encode_common(
    graph: Graph,
    workload: TextWorkload,
    members: dict[Span, Members],
    table: SpanGroups,
    *,
    time_unit: str,
    provenance: dict[str, str],
) -> Common:
    """Encode the graph once for all ranks.

    Parameters
    ----------
    time_unit
        "us" or "ns": what the file's times are.
    provenance
        Text attributes for the metadata record.

    Raises
    ------
    ConversionError
        If durations exceed what a trace can hold.
    """
    columns = _columns(graph, workload, time_unit)
    attrs = [
        AttributeProto(name="schema", string_val=SCHEMA),
        *_texts(provenance),
        *_texts({"input_file": workload.text}),
    ]
    columns.metadata = GlobalMetadata(version=columns.metadata.version, attr=attrs)
    said = [members.get(span) for span in SPANS]
    dims = list(dict.fromkeys(item.involved for item in said if isinstance(item, Dims)))
    if dims:
        code = np.array([dims.index(item.involved) if isinstance(item, Dims) else -1 for item in said])
        columns.set_bools("involved_dim", np.where(graph.kind == COLLECTIVE, code[graph.span], -1), dims)
    if not table.kinds:
        return Common(np.frombuffer(columns.encode(), np.uint8), {})
    code = np.array([table.kinds.index(item) if isinstance(item, EvenGroups) else -1 for item in said])
    column = np.where(graph.kind == COLLECTIVE, code[graph.span], -1)
    # Two encodings with other letters differ exactly where the numbers stand.
    lower, upper = (_with_letters(columns, column, table, first) for first in ("a", "A"))
    where = np.flatnonzero(lower != upper)
    letters = lower[where] - ord("a")
    places = {
        kind: where[letters == index].reshape(-1, table.digits) for index, kind in enumerate(table.kinds)
    }
    return Common(lower, places)


def _with_letters(columns: TraceColumns, column: I64, table: SpanGroups, first: str) -> U8:
    names = [chr(ord(first) + index) * table.digits for index in range(len(table.kinds))]
    columns.set_text("pg_name", column, names)
    return np.frombuffer(columns.encode(), np.uint8)


def rank_files(common: Common, table: SpanGroups) -> Iterator[tuple[list[int], U8]]:
    """Yield the distinct file contents with the ranks that have them; each rank comes once."""
    # groups that the policy has, but no collective of the file
    used = [kind for kind, places in common.places.items() if len(places)]
    if not used:
        yield list(range(table.npus)), common.data
        return
    numbers = np.stack([table.number_of(kind) for kind in used])
    owners: dict[tuple[int, ...], list[int]] = {}
    for rank, key in enumerate(zip(*numbers.tolist(), strict=True)):
        owners.setdefault(key, []).append(rank)
    data = common.data.copy()
    for key, ranks in owners.items():
        for kind, number in zip(used, key, strict=True):
            data[common.places[kind]] = np.frombuffer(str(number).encode(), np.uint8)
        yield ranks, data


def _columns(graph: Graph, workload: TextWorkload, time_unit: str) -> TraceColumns:
    """Everything but the metadata and the spans."""
    columns = TraceColumns(graph.n_nodes)
    collective = graph.kind == COLLECTIVE
    columns.types[:] = np.where(collective, NodeType.COMM_COLL, NodeType.COMP)
    columns.set_names(*_names(graph, workload))
    columns.set_data_deps(graph.offsets, graph.parents)
    columns.set_bool("is_cpu_op", False)
    if time_unit == "ns":
        columns.duration_micros[:] = round_to_micros(graph.time, workload.source)
        columns.set_int("duration_ns", np.where(collective, ABSENT, graph.time))
    else:
        columns.duration_micros[:] = graph.time
    if collective.any():
        columns.set_int("comm_type", np.where(collective, graph.comm_type.astype(np.int64), ABSENT))
        columns.set_int("comm_size", np.where(collective, graph.size_bytes, ABSENT))
    return columns


def round_to_micros(time_ns: I64, source: str) -> I64:
    """Round durations in ns to whole us so that every running sum stays within half a microsecond of the
    exact one.

    Raises
    ------
    ConversionError
        If the sum does not fit an int64.
    """
    if int(time_ns.max(initial=0)) * len(time_ns) > 1 << 62 and sum(time_ns.tolist()) > 1 << 62:
        raise ConversionError(f"{source}: the compute times add up to more ns than a 64-bit number holds")
    micros = (np.cumsum(time_ns) + 500) // 1000
    return np.diff(micros, prepend=np.int64(0))


def _names(graph: Graph, workload: TextWorkload) -> tuple[I32, list[str]]:
    """Name of every node, as (codes, table): kind, layer, phase and for a collective its word."""
    n_words = len(graph.word_table)
    key = graph.layer.astype(np.int64) * len(PHASES) + graph.phase
    key = (key * 3 + graph.kind) * n_words + graph.words
    distinct, codes = np.unique(key, return_inverse=True)
    table = []
    for value in distinct.tolist():
        rest, word = divmod(value, n_words)
        rest, kind = divmod(rest, 3)
        layer, phase = divmod(rest, len(PHASES))
        table.append(node_name(kind, workload.layers[layer].name, PHASES[phase], graph.word_table[word]))
    return codes.astype(np.int32).ravel(), table


def node_name(kind: int, layer: str, phase: str, word: str) -> str:
    """Name of a node: node type first, as upstream's tools look for it in names."""
    if kind == COMPUTE:
        return f"COMP_NODE_{layer}_{phase}"
    if kind == UPDATE:
        return f"COMP_NODE_{layer}_{phase}_UPDATE"
    return f"COMM_COLL_NODE_{layer}_{phase}_{word}"


def _texts(items: dict[str, str]) -> list[AttributeProto]:
    return [AttributeProto(name=name, string_val=text) for name, text in items.items()]
