"""Latencies and rates of inference, against runs of its phases alone and counts by hand."""

from pathlib import Path
from typing import Any

import pytest

from chakra.cli.main import run
from chakra.et.operators import TOKEN_NODES
from chakra.generate.plan.training import build_workload
from chakra.generate.request.transformers import TransformerRequest
from chakra.generate.verify.totals import totals_of
from chakra.replay import simulate
from chakra.replay.results.formatting import rates_in_words
from chakra.replay.results.serving import serving_times
from chakra.report.document import read_run
from chakra.report.tables import headline
from chakra.sweep.point import run_point

SIZES = {"kind": "transformer", "model": "gpt2-small", "seq": 256, "tp": 2}
STEPS = 6


def point(price: float | None = None, **words: object) -> dict[str, Any]:
    workload = SIZES | {key.replace("_", "-"): value for key, value in words.items()}
    merged = {"workload": workload, "platform": "hgx-h100", "network": {}, "system": {}, "replay": {}}
    metrics: dict[str, Any] = run_point(merged | {"price": price})["metrics"]
    return metrics


@pytest.mark.parametrize("pp", [1, 2])
def test_serving_is_prefill_and_then_decoding(pp: int) -> None:
    """The first token is there when prefill alone would end; each further one takes a share of the rest."""
    words = {"micro_batch": 4, "npus": 2 * pp, "pp": pp}
    prefill = point(mode="prefill", **words)
    serve = point(price=3.6, mode="serve", decode_steps=STEPS, **words)
    # of one micro-batch no rank does anything else until the first token
    assert serve["ttft_ms"] == pytest.approx(prefill["step_ms"], rel=1e-6)
    assert serve["ttft_ms"] == prefill["ttft_ms"]
    assert serve["tpot_ms"] == pytest.approx((serve["step_ms"] - serve["ttft_ms"]) / STEPS, rel=1e-6)
    assert serve["decode_tokens_per_s"] == pytest.approx(4 / serve["tpot_ms"] * 1e3)
    assert serve["tokens_per_s"] == pytest.approx(4 * (STEPS + 1) / serve["step_ms"] * 1e3)
    assert serve["tokens_per_s_per_npu"] == pytest.approx(serve["tokens_per_s"] / (2 * pp))
    # 3.6 an hour are 0.001 a second
    cost = 2 * pp * 0.001 * serve["step_ms"] / 1e3 / (4 * (STEPS + 1)) * 1e6
    assert serve["cost_per_million_tokens"] == pytest.approx(cost)
    assert "tokens_per_s" not in prefill
    assert "tpot_ms" not in prefill


def test_decoding_alone_has_no_first_token() -> None:
    one = point(mode="decode", decode_steps=1, micro_batch=4, npus=2)
    assert one["tpot_ms"] == pytest.approx(one["step_ms"])
    many = point(mode="decode", decode_steps=STEPS, micro_batch=4, npus=2)
    # the cache grows by a token a step: the steps behind the first take a little longer than it
    assert many["tpot_ms"] == pytest.approx((many["step_ms"] - one["step_ms"]) / (STEPS - 1), rel=1e-2)
    assert many["tokens_per_s"] == pytest.approx(4 * STEPS / many["step_ms"] * 1e3)
    assert "ttft_ms" not in many


def test_micro_batches_take_turns() -> None:
    """With two in one stage a request waits for the other's step before its own next."""
    both = point(mode="decode", decode_steps=STEPS, micro_batch=4, micro_batches=2, npus=2)
    one = point(mode="decode", decode_steps=STEPS, micro_batch=4, npus=2)
    assert both["tpot_ms"] == pytest.approx(2 * one["tpot_ms"], rel=1e-2)
    assert both["decode_tokens_per_s"] == pytest.approx(one["decode_tokens_per_s"], rel=1e-2)


def test_a_step_on_a_cache_is_that_of_all_micro_batches() -> None:
    """Of eight micro-batches that take turns a request has its next token when all had one: eight passes later."""
    eight = point(mode="decode", decode_steps=1, micro_batches=8, npus=2)
    one = point(mode="decode", decode_steps=1, npus=2)
    assert eight["tpot_ms"] == pytest.approx(8 * one["tpot_ms"], rel=1e-6)
    assert eight["decode_tokens_per_s"] == pytest.approx(eight["tokens_per_s"], rel=1e-6)


def test_a_request_waits_for_others_prefill_before_it_decodes() -> None:
    """With two micro-batches the first one's second token waits for the second one's first."""
    words = {"micro_batches": 2, "npus": 2}
    serve = point(mode="serve", decode_steps=STEPS, **words)
    decode = point(mode="decode", decode_steps=STEPS, **words)
    # mean of first tokens: after one prefill, and after two
    first_ms = 0.75 * serve["ttft_ms"]
    last_ms = serve["step_ms"] - serve["tpot_ms"] / 4
    assert serve["tpot_ms"] == pytest.approx((last_ms - first_ms) / STEPS, rel=0.05)
    assert serve["decode_tokens_per_s"] == pytest.approx(decode["decode_tokens_per_s"], rel=0.02)


@pytest.mark.parametrize("slower", [1.0, 2.0])
def test_latencies_are_means_over_all_ranks(slower: float) -> None:
    """One of four replicas is slower: folded or not, it counts as one of four."""
    request = TransformerRequest.from_mapping(
        {"model": "gpt2-small", "seq": 64, "npus": 4, "mode": "serve", "decode-steps": 3}
    )
    plan = request.plan()
    made = build_workload(plan, metadata=totals_of(request, plan).fact())
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    system = {"peak-perf": 100, "local-mem-bw": 1000, "roofline-enabled": 1}
    folded, whole = (
        serving_times(simulate(made, system, network, fold=fold, npu_scale=[slower, 1, 1, 1]))
        for fold in (True, False)
    )
    assert folded == whole
    assert folded is not None
    even = serving_times(simulate(made, system, network))
    assert even is not None
    assert even.token_ns is not None
    assert folded.token_ns == pytest.approx(even.token_ns * (3 + slower) / 4, rel=1e-3)


