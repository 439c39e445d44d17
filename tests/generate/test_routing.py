"""Experts that are not visited evenly: no token is lost, and what one rank sends another receives."""

from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generated_ranks import ranks_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.anonymize import anonymize
from chakra.errors import ConfigError, UsageError
from chakra.et import CommType, NodeType
from chakra.generate import MoeRequest, TransformerRequest, build_workload, write_shared
from chakra.generate.model.routing import apportioned, read_load
from chakra.generate.verify.check import check_step
from chakra.generate.verify.step_totals import summarize
from chakra.platforms import cluster
from chakra.replay import simulate
from chakra.replay.checks.run import check_workload
from chakra.rescale import rescale

BASE: dict[str, Any] = {
    "model": "", "layers": 3, "hidden": 32, "heads": 8, "vocabulary": 64, "seq": 32, "experts": 8,
    "experts-per-token": 2, "moe-ffn": 48, "peak-tflops": 0.01, "mem-gbps": 10.0,
}  # fmt: skip
SYSTEM = {
    "all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"], "all-to-all-implementation": ["direct"],
}  # fmt: skip


@given(st.lists(st.integers(0, 1 << 70), min_size=1, max_size=12).filter(any), st.integers(0, 50), st.data())
def test_whole_tokens_are_shared_out_in_proportion(
    weights: list[int], most: int, data: st.DataObject
) -> None:
    visited = data.draw(st.integers(0, sum(weight > 0 for weight in weights)))
    total = visited * most
    found = apportioned(total, weights, most)
    assert sum(found) == total
    assert all(0 <= one <= most for one in found)
    assert all(one == 0 for one, weight in zip(found, weights, strict=True) if not weight)
    # those that are not full differ from their shares of what the full ones leave by less than one
    open_ = [i for i, one in enumerate(found) if one < most and weights[i]]
    rest, weight = sum(found[i] for i in open_), sum(weights[i] for i in open_)
    for i in open_:
        assert abs(found[i] - Fraction(rest * weights[i], weight)) < 1 + Fraction(
            len(weights) * weights[i], weight
        )
    # who is visited more by right gets at least as many
    for i in range(len(weights)):
        for j in range(len(weights)):
            if weights[i] > weights[j]:
                assert found[i] >= found[j]


@st.composite
def requests(draw: st.DrawFn) -> MoeRequest:
    cp, dp = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 4]))
    options = {
        "tp": draw(st.sampled_from([1, 2])), "sp": draw(st.booleans()), "cp": cp, "dp": dp,
        "ep": draw(st.sampled_from([n for n in (1, 2, 4, 8) if cp * dp % n == 0])),
        "pp": draw(st.sampled_from([1, 3])), "micro-batches": draw(st.integers(1, 2)),
        "expert-load": f"zipf:{draw(st.sampled_from([0, 0.5, 1.2, 4, 20]))}", "expert-seed": draw(st.integers(0, 9)),
        "order": draw(st.sampled_from(["tp-cp-ep-dp-pp", "pp-dp-tp-cp-ep", "tp-dp-cp-ep-pp", "tp-cp-dp-ep-pp"])),
        "recompute": draw(st.sampled_from(["none", "full"])), "zero": draw(st.sampled_from([0, 1, 3])),
        "schedule": draw(st.sampled_from(["1f1b", "zb-h1"])), "overlap": draw(st.booleans()),
        "shared-experts": draw(st.sampled_from([0, 1])), "fuse": draw(st.booleans()),
    }  # fmt: skip
    return MoeRequest.from_mapping({**BASE, **options})


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_work_and_bytes_of_all_ranks_are_those_of_even_routing(request: MoeRequest) -> None:
    checks = check_step(request, request.plan())
    assert [check for check in checks if not check.passed] == []
    names = {check.name for check in checks}
    assert ("exchange with experts, all ranks" in names) == (request.ep > 1)
    if request.tp == 1 or request.sp:
        assert "matrix FLOPs of all ranks" in names


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_what_a_rank_sends_its_partner_receives(request: MoeRequest) -> None:
    workload = build_workload(request.plan())
    traces, groups = ranks_of(workload)
    assert list(check_workload(traces, groups, len(traces))) == []
    calls: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for rank, trace in enumerate(traces):
        for i in np.flatnonzero(trace.types == NodeType.COMM_COLL).tolist():
            sent, received = trace.splits(i)
            if trace.comm_type[i] == CommType.ALL_TO_ALL:
                assert sent is not None
                assert sum(sent) == trace.comm_size[i]
                calls[trace.pg_table[trace.pg_codes[i]]][rank].append((sent, received))
            else:
                assert sent is received is None
    assert bool(calls) == (request.ep > 1)
    for name, by_rank in calls.items():
        members = groups.get(name, list(range(workload.npus)))
        for of_call in zip(*(by_rank[rank] for rank in members), strict=True):
            for i in range(len(members)):
                assert of_call[i][0] == tuple(received[i] for _, received in of_call)


