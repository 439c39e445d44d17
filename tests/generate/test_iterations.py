"""Several training steps in one workload: each is the step alone, and the next begins when the weights are new."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.accuracy.rates import rates_of
from chakra.errors import UsageError
from chakra.generate import TransformerRequest, build_workload, summarize
from chakra.generate.verify.check import check_step
from chakra.generate.verify.totals import totals_of
from chakra.replay import simulate

BASE: dict[str, Any] = {
    "model": "", "layers": 4, "hidden": 32, "heads": 8, "vocabulary": 64, "seq": 32, "bucket-mb": 0.01,
    "peak-tflops": 0.01, "mem-gbps": 10.0,
}  # fmt: skip
SYSTEM = {
    f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
}  # fmt: skip


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    return {
        **BASE, "tp": draw(st.sampled_from([1, 2])), "dp": draw(st.sampled_from([1, 2])),
        "pp": draw(st.sampled_from([1, 2, 4])), "cp": draw(st.sampled_from([1, 2])),
        "zero": draw(st.integers(0, 3)), "micro-batches": draw(st.integers(1, 3)), "overlap": draw(st.booleans()),
        "comm-order": draw(st.sampled_from(["program", "stream"])), "sp": draw(st.booleans()),
        "schedule": draw(st.sampled_from(["gpipe", "1f1b", "zb-h1"])),
        "host": draw(st.sampled_from(["none", "ahead"])),
    }  # fmt: skip


def plan(given: dict[str, Any], **more: Any) -> Any:
    return TransformerRequest.from_mapping({**given, **more}).plan()


def time_ns(given: dict[str, Any], iterations: int) -> int:
    workload = build_workload(plan(given, iterations=iterations))
    network = {"topology": ["Switch"], "npus_count": [workload.npus], "bandwidth": [5.0], "latency": [100.0]}
    return int(simulate(workload, SYSTEM, network).finish_ns.max())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(options(), st.integers(2, 3))
def test_counts_are_those_of_one_step_so_many_times(given: dict[str, Any], steps: int) -> None:
    request = TransformerRequest.from_mapping({**given, "iterations": steps})
    assert [check for check in check_step(request, request.plan()) if not check.passed] == []
    for one, several in zip(summarize(plan(given)), summarize(plan(given, iterations=steps)), strict=True):
        assert several.nodes == steps * one.nodes
        assert several.matmul_flops == steps * one.matmul_flops
        assert several.memory == one.memory
        for a, b in zip(one.traffic, several.traffic, strict=True):
            assert (b.calls, b.size_bytes) == (steps * a.calls, steps * a.size_bytes)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(options())
def test_each_further_step_takes_as_long_as_the_one_before(given: dict[str, Any]) -> None:
    one, two, three, four = (time_ns(given, number) for number in (1, 2, 3, 4))
    assert four - three == three - two
    assert 0 < two - one <= one
    # the first stage of a pipeline ends last, and begins the next step then
    if given["pp"] == 1 and given["host"] == "none":
        assert two == 2 * one


def test_the_next_step_waits_for_the_gathered_weights() -> None:
    workload = build_workload(plan(BASE, dp=2, zero=1, iterations=2))
    (trace,) = workload.traces
    names = [trace.node(i).name for i in range(trace.n_nodes)]
    first = names.index("step1.F0 embedding.lookup")
    gathers = [i for i, name in enumerate(names) if name.startswith("step0 params.") and i < first]
    assert gathers
    place = {int(node): i for i, node in enumerate(trace.ids)}
    assert gathers[-1] in {place[dep] for dep in trace.node(first).data_deps}


def test_rates_count_all_steps() -> None:
    request = TransformerRequest.from_mapping({**BASE, "dp": 2, "micro-batches": 2})
    several = TransformerRequest.from_mapping({**BASE, "dp": 2, "micro-batches": 2, "iterations": 5})
    totals = totals_of(request, request.plan()), totals_of(several, several.plan())
    assert totals[0].memory == totals[1].memory
    one, five = (of_one.counts for of_one in totals)
    assert five.pop("iterations") == 5
    assert {key: five[key] / value for key, value in one.items() if key != "npus" and value} == dict.fromkeys(
        [key for key, value in one.items() if key != "npus" and value], 5
    )
    a = rates_of(one, 1000, 2, peak_tflops=1.0, price=2.0)
    b = rates_of({**five, "iterations": 5}, 5000, 2, peak_tflops=1.0, price=2.0)
    assert a == pytest.approx(b)


@pytest.mark.parametrize(("given", "message"), [
    ({"iterations": 0}, "iterations must be at least 1, not 0"),
    ({"iterations": 2, "optimizer-step": False}, "several iterations need the optimizer's step"),
    ({"iterations": 2, "mode": "decode"}, "iterations is of mode train; mode decode does not read it"),
    ({"iterations": 1 << 20, "micro-batches": 1 << 20}, "x iterations are"),
])  # fmt: skip
def test_iterations_that_mean_nothing_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan(BASE, **given)
