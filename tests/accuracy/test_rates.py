"""What a step comes to: the same figures from a study, a replay and its report."""

import json
from pathlib import Path
from typing import Any

import pytest

from chakra.accuracy import replay_rates
from chakra.accuracy.rates import rates_of
from chakra.builder import Workload
from chakra.cli.main import run
from chakra.et.manifest import read_manifest
from chakra.replay import simulate
from chakra.replay.results.formatting import rates_in_words
from chakra.report.document import read_run
from chakra.report.tables import headline
from chakra.report.terminal import essence
from chakra.sweep.point import run_point

LINE = "transformer --model gpt2-small --npus 8 --tp 2 --global-batch 16 --recompute full"


def replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    prefix = str(tmp_path / "gpt")
    assert run(["generate", *LINE.split(), "-o", prefix, "-q"]) == 0
    capsys.readouterr()
    line = ["replay", "-w", prefix, "--platform", "hgx-h100", "--format", "json", *options]
    assert run(line) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_replay_and_a_study_say_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rates = replayed(tmp_path, capsys, "--cost-per-npu-hour", "2.5")["rates"]
    words = {
        "kind": "transformer", "model": "gpt2-small", "npus": 8, "tp": 2, "global-batch": 16, "recompute": "full",
    }  # fmt: skip
    merged = {
        "workload": words, "platform": "hgx-h100", "network": {}, "system": {}, "replay": {}, "price": 2.5,
    }  # fmt: skip
    metrics = run_point(merged)["metrics"]
    assert rates == {name: pytest.approx(metrics[name], rel=1e-9) for name in rates}
    assert set(rates) == {
        "samples_per_s", "tokens_per_s", "tokens_per_s_per_npu", "mfu", "hfu", "cost_per_hour", "cost_per_step",
        "cost_per_million_tokens",
    }  # fmt: skip
    assert 0 < rates["mfu"] < rates["hfu"] < 1


def test_figures_follow_from_their_definitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = replayed(tmp_path, capsys, "--cost-per-npu-hour", "3600")
    rates, seconds = document["rates"], max(document["finish_ns"]) / 1e9
    assert rates["tokens_per_s"] == pytest.approx(16 * 1024 / seconds)
    assert rates["tokens_per_s_per_npu"] * 8 == pytest.approx(rates["tokens_per_s"])
    assert rates["cost_per_hour"] == 8 * 3600
    assert rates["cost_per_step"] == pytest.approx(8 * seconds)
    assert rates["cost_per_million_tokens"] * rates["tokens_per_s"] == pytest.approx(8e6)
    # full recomputation does the forward pass again: 4 parts in place of 3, but for the output layer
    assert 1.2 < rates["hfu"] / rates["mfu"] < 4 / 3


def test_text_and_report_show_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix, page = str(tmp_path / "gpt"), str(tmp_path / "run.json")
    assert run(["generate", *LINE.split(), "-o", prefix, "-q"]) == 0
    machine = ["replay", "-w", prefix, "--platform", "hgx-h100", "--cost-per-npu-hour", "2"]
    assert run(machine) == 0
    text = capsys.readouterr().out
    assert "throughput  " in text
    assert "tokens/s, " in text
    assert "MFU " in text
    assert "cost              16 an hour, " in text
    assert run([*machine, "--format", "json", "-o", page, "-q"]) == 0
    facts = dict(headline(read_run(page)))
    assert facts["Cost of an hour"] == "16"
    assert {"Tokens in a second", "Cost of the step", "Cost of a million tokens"} <= set(facts)


def test_other_workloads_have_costs_only_and_changed_ones_no_tokens() -> None:
    job = Workload(4)
    job.run(lambda b: b.compute("x", duration_ns=3_600_000))
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    result = simulate(job, {}, network)
    assert replay_rates(result) == {}
    assert replay_rates(result, price=1000.0) == {
        "cost_per_hour": 4000.0,
        "cost_per_step": pytest.approx(0.004),
    }
    assert rates_of({"tokens": 5.0, "samples": 1.0}, 0, 4, price=1.0)["tokens_per_s"] == 0


@pytest.mark.parametrize("options", ["--what-if npu.flops=2x", "--format csv", "--quiet"])
def test_a_price_that_nothing_shows_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str
) -> None:
    prefix = str(tmp_path / "gpt")
    assert run(["generate", *LINE.split(), "-o", prefix, "-q"]) == 0
    line = ["replay", "-w", prefix, "--platform", "hgx-h100", "--cost-per-npu-hour", "2", *options.split()]
    assert run(line) == 2
    assert "--cost-per-npu-hour is for" in capsys.readouterr().err


def test_rates_are_written_for_people() -> None:
    rates = {
        "tokens_per_s": 1234567.8, "tokens_per_s_per_npu": 1067.3, "mfu": 0.38312, "cost_per_hour": 10240.0,
        "cost_per_step": 38.7365, "cost_per_million_tokens": 4.61775,
    }  # fmt: skip
    assert list(rates_in_words(rates)) == [
        "throughput        1,234,568 tokens/s, 1,067 of each NPU; MFU 38.3 %",
        "cost              10,240 an hour, 38.74 for this step, 4.62 per million tokens",
    ]


def test_the_column_of_a_report_is_as_wide_as_its_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "run.json"
    page.write_text(json.dumps(replayed(tmp_path, capsys, "--cost-per-npu-hour", "2500")), encoding="utf-8")
    lines = essence(read_run(page)).splitlines()
    facts = headline(read_run(page))
    start = max(len(word) for word, _ in facts) + 3
    assert [line[start:] for line in lines[: len(facts)]] == [value for _, value in facts]
    assert {line[start - 1] for line in lines[: len(facts)]} == {" "}
    assert dict(facts)["Cost of an hour"] == "20,000"
    assert dict(facts)["MFU"].endswith(" % of the peak, the model's matrix products")


def test_shares_of_a_peak_that_is_not_the_products_own_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """FLOPs over time and NPUs are shares of 989 TFLOP/s of bf16, where products in fp8 have 1,978."""
    prefix = str(tmp_path / "gpt")
    notes = {}
    for kind in ("bf16", "fp8"):
        assert run(["generate", *LINE.split(), "--matmul-dtype", kind, "-o", prefix, "-q"]) == 0
        capsys.readouterr()
        assert run(["replay", "-w", prefix, "--platform", "hgx-h100", "--format", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        notes[kind] = [note for note in document["notes"] if note.startswith("MFU")]
        flops = document["rates"]["hfu"] * 989e12 * 8 * max(document["finish_ns"]) / 1e9
        made = read_manifest(f"{prefix}.workload.json").traces[0].metadata.attr
        [totals] = [json.loads(attribute.string_val) for attribute in made if attribute.name == "totals"]
        assert flops == pytest.approx(totals["matmul_flops"])
    assert notes == {
        "bf16": [],
        "fp8": [
            "MFU and HFU are shares of the system's 989 TFLOP/s (peak-perf); products in fp8 have a peak of their own"
        ],
    }
