"""Which family each node of a trace belongs to: what it computes, else the operator that launched it, else its name."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from chakra.arrays import I64, AnyArray
from chakra.et.families import FAMILIES, computes, kernel_family, launcher_family, operator_family
from chakra.et.trace import Trace

#: no family is said
UNSAID: Final = -1


def node_families(trace: Trace) -> I64:
    """(nodes,) place of each node's family in `FAMILIES`, in file order."""
    found = _places([kernel_family(name) for name in trace.name_table], trace.name_codes)
    said = [operator_family(text) for text in trace.operator_table]
    for told in (launched_families(trace), _places(said, trace.operator_codes)):
        found = np.where(told == UNSAID, found, told)
    return found


def launched_families(trace: Trace) -> I64:
    """(nodes,) the same by the operator of the host that launched a kernel; `UNSAID` where that says none.

    The first control dependency of a recorded kernel is the innermost operator around its launch.
    """
    found = np.full(trace.n_nodes, UNSAID, np.int64)
    kernel = np.array([computes(name) for name in trace.name_table], np.bool_)[trace.name_codes]
    rows = np.flatnonzero((np.diff(trace.ctrl_offsets) > 0) & (trace.is_cpu_op != 1) & kernel)
    if len(rows):
        order = trace.order_by_id()
        sought = trace.ctrl_ids[trace.ctrl_offsets[rows]]
        launcher = order[np.minimum(np.searchsorted(trace.ids[order], sought), trace.n_nodes - 1)]
        told = _places([launcher_family(name) for name in trace.name_table], trace.name_codes[launcher])
        by_host = (trace.is_cpu_op[launcher] == 1) & (trace.ids[launcher] == sought)
        found[rows] = np.where(by_host, told, UNSAID)
    return found


def _places(families: Sequence[str | None], codes: AnyArray) -> I64:
    """Places in `FAMILIES` by codes into a table of families; a code of -1 says none."""
    table = [UNSAID if family is None else FAMILIES.index(family) for family in families]
    return np.array([*table, UNSAID], np.int64)[codes]
