"""Reading a trace for drawing: even one that no replay would take, so that its faults can be seen."""

import os

from chakra.arguments import checked
from chakra.errors import TraceError
from chakra.et import read_trace
from chakra.io.files import PathLike, open_stream
from chakra.io.readable import counted
from chakra.schemas.et_def_pb2 import GlobalMetadata, Node
from chakra.schemas.protolib import decode_message
from chakra.viz.graph.graph import Graph, dependencies_of, from_trace


@checked
def read_graph(path: PathLike) -> Graph:
    """The graph of an execution trace; parents that are not in the file become ghosts.

    Parameters
    ----------
    path
        The trace.

    Raises
    ------
    TraceError
        If the file is no execution trace, repeats an id, or its data dependencies form a cycle.
    """
    title = os.path.basename(os.fspath(path))
    try:
        return from_trace(read_trace(path), title)
    except TraceError:
        # Missing data dependencies are the one fault that repairing mends and a drawing should show.
        trace = read_trace(path, repair=True)
    nodes = _messages(path)
    if len(nodes) != trace.n_nodes:
        return from_trace(
            trace,
            f"{title} ({counted(trace.dropped_data_deps, 'data dependency')} on absent nodes not drawn)",
        )
    return from_trace(trace, title, written=dependencies_of(nodes))


def _messages(path: PathLike) -> list[Node]:
    """The file's node messages; none if it is not in the protobuf form (JSON-encoded traces)."""
    nodes: list[Node] = []
    with open_stream(path) as file:
        if file.read(1) in (b"{", b"["):
            return nodes
        file.seek(0)
        decode_message(file, GlobalMetadata())
        while decode_message(file, node := Node()):
            nodes.append(node)
    return nodes
