"""Split sizes of a trace's collectives, as programs have them."""

from typing import NamedTuple

import numpy as np

from chakra.arrays import I64, distinct
from chakra.et.schema import IN_SPLIT, OUT_SPLIT
from chakra.replay.workload.model import Op
from chakra.replay.workload.node_costs import LIMIT
from chakra.replay.workload.node_draft import Draft


class Splits(NamedTuple):
    """Split sizes of some collectives: per node the codes of what goes in and what comes out; lists by code."""

    #: (nodes, 2), -1 where a node has none
    codes: I64
    lists: dict[int, tuple[int, ...]]


def splits_of(draft: Draft, nodes: I64) -> Splits | None:
    """Split sizes of the collectives at `nodes` (program order), times the option that scales sizes.

    None if no node of the trace has any. ASTRA-sim knows none: under ``compat`` those of equal sizes, which say nothing
    new, are left out, and `check_splits` refuses others.
    """
    trace, options = draft.trace, draft.setting.options
    if not len(trace.split_nodes) or options.astra:
        return None
    table = np.full((trace.n_nodes, 2), -1, np.int64)
    table[trace.split_nodes] = np.stack([trace.in_split_codes, trace.out_split_codes], axis=1)
    codes = table[draft.order[nodes]]
    lists = {}
    for code in distinct(codes[codes >= 0]).tolist():
        sizes = trace.split_bytes[trace.split_offsets[code] : trace.split_offsets[code + 1]]
        if options.comm_scale != 1.0:
            sizes = np.floor(sizes * options.comm_scale).astype(np.int64)
        lists[code] = tuple(sizes.tolist())
    return Splits(codes, lists)


def check_splits(draft: Draft) -> None:
    """Refuse sizes below 0, and uneven collectives where ASTRA-sim's rules hold; scale comm_size as its parts.

    Raises
    ------
    WorkloadError
        Naming node and attribute.
    """
    trace, options = draft.trace, draft.setting.options
    if not len(trace.split_nodes):
        return
    bounds = trace.split_offsets
    lists = np.split(trace.split_bytes, bounds[1:-1])
    place = np.empty(trace.n_nodes, np.int64)
    place[draft.order] = np.arange(trace.n_nodes)
    for index, *codes in zip(
        place[trace.split_nodes].tolist(),
        trace.in_split_codes.tolist(),
        trace.out_split_codes.tolist(),
        strict=True,
    ):
        if draft.op[index] != Op.COLLECTIVE:
            continue
        for code, name in zip(codes, (IN_SPLIT, OUT_SPLIT), strict=True):
            if code < 0:
                continue
            sizes = lists[code]
            if len(sizes) and (sizes.min() < 0 or float(sizes.sum(dtype=float)) > LIMIT):
                raise draft.error(
                    index, f"{name}: bytes per member must be at least 0, and fit 64 bits together"
                )
            if options.astra and len(distinct(sizes)) > 1:
                raise draft.error(
                    index,
                    f"{name}: ASTRA-sim has no uneven collectives, so compat {options.compat!r} cannot replay this",
                )
        if codes[0] >= 0 and options.comm_scale != 1.0 and not options.astra:
            sizes = lists[codes[0]]
            if int(sizes.sum()) == int(trace.comm_size[draft.order[index]]):
                draft.comm_bytes[index] = int(np.floor(sizes * options.comm_scale).sum())
