"""A workload of few ranks, rescaled, is the workload of many ranks: node by node, and in its times."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chakra.builder import TraceBuilder
from chakra.errors import UsageError, WorkloadError
from chakra.et import ABSENT, CommType, NodeType, Trace, write_trace
from chakra.et.manifest import WorkloadManifest
from chakra.generate import MoeRequest, TransformerRequest, build_workload, write_plain, write_shared
from chakra.replay import simulate
from chakra.rescale import read_workload, rescale

DENSE: dict[str, Any] = {"model": "gpt2-small", "layers": 4, "micro_batches": 2}
MIXED: dict[str, Any] = {"model": "deepseek-moe-16b", "layers": 3}
SERVED = {"model": "gpt3-1.3b", "layers": 4, "seq": 64, "mode": "serve", "decode_steps": 2}
#: along -> (request, parameters of 8 ranks, what 64 ranks have else)
LAWS: dict[str, tuple[str, Any, dict[str, Any], dict[str, Any]]] = {
    "data": ("data", TransformerRequest, {**DENSE, "tp": 2}, {}),
    "data, context": ("data", TransformerRequest, {**DENSE, "tp": 2, "cp": 2}, {}),
    "data, one rank a replica": ("data", TransformerRequest, DENSE, {}),
    "ZeRO 1": ("data", TransformerRequest, {**DENSE, "tp": 2, "zero": 1}, {}),
    "ZeRO 2": ("data", TransformerRequest, {**DENSE, "tp": 2, "zero": 2}, {}),
    "FSDP": ("data", TransformerRequest, {**DENSE, "tp": 2, "zero": 3}, {}),
    "FSDP, replicas neighbours": (
        "data", TransformerRequest, {**DENSE, "tp": 2, "zero": 3, "order": "dp-tp-cp-ep-pp"}, {},
    ),
    "hybrid sharding": ("data", TransformerRequest, {**DENSE, "zero": 3, "shard": 4}, {}),
    "hybrid sharding, ZeRO 1": ("data", TransformerRequest, {**DENSE, "tp": 2, "zero": 1, "shard": 2}, {}),
    "hybrid sharding of experts": (
        "data", MoeRequest, {"model": "mixtral-8x7b", "layers": 2, "ep": 2, "zero": 3, "shard": 4}, {},
    ),
    "pipelines": ("pipeline", TransformerRequest, {**DENSE, "pp": 4}, {}),
    "pipelines, interleaved, ZeRO 1": ("pipeline", TransformerRequest, {**DENSE, "pp": 2, "vp": 2, "zero": 1}, {}),
    "data of experts, ZeRO 1": ("data", MoeRequest, {"model": "mixtral-8x7b", "layers": 2, "ep": 4, "zero": 1}, {}),
    "data of experts, FSDP": ("data", MoeRequest, {"model": "mixtral-8x7b", "layers": 2, "ep": 2, "zero": 3}, {}),
    "serving, one replica": ("data", TransformerRequest, {**SERVED, "tp": 8}, {}),
    "serving, replicas": ("data", TransformerRequest, {**SERVED, "tp": 2}, {}),
    "serving, pipelines": ("data", TransformerRequest, {**SERVED, "tp": 2, "pp": 2}, {}),
    "serving, one pipeline": ("data", TransformerRequest, {**SERVED, "tp": 2, "pp": 4}, {}),
    "serving, experts": ("data", MoeRequest, {"model": "mixtral-8x7b", "layers": 2, "ep": 8, "mode": "decode"}, {}),
    "experts": ("expert", MoeRequest, {**MIXED, "ep": 8}, {"ep": 64}),
    "experts, host": ("expert", MoeRequest, {**MIXED, "ep": 8, "host": "ahead"}, {"ep": 64}),
    "experts, ZeRO 1": ("expert", MoeRequest, {**MIXED, "ep": 8, "zero": 1}, {"ep": 64}),
    "experts, FSDP": ("expert", MoeRequest, {**MIXED, "ep": 8, "zero": 3}, {"ep": 64}),
    "experts, replicated": ("expert", MoeRequest, {**MIXED, "ep": 4}, {"ep": 32}),
    "experts, replicated, ZeRO 1": ("expert", MoeRequest, {**MIXED, "ep": 4, "zero": 1}, {"ep": 32}),
    "experts, replicated, FSDP": ("expert", MoeRequest, {**MIXED, "ep": 4, "zero": 3}, {"ep": 32}),
    "experts, tensor and pipeline": ("expert", MoeRequest, {**MIXED, "layers": 4, "pp": 2, "tp": 2, "ep": 2}, {"ep": 16}),
}  # fmt: skip


def pair(name: str, **more: Any) -> tuple[WorkloadManifest, WorkloadManifest]:
    """The generated 8 ranks rescaled to 64, and the generated 64."""
    along, kind, given, changed = LAWS[name]
    few = build_workload(kind(**given, **more, npus=8).plan())
    many = build_workload(kind(**{**given, **changed}, **more, npus=64).plan())
    return rescale(few, 64, along=along), many


COLUMNS = (
    "types", "comm_type", "comm_size", "num_ops", "tensor_size", "comm_src", "comm_dst", "comm_tag", "stream",
)  # fmt: skip


def rows(trace: Trace) -> list[tuple[object, ...]]:
    """Everything of every node but its id, dependencies as places."""
    place = {int(node): index for index, node in enumerate(trace.ids)}
    columns = [getattr(trace, name).tolist() for name in COLUMNS]
    found: list[tuple[object, ...]] = []
    for index, values in enumerate(zip(*columns, strict=True)):
        node = trace.node(index)
        code, said = int(trace.pg_codes[index]), int(trace.operator_codes[index])
        found.append(
            (
                node.name,
                trace.operator_table[said] if said >= 0 else None,
                trace.pg_table[code] if code >= 0 else None,
                *values,
                sorted(place[dep] for dep in node.data_deps),
                sorted(place[dep] for dep in node.ctrl_deps),
            )
        )
    return found


@pytest.mark.parametrize("name", LAWS)
def test_rescaled_is_generated(name: str) -> None:
    """Sizes, groups, peers, tags, buckets and order of every node of every rank."""
    made, wanted = pair(name)
    assert set(made.groups) == set(wanted.groups)
    for group, table in wanted.groups.items():
        assert made.groups[group].tolist() == table.tolist(), group
    assert len(made.traces) == len(wanted.traces)
    assert made.peer_mode == wanted.peer_mode
    for ours, theirs in {(int(a), int(b)) for a, b in zip(made.trace_of, wanted.trace_of, strict=True)}:
        assert rows(made.traces[ours]) == rows(wanted.traces[theirs])


NETWORK = {
    "topology": ["Switch", "Switch"],
    "npus_count": [8, 8],
    "bandwidth": [200, 20],
    "latency": [300, 900],
}
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
SYSTEM = {
    **{f"{kind}-implementation": ["ring", "ring"] for kind in KINDS},
    "local-mem-bw": 2000, "roofline-enabled": 1, "peak-perf": 500,
}  # fmt: skip


@pytest.mark.parametrize("name", ["data", "FSDP", "pipelines", "experts, replicated, ZeRO 1"])
def test_rescaled_takes_the_time_of_generated(name: str) -> None:
    made, wanted = pair(name)
    ours, theirs = simulate(made, SYSTEM, NETWORK), simulate(wanted, SYSTEM, NETWORK)
    assert ours.finish_ns.tolist() == theirs.finish_ns.tolist()


def test_durations_follow_the_shard() -> None:
    """A node with a duration keeps it, but the optimizer's, which goes with its shard."""
    made, wanted = pair("FSDP", peak_tflops=900.0, mem_gbps=3000.0)
    ours, theirs = made.traces[0].durations_ns(), wanted.traces[0].durations_ns()
    assert np.abs(ours - theirs).max() <= 1
    assert ours.sum() > 0


