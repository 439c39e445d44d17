"""The host thread: what it issues stands in nodes of their own, and bounds the step where it takes longest."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest

from chakra.et.operators import Host, Kernel, KernelKind, MatrixProduct, operator_text, parse_operators
from chakra.generate import MoeRequest, Recompute, TransformerRequest, build_workload
from chakra.generate.request.base import Host as HostOption
from chakra.platforms import cluster
from chakra.replay import simulate
from chakra.replay.compute import HostCosts
from chakra.replay.compute.host import host_us

SIZES: Mapping[str, Any] = {
    "model": "", "layers": 4, "hidden": 1024, "heads": 16, "vocabulary": 1024, "seq": 1024,
}  # fmt: skip


def finish_ms(host: Mapping[str, float], option: HostOption = HostOption.AHEAD, **changes: Any) -> float:
    request = TransformerRequest(**{**SIZES, "host": option, "fuse": True, **changes})
    platform = cluster("hgx-h100", request.parallel().world)
    system = platform.system(operator_model={"base": "hgx-h100", "host": dict(host)})
    return float(simulate(build_workload(request.plan()), system, platform.network()).finish_ns.max()) / 1e6


def counts(**changes: Any) -> Host:
    workload = build_workload(TransformerRequest(**{**SIZES, "host": HostOption.AHEAD, **changes}).plan())
    total: dict[str, int] = {}
    for code in workload.traces[0].operator_codes:
        for operator, _ in parse_operators(workload.traces[0].operator_table[code]) if code >= 0 else ():
            if isinstance(operator, Host):
                for item in fields(operator):
                    total[item.name] = total.get(item.name, 0) + getattr(operator, item.name)
    return Host(**total)


def test_everything_is_issued_once() -> None:
    """What a micro-batch makes the host do it does for each; what recomputation runs again it issues again."""
    one, two = counts(tp=2, micro_batches=1), counts(tp=2, micro_batches=2)
    assert (one.passes, one.steps, two.passes, two.steps) == (2, 1, 4, 1)
    assert two.collectives == 2 * one.collectives > 0
    # the optimizer is issued once
    assert two.forward - 1 == 2 * (one.forward - 1)
    again = counts(tp=2, micro_batches=1, recompute=Recompute.FULL)
    assert (one.again, again.forward, again.backward) == (0, one.forward, one.backward)
    assert 0 < again.again < one.forward


@pytest.mark.parametrize("ep", [1, 4, 8])
def test_products_of_experts_are_issued_one_by_one(ep: int) -> None:
    """The host's nodes count as many as the device's nodes stand for, however few experts a rank has."""
    request = MoeRequest(model="mixtral-8x7b", layers=2, dp=8, ep=ep, micro_batches=2, host=HostOption.AHEAD)
    trace = build_workload(request.plan()).traces[0]
    issued = done = 0
    for index, code in enumerate(trace.operator_codes):
        for operator, times in parse_operators(trace.operator_table[code]) if code >= 0 else ():
            if isinstance(operator, Host):
                issued += times * operator.experts
            elif isinstance(operator, MatrixProduct) and trace.attr(index, "expert_bytes"):
                done += times * operator.batch
    # up, gate and down, forward, back and for the weights
    assert issued == done
    assert done % (2 * 2 * 3 * 8 // ep) == 0
    assert done >= 2 * 2 * 2 * 3 * 8 // ep


def test_biases_of_experts_are_issued_one_by_one_and_moved_once() -> None:
    """GPT-OSS: clamped activations, and a kernel that weighs biases for each token; no other model has them."""
    request = MoeRequest(
        model="gpt-oss-20b", layers=2, dp=8, ep=8, seq=256, micro_batches=1, host=HostOption.AHEAD
    )
    trace = build_workload(request.plan()).traces[0]
    found = [
        operator
        for code in trace.operator_codes
        for operator, _ in (parse_operators(trace.operator_table[code]) if code >= 0 else ())
    ]
    kinds = Counter(operator.kind for operator in found if isinstance(operator, Kernel))
    assert kinds[KernelKind.CLAMPED] == kinds[KernelKind.BIAS] == 2 * 2
    assert kinds[KernelKind.ACTIVATION] == 0
    elements = 256 * 4 * 2880
    assert {
        (operator.elements, operator.bytes)
        for operator in found
        if isinstance(operator, Kernel) and operator.kind is KernelKind.BIAS
    } == {(elements, 2 * 2 * elements), (elements, 2 * 3 * elements)}
    products = sum(
        operator.batch for operator in found if isinstance(operator, MatrixProduct) and operator.batch == 4
    )
    issued = sum(operator.experts for operator in found if isinstance(operator, Host))
    # 4 experts on a rank, 2 layers, forward and back
    assert issued == products + 4 * 2 * 2
    other = build_workload(MoeRequest(model="mixtral-8x7b", layers=1, seq=256).plan()).traces[0]
    assert not any(" bias " in f" {text} " or "clamped" in text for text in other.operator_table)


def test_experts_bind_small_micro_batches_to_the_host() -> None:
    changes: dict[str, Any] = {
        "experts": 16,
        "experts_per_token": 2,
        "moe_ffn": 512,
        "dp": 8,
        "ep": 1,
        "seq": 128,
    }
    free, bound = (finish_ms(host, **changes) for host in ({}, {"expert_us": 100.0}))
    assert bound > 4 * 16 * 6 * 0.1 > 2 * free


def test_the_host_reads_how_many_tokens_experts_have() -> None:
    """Each forward pass of a layer the host waits for the router; recorded graphs and backward passes read nothing."""
    changes: dict[str, Any] = {
        **SIZES, "experts": 16, "experts_per_token": 2, "moe_ffn": 512, "dp": 8, "ep": 8, "host": HostOption.AHEAD,
    }  # fmt: skip
    for graphs, waits in ((False, SIZES["layers"]), (True, 0)):
        trace = build_workload(TransformerRequest(**changes, graphs=graphs).plan()).traces[0]
        names = [trace.node(i).name for i in range(trace.n_nodes)]
        found = [
            [names[parent] for parent in trace.node(i).ctrl_deps if "host." not in names[parent]]
            for i in range(trace.n_nodes)
            if "host." in names[i]
        ]
        # the pass and the step wait for other things
        assert sum(any("permute" in name for name in waited) for waited in found) == waits


def test_a_host_without_cost_changes_nothing() -> None:
    several: tuple[dict[str, Any], ...] = (
        {"tp": 2, "micro_batches": 2},
        {"pp": 2, "micro_batches": 4},
        {"dp": 2},
    )
    for changes in several:
        assert finish_ms({}, **changes) == pytest.approx(finish_ms({}, HostOption.NONE, **changes), rel=1e-6)


def test_a_slow_host_bounds_the_step() -> None:
    """All that it issues, one after the other, and then what the device has left."""
    free = finish_ms({}, micro_batches=2, dp=2)
    host = counts(micro_batches=2, dp=2)
    costs = HostCosts(forward_us=1000, backward_us=500)
    issued = host_us(host, costs) / 1e3
    bound = finish_ms({"forward_us": 1000, "backward_us": 500}, micro_batches=2, dp=2)
    assert issued > 5 * free
    assert issued <= bound <= issued + free


def test_a_synchronised_host_waits_at_each_pass() -> None:
    """Forward bound by the host and backward by the device add up, where a host that runs ahead hides one of them."""
    host = {"forward_us": 150.0}
    changes: dict[str, Any] = {"micro_batches": 4, "dp": 2, "micro_batch": 4}
    assert finish_ms(host, HostOption.SYNCHRONISED, **changes) > 1.02 * finish_ms(host, **changes)


def test_a_recorded_graph_costs_the_step_alone() -> None:
    host = Host(forward=10, again=5, backward=20, experts=7, collectives=3, messages=2, passes=2, steps=1)
    costs = HostCosts(1, 10, 0.5, 100, 1000, 10_000, 100_000)
    assert host_us(host, costs) == 15 + 200 + 3.5 + 300 + 2000 + 20_000 + 100_000
    assert host_us(host, replace(costs, graphs=True)) == 100_000
    assert parse_operators(operator_text(host)) == ((host, 1),)


def test_exposed_communication_is_waited_for() -> None:
    changes: dict[str, Any] = {"dp": 8, "micro_batch": 2, "bucket_mb": 1.0}
    beside = finish_ms({}, **changes)
    waited = finish_ms({}, exposed="dp", **changes)
    serial = finish_ms({}, overlap=False, **changes)
    assert beside < waited <= serial


def test_every_host_node_says_what_it_issues() -> None:
    workload = build_workload(TransformerRequest(**{**SIZES, "host": HostOption.AHEAD}).plan())
    hosts = [name for name in workload.traces[0].name_table if "host." in name]
    assert hosts
    assert not [name for name in hosts if name.endswith("host.")]
    assert "host.steps" in hosts


@pytest.mark.parametrize("zero", [0, 1, 2])
@pytest.mark.parametrize("pp", [1, 2])
def test_nothing_of_the_device_is_merged_into_the_host(zero: int, pp: int) -> None:
    """The optimizer follows the host's node of the step; merged or not, host and device take their own times."""
    request = TransformerRequest(
        model="llama3-8b", layers=4, npus=8, tp=2, pp=pp, micro_batches=2, zero=zero, framework="megatron"
    )
    accounts = []
    for fuse in (False, True):
        workload = build_workload(replace(request, fuse=fuse).plan())
        for trace in workload.traces:
            for code, cpu in zip(trace.operator_codes.tolist(), trace.is_cpu_op.tolist(), strict=True):
                if code >= 0:
                    kinds = {isinstance(op, Host) for op, _ in parse_operators(trace.operator_table[code])}
                    assert kinds == {cpu == 1}
        machine = cluster("hgx-h100")
        accounts.append(simulate(workload, machine.system(), machine.network()).account)
    apart, together = accounts
    for part in ("compute_ns", "cpu_ns"):
        assert together[part].tolist() == pytest.approx(apart[part].tolist(), rel=1e-5)
