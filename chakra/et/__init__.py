"""Execution traces: the columnar model, reading, writing.

>>> from chakra.et import NodeType, TraceColumns
>>> columns = TraceColumns(2)
>>> columns.types[:] = NodeType.COMP
>>> columns.duration_micros[:] = 5, 7
>>> columns.set_names(["forward", "backward"])
>>> columns.set_data_deps([0, 0, 1], [0])
>>> trace = columns.build()
>>> trace.node(1)
<node 1 COMP 'backward'>
>>> trace.durations_ns().tolist(), trace.node(1).data_deps
([5000, 7000], (0,))
"""

from chakra.et.read import read_trace, read_traces
from chakra.et.schema import ABSENT, CommType, NodeType
from chakra.et.trace import NodeView, Trace
from chakra.et.write import TraceColumns, write_trace

__all__ = [
    "ABSENT",
    "CommType",
    "NodeType",
    "NodeView",
    "Trace",
    "TraceColumns",
    "read_trace",
    "read_traces",
    "write_trace",
]
