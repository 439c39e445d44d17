"""Stamping templates: the trace of a stage from its actions, by array operations only.

Node ids are dense and follow program order: id = first id of the action + index in its template, so they are a function
of (micro-batch, chunk, layer, operator) and equal input gives equal bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from chakra.arrays import I64, AnyArray, bounds, ranges
from chakra.errors import UsageError
from chakra.et import ABSENT, CommType, NodeType, Trace, TraceColumns
from chakra.et.manifest import PEER_MODE, RELATIVE
from chakra.et.operators import ATTRIBUTE as OPERATOR
from chakra.et.operators import TOKEN_NODES
from chakra.et.schema import IN_SPLIT, OUT_SPLIT
from chakra.generate.plan.template import N_CHAINS, Outside, Stream, Template
from chakra.io.documents import document_text
from chakra.io.limits import MAX_GENERATED_NODES
from chakra.io.readable import counted
from chakra.replay.config.model import CollectiveKind
from chakra.schemas.et_def_pb2 import AttributeProto


@dataclass(frozen=True, slots=True)
class Stamp:
    """One use of a template.

    ``label`` names the micro-batch in node names. ``forward`` and ``input`` are the indices of the stamps that
    :attr:`Outside.FORWARD` and :attr:`Outside.INPUT` mean (-1: none), ``posted`` that of :attr:`Outside.POSTED` (-1: the
    one before). ``token`` says which token of its requests is there when the stamp is done: 0 is that of the prefill, -1
    none. ``second`` is the second of two actions beside each other, whose nodes the template marks; its own template is
    not looked at.
    """

    template: int
    micro_batch: int = 0
    label: str = ""
    forward: int = -1
    input: int = -1
    posted: int = -1
    token: int = -1
    second: "Stamp | None" = None

    @property
    def both(self) -> "tuple[Stamp, Stamp]":
        """This stamp and its second, or itself twice."""
        return self, self.second or self


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What is written beside the nodes.

    ``metadata`` are attributes of the first record; ``tensors`` adds ``inputs`` and ``outputs`` with the activations
    kept, for trackers of local memory; ``names`` puts the stamp's label before every node name. ``peers`` gives for
    every (group, positions) of sends and receives the offset to the rank's own number. ``prefix`` stands before the names
    of groups.
    """

    metadata: Mapping[str, str | int] = field(default_factory=dict)
    tensors: bool = False
    names: bool = True
    peers: Mapping[tuple[str, int], int] = field(default_factory=dict)
    prefix: str = ""


def stamp_trace(
    templates: Sequence[Template], stamps: Sequence[Stamp], facts: TraceFacts, source: str = "<memory>"
) -> Trace:
    """Build the trace that runs ``stamps`` in order."""
    tables = _Tables(templates, facts)
    sizes = tables.sizes[[stamp.template for stamp in stamps]]
    ends = np.cumsum(sizes)
    first = ends - sizes
    n = int(ends[-1]) if len(ends) else 0
    if n > MAX_GENERATED_NODES:
        raise UsageError(
            f"a trace of {counted(n, 'node')}, where at most {MAX_GENERATED_NODES} are generated: take larger "
            "buckets, or fewer "
            "layers, micro-batches or decode steps"
        )
    owner = np.repeat(np.arange(len(stamps), dtype=np.int64), sizes)
    starts = tables.starts[[stamp.template for stamp in stamps]]
    pick = np.arange(n, dtype=np.int64) - first[owner] + starts[owner]
    # which of two actions beside each other a node is of
    which = tables.second[pick]
    each = np.array([[one.micro_batch for one in stamp.both] for stamp in stamps], dtype=np.int64).reshape(
        -1, 2
    )
    micro_batch = each[owner, which]

    columns = TraceColumns(n)
    columns.types = tables.types[pick]
    outside = _outside(templates, stamps, first)
    columns.set_data_deps(*_resolve(tables.data, pick, first[owner], outside, owner))
    columns.set_ctrl_deps(*_resolve(tables.ctrl, pick, first[owner], outside, owner))
    _set_attributes(columns, tables, pick, micro_batch)
    _set_names(columns, tables, pick, (owner, which), stamps, labelled=facts.names)
    if facts.tensors:
        _set_tensors(columns, templates, stamps, first)
    made = _token_nodes(stamps, first, ends)
    for key, value in {PEER_MODE: RELATIVE, **facts.metadata, **made}.items():
        attribute = columns.metadata.attr.add(name=key)
        if isinstance(value, int):
            attribute.int64_val = value
        else:
            attribute.string_val = value
    return columns.build(source)