def test_odd_sizes_are_padded_once() -> None:
    """Whole elements: cutting a cut shard again is cutting the whole."""
    given: dict[str, Any] = {
        "model": "",
        "layers": 1,
        "hidden": 36,
        "heads": 4,
        "vocabulary": 101,
        "seq": 16,
        "ffn": 52,
        "zero": 3,
    }
    few = build_workload(TransformerRequest(**given, npus=8).plan())
    many = build_workload(TransformerRequest(**given, npus=64).plan())
    ours, theirs = rescale(few, 64).traces[0], many.traces[0]
    assert ours.comm_size.tolist() == theirs.comm_size.tolist()


def test_a_manifest_of_many_ranks_has_few_traces(tmp_path: Path) -> None:
    made, _ = pair("FSDP")
    write_shared(made, tmp_path / "many")
    again = read_workload(tmp_path / "many")
    assert again.npus == 64
    assert len(again.traces) == 1
    said = again.about["rescaled"]
    assert isinstance(said, dict)
    assert said["positions"] == {"stride": 2, "recorded": 4, "now": 32}
    assert said["groups"]["dp"] == {"members": [4, 32], "exchanges": "weights"}
    assert any("tensor" in note for note in said["notes"])


def numbered(tmp_path: Path, **given: Any) -> WorkloadManifest:
    """A generated job as a recording has it: a trace a rank, numbered groups, absolute peers."""
    write_plain(build_workload(TransformerRequest(**DENSE, **given, npus=8).plan()), tmp_path / "job")
    return read_workload(tmp_path / "job")


def test_numbered_groups_are_told_apart_by_name(tmp_path: Path) -> None:
    """A recording numbers its groups: which one grows is asked, and the groups alike follow."""
    job = numbered(tmp_path, tp=2, pp=2)
    with pytest.raises(
        UsageError, match=r"name the one of the gradients with --group \(1: 2 ranks, all_reduce; "
    ):
        rescale(job, 64)
    data = next(name for name, table in job.groups.items() if table.tolist() == [[0, 2]])
    made = rescale(job, 64, group=[data])
    wanted = build_workload(TransformerRequest(**DENSE, tp=2, pp=2, npus=64).plan())
    assert made.groups[data].tolist() == [list(range(0, 32, 2))]
    ours, theirs = simulate(made, SYSTEM, NETWORK), simulate(wanted, SYSTEM, NETWORK)
    assert ours.finish_ns.tolist() == theirs.finish_ns.tolist()
    assert made.npus == 64
    assert len(made.traces) == 8


