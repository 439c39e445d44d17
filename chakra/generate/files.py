"""Writing workloads: the shared form (manifest and one trace per class) or one plain file per rank."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from chakra.arrays import I32
from chakra.et import ABSENT, Trace, TraceColumns, write_trace
from chakra.files import atomic_text
from chakra.generate.manifest import PEER_MODE, SUFFIX, WorkloadManifest, manifest_to_dict

#: called with the number of files written so far
Progress = Callable[[int], None]


def write_shared(manifest: WorkloadManifest, prefix: str | Path, progress: Progress | None = None) -> Path:
    """Write ``PREFIX.class<k>.et`` and ``PREFIX.workload.json``; returns the manifest's path.

    The manifest is written last, so that it never names a trace that is not there.
    """
    prefix = Path(prefix)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    names = []
    for index, trace in enumerate(manifest.traces):
        names.append(f"{prefix.name}.class{index}.et")
        write_trace(trace, prefix.parent / names[-1])
        if progress:
            progress(index + 1)
    path = prefix.parent / f"{prefix.name}{SUFFIX}"
    document = manifest_to_dict(manifest, names)
    with atomic_text(path) as file:
        file.write(json.dumps(document, indent=1) + "\n")
    return path


def group_ids(manifest: WorkloadManifest) -> dict[str, I32]:
    """Number of every group: name -> (n_groups,) int32, counting from 1 over names in sorted order.

    Groups of all ranks in rank order get no number (0): they are the default group.
    """
    ids: dict[str, I32] = {}
    following = 1
    for name in sorted(manifest.groups):
        table = manifest.groups[name]
        if table.shape == (1, manifest.n_npus) and (table[0] == np.arange(manifest.n_npus)).all():
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
        self._channels = [self._channels_of(trace) for trace in manifest.traces]
        self._columns = [_copy_columns(trace) for trace in manifest.traces]

    def _channels_of(self, trace: Trace) -> dict[tuple[int, int], I32]:
        """Peers of all ranks for every (group code, offset) of the trace's sends and receives."""
        pairs = set()
        for column in (trace.comm_dst, trace.comm_src):
            there = column != ABSENT
            pairs |= set(zip(trace.pg_codes[there].tolist(), column[there].tolist(), strict=True))
        return {
            (code, offset): self.manifest.peers(trace.pg_table[code] if code >= 0 else None, offset)
            for code, offset in sorted(pairs)
        }

    def columns(self, rank: int) -> TraceColumns:
        """Columns of one rank's own trace."""
        index = int(self.manifest.trace_of[rank])
        trace, columns = self.manifest.traces[index], self._columns[index]
        for name, column in (("comm_dst", trace.comm_dst), ("comm_src", trace.comm_src)):
            peers = column.copy()
            for (code, offset), table in self._channels[index].items():
                peers[(column == offset) & (trace.pg_codes == code)] = table[rank]
            columns.set_int(name, peers)
        texts = []
        for name in trace.pg_table:
            row = int(self.rows[name][rank])
            number = int(self.ids[name][row]) if row >= 0 else 0
            texts.append(str(number) if number else "")
        # point-to-point nodes name a group only to count positions in it; plain files have absolute peers
        collective = (trace.comm_dst == ABSENT) & (trace.comm_src == ABSENT)
        columns.set_text("pg_name", np.where(collective, trace.pg_codes, -1), texts)
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
    for attribute in trace.metadata.attr:
        if attribute.name != PEER_MODE:
            columns.metadata.attr.add().CopyFrom(attribute)
    return columns


def write_plain(manifest: WorkloadManifest, prefix: str | Path, progress: Progress | None = None) -> Path:
    """Write ``PREFIX.<rank>.et`` for every rank and ``PREFIX.comm_groups.json``; returns the latter's path.

    Group names become numbers from 1, as ASTRA-sim wants them; the group of all ranks has none.
    """
    prefix = Path(prefix)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    ranks = RankTraces(manifest)
    for rank in range(manifest.n_npus):
        write_trace(ranks.columns(rank), prefix.parent / f"{prefix.name}.{rank}.et")
        if progress:
            progress(rank + 1)
    groups = {}
    for name, numbers in ranks.ids.items():
        for number, members in zip(numbers.tolist(), manifest.groups[name].tolist(), strict=True):
            if number:
                groups[str(number)] = members
    path = prefix.parent / f"{prefix.name}.comm_groups.json"
    with atomic_text(path) as file:
        file.write(json.dumps(groups) + "\n")
    return path
