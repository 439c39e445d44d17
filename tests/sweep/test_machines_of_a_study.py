"""Machines of a study: how many NPUs of each are used, what they cost in words, and what a framework sets."""

import json
from pathlib import Path
from typing import Any

import pytest

from chakra.cli.main import run
from chakra.errors import ChakraError, UsageError
from chakra.platforms import cluster
from chakra.report.document import run_of
from chakra.report.side_by_side import differing_inputs
from chakra.report.tables import inputs
from chakra.sweep.point import machine, price_of, run_point
from chakra.sweep.store import Outcome
from chakra.sweep.study import load_study
from chakra.sweep.table import notes
from chakra.sweep.values_in_effect import values_in_effect

RAILS = "hgx-h100 over 400G rails of 64 ports"


def merged(platform: str, network: dict[str, Any]) -> dict[str, Any]:
    return {"platform": platform, "network": network, "system": {}, "replay": {}}


def test_a_study_takes_a_part_of_each_machine() -> None:
    """512 NPUs are no whole number of 72; 8 domains with 64 each in use are."""
    network, _ = machine(merged("gb200-nvl72", {"dim0.npus": 64}), 512)
    assert network["npus_count"] == [64, 8]
    with pytest.raises(
        UsageError, match=r"of 72; 504 and 576 are, .* 64 of each machine's .*\{dim0.npus: 64\}"
    ):
        machine(merged("gb200-nvl72", {}), 512)
    with pytest.raises(UsageError, match="no whole number of machines of 60; 480 and 540 are"):
        machine(merged("gb200-nvl72", {"dim0.npus": 60}), 512)
    with pytest.raises(UsageError, match="72 NPUs of dimension 0 cannot be in use"):
        cluster("gb200-nvl72", sized=False).used_in_part(73)


def test_a_price_by_words_goes_before_that_of_the_machine() -> None:
    prices = {RAILS: 2.3, "hgx-h100": 2.5}
    for words, price in ((RAILS, 2.3), (RAILS.replace(" over", "  OVER"), 2.3), ("hgx-h100 over 400G", 2.5)):
        assert price_of({"price": prices, "platform": words}, cluster(words, sized=False)) == price
    with pytest.raises(UsageError, match="no price for dgx-a100"):
        price_of({"price": prices, "platform": "dgx-a100"}, cluster("dgx-a100", sized=False))


@pytest.mark.parametrize(("priced", "code"), [(RAILS, 0), ("hgx-h100 over 200G", 2)])
def test_prices_name_platforms_of_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], priced: str, code: int
) -> None:
    path = tmp_path / "s.yml"
    study = {
        "study": "fabrics", "workload": {"kind": "transformer", "model": "gpt2-small", "dp": 16, "framework": "megatron"},
        "parameters": {"platform": [RAILS, "hgx-h100"]}, "cost-per-npu-hour": {priced: 2.3, "hgx-h100": 2.5},
    }  # fmt: skip
    path.write_text(json.dumps(study))
    assert run(["check-config", str(path)]) == code
    assert ("no platform of the study is 'hgx-h100 over 200G'" in capsys.readouterr().err) == (code == 2)


def test_what_a_framework_sets_is_shown_as_its_own(tmp_path: Path) -> None:
    path = tmp_path / "s.yml"
    workload = {
        "kind": "transformer",
        "model": "gpt2-small",
        "dp": 4,
        "framework": "megatron",
        "host": "none",
    }
    path.write_text(json.dumps({"study": "s", "workload": workload, "platform": "hgx-h100"}))
    rows = {row.key: row for row in values_in_effect(path).rows}
    assert (rows["workload.zero"].value, rows["workload.zero"].source) == (1, "framework megatron")
    assert (rows["workload.causal"].value, rows["workload.causal"].source) == (True, "framework megatron")
    # what the file says is the file's
    assert rows["workload.host"].value == "none"
    assert rows["workload.host"].source.startswith(str(path))


def test_prefill_and_decode_ranks_are_not_counted_by_npus() -> None:
    workload = {"model": "gpt2-small", "mode": "disaggregated", "npus": 8, "dp": 1, "tp": 4, "decode-tp": 4}
    reason = run_point({"workload": workload, **merged("hgx-h100", {})})["reason"]
    assert (
        reason
        == "npus would be those of both kinds of ranks, prefill and decode: give dp and decode-dp instead"
    )


def test_sprayed_without_flows_is_refused_in_its_own_word() -> None:
    workload = {"model": "gpt2-small", "dp": 16}
    reason = run_point({"workload": workload, **merged(f"{RAILS} sprayed", {})})["reason"]
    assert "'sprayed' in words for a fabric" in reason
    assert "--backend flow" in reason


