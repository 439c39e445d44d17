"""What graphs, compilation and frameworks change in a generated program."""

from dataclasses import replace
from typing import Any

import pytest

from chakra.accuracy import NothingNear, replay_interval
from chakra.errors import UsageError
from chakra.et.operators import Host, Kernel, KernelKind, parse_operators
from chakra.generate import TransformerRequest, build_workload
from chakra.generate.request.base import Host as HostOption
from chakra.generate.request.frameworks import FRAMEWORKS
from chakra.generate.request.parameters import PARAMETERS
from chakra.generate.verify.check import check_step
from chakra.generate.verify.step_totals import summarize, total_matmul_flops, total_parameters
from chakra.platforms import cluster
from chakra.replay import simulate
from chakra.replay.compute.times import kernel_counts

SIZES: dict[str, Any] = {
    "model": "", "layers": 4, "hidden": 1024, "heads": 16, "vocabulary": 1024, "seq": 1024, "gated": True,
}  # fmt: skip
#: a host that takes as long for an operator as programs in Python do
SLOW = {"forward_us": 400.0, "backward_us": 200.0, "collective_us": 100.0}


def _request(**changes: Any) -> TransformerRequest:
    return TransformerRequest.from_mapping({**SIZES, "host": "ahead", **changes})


def _texts(request: TransformerRequest) -> list[str]:
    """Attribute ``operator`` of every node of the first rank."""
    (trace, *_) = build_workload(request.plan()).traces
    return [trace.operator_table[code] for code in trace.operator_codes.tolist() if code >= 0]


def _finish_ms(request: TransformerRequest, **host: float) -> float:
    platform = cluster("hgx-h100", request.parallel().world)
    system = platform.system(operator_model={"base": "hgx-h100", "host": host})
    return float(simulate(build_workload(request.plan()), system, platform.network()).finish_ns.max()) / 1e6


def _issued(request: TransformerRequest) -> Host:
    found = [op for text in _texts(request) for op, _ in parse_operators(text) if isinstance(op, Host)]
    names = ("forward", "again", "backward", "collectives", "messages", "passes", "steps")
    return Host(**{name: sum(getattr(host, name) for host in found) for name in names})


# ------------------------------------------------------------------------------------------------------- graphs


@pytest.mark.parametrize(
    "changes",
    [
        {"micro-batches": 2},
        {"micro-batches": 2, "tp": 2, "sp": True},
        {"micro-batches": 4, "pp": 2},
        {"mode": "decode", "micro-batch": 4, "decode-steps": 4, "hidden": 8192, "heads": 64},
    ],
    ids=str,
)
def test_graphs_make_a_host_bound_step_accelerator_bound(changes: dict[str, Any]) -> None:
    eager = _request(**changes)
    graphs = replace(eager, graphs=True)
    free = _finish_ms(eager)
    assert _finish_ms(eager, **SLOW) > 3 * free
    # each pass costs the launch of its graph
    issued = _issued(graphs)
    launches = (issued.forward * 400 + issued.backward * 200 + issued.collectives * 100) / 1e3
    assert _finish_ms(graphs, **SLOW) <= free + launches
    assert launches < free
    # without costs of the host nothing differs
    assert _finish_ms(graphs) == pytest.approx(free, rel=1e-6)


def test_a_graph_is_launched_once_a_pass() -> None:
    """Forward and backward of each micro-batch, and the optimizer; collectives of layers are in the graphs."""
    eager, graphs = (_issued(_request(tp=2, **{"micro-batches": 3}, graphs=on)) for on in (False, True))
    assert (graphs.passes, graphs.steps) == (eager.passes, eager.steps) == (6, 1)
    assert (graphs.forward, graphs.backward) == (3 + 1, 3)
    assert eager.forward > 3 * 20
    assert eager.backward > 3 * 30
    assert graphs.collectives == 0 < eager.collectives
    buckets = _issued(_request(dp=2, graphs=True))
    assert buckets.collectives == _issued(_request(dp=2)).collectives > 0


def test_graphs_need_a_host() -> None:
    with pytest.raises(UsageError, match="graphs change what the host launches"):
        _request(host="none", graphs=True).plan()
    assert TransformerRequest.from_mapping({**SIZES, "framework": "megatron", "graphs": True}).plan().stages


# ------------------------------------------------------------------------------------------------------- compilation


def _kernels(request: TransformerRequest) -> tuple[int, int]:
    """Kernels of a step, and bytes of those that memory bounds."""
    texts = _texts(request)
    found = [op for text in texts for op, _ in parse_operators(text) if isinstance(op, Kernel)]
    return int(kernel_counts(texts).sum()), sum(op.bytes for op in found)


@pytest.mark.parametrize(
    "changes", [{}, {"tp": 2, "sp": True}, {"model": "mixtral-8x7b", "layers": 2}], ids=str
)
def test_compilation_leaves_fewer_kernels_and_fewer_bytes(changes: dict[str, Any]) -> None:
    eager = TransformerRequest.from_mapping({**SIZES, **changes})
    made = replace(eager, compiled=True)
    (kernels, moved), (fewer, less) = _kernels(eager), _kernels(made)
    assert fewer < kernels
    assert less < moved
    one, two = eager.plan(), made.plan()
    assert total_matmul_flops(one) == total_matmul_flops(two)
    assert total_parameters(one) == total_parameters(two)
    assert summarize(one)[0].other_ops == summarize(two)[0].other_ops
    assert summarize(one)[0].traffic == summarize(two)[0].traffic
    assert summarize(one)[0].memory == summarize(two)[0].memory
    assert [check for check in check_step(made, two) if not check.passed] == []
    assert _finish_ms(made) < _finish_ms(eager)


