"""Prefill and decoding on ranks of their own: every cache arrives whole, once, where its heads and layers are kept."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generated_ranks import messages, ranks_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.errors import UsageError
from chakra.et import NodeType
from chakra.et.manifest import WorkloadManifest
from chakra.generate import MoeRequest, TransformerRequest, build_workload, summarize
from chakra.generate.verify.check import check_step
from chakra.generate.verify.totals import totals_of
from chakra.replay import simulate
from chakra.replay.checks.run import check_workload
from chakra.rescale import rescale

BASE: dict[str, Any] = {
    "model": "", "layers": 4, "hidden": 32, "heads": 8, "kv-heads": 4, "ffn": 64, "vocabulary": 64, "seq": 32,
    "peak-tflops": 0.01, "mem-gbps": 10.0, "mode": "disaggregated",
}  # fmt: skip
LATENT: dict[str, Any] = {
    **BASE, "kv-heads": 8, "head-dim": 4, "kv-rank": 16, "rope-dim": 4, "value-dim": 4, "experts": 8,
    "experts-per-token": 2, "moe-ffn": 16,
}  # fmt: skip
SYSTEM = {
    f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
}  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> TransformerRequest:
    size = st.sampled_from([1, 2, 4])
    kind = draw(st.sampled_from(["heads", "latent", "states"]))
    dp, theirs = draw(size), draw(size)
    together = draw(st.sampled_from([1, 2]))
    options = {
        "tp": draw(st.sampled_from([1, 2, 4, 8])), "decode-tp": draw(st.sampled_from([1, 2, 4, 8])), "pp": draw(size),
        "decode-pp": draw(size), "dp": dp, "decode-dp": theirs, "micro-batch": 2, "decode-batch": 2 * together,
        "micro-batches": draw(st.integers(1, 2)) * together * theirs, "decode-steps": draw(st.integers(1, 3)),
        "order": draw(st.sampled_from(["tp-cp-ep-dp-pp", "pp-dp-tp-cp-ep"])), "overlap": draw(st.booleans()),
        "host": draw(st.sampled_from(["none", "ahead"])),
    }  # fmt: skip
    if kind == "states":
        return TransformerRequest.from_mapping({**STATES, **options})
    if kind == "latent":
        return MoeRequest.from_mapping({**LATENT, **options, "ep": dp, "decode-ep": theirs})
    window = draw(st.sampled_from([0, 8]))
    return TransformerRequest.from_mapping({**BASE, **options, "window": window})


STATES: dict[str, Any] = {
    **BASE, "layer-pattern": "M*M-", "kv-heads": 2, "inner": 64, "state-size": 8, "state-heads": 8, "state-groups": 2,
    "conv-width": 4, "chunk": 16,
}  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_caches_are_those_of_the_closed_forms(request: TransformerRequest) -> None:
    checks = check_step(request, request.plan())
    assert [check for check in checks if not check.passed] == []
    assert {"keys and values sent", "keys and values received"} <= {check.name for check in checks}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_every_message_has_its_partner_and_every_decode_rank_its_cache(request: TransformerRequest) -> None:
    plan = request.plan()
    workload = build_workload(plan)
    traces, groups = ranks_of(workload)
    assert list(check_workload(traces, groups, len(traces))) == []
    arrived: dict[int, int] = defaultdict(int)
    for rank, trace in enumerate(traces):
        for i in np.flatnonzero(trace.types == NodeType.COMM_RECV).tolist():
            if trace.node(i).name.endswith("kv.recv"):
                assert trace.comm_src[i] < plan.parallel.world <= rank
                arrived[rank] += int(trace.comm_size[i])
    sent, received = messages(traces)
    assert sent == received
    assert all(count == 1 for count in sent.values())
    # each decode rank receives what it then keeps of the prompts, in the layers and heads it has
    decode = plan.beside[0]
    for stage in decode.stages:
        prompt = request.config().sequence
        whole = decode.model.of_stage(stage.stage, decode.parallel.pp)
        kept = sum(
            min(layer.window or prompt, prompt) * layer.cached_bytes for chunk in whole for layer in chunk
        )
        for rank in stage.ranks or ():
            assert arrived[plan.parallel.world + rank] == kept * decode.model.cached_sequences


def test_layers_of_their_own_heads_travel_too(tmp_path: Path) -> None:
    """Layers of 4 and 2 key-value heads, one of which decode ranks copy, and one without attention."""
    file = tmp_path / "layers.csv"
    file.write_text("layers,mixer,feed,heads,kv-heads\n2,,,,\n1,none,mlp,,\n3,,,8,2\n", encoding="utf-8")
    options = {
        **BASE,
        "layers": 6,
        "layer-file": str(file),
        "tp": 2,
        "pp": 2,
        "decode-tp": 4,
        "micro-batches": 2,
    }
    request = TransformerRequest.from_mapping(options)
    checks = {check.name: check for check in check_step(request, request.plan())}
    assert [check for check in checks.values() if not check.passed] == []
    assert checks["keys and values sent"].found == 2 * (2 * 4 + 3 * 4) * 2 * 4 * 32 * 2


def built(**options: Any) -> WorkloadManifest:
    return build_workload(TransformerRequest.from_mapping({**BASE, **options}).plan())


def times_ns(workload: WorkloadManifest, bandwidth: float = 50.0) -> list[int]:
    network = {
        "topology": ["Switch"],
        "npus_count": [workload.npus],
        "bandwidth": [bandwidth],
        "latency": [500.0],
    }
    finish: list[int] = simulate(workload, SYSTEM, network).finish_ns.tolist()
    return finish


def test_decoding_begins_when_its_cache_has_come() -> None:
    """One batch: prefill, the longest message, then decoding, as long as each of them alone."""
    alone = {mode: max(times_ns(built(mode=mode))) for mode in ("prefill", "decode")}
    first, last = times_ns(built(**{"decode-steps": 1}))
    slow = times_ns(built(**{"decode-steps": 1}), bandwidth=0.05)
    cache = 4 * 2 * 4 * 4 * 32 * 2  # layers x keys and values x heads x width x tokens x bytes
    assert first >= alone["prefill"]
    assert last >= alone["prefill"] + alone["decode"] + cache / 50
    assert last < 1.05 * (alone["prefill"] + alone["decode"] + cache / 50) + 2000
    gib = 2**30 / 1e9  # of a second's bytes
    assert slow[1] - last == pytest.approx((cache / 0.05 - cache / 50) / gib, rel=0.01)


def test_batches_overlap() -> None:
    """While one batch is decoded the next is computed and travels."""
    one, four = (max(times_ns(built(**{"micro-batches": n, "decode-steps": 4}))) for n in (1, 4))
    alone = built(mode="prefill"), built(mode="decode", **{"decode-steps": 4})
    longer = max(max(times_ns(workload)) for workload in alone)
    assert one + 3 * longer <= four + 10 < 1.02 * (one + 3 * longer)


def test_equal_ranks_share_traces() -> None:
    workload = built(tp=4, pp=2, dp=8, **{"micro-batches": 2})
    assert (workload.npus, len(workload.traces)) == (128, 4)
    assert workload.groups["tp"].shape == workload.groups["decode.tp"].shape == (16, 4)
    assert workload.groups["decode.tp"].min() == 64
    parts = [
        {attr.name: attr.string_val for attr in trace.metadata.attr}["part"] for trace in workload.traces
    ]
    assert parts == ["prefill", "prefill", "decode", "decode"]


def test_ranks_and_work_of_both_parts_are_counted() -> None:
    request = TransformerRequest.from_mapping(
        {**BASE, "tp": 2, "decode-tp": 4, "decode-dp": 2, "micro-batches": 4}
    )
    totals = totals_of(request, request.plan()).counts
    assert (totals["npus"], totals["samples"]) == (2 + 8, 4)


def test_a_disaggregated_inference_is_not_rescaled() -> None:
    with pytest.raises(UsageError, match="generate it with more replicas"):
        rescale(built(dp=2, **{"decode-dp": 2}), 8)


@pytest.mark.parametrize(("options", "message"), [
    ({"cp": 2}, "cp must be 1"),
    ({"npus": 8}, "give dp and decode-dp"),
    ({"decode-batch": 3, "micro-batch": 2}, r"decode-batch \(3\) must be a multiple of micro-batch \(2\)"),
    ({"decode-dp": 2, "micro-batches": 3}, "3 prefill batches .* must be a multiple of 2"),
    ({"decode-tp": 3}, "heads .8. must be a multiple of tp .3."),
    ({"decode-ep": 2}, "decode ranks: expert parallel degree ep=2 must divide"),
    ({"mode": "decode", "decode-tp": 2}, "decode-tp is of mode disaggregated; mode decode does not read it"),
    ({"decode-steps": 0}, "nothing to do"),
])  # fmt: skip
def test_what_does_not_fit_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        built(**options)


def test_both_sides_are_balanced() -> None:
    """One token behind 32 others: a layer has 2*7168 + 4*33*32 operations, the head 2*32*512."""
    options = {**BASE, "layers": 8, "vocabulary": 512, "pp": 1, "decode-pp": 2, "balance-stages": True}
    decode = summarize(TransformerRequest.from_mapping(options).plan().beside[0])
    layer, head = 2 * 7168 + 4 * 33 * 32, 2 * 32 * 512
    assert [(stage.layers, stage.matmul_flops) for stage in decode] == [
        ("0-4", 5 * layer),
        ("5-7", 3 * layer + head),
    ]