def test_a_factor_of_one_machine_is_noted(tmp_path: Path) -> None:
    """GB200 alone has a factor on all computing, from rows of experts: who compares it with B200 is told."""
    note = "on gb200-nvl72 alone the program of megatron has contention 1.4, tuned on four measured rows of mixtures of "
    workload = {"model": "gpt2-small", "layers": 2, "dp": 4, "framework": "megatron"}

    def noted(platform: str) -> list[str]:
        given = {"workload": workload, **merged(platform, {})}
        told: list[str] = run_point(given, document_from_s=0)["document"]["notes"]
        return [text for text in told if note in text]

    assert len(noted("gb200-nvl72")) == 1
    assert noted("hgx-b200") == []
    runs = [
        run_of(
            run_point({"workload": workload, **merged(platform, {})}, document_from_s=0)["document"], platform
        )
        for platform in ("hgx-b200", "gb200-nvl72")
    ]
    assert ("framework.on_this_machine.contention", ("", "1.4")) in differing_inputs(runs)
    assert "framework.name" in dict(inputs(runs[0])).keys() - dict(differing_inputs(runs)).keys()
    path = tmp_path / "s.yml"
    machines = {"platform": ["hgx-b200", "gb200-nvl72"]}
    path.write_text(json.dumps({"study": "s", "workload": workload, "parameters": machines}))
    assert any(note in text for text in notes(load_study(str(path))))


def test_machines_without_a_result_are_not_told_of(tmp_path: Path) -> None:
    """Computation takes the times of the machines on which something ran."""
    path = tmp_path / "s.yml"
    workload = {"model": "gpt2-small", "layers": 2, "dp": 4}
    machines = {"platform": ["hgx-b200", "gb200-nvl72"]}
    path.write_text(json.dumps({"study": "s", "workload": workload, "parameters": machines}))
    study = load_study(str(path))
    outcomes = [
        Outcome("a", {"platform": "hgx-b200"}, "ok", {"step_ms": 1.0}),
        Outcome("b", {"platform": "gb200-nvl72"}, "infeasible", {}),
    ]
    assert notes(study, outcomes) == ["computation takes the operator times of hgx-b200"]


@pytest.mark.parametrize(
    "words", ["gb200-nvl72", "2x gb200-nvl72", "gb200-nvl72 over 400G rails of 64 ports"]
)
def test_spare_npus_are_paid_for(words: str) -> None:
    """64 of 72 on two machines at 3 an NPU's hour: 2 x 72 x 3 = 432 an hour, of which 128 NPUs make the tokens."""
    workload = {"model": "gpt2-small", "layers": 1, "dp": 128}
    found = run_point({"workload": workload, **merged(words, {"dim0.npus": 64}), "price": 3.0})["metrics"]
    assert (found["npus"], found["paid_npus"], found["cost_per_hour"]) == (128, 144, 432)
    assert found["tokens_per_s_per_npu"] == pytest.approx(found["tokens_per_s"] / 128)
    assert found["cost_per_million_tokens"] == pytest.approx(432 / 3600 / found["tokens_per_s"] * 1e6)


def test_all_npus_of_a_machine_are_paid_once() -> None:
    """Where all are in use the two numbers agree, and without words on a part there is one."""
    workload = {"model": "gpt2-small", "layers": 1, "dp": 16}
    for network, paid in (({"dim0.npus": 8}, 16), ({}, None)):
        point = {"workload": workload, **merged("hgx-h100", network), "price": 2.0}
        found = run_point(point)["metrics"]
        assert (found["npus"], found.get("paid_npus"), found["cost_per_hour"]) == (16, paid, 32)


@pytest.mark.parametrize(
    ("words", "part", "npus", "counts", "refusal"),
    [
        ("2x gb200-nvl72", 64, 128, [64, 2], ""),
        ("2x gb200-nvl72", 64, 144, [], "has 128 NPUs with 64 of each machine in use, not 144"),
        ("2x gb200-nvl72 over 400G rails of 64 ports", 64, 128, [64, 2], ""),
        ("gb200-nvl72 over 400G rails of 64 ports", 64, 128, [64, 2], ""),
        ("gb200-nvl72 over 400G rails of 64 ports", 80, 144, [], "dim0.npus: .* given link by link, for 72 here"),
        ("2x hgx-h100 over 400G rail-only of 64 ports", 16, 16, [], "dim0.npus: .* given link by link, for 8 here"),
    ],
)  # fmt: skip
def test_a_part_of_each_machine_of_a_fabric(
    words: str, part: int, npus: int, counts: list[int], refusal: str
) -> None:
    """Links and sizes of a network agree: NPUs in use are all that it has."""
    given = merged(words, {"dim0.npus": part})
    if refusal:
        with pytest.raises(ChakraError, match=refusal):
            machine(given, npus)
        return
    network, _ = machine(given, npus)
    assert network["npus_count"] == counts
    ends = {end for link in network.get("links", []) for end in link[:2] if isinstance(end, int)}
    assert ends in (set(), set(range(npus)))