def test_what_compilation_merges() -> None:
    """Of a dense layer the first residual addition and the norm behind it: the sum is not read again."""
    request = _request(layers=1, compiled=True)
    plan = request.plan()
    names = [name for template in plan.stages[0].templates for name in template.names]
    assert any(name.endswith("layer0.add1_norm2") for name in names)
    eager = replace(request, compiled=False)
    element = 1024 * 1024 * 2
    add, norm = 3 * element, 2 * element

    def kernels(of: TransformerRequest) -> list[Kernel]:
        found = [op for text in _texts(of) for op, _ in parse_operators(text)]
        return [op for op in found if isinstance(op, Kernel)]

    # the norm reads the sum where it was made; the last addition needs it, so it is written
    assert any(op.bytes == add + norm - element for op in kernels(request))
    assert KernelKind.FUSED not in {op.kind for op in kernels(eager)}
    assert {op.kind for op in kernels(request)} == {
        KernelKind.FUSED,
        KernelKind.EMBEDDING,
        KernelKind.OPTIMIZER,
    }


def test_factors_on_eager_kernels_do_not_count_for_compiled_ones() -> None:
    """A program whose norms and activations take two passes too many loses that by compilation."""
    eager = _request()
    platform = cluster("hgx-h100", 1)
    slow = platform.system(
        operator_model={"base": "hgx-h100", "kernels": {"norm": 4, "activation": 4, "add": 4}}
    )

    def finish(request: TransformerRequest, system: Any) -> float:
        return float(simulate(build_workload(request.plan()), system, platform.network()).finish_ns.max())

    made = replace(eager, compiled=True)
    assert finish(eager, slow) > 1.1 * finish(eager, platform.system())
    assert finish(made, slow) == finish(made, platform.system())


@pytest.mark.parametrize(("name", "what"), [("graphs", "recorded graphs"), ("compiled", "compiled layers")])
def test_no_interval_rests_on_programs_that_were_not_measured(name: str, what: str) -> None:
    request = _request(framework="megatron", **{name: True})
    plan, platform = request.plan(), cluster("hgx-h100", 1)
    workload = build_workload(plan, metadata=request.facts("transformer"))
    found = replay_interval(simulate(workload, platform.system(), platform.network()))
    assert isinstance(found, NothingNear)
    assert found.reason == f"too few steps with {what} were measured"


# ------------------------------------------------------------------------------------------------------- frameworks


@pytest.mark.parametrize("name", list(FRAMEWORKS))
def test_every_value_of_a_framework_has_its_fact_and_can_be_overridden(name: str) -> None:
    framework = FRAMEWORKS[name]
    assert set(framework.facts) == set(framework.values)
    assert {"zero", "exposed", "recompute", "flash", "causal", "host"} <= set(framework.values)
    assert all(fact and fact == fact.strip() for fact in framework.facts.values())
    others: dict[str, object] = {
        "zero": 2, "exposed": "pp", "recompute": "selective", "grad_dtype": "bf16", "bucket_mb": 7.0, "flash": None,
        "causal": None, "context": "ulysses", "host": "synchronised", "reshard": None, "prefetch": 5,
        "unquantised": "mtp",
    }  # fmt: skip
    assert TransformerRequest.from_mapping({**SIZES, "framework": name}).framework == name
    for field, value in framework.values.items():
        other = (not value) if others[field] is None else others[field]
        if other == value:
            other = "ahead"
        request = TransformerRequest.from_mapping({**SIZES, "framework": name, field: other})
        read = getattr(request, field)
        assert getattr(read, "value", read) == other != value
        usual = getattr(TransformerRequest.from_mapping({**SIZES, "framework": name}), field)
        assert getattr(usual, "value", usual) == value


@pytest.mark.parametrize("name", list(FRAMEWORKS))
def test_a_framework_without_sharding_has_the_parameters_of_that_job(name: str) -> None:
    """What differs where optimizer states are whole counts with ``zero`` 0 alone, and can be overridden, too."""
    framework = FRAMEWORKS[name]
    assert all(why and why == why.strip() for _, why in framework.whole.values())
    for zero in (0, 1, None):
        given = {**SIZES, "framework": name} | ({} if zero is None else {"zero": zero})
        unsharded = not (framework.values["zero"] if zero is None else zero)
        request = TransformerRequest.from_mapping(given)
        for field, (value, _) in framework.whole.items():
            usual = framework.values.get(field, getattr(TransformerRequest(), field))
            read = getattr(request, field)
            assert (getattr(read, "value", read) == value) is unsharded
            assert unsharded or read == usual
    if "exposed" in framework.whole:
        chosen = TransformerRequest.from_mapping(
            {**SIZES, "framework": name, "zero": 0, "exposed": "tp,dp,pp"}
        )
        assert chosen.exposed == "tp,dp,pp"
    assert {name for name, profile in FRAMEWORKS.items() if profile.whole} == {"nanotron"}


def test_help_names_every_framework_and_what_is_not_validated() -> None:
    validated, _, rest = PARAMETERS["framework"].meaning.partition("not validated:")
    for name, framework in FRAMEWORKS.items():
        assert name in (validated if framework.validated else rest)
    assert [name for name, framework in FRAMEWORKS.items() if not framework.validated] == ["fsdp2", "maxtext"]
    assert HostOption.NONE.value == FRAMEWORKS["maxtext"].values["host"]
