"""Files of SimAI (AICB): headers by labels, groups that words name, sizes of all-gathers, one stage's NPUs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from chakra.cli.main import cli
from chakra.converters.text import Converted, write_converted
from chakra.converters.text.grammar import Layout
from chakra.converters.text.policies import Span
from chakra.converters.text.reader import parse_workload
from chakra.converters.text.spans import Dims, EvenGroups, Everyone, Nobody, SpanGroups
from chakra.errors import ConversionError
from chakra.et import CommType, NodeType, read_trace

Load = Callable[..., Converted]

HEADER = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 4 pp: 1 vpp: 8 ga: 2 all_gpus: 16 "
    "checkpoints: 0 checkpoint_initiates: 0 pp_comm: 0"
)
#: written by hand: weights gathered and their gradients scattered, those of experts, attention, and experts
ROWS = """\
grad_gather\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLGATHER\t8000\t100
grad_param\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tREDUCESCATTER\t16000\t100
moe_grad\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLGATHER_DP_EP\t6000\t100
attention\t-1\t2000\tALLGATHER\t4096\t3000\tREDUCESCATTER\t4096\t1000\tNONE\t0\t100
moelayer\t-1\t2500\tALLTOALL_EP\t2048\t2500\tALLTOALL_EP\t2048\t1\tNONE\t0\t100
"""


def text(header: str = HEADER, rows: str = ROWS) -> str:
    return f"{header}\n{len(rows.splitlines())}\n{rows}"


def members(dp: int, tp: int, ep: int, span: str) -> list[list[int]]:
    """Groups of ranks that are numbered tp first, then ep, then the rest of dp; written out rank by rank."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in range(dp * tp):
        place = {"tp": rank % tp, "ep": rank // tp % ep, "edp": rank // tp // ep}
        inside = {"tp": ("tp",), "dp": ("ep", "edp"), "ep": ("ep",), "edp": ("edp",)}[span]
        groups.setdefault(tuple(v for k, v in place.items() if k not in inside), []).append(rank)
    return sorted(groups.values())


def test_the_header_is_read_by_its_labels() -> None:
    for header in (
        HEADER,
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD pp_comm 0 all_gpus: 16 ga: 2 vp: 1 ep: 4 model_parallel_NPU_group: 2",
        "HYBRID_TRANSFORMER expert_parallel_npu_group: 4 ga: 2 model_parallel_NPU_group: 2 all_gpus: 16",
        "HYBRID_TRANSFORMER ep: 4 model_parallel_NPU_group: 2 all_gpus: 16 ga: 2 pp_comm: 0.0",
    ):
        workload = parse_workload(text(header))
        assert workload.layout == Layout(2, 4, 1, 16, 2, 0)
        assert len(workload.layers) == 5
        assert workload.layers[4].forward.group == "EP"
        assert workload.layers[4].forward.word == "ALLTOALL"


def test_a_header_of_1_0_stays_one() -> None:
    header = (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 checkpoints: 0 checkpoint_initiates: 0"
    )
    assert parse_workload(text(header, ROWS.splitlines()[0])).layout is None
    with pytest.raises(
        ConversionError, match="'ALLTOALL_EP' is not the forward communication of layer 'moelayer'"
    ):
        parse_workload(text(header, ROWS.splitlines()[4]))


@pytest.mark.parametrize(
    ("tp", "ep", "gpus"), [(2, 4, 16), (1, 2, 8), (4, 1, 16), (2, 2, 4), (8, 1, 8), (1, 1, 6)]
)
def test_every_word_joins_its_group(load: Load, tmp_path: Path, tp: int, ep: int, gpus: int) -> None:
    """Each collective of each rank is issued by all ranks of the group that its word and step mean."""
    header = HEADER.replace("group: 2 ep: 4", f"group: {tp} ep: {ep}").replace(
        "all_gpus: 16", f"all_gpus: {gpus}"
    )
    converted = load(text(header), npus=None)
    assert converted.npus == gpus
    write_converted(converted, tmp_path / "out")
    table = converted.groups().to_dict()
    everyone = list(range(gpus))
    found: dict[str, set[tuple[int, ...]]] = {}
    for rank in everyone:
        for node in read_trace(tmp_path / f"out.{rank}.et").nodes():
            if node.type == NodeType.COMM_COLL:
                ranks = table.get(str(node.attrs.get("pg_name")), everyone)
                assert rank in ranks
                found.setdefault(node.name.removeprefix("COMM_COLL_NODE_"), set()).add(tuple(ranks))
    means = {
        "grad_gather_BWD_WG_ALLGATHER": "dp", "grad_param_BWD_WG_REDUCESCATTER": "dp",
        "moe_grad_BWD_WG_ALLGATHER_DP_EP": "edp",
        "attention_FWD_ALLGATHER": "tp", "attention_BWD_IG_REDUCESCATTER": "tp", "moelayer_FWD_ALLTOALL_EP": "ep",
        "moelayer_BWD_IG_ALLTOALL_EP": "ep",
    }  # fmt: skip
    dp = gpus // tp
    sizes = {"tp": tp, "ep": ep, "dp": dp, "edp": dp // ep}
    assert {name: sorted(map(list, groups)) for name, groups in found.items()} == {
        name: members(dp, tp, ep, span) for name, span in means.items() if sizes[span] > 1
    }


def test_all_gathers_say_what_a_rank_brings_in(load: Load, tmp_path: Path) -> None:
    """SimAI's sizes are those of the whole result, a trace's those of what a rank brings in."""
    write_converted(load(text(), npus=None), tmp_path / "out")
    trace = read_trace(tmp_path / "out.0.et")
    nodes = [node for node in trace.nodes() if node.type == NodeType.COMM_COLL]
    sizes = {n.name.split("NODE_")[1]: (n.attrs["comm_type"], n.attrs["comm_size"]) for n in nodes}
    assert sizes == {
        "grad_gather_BWD_WG_ALLGATHER": (CommType.ALL_GATHER, 8000 // 8),
        "grad_param_BWD_WG_REDUCESCATTER": (CommType.REDUCE_SCATTER, 16000),
        "moe_grad_BWD_WG_ALLGATHER_DP_EP": (CommType.ALL_GATHER, 6000 // 2),
        "attention_FWD_ALLGATHER": (CommType.ALL_GATHER, 4096 // 2),
        "attention_BWD_IG_REDUCESCATTER": (CommType.REDUCE_SCATTER, 4096),
        "moelayer_FWD_ALLTOALL_EP": (CommType.ALL_TO_ALL, 2048),
        "moelayer_BWD_IG_ALLTOALL_EP": (CommType.ALL_TO_ALL, 2048),
    }


def test_times_are_nanoseconds_unless_said_otherwise(load: Load, tmp_path: Path) -> None:
    assert load(text(), npus=None).time_unit == "ns"
    assert load(text(), npus=None, time_unit="us").time_unit == "us"
    assert load("DATA\n1\nL -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n").time_unit == "us"
    summary = write_converted(load(text(), npus=None), tmp_path / "out")
    assert summary.compute_ns == 3 * (1 + 1 + 1) + (2000 + 3000 + 1000) + (2500 + 2500 + 1)


def test_the_weight_gradient_waits_for_the_input_gradients_collective(load: Load) -> None:
    graph = load(text(rows="\n".join(ROWS.splitlines()[3:])), npus=None).graph
    names = [(graph.kind[k], graph.layer[k], graph.phase[k]) for k in range(graph.n_nodes)]
    last = max(k for k, (kind, layer, phase) in enumerate(names) if (kind, layer, phase) == (0, 1, 3))
    parents = graph.parents[graph.offsets[last] : graph.offsets[last + 1]]
    assert (2, 1, 2) in [names[k] for k in parents.tolist()]


def test_a_pipeline_is_one_stage_with_a_note(load: Load, tmp_path: Path) -> None:
    header = (
        HEADER.replace("pp: 1", "pp: 4")
        .replace("all_gpus: 16", "all_gpus: 64")
        .replace("pp_comm: 0", "pp_comm: 512.0")
    )
    converted = load(text(header), npus=None)
    assert converted.npus == 16
    summary = write_converted(converted, tmp_path / "out")
    assert any("one of 4 pipeline stages" in note and "512 bytes each" in note for note in summary.notes)
    with pytest.raises(ConversionError, match=r"all_gpus is 64 and pp 4, .* 16 NPUs, not 64"):
        load(text(header), npus=64)


def test_dimensions_say_groups_where_they_can(load: Load) -> None:
    joined = load(text(), npus=None, network_dims=[2, 4, 2]).members
    assert joined[Span.MODEL_INNER] == Dims((True, False, False))
    assert joined[Span.DATA_OUTER] == Dims((False, True, True))
    assert joined[Span.EXPERT] == Dims((False, True, False))
    assert joined[Span.EXPERT_DATA] == Dims((False, False, True))
    joined = load(text(), npus=None, network_dims=[8, 2]).members
    assert joined[Span.MODEL_INNER] == EvenGroups(2, outer=False)
    assert joined[Span.EXPERT] == EvenGroups(2, outer=True, block=8)
    assert joined[Span.EXPERT_DATA] == Dims((False, True))


def test_groups_within_blocks_partition_the_ranks() -> None:
    kind = EvenGroups(2, outer=True, block=8)
    table = SpanGroups(24, {Span.EXPERT: kind, Span.ALL: Everyone(), Span.NOBODY: Nobody()})
    groups = table.to_dict()
    assert sorted(groups.values()) == sorted(
        [first + k, first + k + 2, first + k + 4, first + k + 6] for first in (0, 8, 16) for k in (0, 1)
    )
    numbers = table.number_of(kind).tolist()
    assert all(rank in groups[str(number)] for rank, number in enumerate(numbers))


def test_experts_of_one_rank_are_left_out_with_a_note(load: Load, tmp_path: Path) -> None:
    summary = write_converted(load(text(HEADER.replace("ep: 4", "ep: 1")), npus=None), tmp_path / "out")
    assert any(
        "1 forward collective without a node (the group is one NPU): layers 4" in n for n in summary.notes
    )


def test_a_file_without_collectives_is_one_file_for_all_ranks(load: Load, tmp_path: Path) -> None:
    summary = write_converted(
        load(text(rows="attention -1 2000 NONE 0 3000 NONE 0 1000 NONE 0 100\n"), npus=None), tmp_path / "out"
    )
    assert summary.npus == 16
    for rank in (0, 15):
        trace = read_trace(tmp_path / f"out.{rank}.et")
        assert [NodeType(value) for value in trace.types] == 3 * [NodeType.COMP]


def test_it_replays(tmp_path: Path) -> None:
    path = tmp_path / "aicb.txt"
    path.write_text(text())
    out = str(tmp_path / "w")
    run = CliRunner().invoke(cli, ["convert", "text", "-i", str(path), "-o", out])
    assert run.exit_code == 0, run.output
    run = CliRunner().invoke(
        cli, ["replay", "-w", out, "-g", f"{out}.comm_groups.json", "--platform", "hgx-h100"]
    )
    assert run.exit_code == 0, run.output
    assert "all 16 NPUs" in run.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("group: 2", "group: 3"), r"all_gpus \(16\) must be a multiple of model_parallel_NPU_group x pp = 3"),
        (("ep: 4", "ep: 3"), "model_parallel_NPU_group x ep is 6, which does not divide the 16 NPUs"),
        (("ep: 4", "ep: 0"), "the number behind 'ep:' must lie between 1 and"),
        (("ep: 4", "ep: 4 ep: 4"), "'ep:' is there twice"),
        (("ep: 4 ", ""), "'ALLGATHER_DP_EP' is among ranks with experts, and the header has no ep:"),
        (("ga: 2", "gb: 2"), "'gb:' is not a label of a SimAI header"),
        (("model_parallel_NPU_group: 2 ", ""), "the header has no model_parallel_NPU_group:"),
        (("pp_comm: 0", "pp_comm: 0.5"), "the number behind 'pp_comm:' must be a whole number"),
        (("ALLTOALL_EP", "ALLTOALL_TP"), "'ALLTOALL_TP' is not the forward communication of layer 'moelayer'"),
        (("NONE", "NONE_EP"), "'NONE_EP' is not the forward communication of layer 'grad_gather'"),
    ],
)  # fmt: skip
def test_wrong_files_are_refused(load: Load, change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        load(text().replace(*change), npus=None)


@pytest.mark.parametrize("options", [{"model_parallel": 4}, {"network_dims": [4, 2]}], ids=str)
def test_options_that_contradict_the_header(load: Load, options: dict[str, Any]) -> None:
    with pytest.raises(ConversionError, match=r"line 1: (all_gpus is 16|model_parallel_NPU_group is 2)"):
        load(text(), npus=None, **options)