def built(**options: Any) -> Any:
    return build_workload(MoeRequest.from_mapping({**BASE, **options}).plan())


def time_ns(workload: Any) -> int:
    network = {"topology": ["Switch"], "npus_count": [workload.npus], "bandwidth": [5.0], "latency": [100.0]}
    return int(simulate(workload, SYSTEM, network).finish_ns.max())


def nodes_of(workload: Any) -> list[Any]:
    return [[trace.node_proto(i) for i in range(trace.n_nodes)] for trace in workload.traces]


def test_uniform_is_what_it_was() -> None:
    even, said = built(ep=4, dp=4), built(ep=4, dp=4, **{"expert-load": "uniform"})
    assert nodes_of(even) == nodes_of(said)
    assert len(even.traces) == 1


def test_an_even_file_takes_as_long_as_even_routing(tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    file.write_text("expert,share\n" + "".join(f"{expert},3\n" for expert in range(8)), encoding="utf-8")
    even, listed = built(ep=4, dp=4), built(ep=4, dp=4, **{"expert-load-file": str(file)})
    assert len(listed.traces) == 4
    assert time_ns(listed) == time_ns(even)


@pytest.mark.parametrize("npus", [8, 16])
def test_a_machine_with_a_collective_library_replays_them(npus: int, tmp_path: Path) -> None:
    """Groups of experts that are a part of the cluster: its library's all-to-all is that of the busiest port."""
    machine = cluster("hgx-h100", npus)
    times = []
    for load in ({}, {"expert-load": "zipf:1"}):
        workload = built(ep=4, dp=npus // 2, pp=2, **{"micro-batches": 2, **load})
        result = simulate(workload, machine.system(), machine.network())
        times.append(int(result.finish_ns.max()))
    assert times[1] > times[0] > 0


def test_the_rank_of_the_busiest_experts_works_longest(tmp_path: Path) -> None:
    """Experts 6 and 7 get all tokens: the last of four ranks computes and receives everything, the others nothing."""
    file = tmp_path / "load.csv"
    file.write_text("# measured\nlayer,expert,share\n,6,1\n,7,1\n1,0,0.5\n1,1,0.5\n", encoding="utf-8")
    request = MoeRequest.from_mapping({**BASE, "ep": 4, "dp": 4, "expert-load-file": str(file)})
    stages = summarize(request.plan())
    assert [stage.position for stage in stages] == [0, 1, 2, 3]
    even = summarize(MoeRequest.from_mapping({**BASE, "ep": 4, "dp": 4}).plan())[0]
    busy = [stage.matmul_flops - stages[1].matmul_flops for stage in stages]
    assert busy[1] == busy[2] == 0
    assert busy[3] == 2 * busy[0]
    assert sum(stage.matmul_flops for stage in stages) == 4 * even.matmul_flops
    assert time_ns(build_workload(request.plan())) > time_ns(built(ep=4, dp=4))
    names = [
        trace.node(i).name
        for trace in build_workload(request.plan()).traces[:2]
        for i in range(trace.n_nodes)
    ]
    assert "F0 layer1.expert1" in names
    assert "F0 layer0.expert1" not in names


def test_steeper_loads_take_longer_and_layers_differ() -> None:
    times = [time_ns(built(ep=4, dp=4, **{"expert-load": f"zipf:{power}"})) for power in (0, 0.6, 1.2, 3)]
    assert times == sorted(times)
    assert times[0] < times[-1]
    one = MoeRequest.from_mapping({**BASE, "ep": 8, "dp": 8, "expert-load": "zipf:1.2"})
    rows = [[op.forward.flops for op in layer.operators if op.name == "expert1"]
            for layer in one.plan().positions[0].chunks[0]]  # fmt: skip
    assert rows[1] != rows[2]
    other = MoeRequest.from_mapping({**BASE, "ep": 8, "dp": 8, "expert-load": "zipf:1.2", "expert-seed": 1})
    assert nodes_of(build_workload(one.plan())) == nodes_of(build_workload(one.plan()))
    assert nodes_of(build_workload(one.plan())) != nodes_of(build_workload(other.plan()))


@pytest.mark.parametrize("mode", ["prefill", "decode", "serve", "disaggregated"])
def test_inference_routes_as_training_does(mode: str) -> None:
    options = {
        "mode": mode,
        "ep": 4,
        "dp": 4,
        "pp": 3,
        "micro-batch": 4,
        "expert-load": "zipf:1",
    } | ({} if mode == "prefill" else {"decode-steps": 2})
    request = MoeRequest.from_mapping({**BASE, **options})
    even = MoeRequest.from_mapping({**BASE, **options, "expert-load": "uniform"})
    assert sum(s.matmul_flops * s.ranks for s in summarize(request.plan())) == sum(
        s.matmul_flops * s.ranks for s in summarize(even.plan())
    )
    assert [check for check in check_step(request, request.plan()) if not check.passed] == []
    workload = build_workload(request.plan())
    assert time_ns(workload) > 0


def test_more_replicas_are_the_workload_generated_with_them() -> None:
    few, many = (built(ep=2, dp=dp, **{"expert-load": "zipf:1.2"}) for dp in (4, 16))
    found = rescale(few, 16)
    assert [len(nodes) for nodes in nodes_of(found)] == [len(nodes) for nodes in nodes_of(many)]
    assert time_ns(found) == time_ns(many)


def test_an_anonymized_copy_takes_as_long(tmp_path: Path) -> None:
    workload = built(ep=4, dp=4, **{"expert-load": "zipf:1.2"})
    anonymize(str(write_shared(workload, tmp_path / "job")), str(tmp_path / "copy"))
    from chakra.generate import read_manifest

    assert time_ns(read_manifest(tmp_path / "copy.workload.json")) == time_ns(workload)


@pytest.mark.parametrize(("text", "message"), [
    ("zipf", "must be uniform or zipf:EXPONENT"), ("zipf:-1", "must be"), ("zipf:nan", "must be"), ("zipf:21", "must be"),
    ("even", "must be"), ("zipf:1e999", "must be"),
])  # fmt: skip
def test_words_that_are_no_load_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_load(text, None, None)


@pytest.mark.parametrize(("options", "message"), [
    ({"expert-load": "zipf:1", "capacity": 1.5}, "capacity must be 1"),
    ({"expert-load": "zipf:1", "expert-load-file": "x"}, "give one of them"),
    ({"expert-seed": 1}, "it needs expert-load zipf"),
    ({"expert-load": "zipf:1", "experts": 0, "ffn": 64}, "the model has none"),
])  # fmt: skip
def test_loads_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TransformerRequest.from_mapping({**BASE, **options}).plan()


@pytest.mark.parametrize(("text", "message"), [
    ("", "the first line must name the columns"),
    ("expert\n1\n", "the first line must name the columns"),
    ("expert,share,share\n1,1,1\n", "the first line must name the columns"),
    ("expert,share,weight\n1,1,1\n", "the first line must name the columns"),
    ("expert,share\n", "no shares below"),
    ("expert,share\n1\n", "line 2: 1 cell for 2 columns"),
    ("expert,share\nx,1\n", "line 2: expert must be a whole number"),
    ("expert,share\n1,-1\n", "line 2: share must be a number"),
    ("expert,share\n1,nan\n", "line 2: share must be a number"),
    ("expert,share\n1,1\n1,2\n", "line 3: expert 1 has a share already"),
    ("expert,share\n8,1\n", "a share of expert 8, but layer 0 has experts 0 to 7"),
    ("expert,share\n1,1\n2,0\n", "1 expert of layer 0 has a share, and a token visits 2"),
    ("layer,expert,share\n1,1,1\n1,2,1\n", "no shares for the experts of layer 0"),
    ("layer,expert,share\n,1,1\n,2,1\n3,1,1\n", "shares of layer 3, but the model has layers 0 to 2"),
])  # fmt: skip
def test_files_that_are_wrong_are_named(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises((ConfigError, UsageError), match=f"load.csv: .*{message}"):
        MoeRequest.from_mapping({**BASE, "expert-load-file": str(file)}).plan()


def test_shares_of_a_layer_without_experts_are_refused(tmp_path: Path) -> None:
    """DeepSeek-V2 Lite's first layer is dense."""
    file = tmp_path / "load.csv"
    lines = [f",{expert},1" for expert in range(64)]
    file.write_text("\n".join(["layer,expert,share", *lines, "0,1,5"]), encoding="utf-8")
    with pytest.raises(UsageError, match=r"load\.csv: shares of layer 0, which has no experts"):
        MoeRequest.from_mapping(
            {"model": "deepseek-v2-lite", "layers": 3, "expert-load-file": str(file)}
        ).plan()


def test_checks_of_uneven_experts_name_the_position() -> None:
    """Each position has a trace of its own in every stage, and eight rows of the table had one name."""
    request = MoeRequest.from_mapping(
        {
            "model": "mixtral-8x7b",
            "layers": 2,
            "seq": 64,
            "ep": 4,
            "dp": 8,
            "zero": 1,
            "expert-load": "zipf:1.2",
        }
    )
    names = [check.name for check in check_step(request, request.plan())]
    assert "dp reduce-scatter, stage 0 ep 3, bytes" in names
    assert len(names) == len({*names})
