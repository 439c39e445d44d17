"""Process groups that traces define themselves, in METADATA nodes.

Sources: replay semantics, section 2.3; trace formats, section 1.3.

`inputs.values` of such a node is a list in Python's notation that holds one string, and the string a JSON list of
objects with `pg_name` and `ranks`; no ranks means all of them.
"""

import ast
import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from chakra.errors import WorkloadError
from chakra.et import NodeType, Trace
from chakra.replay.workload.bindings import group_name
from chakra.replay.workload.communicators import GroupTable
from chakra.replay.workload.model import Workload

#: a file of the PyTorch converter holds a few such nodes; a name is all they must have
_KEY = "pg_name"


def metadata_groups(traces: Iterable[Trace], *, astra: bool = False) -> dict[str, list[tuple[int, ...]]]:
    """Groups defined by METADATA nodes: name -> disjoint rows of ranks, an empty row for all ranks.

    One name may stand for other ranks in every trace, as in traces recorded rank by rank, if they do not overlap.

    Raises
    ------
    WorkloadError
        For a definition that cannot be read, and for two that contradict each other.
    """
    found: dict[str, dict[tuple[int, ...], str]] = {}
    for trace in traces:
        for index in np.flatnonzero(trace.types == NodeType.METADATA).tolist():
            where = f"{trace.source}: node {int(trace.ids[index])}"
            for name, ranks in definitions(trace.node_proto(index).inputs.values, where):
                name = group_name(name, astra=astra)
                if name == "":
                    continue  # all ranks, whatever a recorded job said of its own size
                rows = found.setdefault(name, {})
                if ranks in rows:
                    continue
                for row, other in rows.items():
                    if not ranks or not row or set(row) & set(ranks):
                        raise WorkloadError(
                            f"{where}: process group {name!r} has ranks {list(ranks)}, but {other} defines it with "
                            f"ranks {list(row)}"
                        )
                rows[ranks] = where
    return {name: list(rows) for name, rows in found.items()}


def with_metadata_groups(workload: Workload, groups: GroupTable, *, astra: bool) -> GroupTable:
    """Groups with those that the traces define themselves, where a name is used that `groups` does not have."""
    used = {name for bound in workload.bindings for name in bound.groups if name}
    if used <= groups.keys():
        return groups
    return {**metadata_groups(workload.traces, astra=astra), **groups}


def definitions(text: str, where: str) -> list[tuple[str, tuple[int, ...]]]:
    """Names and ranks in the `inputs.values` of a METADATA node; none if it is about something else."""
    if _KEY not in text:
        return []
    items = _items(text)
    if items is None:
        raise WorkloadError(
            f"{where}: process groups must be a JSON list of objects with {_KEY} and ranks inside ['...'], "
            f"found {text[:60]!r}"
        )
    out = []
    for item in items:
        name = item.get(_KEY) if isinstance(item, dict) else None
        ranks = item.get("ranks", []) if isinstance(item, dict) else None
        if isinstance(name, int) and not isinstance(name, bool):
            name = str(name)
        whole = isinstance(ranks, list) and all(isinstance(r, int) and not isinstance(r, bool) for r in ranks)
        if not isinstance(name, str) or not whole or ranks is None:
            raise WorkloadError(
                f"{where}: a process group needs {_KEY} (text) and ranks (a list of whole numbers), "
                f"found {json.dumps(item)[:80]}"
            )
        out.append((name, tuple(ranks)))
    return out


def _items(text: str) -> list[object] | None:
    """The list of objects in a text, in any of the notations that writers use."""
    readers: tuple[tuple[Callable[[str], Any], str], ...] = (
        (json.loads, text[2:-2]),
        (json.loads, text),
        (ast.literal_eval, text),
    )
    for read, content in readers:
        try:
            value = read(content)
            if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
                value = json.loads(value[0])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, list):
            return value
    return None
