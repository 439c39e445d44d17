"""Laws of the phase-level engine over random systems and workloads."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_strategies import (
    MONOTONE,
    collective_traces,
    exchange_traces,
    permuted,
    run,
    settings_of_systems,
    workloads,
)

from chakra.errors import StallError
from chakra.replay import ReplayResult
from chakra.replay.engines.phases import engine as phase_engine

NEVER = (1 << 62, 1 << 62, 1 << 62)
MODES = st.sampled_from([None, "astra-sim"])
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(autouse=True)
def plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep small runs in the plain version of the kernel."""
    monkeypatch.setattr(phase_engine, "COMPILE_FROM", NEVER)


def all_ticks(result: ReplayResult) -> list[list[list[int]]]:
    """Ids, issue and finish of every node of every NPU."""
    return [[a.tolist() for a in result.node_ticks(npu)] for npu in range(result.npus)]


@few
@given(data=st.data(), compat=MODES)
def test_folding_changes_nothing(data: st.DataObject, compat: str | None) -> None:
    setting = data.draw(settings_of_systems())
    traces = data.draw(workloads(setting))
    try:
        unfolded = run(setting, traces, compat=compat, fold=False)
    except StallError:
        with pytest.raises(StallError):
            run(setting, traces, compat=compat)
        return
    folded = run(setting, traces, compat=compat)
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
    assert all_ticks(folded) == all_ticks(unfolded)
    assert folded.corrections == unfolded.corrections
    for name, values in folded.account.items():
        assert values.tolist() == unfolded.account[name].tolist()


@few
@given(data=st.data())
def test_every_run_ends_or_explains_itself(data: st.DataObject) -> None:
    setting = data.draw(settings_of_systems())
    traces = data.draw(workloads(setting))
    try:
        result = run(setting, traces)
    except StallError as error:
        # only messages that meet in the wrong order under rendezvous may block a workload whose ends all match
        text = str(error)
        if setting.rendezvous and "NPU" in text and "\n" not in text:
            return
        raise
    assert (result.finish_ns >= 0).all()
    total = np.sum(list(result.account.values()), axis=0)
    assert total.tolist() == result.finish_ns.tolist()
    for npu in range(result.npus):
        ids, issue, finish = result.node_ticks(npu)
        assert sorted(ids.tolist()) == sorted(traces[npu].ids.tolist())
        assert (finish >= issue).all()
        assert (issue[1:] >= issue[:-1]).all()
        when = dict(zip(ids.tolist(), zip(issue.tolist(), finish.tolist(), strict=True), strict=True))
        trace = traces[npu]
        offsets, parents = trace.parents()
        for i in range(trace.n_nodes):
            for parent in parents[offsets[i] : offsets[i + 1]]:
                assert when[int(trace.ids[i])][0] >= when[int(trace.ids[parent])][1]


@few
@given(data=st.data())
def test_both_engines_agree(data: st.DataObject) -> None:
    setting = data.draw(settings_of_systems(npus=8))
    traces = data.draw(workloads(setting, most=4))
    try:
        phases = run(setting, traces, compat="astra-sim", engine="phases")
    except StallError:
        with pytest.raises(StallError):
            run(setting, traces, compat="astra-sim", engine="messages")
        return
    messages = run(setting, traces, compat="astra-sim", engine="messages")
    for npu in range(setting.npus):
        first, second = (
            zip(*(a.tolist() for a in r.node_ticks(npu)), strict=True) for r in (phases, messages)
        )
        assert sorted(first) == sorted(second)


# -- monotone: more bytes, more latency or a slower NPU never finish earlier -------------------------------------


@few
@given(data=st.data(), algorithm=st.sampled_from(MONOTONE))
def test_one_collective_is_monotone(data: st.DataObject, algorithm: str) -> None:
    kinds = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    if algorithm == "direct":
        kinds.remove("all_reduce")
    if algorithm == "halvingDoubling":
        kinds.remove("all_to_all")
    kind = data.draw(st.sampled_from(kinds))
    setting = data.draw(settings_of_systems(algorithm=algorithm))
    size = data.draw(st.integers(0, 1 << 21))
    more = size + data.draw(st.integers(0, 1 << 16))
    first = run(setting, collective_traces(setting, kind, size)).finish_ns
    larger = run(setting, collective_traces(setting, kind, more)).finish_ns
    assert (larger >= first).all()
    dim = data.draw(st.integers(0, len(setting.network["latency"]) - 1))
    latency = list(setting.network["latency"])
    latency[dim] += data.draw(st.integers(0, 5000))
    slow = dataclasses.replace(setting, network={**setting.network, "latency": latency})
    assert (run(slow, collective_traces(setting, kind, size)).finish_ns >= first).all()


@few
@given(data=st.data())
def test_chains_are_monotone(data: st.DataObject) -> None:
    setting = data.draw(settings_of_systems(algorithm="ring"))
    kinds = data.draw(
        st.lists(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]), min_size=1, max_size=4)
    )
    micros = data.draw(st.lists(st.integers(0, 50), min_size=setting.npus, max_size=setting.npus))
    traces = exchange_traces(setting, kinds, 65536, micros)
    first = run(setting, traces).finish_ns
    npu = data.draw(st.integers(0, setting.npus - 1))
    scale = [1.0] * setting.npus
    scale[npu] = data.draw(st.floats(1.0, 4.0))
    assert (run(setting, traces, npu_scale=scale).finish_ns >= first).all()
    assert (run(setting, exchange_traces(setting, kinds, 65536 + 4096, micros)).finish_ns >= first).all()


# -- names of NPUs mean nothing on a symmetric system ------------------------------------------------------------


@few
@given(data=st.data(), compat=MODES, algorithm=st.sampled_from(["ring", "direct", "direct2"]))
def test_renaming_npus_changes_nothing(data: st.DataObject, compat: str | None, algorithm: str) -> None:
    """A rotation of one dimension. Messages are left out: where their events tie, lower numbers go first."""
    setting = dataclasses.replace(data.draw(settings_of_systems(dims=1, algorithm=algorithm)), groups={})
    traces = data.draw(workloads(setting, messages=False))
    shift = data.draw(st.integers(1, setting.npus - 1))
    order = [(i + shift) % setting.npus for i in range(setting.npus)]
    first = run(setting, traces, compat=compat).finish_ns
    second = run(setting, permuted(traces, order), compat=compat).finish_ns
    assert second[order].tolist() == first.tolist()


# -- plain and compiled -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), compat=MODES)
def test_compiled_kernel_equals_its_python_twin(
    data: st.DataObject, compat: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = data.draw(settings_of_systems())
    traces = data.draw(workloads(setting))
    try:
        plain = run(setting, traces, compat=compat)
    except StallError:
        return
    with monkeypatch.context() as patch:
        patch.setattr(phase_engine, "COMPILE_FROM", (0, 0, 0))
        compiled = run(setting, traces, compat=compat)
    assert all_ticks(plain) == all_ticks(compiled)