def test_a_group_of_all_ranks_grows(tmp_path: Path) -> None:
    """The default group, which no groups file has: FSDP of four ranks becomes FSDP of 64."""
    for rank in range(4):
        builder = TraceBuilder(rank=rank)
        gathered = builder.collective("all_gather", size_bytes=1 << 20)
        update = builder.compute("FusedAdam", duration_micros=160, after=gathered)
        builder.collective("reduce_scatter", size_bytes=1 << 22, after=update)
        write_trace(builder.build(), tmp_path / f"fsdp.{rank}.et")
    made = rescale(read_workload(tmp_path / "fsdp"), 64)
    trace = made.traces[0]
    assert len(made.traces) == 1
    assert trace.comm_size[trace.comm_type == CommType.ALL_GATHER].tolist() == [1 << 16]
    assert trace.comm_size[trace.comm_type == CommType.REDUCE_SCATTER].tolist() == [1 << 22]
    assert trace.durations_ns()[trace.types == NodeType.COMP].tolist() == [10_000]


def test_unequal_shares_stay_agreed(tmp_path: Path) -> None:
    """An all-to-all and an all-gather of unequal shares: each share goes to the replicas in equal parts, at both ends."""
    sent = np.array([[0, 4096, 1000], [2048, 8, 6], [512, 64, 32]])
    shares = [3000, 1000, 24]
    for rank in range(3):
        builder = TraceBuilder(rank=rank, npus=3)
        exchanged = builder.collective(
            "all_to_all", size_bytes=int(sent[rank].sum()), in_split_bytes=sent[rank].tolist(),
            out_split_bytes=sent[:, rank].tolist(),
        )  # fmt: skip
        builder.collective("all_gather", size_bytes=shares[rank], out_split_bytes=shares, after=exchanged)
        write_trace(builder.build(), tmp_path / f"job.{rank}.et")
    made = rescale(read_workload(tmp_path / "job"), 12)
    for rank, trace in enumerate(made.traces):
        into, out = trace.splits(0)
        assert into is not None
        assert out is not None
        assert into == tuple(int(-(-size // 2 // 4) * 2) for size in np.tile(sent[rank], 4))
        assert int(trace.comm_size[0]) == sum(into)
        assert trace.splits(1)[1] == (750, 250, 6) * 4
        assert int(trace.comm_size[1]) == (750, 250, 6)[rank]
    network = {"topology": ["Switch"], "npus_count": [12], "bandwidth": [100.0], "latency": [500.0]}
    system = {f"{kind}-implementation": ["ring"] for kind in KINDS}
    assert simulate(made, system, network).finish_ns.min() > 0


def test_pipelines_without_replicas_are_repeated(tmp_path: Path) -> None:
    """Two stages that were recorded once: replicas lie between the stages, peers stay a stage away."""
    for rank in range(2):
        builder = TraceBuilder(rank=rank)
        if rank == 0:
            builder.send(1, size_bytes=4096)
        else:
            builder.recv(0, size_bytes=4096)
        write_trace(builder.build(), tmp_path / f"pp.{rank}.et")
    made = rescale(read_workload(tmp_path / "pp"), 8, along="pipeline")
    first, second = made.traces
    assert made.trace_of.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert first.comm_dst[first.comm_dst != ABSENT].tolist() == [4]
    assert second.comm_src[second.comm_src != ABSENT].tolist() == [-4]
    said = made.about["rescaled"]
    assert isinstance(said, dict)
    assert any("not reduced" in note for note in said["notes"])


@pytest.mark.parametrize(
    ("npus", "options", "message"),
    [
        (12, {}, "12 ranks from 8: the number must be a multiple of the recorded ranks"),
        (64, {"along": "expert"}, "no group 'ep'"),
        (64, {"group": ["tensor"]}, "there is no group 'tensor'; there are dp, tp"),
        (64, {"along": "tensor"}, "along must be data, pipeline, expert, not 'tensor'"),
        (64, {"optimizer": "("}, "no regular expression"),
    ],
)
def test_what_cannot_grow_is_said(npus: int, options: dict[str, Any], message: str) -> None:
    few = build_workload(TransformerRequest(**DENSE, tp=2, npus=8).plan())
    with pytest.raises((UsageError, WorkloadError), match=message.replace("(", r"\(")):
        rescale(few, npus, **options)


def test_experts_on_all_ranks_cannot_grow_along_data() -> None:
    """Their gradients are reduced nowhere, so nothing says how large the reductions would be."""
    few = build_workload(MoeRequest(**MIXED, ep=8, npus=8).plan())
    with pytest.raises(WorkloadError, match="only `along expert` can grow"):
        rescale(few, 64)
