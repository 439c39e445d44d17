"""`compat="chakra"`: node for node what upstream's converter writes."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from chakra.converters.text import Converted, convert_text, load_text, write_converted
from chakra.errors import ConversionError
from chakra.et import NodeType, read_trace

Load = Callable[..., Converted]
TextOf = Callable[..., str]

ALL = "ALLREDUCE ALLREDUCE ALLREDUCE"


@pytest.mark.shared
def test_traces_of_the_oracle_are_equal_byte_for_byte(shared: Path, tmp_path: Path) -> None:
    """Family h and i005: texts with the traces that upstream's converter made of them."""
    corpus = shared / "oracle" / "corpus"
    cases = [*sorted(corpus.glob("h*")), *sorted(corpus.glob("i005*"))]
    assert cases
    files = 0
    for case in cases:
        description = json.loads((case / "case.json").read_text())
        passes = description.get("params", {}).get("num_passes", 1)
        convert_text(
            case / "workload.txt",
            tmp_path / case.name,
            npus=description["npus"],
            passes=passes,
            compat="chakra",
        )
        for rank, name in json.loads((case / "et" / "map.json").read_text()).items():
            ours = (tmp_path / f"{case.name}.{rank}.et").read_bytes()
            assert ours == (case / "et" / name).read_bytes(), f"{case.name}, NPU {rank}"
            files += 1
    print(f"{files} of {files} files of {len(cases)} cases equal")


#: Upstream's result per NPU (shared/data/README.md): computes, collectives, edges of 1 and 2 passes, compute
#: sum in us.
UPSTREAM = {
    "DLRM_HybridParallel": (23, 9, 33, 74, 51378),
    "MLP_HybridParallel_Data_Model": (18, 17, 39, 84, 236649),
    "MLP_HybridParallel_Model_Data": (18, 17, 39, 84, 236649),
    "MLP_ModelParallel": (18, 11, 33, 72, 195206),
    "hoti2024_demo2": (18, 11, 33, 72, 195206),
    "Resnet50_DataParallel": (161, 54, 214, 482, 1082450),
    "vgg16": (47, 16, 62, 140, 1831809),
    "exercise_4_vanilla": (11, 4, 14, 32, 109742),
    "microAllReduce": (0, 1, 0, 0, 0),
    "asplos2023_ex3_all_reduce": (0, 1, 0, 0, 0),
    "microAllToAll": (0, 1, 0, 0, 0),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", UPSTREAM)
def test_counts_are_upstreams(shared: Path, tmp_path: Path, name: str) -> None:
    computes, collectives, edges, edges_of_two, micros = UPSTREAM[name]
    source = shared / "data" / "text" / f"{name}.txt"
    for passes, edge_count in ((1, edges), (2, edges_of_two)):
        summary = convert_text(source, tmp_path / name, npus=2, passes=passes, compat="chakra")
        assert (summary.computes, summary.nodes - summary.computes) == (
            computes * passes,
            collectives * passes,
        )
        assert summary.edges == edge_count
        assert summary.compute_ns == micros * 1000 * passes


REFUSED = (
    "Transformer_HybridParallel",
    "Transformer_HybridParallel_Fwd_In_Bckwd",
    "sample_per_layer_parallel_HybridCustomized",
    "exercise_4_reorder",
)


@pytest.mark.shared
@pytest.mark.parametrize("name", REFUSED)
def test_what_upstream_refuses_is_refused(shared: Path, name: str) -> None:
    with pytest.raises(ConversionError, match="is not a parallelism policy"):
        load_text(shared / "data" / "text" / f"{name}.txt", npus=2, compat="chakra")


def test_known_mistakes_are_reproduced(load: Load, tmp_path: Path) -> None:
    """Ids run on over the ranks, no is_cpu_op, NONE and unknown words become all-reduces."""
    text = "MODEL\n2\na -1 1 NONE 0 2 BROADCAST 7 3 NONE 0 x\nb -1 5 ALLGATHER 9 6 NONE 0 7 NONE 0 y\n"
    write_converted(load(text, npus=2, compat="chakra"), tmp_path / "out")
    first, second = (read_trace(tmp_path / f"out.{rank}.et") for rank in (0, 1))
    assert first.ids.tolist() == list(range(9))
    assert second.ids.tolist() == list(range(9, 18))
    assert set(first.is_cpu_op.tolist()) == {-1}
    collectives = [(node.name, node.attrs) for node in first.nodes() if node.type == NodeType.COMM_COLL]
    assert collectives == [
        ("COMM_COLL_NODE_a_NONE", {"comm_type": 0, "comm_size": 0}),
        ("COMM_COLL_NODE_b_ALLGATHER", {"comm_type": 2, "comm_size": 9}),
        ("COMM_COLL_NODE_b_NONE", {"comm_type": 0, "comm_size": 0}),
    ]


def test_a_wrong_count_adds_a_collective(load: Load) -> None:
    """The header's count decides which layer's input-gradient collective is left out."""
    text = "MODEL\n{}\na -1 1 NONE 0 2 ALLREDUCE 7 3 NONE 0 4\n"
    assert load(text.format(1), compat="chakra").graph.n_nodes == 4
    assert load(text.format(2), compat="chakra").graph.n_nodes == 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("MODEL\n1\n" + 2 * "a -1 1 NONE 0 2 NONE 0 3 NONE 0 4\n", "the header says 1 layer, but 2 follow"),
        ("HYBRID_DLRM 0\n1\na -1 1 ALLTOALL 0 2 NONE 0 3 NONE 0 4\n", "the last bottom layer is 0"),
        (
            "HYBRID_DLRM 1\n2\n" + 2 * "a -1 1 NONE 0 2 NONE 0 3 NONE 0 4\n",
            "forward communication is not ALLTOALL",
        ),
    ],
)
def test_files_on_which_upstream_fails(load: Load, text: str, reason: str) -> None:
    with pytest.raises(ConversionError, match=f"upstream's converter fails on this file .*{reason}"):
        load(text, compat="chakra")


def test_cut_line_names_its_line(load: Load) -> None:
    with pytest.raises(ConversionError, match=r"line 3: the line ends where the forward bytes of layer 'a'"):
        load("DATA\n2\na -1 1 NONE\nb -1 1 NONE 0 2 NONE 0 3 NONE 0 4\n", compat="chakra")