def _token_nodes(stamps: Sequence[Stamp], first: I64, ends: I64) -> dict[str, str]:
    """Metadata: of every micro-batch the first and the last token that the trace makes: (token, first id, id behind)."""
    made: dict[int, list[tuple[int, int, int]]] = {}
    for i, stamp in enumerate(stamps):
        if stamp.token >= 0:
            made.setdefault(stamp.micro_batch, []).append((stamp.token, int(first[i]), int(ends[i])))
    if not made:
        return {}
    return {TOKEN_NODES: document_text([[min(tokens), max(tokens)] for tokens in made.values()])}


class _Csr:
    """Ragged lists end to end."""

    def __init__(self, lists: Sequence[Sequence[int]]) -> None:
        self.lengths = np.array([len(item) for item in lists], dtype=np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.values = np.array([value for item in lists for value in item], dtype=np.int64)


class _Tables:
    """All templates' columns, end to end."""

    def __init__(self, templates: Sequence[Template], facts: TraceFacts) -> None:
        self.sizes = np.array([len(t) for t in templates], dtype=np.int64)
        self.starts = np.cumsum(self.sizes) - self.sizes

        def column(name: str) -> I64:
            values = [value for t in templates for value in getattr(t, name)]
            try:
                return np.array(values, dtype=np.int64)
            except OverflowError:
                what = {"flops": "operations", "durations_ns": "ns", "tag_bases": "tags"}.get(name, "bytes")
                raise UsageError(
                    f"a node has so many {what} that 64 bits do not hold it; make the model or the batch smaller"
                ) from None

        self.types = column("types").astype(np.uint8)
        self.flops, self.bytes, self.durations = column("flops"), column("bytes"), column("durations_ns")
        self.expert_flops, self.expert_bytes = column("expert_flops"), column("expert_bytes")
        self.comm_bytes = column("comm_bytes")
        self.tag_bases, self.streams = column("tag_bases"), column("streams")
        self.second = np.array(
            [int(one) for t in templates for one in t.second or [False] * len(t)], dtype=np.int64
        )
        pairs = [pair for t in templates for pair in t.shares]
        lists = dict.fromkeys(sizes for pair in pairs if pair for sizes in pair)
        self.share_table = list(lists)
        number = {sizes: i for i, sizes in enumerate(self.share_table)}
        self.shares = np.array(
            [[number[sizes] for sizes in pair] if pair else [-1, -1] for pair in pairs], dtype=np.int32
        ).reshape(-1, 2)
        kinds = [kind for t in templates for kind in t.kinds]
        self.comm_kinds = np.array(
            [CommType[kind.value].value if isinstance(kind, CollectiveKind) else ABSENT for kind in kinds],
            dtype=np.int64,
        )
        # only collectives name their group; peers become offsets in rank numbers
        p2p = (self.types == NodeType.COMM_SEND) | (self.types == NodeType.COMM_RECV)
        groups = [group for t in templates for group in t.groups]
        named = [None if is_p2p else group for group, is_p2p in zip(groups, p2p.tolist(), strict=True)]
        used = sorted({group for group in named if group is not None})
        self.group_table = [facts.prefix + group for group in used]
        code = {group: i for i, group in enumerate(used)}
        self.groups = np.array([-1 if group is None else code[group] for group in named], dtype=np.int32)
        positions = [offset for t in templates for offset in t.offsets]
        self.offsets = np.array(
            [
                facts.peers[group, offset] if is_p2p and group else 0
                for group, offset, is_p2p in zip(groups, positions, p2p.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
        operators = [text for t in templates for text in t.operators]
        self.operator_table = [text for text in dict.fromkeys(operators) if text]
        place = {text: i for i, text in enumerate(self.operator_table)}
        self.operators = np.array([place.get(text, -1) for text in operators], dtype=np.int32)
        names = [name for t in templates for name in t.names]
        self.name_table = list(dict.fromkeys(names))
        place = {name: i for i, name in enumerate(self.name_table)}
        self.names = np.array([place[name] for name in names], dtype=np.int64)
        self.ctrl = _Csr([deps for t in templates for deps in t.ctrl])
        self.data = _Csr([deps for t in templates for deps in t.data])


def _outside(templates: Sequence[Template], stamps: Sequence[Stamp], first: I64) -> I64:
    """(n_stamps, 10 + N_CHAINS) node id for each outside code (column -code), -1 where there is none yet."""
    table = np.full((len(stamps), -Outside.CHAIN + N_CHAINS), -1, dtype=np.int64)
    compute = send = host = step = -1
    chains = [-1] * N_CHAINS
    for i, stamp in enumerate(stamps):
        row = table[i]
        row[-Outside.COMPUTE], row[-Outside.SEND], row[-Outside.HOST] = compute, send, host
        row[-Outside.STEP] = step
        row[-Outside.CHAIN :] = chains
        second = stamp.both[1]
        for code, other, wanted in (
            (Outside.FORWARD, stamp.forward, stamp),
            (Outside.INPUT, stamp.input, stamp),
            (Outside.SECOND_FORWARD, second.forward, second),
        ):
            if other >= 0:
                made = templates[stamps[other].template]
                own = stamps[other].micro_batch == wanted.micro_batch and made.first_compute >= 0
                row[-code] = int(first[other]) + (made.first_compute if own else made.last_compute)
        for code, other in ((Outside.POSTED, stamp.posted), (Outside.SECOND_POSTED, second.posted)):
            row[-code] = compute
            if other >= 0:
                row[-code] = int(first[other]) + templates[stamps[other].template].last_compute
        t, base = templates[stamp.template], int(first[i])
        if t.last_compute >= 0:
            compute = base + t.last_compute
        if t.last_send >= 0:
            send = base + t.last_send
        if t.last_host >= 0:
            host = base + t.last_host
        if t.last_step >= 0:
            step = base + t.last_step
        for chain, last in enumerate(t.last_chain):
            if last >= 0:
                chains[chain] = base + last
    return table


def _resolve(csr: _Csr, pick: I64, base: I64, outside: I64, owner: I64) -> tuple[I64, AnyArray]:
    """Dependencies of all nodes as (offsets, ids): inside ones shifted, outside ones looked up, absent ones dropped."""
    lengths = csr.lengths[pick]
    node = np.repeat(np.arange(len(pick), dtype=np.int64), lengths)
    values = csr.values[ranges(csr.starts[pick], lengths)]
    inside = values >= 0
    ids = np.where(inside, values + base[node], outside[owner[node], np.where(inside, 0, -values)])
    there = ids >= 0
    offsets = bounds(np.bincount(node[there], minlength=len(pick)))
    return offsets, ids[there].astype(np.uint64)


def _set_attributes(columns: TraceColumns, tables: _Tables, pick: I64, micro_batch: I64) -> None:
    types = columns.types
    is_compute = types == NodeType.COMP
    is_send, is_recv = types == NodeType.COMM_SEND, types == NodeType.COMM_RECV
    is_p2p = is_send | is_recv
    durations = tables.durations[pick]
    streams = tables.streams[pick]
    columns.set_bool("is_cpu_op", streams == Stream.HOST)
    columns.set_int("num_ops", np.where(is_compute, tables.flops[pick], ABSENT))
    columns.set_int("tensor_size", np.where(is_compute, tables.bytes[pick], ABSENT))
    for name, values in (("expert_ops", tables.expert_flops), ("expert_bytes", tables.expert_bytes)):
        if values.any():
            columns.set_int(name, np.where(values[pick] > 0, values[pick], ABSENT))
    if tables.operator_table:
        columns.set_text(OPERATOR, tables.operators[pick], tables.operator_table)
    if durations.any():
        columns.set_int("duration_ns", np.where(is_compute, durations, ABSENT))
        # simulators that know only whole microseconds get the nearest, at least one
        micros = np.maximum((durations + 500) // 1000, np.where(durations > 0, 1, 0))
        columns.duration_micros = np.where(is_compute, micros, 0)
    columns.set_int("comm_type", tables.comm_kinds[pick])
    columns.set_int("comm_size", np.where(is_compute, ABSENT, tables.comm_bytes[pick]))
    if tables.share_table:
        for side, name in enumerate((IN_SPLIT, OUT_SPLIT)):
            columns.set_ints(name, tables.shares[pick, side], tables.share_table)
    columns.set_text("pg_name", tables.groups[pick], tables.group_table)
    columns.set_int("comm_dst", np.where(is_send, tables.offsets[pick], ABSENT))
    columns.set_int("comm_src", np.where(is_recv, tables.offsets[pick], ABSENT))
    columns.set_int("comm_tag", np.where(is_p2p, tables.tag_bases[pick] + micro_batch, ABSENT))
    columns.set_int("stream", streams)


def _set_names(
    columns: TraceColumns,
    tables: _Tables,
    pick: I64,
    owner: tuple[I64, I64],
    stamps: Sequence[Stamp],
    *,
    labelled: bool,
) -> None:
    names = tables.names[pick]
    if not labelled:
        columns.set_names(names, tables.name_table)
        return
    labels = list(dict.fromkeys(one.label for stamp in stamps for one in stamp.both))
    number = {label: i for i, label in enumerate(labels)}
    codes_of = [[number[one.label] for one in stamp.both] for stamp in stamps]
    label = np.array(codes_of, dtype=np.int64).reshape(-1, 2)[owner]
    pairs, codes = np.unique(label * len(tables.name_table) + names, return_inverse=True)
    width = len(tables.name_table)
    table = [f"{labels[pair // width]} {tables.name_table[pair % width]}".lstrip() for pair in pairs.tolist()]
    columns.set_names(codes, table)


def _set_tensors(
    columns: TraceColumns, templates: Sequence[Template], stamps: Sequence[Stamp], first: I64
) -> None:
    """Attributes ``inputs`` and ``outputs``: flat pairs of tensor name and bytes, as local-memory trackers read them."""
    made: dict[int, list[str]] = {}
    used: dict[int, list[str]] = {}
    size_of: dict[str, str] = {}
    for i, stamp in enumerate(stamps):
        t, base = templates[stamp.template], int(first[i])
        wheres = [f"mb{one.micro_batch}" for one in stamp.both]
        for node, name, size in t.saves:
            where = wheres[bool(t.second) and t.second[node]]
            size_of[f"{where}.{name}"] = str(size)
            made.setdefault(base + node, []).extend((f"{where}.{name}", str(size)))
        for node, name in t.frees:
            where = wheres[bool(t.second) and t.second[node]]
            key = f"{where}.{name}"
            if key in size_of:
                used.setdefault(base + node, []).extend((key, size_of[key]))
    for attribute, lists in (("inputs", used), ("outputs", made)):
        codes = np.full(columns.n, -1, dtype=np.int32)
        compute = columns.types == NodeType.COMP
        codes[compute] = 0
        table = [_string_list(attribute, [])]
        for node, texts in sorted(lists.items()):
            codes[node] = len(table)
            table.append(_string_list(attribute, texts))
        columns.set_attribute(attribute, codes, table)


def _string_list(name: str, texts: Sequence[str]) -> AttributeProto:
    message = AttributeProto(name=name)
    message.string_list.values.extend(texts)
    message.string_list.SetInParent()
    return message
