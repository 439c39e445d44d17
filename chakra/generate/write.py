"""Writing workloads: the shared form (manifest and one trace per class) or one plain file per rank."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from chakra.arguments import checked
from chakra.arrays import I32
from chakra.et import ABSENT, NodeType, Trace, TraceColumns, write_trace
from chakra.et.manifest import PEER_MODE, RELATIVE, SUFFIX, WorkloadManifest, manifest_to_dict
from chakra.et.operators import ATTRIBUTE as OPERATOR
from chakra.et.schema import IN_SPLIT, OUT_SPLIT
from chakra.io.documents import document_text, lined_text
from chakra.io.files import atomic_bytes, atomic_text, expect_prefix, expect_writable
from chakra.schemas.et_def_pb2 import AttributeProto

#: called with the number of files written so far
Progress = Callable[[int], None]


@checked
def write_shared(manifest: WorkloadManifest, prefix: str | Path, progress: Progress | None = None) -> Path:
    """Write ``PREFIX.class<k>.et`` and ``PREFIX.workload.json``; returns the manifest's path.

    The manifest is written last, so that it never names a trace that is not there.

    Parameters
    ----------
    manifest
        The workload.
    prefix
        Begin of the files' names.
    progress
        Called with the number of files written so far.

    Raises
    ------
    UsageError
        The prefix is empty or names a folder, or a file cannot be written: none is written then.
    """
    prefix = expect_prefix(prefix)
    names = [f"{prefix.name}.class{index}.et" for index in range(len(manifest.traces))]
    path = prefix.parent / f"{prefix.name}{SUFFIX}"
    expect_writable([*(prefix.parent / name for name in names), path])
    for count, (name, trace) in enumerate(zip(names, manifest.traces, strict=True), 1):
        write_trace(trace, prefix.parent / name)
        if progress:
            progress(count)
    document = manifest_to_dict(manifest, names)
    with atomic_text(path) as file:
        file.write(lined_text(document, indent=1, entries=True))
    return path


def group_ids(manifest: WorkloadManifest) -> dict[str, I32]:
    """Number of every group: name -> (n_groups,) int32, counting from 1 over names in sorted order.

    Groups of all ranks in rank order get no number (0): they are the default group.
    """
    ids: dict[str, I32] = {}
    following = 1
    for name in sorted(manifest.groups):
        table = manifest.groups[name]
        if table.shape == (1, manifest.npus) and (table[0] == np.arange(manifest.npus)).all():
            ids[name] = np.zeros(1, dtype=np.int32)
            continue
        ids[name] = np.arange(following, following + len(table), dtype=np.int32)
        following += len(table)
    return ids


class RankTraces:
    """Plain traces of single ranks, with absolute peers and numbered groups."""

    def __init__(self, manifest: WorkloadManifest) -> None:
        self.manifest = manifest
        self.ids = group_ids(manifest)
        self.rows = {name: manifest.rows(name) for name in manifest.groups}
        self._columns = [_copy_columns(trace) for trace in manifest.traces]

    def columns(self, rank: int) -> TraceColumns:
        """Columns of one rank's own trace."""
        index = int(self.manifest.trace_of[rank])
        trace, columns = self.manifest.traces[index], self._columns[index]
        shift = rank if self.manifest.peer_mode == RELATIVE else 0
        for name, column in (("comm_dst", trace.comm_dst), ("comm_src", trace.comm_src)):
            columns.set_int(name, np.where(column == ABSENT, ABSENT, column + shift))
        texts = []
        for name in trace.pg_table:
            row = int(self.rows[name][rank])
            number = int(self.ids[name][row]) if row >= 0 else 0
            texts.append(str(number) if number else "")
        columns.set_text("pg_name", trace.pg_codes, texts)
        return columns


def _copy_columns(trace: Trace) -> TraceColumns:
    """Everything of a generated trace but groups and peers, ready to be completed for a rank."""
    columns = TraceColumns(trace.n_nodes)
    columns.ids, columns.types = trace.ids, trace.types
    columns.duration_micros = trace.duration_micros
    columns.set_names(trace.name_codes, trace.name_table)
    columns.set_ctrl_deps(trace.ctrl_offsets, trace.ctrl_ids)
    columns.set_data_deps(trace.data_offsets, trace.data_ids)
    columns.set_bool("is_cpu_op", trace.is_cpu_op)
    for name in ("num_ops", "tensor_size", "duration_ns", "comm_type", "comm_size", "comm_tag", "stream"):
        column = getattr(trace, name)
        if (column != ABSENT).any():
            columns.set_int(name, column)
    if len(trace.operator_table):
        columns.set_text(OPERATOR, trace.operator_codes, trace.operator_table)
    _copy_shares(trace, columns)
    for name in ("inputs", "outputs"):
        _copy_tensors(trace, columns, name)
    for attribute in trace.metadata.attr:
        if attribute.name != PEER_MODE:
            columns.metadata.attr.add().CopyFrom(attribute)
    return columns


def _copy_shares(trace: Trace, columns: TraceColumns) -> None:
    """Copy the bytes to and from each member of uneven collectives."""
    table = [sizes.tolist() for sizes in np.split(trace.split_bytes, trace.split_offsets[1:-1])]
    for name, given in ((IN_SPLIT, trace.in_split_codes), (OUT_SPLIT, trace.out_split_codes)):
        if (given >= 0).any():
            codes = np.full(trace.n_nodes, -1, dtype=np.int32)
            codes[trace.split_nodes] = given
            columns.set_ints(name, codes, table)


def _copy_tensors(trace: Trace, columns: TraceColumns, name: str) -> None:
    """Copy the attribute ``inputs`` or ``outputs``, which all compute nodes have or none."""
    compute = np.flatnonzero(trace.types == NodeType.COMP)
    if not len(compute) or trace.attr(int(compute[0]), name) is None:
        return
    codes = np.full(trace.n_nodes, -1, dtype=np.int32)
    table: list[AttributeProto] = []
    for node in compute.tolist():
        codes[node] = len(table)
        table.append(next(attr for attr in trace.node_proto(node).attr if attr.name == name))
    columns.set_attribute(name, codes, table)


@checked
def write_plain(manifest: WorkloadManifest, prefix: str | Path, progress: Progress | None = None) -> Path:
    """Write ``PREFIX.<rank>.et`` for every rank and ``PREFIX.comm_groups.json``; returns the latter's path.

    Group names become numbers from 1, as ASTRA-sim wants them; the group of all ranks has none.

    Parameters
    ----------
    manifest
        The workload.
    prefix
        Begin of the files' names.
    progress
        Called with the number of files written so far.

    Raises
    ------
    UsageError
        The prefix is empty or names a folder, or a file cannot be written: none is written then.
    """
    prefix = expect_prefix(prefix)
    path = prefix.parent / f"{prefix.name}.comm_groups.json"
    targets = [prefix.parent / f"{prefix.name}.{rank}.et" for rank in range(manifest.npus)]
    expect_writable([*targets, path])
    ranks = RankTraces(manifest)
    for rank, place in enumerate(targets):
        with atomic_bytes(place) as target:
            target.write(ranks.columns(rank).encode())
        if progress:
            progress(rank + 1)
    groups = {}
    for name, numbers in ranks.ids.items():
        for number, members in zip(numbers.tolist(), manifest.groups[name].tolist(), strict=True):
            if number:
                groups[str(number)] = members
    with atomic_text(path) as file:
        file.write(document_text(groups) + "\n")
    return path
