"""What upstream's text converter would write (mlcommons/chakra at 21585d8), its mistakes included, for
comparison.

Its differences from the rules are listed in docs/reference/text-dependencies.md; the graphs themselves are rows
of the policy table. Where upstream's converter fails on a file there is nothing to compare with, and this
module says so.
"""

from collections.abc import Iterator

import numpy as np

from chakra.arrays import U8
from chakra.converters.text.encode import SCHEMA
from chakra.converters.text.grammar import CommWord, Phase, TextWorkload
from chakra.converters.text.passes import COLLECTIVE, PHASES, Graph, Rules, build_graph
from chakra.converters.text.policies import UPSTREAM_POLICIES
from chakra.errors import ConversionError
from chakra.et import ABSENT, NodeType, TraceColumns
from chakra.io.readable import counted
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata


def upstream_graph(workload: TextWorkload, passes: int) -> Graph:
    """Graph of one NPU as upstream builds it.

    Raises
    ------
    ConversionError
        If upstream's converter fails on this file.
    """
    _refuse_failing(workload)
    rules = Rules(
        none_is_all_reduce=True,
        # Upstream counts down from the header's number, so that a wrong one leaves out another layer's
        # collective or none.
        input_skipped=len(workload.layers) - workload.header_count,
    )
    return build_graph(workload, UPSTREAM_POLICIES[workload.policy], passes, rules=rules)


def _refuse_failing(workload: TextWorkload) -> None:
    """Refuse files on which upstream's converter raises an exception."""
    n = len(workload.layers)
    reason = None
    if workload.policy in ("MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA"):
        if 0 < workload.header_count < n:
            reason = f"the header says {counted(workload.header_count, 'layer')}, but {n} follow"
    elif workload.last_bottom_layer is not None:
        if workload.last_bottom_layer == 0:
            reason = "the last bottom layer is 0"
        elif workload.last_bottom_layer < n and workload.layers[0].forward.word != CommWord.ALL_TO_ALL:
            reason = "the first layer's forward communication is not ALLTOALL"
    if reason is not None:
        raise ConversionError(
            f"{workload.source}: upstream's converter fails on this file ({reason}); convert it without "
            f"--compat"
        )


def upstream_rank_files(graph: Graph, workload: TextWorkload, npus: int) -> Iterator[tuple[list[int], U8]]:
    """Yield each rank's file as upstream writes it: node ids run on from rank to rank, so that all files
    differ."""
    columns = TraceColumns(graph.n_nodes)
    collective = graph.kind == COLLECTIVE
    columns.types[:] = np.where(collective, NodeType.COMM_COLL, NodeType.COMP)
    columns.set_names(_names(graph, workload))
    columns.duration_micros[:] = graph.time
    if collective.any():
        columns.set_int("comm_type", np.where(collective, graph.comm_type.astype(np.int64), ABSENT))
        columns.set_int("comm_size", np.where(collective, graph.size_bytes, ABSENT))
    columns.metadata = GlobalMetadata(
        attr=[
            AttributeProto(name="schema", string_val=SCHEMA),
            AttributeProto(name="input_file", string_val=workload.text),
        ]
    )
    ids = np.arange(graph.n_nodes, dtype=np.uint64)
    for rank in range(npus):
        shift = rank * graph.n_nodes
        columns.ids = ids + np.uint64(shift)
        columns.set_data_deps(graph.offsets, graph.parents + shift)
        yield [rank], np.frombuffer(columns.encode(), np.uint8)


def _names(graph: Graph, workload: TextWorkload) -> list[str]:
    names = []
    for kind, layer, phase, word in zip(
        graph.kind.tolist(), graph.layer.tolist(), graph.phase.tolist(), graph.words.tolist(), strict=True
    ):
        name = workload.layers[layer].name
        if kind != COLLECTIVE:
            names.append(f"COMP_NODE_{name}_{PHASES[phase]}")
            continue
        # One of upstream's five copies of the loop marks its input-gradient collectives; the others do not.
        marked = workload.policy == "HYBRID_DATA_MODEL" and PHASES[phase] is Phase.INPUT_GRADIENT
        names.append(f"COMM_COLL_NODE_{name}{'_IG_COMM_' if marked else ''}_{graph.word_table[word]}")
    return names