@pytest.mark.parametrize(("seq", "steps"), [(1024, 1), (64, 12)])
def test_halves_on_their_own_ranks_have_a_steady_rate(seq: int, steps: int) -> None:
    words: dict[str, Any] = {"model": "gpt2-small", "seq": seq, "micro_batch": 4, "tp": 2}
    halves = point(price=3.6, mode="disaggregated", decode_steps=steps, **words)
    prefill = point(mode="prefill", npus=2, **words)["step_ms"]
    decode = point(mode="decode", npus=2, decode_steps=steps, **words)["step_ms"]
    # caches travel when a pass is done: 12 layers, keys and values of 768 numbers of 2 bytes, half of them from each rank
    sent_ms = 12 * 2 * 768 * 2 * seq * 4 / 2 / (419.095 * 2**30) * 1e3
    longer = max(prefill + sent_ms, decode)
    assert halves["steady_samples_per_s"] == pytest.approx(4 / longer * 1e3, rel=5e-3)
    assert halves["steady_samples_per_s"] > halves["samples_per_s"]
    assert halves["steady_tokens_per_s"] == pytest.approx(halves["steady_samples_per_s"] * (steps + 1))
    assert halves["steady_cost_per_million_tokens"] == pytest.approx(
        4 * 0.001 / halves["steady_tokens_per_s"] * 1e6
    )
    assert halves["ttft_ms"] == pytest.approx(prefill, rel=1e-2)
    assert "decode_tokens_per_s" not in halves
    # from the first token on the cache is sent, and then each step is decoded
    assert halves["tpot_ms"] == pytest.approx((halves["step_ms"] - halves["ttft_ms"]) / steps, rel=1e-2)


def test_what_is_printed_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix, page = str(tmp_path / "d"), str(tmp_path / "d.json")
    line = "transformer --model gpt2-small --seq 64 --mode disaggregated --tp 2 --decode-steps 3"
    assert run(["generate", *line.split(), "-o", prefix, "-q"]) == 0
    machine = ["replay", "-w", prefix, "--platform", "hgx-h100", "--cost-per-npu-hour", "2"]
    assert run(machine) == 0
    text = capsys.readouterr().out
    for words in (" output tokens/s, ", "requests          time to first token ", "steady            ",
                  " per million tokens in steady state", "each half waits while it is the other's turn"):  # fmt: skip
        assert words in text
    assert run([*machine, "--format", "json", "-o", page, "-q"]) == 0
    assert {
        "Time to first token", "Time per output token", "Output tokens in a second",
        "Samples in a second in steady state", "Cost of a million tokens in steady state",
    } <= {name for name, _ in headline(read_run(page))}  # fmt: skip


def test_a_study_ranks_by_the_tokens_that_requests_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chakra.cli.commands.sweep.output_width", lambda: 400)
    path = tmp_path / "serve.yml"
    path.write_text(
        "study: batches\nworkload: {kind: transformer, model: gpt2-small, mode: serve, npus: 2, tp: 2, seq: 64, "
        "decode-steps: 3}\nplatform: hgx-h100\ncost-per-npu-hour: 2\nparameters: {workload.micro-batch: [1, 8]}\n"
        "objective: tokens_per_s\npareto: [tpot_ms, cost_per_million_tokens]\n"
    )
    assert run(["sweep", str(path), "--workers", "1", "--reports", "0"]) == 0
    table = capsys.readouterr().out
    for heading in ("first token [ms]", "time per token [ms]", "tokens/s decoding", "cost/million tokens"):
        assert heading in table
    # eight requests at once take little longer than one: the larger batch comes first
    first = next(line for line in table.splitlines() if line.split()[:1] == ["1"])
    assert first.split()[1] == "8"


def test_training_and_changed_workloads_have_no_latencies() -> None:
    assert not {"ttft_ms", "tpot_ms"} & point(npus=2, global_batch=2).keys()


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("[[[0, 0, 2], [3, 2, 5]]]", True),
        ("[[[0, 0, 99999999], [1, 2, 3]]]", False),
        ("[[0, 1]]", False),
        ("{", False),
    ],
)
def test_marks_that_cannot_be_are_none(text: str, known: bool) -> None:
    request = TransformerRequest.from_mapping({"model": "gpt2-small", "seq": 32, "npus": 1})
    plan = request.plan()
    made = build_workload(plan, metadata=totals_of(request, plan).fact() | {TOKEN_NODES: text})
    network = {"topology": ["Ring"], "npus_count": [1], "bandwidth": [50], "latency": [500]}
    system = {"peak-perf": 100, "local-mem-bw": 1000, "roofline-enabled": 1}
    assert (serving_times(simulate(made, system, network)) is not None) == known


def test_latencies_are_written_for_people() -> None:
    rates = {
        "tokens_per_s": 709.4, "tokens_per_s_per_npu": 88.67, "ttft_ms": 1256.17, "tpot_ms": 12.918,
        "decode_tokens_per_s": 1238.6,
    }  # fmt: skip
    assert list(rates_in_words(rates)) == [
        "throughput        709.4 output tokens/s, 88.67 of each NPU; 1,239 while decoding",
        "requests          time to first token 1.256 s, time per output token 12.92 ms",
    ]
