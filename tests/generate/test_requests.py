"""Requests made in Python: the same workloads, with the same facts, as those of the command line."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from chakra.accuracy import replay_interval, replay_rates
from chakra.cli.main import run
from chakra.errors import UsageError
from chakra.generate import MlpRequest, MoeRequest, TransformerRequest, build_workload, read_manifest
from chakra.generate.request.base import Host, Request
from chakra.generate.request.frameworks import FRAMEWORKS
from chakra.generate.request.requests import REQUESTS
from chakra.platforms import cluster
from chakra.replay import simulate

SMALL: dict[str, Any] = {
    "model": "gpt2-small",
    "layers": 4,
    "seq": 256,
    "dp": 2,
    "tp": 2,
    "pp": 2,
    "global_batch": 8,
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "transformer": {**SMALL, "mode": "serve", "decode_steps": 3},
    "moe": {"model": "mixtral-8x7b", "layers": 2, "seq": 64, "ep": 4, "dp": 8, "expert_load": "zipf:1.2"},
    "mlp": {"widths": (8, 16, 8), "dp": 4},
    "resnet": {"image": 64, "dp": 2, "iterations": 2},
    "dlrm": {"bottom": (13, 64, 16), "rows": 1000, "dim": 16, "dp": 4},
}


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_sets_what_is_not_given_whoever_makes_the_request(kind: str, framework: str) -> None:
    made = REQUESTS[kind]
    request = made(framework=framework)
    assert request == made.from_mapping({"framework": framework})
    usual = FRAMEWORKS[framework].values_at(request.zero)
    names = {field.name for field in fields(made)}
    said = made.from_mapping({name: value for name, value in usual.items() if name in names})
    assert request == replace(said, framework=framework)


def test_what_is_given_stays() -> None:
    assert TransformerRequest(framework="megatron").host is Host.AHEAD
    assert TransformerRequest(framework="megatron", host=Host.NONE, causal=False, zero=0).host is Host.NONE
    assert MoeRequest(framework="nanotron", zero=0).exposed == "tp,pp"
    assert MlpRequest(framework="megatron-2022").recompute.value == "full"
    request = replace(TransformerRequest(framework="megatron"), host=Host.NONE)
    assert replace(request, tp=2).host is Host.NONE
    with pytest.raises(UsageError, match="no framework 'megatrn'; did you mean 'megatron'"):
        TransformerRequest(framework="megatrn")


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_plan_tells_its_request(kind: str) -> None:
    request: Request = REQUESTS[kind].from_mapping(PARAMETERS[kind])
    assert REQUESTS[kind].from_mapping(request.plan().about["parameters"]) == request  # type: ignore[arg-type]


def test_python_and_the_command_line_say_the_same_of_a_step(tmp_path: Path) -> None:
    """Rates, memory, interval and the schedule's share of waiting were left out of workloads that Python made."""
    machine = cluster("1x hgx-h100")
    request = TransformerRequest(**SMALL, framework="megatron")
    ours = simulate(build_workload(request.plan()), machine.system(), machine.network())
    options = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    where = tmp_path / "step"
    assert run(["generate", "transformer", *options, "--framework", "megatron", "-q", "-o", str(where)]) == 0
    theirs = simulate(read_manifest(f"{where}.workload.json"), machine.system(), machine.network())
    assert str(ours) == str(theirs)
    assert all(f"\n{line}  " in str(ours) for line in ("memory", "pipeline bubble"))
    assert "with equal stages" in str(ours)
    assert replay_interval(ours) == replay_interval(theirs) is not None
    rates = replay_rates(ours, price=2.5)
    assert rates == replay_rates(theirs, price=2.5)
    # 8 sequences of 256 tokens, 8 NPUs at 2.5 an hour
    seconds = int(ours.finish_ns.max()) / 1e9
    assert rates["tokens_per_s"] == pytest.approx(8 * 256 / seconds)
    assert rates["cost_per_step"] == pytest.approx(8 * 2.5 * seconds / 3600)


def test_a_job_that_does_not_fit_is_noted_in_python_too() -> None:
    machine = cluster("1x hgx-h100")
    plan = TransformerRequest(model="llama3-70b", dp=8).plan()
    result = simulate(build_workload(plan), machine.system(), machine.network())
    assert any("does not fit" in note for note in result.notes)
