"""A program in the making: what is decided about each node of a trace before an engine sees it."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from chakra.arrays import I64, AnyArray
from chakra.errors import WorkloadError
from chakra.et import NodeType, Trace
from chakra.et.idle_nodes import idles
from chakra.replay.compute.measured_products import MeasuredProducts
from chakra.replay.compute.parameters import ComputeParameters
from chakra.replay.config.model import Memory, System
from chakra.replay.options import RunOptions
from chakra.replay.workload.model import Engine, Op


@dataclass(frozen=True, slots=True)
class Setting:
    """What programs are prepared for."""

    system: System
    memory: Memory
    options: RunOptions
    #: ids of nodes that have a custom algorithm of their own
    per_node_custom: frozenset[int] = frozenset()
    #: constants by which operators take their times, where they do
    operators: ComputeParameters | None = None
    #: measured matrix products that stand in for them
    products: MeasuredProducts | None = None


@dataclass(slots=True)
class Draft:
    """Decisions about a trace's nodes. Arrays have one entry per node, in program order (ascending id)."""

    trace: Trace
    setting: Setting
    #: factor of all times of computation on NPUs of one speed
    scale: float
    #: file index of each node
    order: I64
    types: AnyArray
    #: whether a node runs on the host, and whether it is a collective, a send or a receive
    cpu: AnyArray
    communicates: AnyArray
    op: I64
    engine: I64
    duration_ns: I64
    #: comm_size, times the option of that name
    comm_bytes: I64
    #: how often each correction of ASTRA-sim changed something
    corrections: Counter[str] = field(default_factory=Counter)

    def where(self, *types: int) -> AnyArray:
        """Mask of the nodes of some types."""
        return mask_of(self.types, *types)

    def error(self, node: int, what: str) -> WorkloadError:
        """An error that names file and node; `node` counts in program order."""
        return WorkloadError(f"{self.trace.source}: node {int(self.trace.ids[self.order[node]])}: {what}")


def mask_of(types: AnyArray, *wanted: int) -> AnyArray:
    """Where one of the wanted types stands."""
    mask: AnyArray = types == wanted[0]
    for other in wanted[1:]:
        mask |= types == other
    return mask


def draft_of(trace: Trace, setting: Setting, scale: float) -> Draft:
    """Every node as a timer on the engine of its type, with no duration yet."""
    order = trace.order_by_id()
    n, types = trace.n_nodes, trace.types[order]
    draft = Draft(
        trace=trace,
        setting=setting,
        scale=scale,
        order=order,
        types=types,
        cpu=trace.is_cpu_op[order] == 1,
        communicates=mask_of(types, NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV),
        op=np.full(n, Op.TIMER, np.int64),
        engine=np.full(n, Engine.GPU, np.int64),
        duration_ns=np.zeros(n, np.int64),
        comm_bytes=trace.comm_size[order],
    )
    draft.engine[draft.cpu] = Engine.CPU
    draft.engine[draft.communicates] = Engine.COMM
    draft.engine[draft.where(NodeType.MEM_LOAD, NodeType.MEM_STORE) & ~draft.cpu] = Engine.MEMORY
    draft.engine[draft.where(NodeType.INVALID, NodeType.METADATA)] = Engine.NONE
    if not setting.options.astra:  # to which everything that is not the host's is the accelerator's
        draft.engine[(draft.engine == Engine.GPU) & idles(trace)[order]] = Engine.IDLE
    return draft
