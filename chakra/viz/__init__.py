"""Drawing execution traces: pictures, text formats and an interactive page.

>>> from chakra.viz import from_trace, dot_text
>>> from chakra.et import TraceColumns
>>> columns = TraceColumns(2)
>>> columns.ids[:] = 0, 1
>>> columns.types[:] = 4
>>> columns.set_data_deps([0, 0, 1], [0])
>>> "n0 -> n1 [key=data" in dot_text(from_trace(columns.build()))
True
"""

from chakra.viz.draw import Drawing, DrawOptions, draw
from chakra.viz.formats.dot import dot_text
from chakra.viz.formats.graphml import graphml_text
from chakra.viz.formats.html import html_text
from chakra.viz.graph.fold import Folding, fold
from chakra.viz.graph.fold_tree import FoldTree, folded
from chakra.viz.graph.graph import Graph, from_trace
from chakra.viz.graph.select import around, critical_path, only, window
from chakra.viz.graph.source import read_graph
from chakra.viz.style import EdgeKind, Kind

__all__ = [
    "DrawOptions",
    "Drawing",
    "EdgeKind",
    "FoldTree",
    "Folding",
    "Graph",
    "Kind",
    "around",
    "critical_path",
    "dot_text",
    "draw",
    "fold",
    "folded",
    "from_trace",
    "graphml_text",
    "html_text",
    "only",
    "read_graph",
    "window",
]
