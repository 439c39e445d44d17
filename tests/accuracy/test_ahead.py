"""Operator times of one accelerator at another's peaks, and what measured rows say of that."""

import json
from functools import cache

import pytest

from chakra.accuracy import (
    Case,
    Prediction,
    ahead,
    ahead_cases,
    ahead_scores,
    measured_rows,
    predict_case,
    read_case,
    with_surfaces,
)
from chakra.accuracy.machines import surfaces_at
from chakra.cli.main import run
from chakra.errors import UsageError
from chakra.et.operators import Direction, Kernel, KernelKind, MatrixProduct, operator_text
from chakra.platforms import load_platform
from chakra.replay.compute import compute_parameters, compute_parameters_to, operator_ns
from chakra.replay.compute.parameters import changed


@cache
def cases() -> tuple[Case, ...]:
    return tuple(case for case in map(read_case, measured_rows()) if isinstance(case, Case))


def one(machine: str, precision: str = "") -> Case:
    """The first held-out row of a machine."""
    return next(
        case
        for case in cases()
        if case.machine.preset == machine and not case.row.tuned and precision in case.row.precision
    )


def test_surfaces_of_the_machine_itself_change_nothing() -> None:
    case = one("hgx-h100", "BF16")
    assert predict_case(with_surfaces(case, "hgx-h100")) == predict_case(case)


@pytest.mark.parametrize("machine", ["hgx-b200", "gb200-nvl72", "gb300-nvl72"])
def test_times_are_those_of_the_data_sheet_and_the_base_efficiencies(machine: str) -> None:
    """Large products run at H100's share of the machine's peak, copies at its share of the bandwidth."""
    base, sheet = compute_parameters("hgx-h100"), load_platform(machine).accelerator
    document = surfaces_at("hgx-h100", machine)
    assert document.pop("base") == "hgx-h100"
    made = changed(base, document, machine)
    # so many tiles that the last wave is nearly full; gradients of weights, whose operands are made already
    sizes, weight = (1 << 16, 1 << 16, 1 << 20), Direction.WEIGHT
    products = [MatrixProduct(*sizes, type=kind, direction=weight) for kind in ("bf16", "fp8")]
    copy = Kernel(KernelKind.COPY, 1 << 40, 1 << 42)
    times = operator_ns([operator_text(operator) for operator in (*products, copy)], made)
    for time, product, factor in zip(times, products, (1, 2), strict=False):
        share = base.matmul[product.type].efficiency
        rate = sheet.peak_tflops * factor * 1e3 * share
        assert time == pytest.approx(product.flops / rate, rel=2e-3)
    assert times[2] == pytest.approx(copy.bytes / (sheet.mem_gbps * base.memory.efficiency), rel=1e-4)


def test_a_type_that_the_base_lacks_has_the_share_of_its_nearest() -> None:
    base, target = compute_parameters("hgx-h100"), compute_parameters("gb200-nvl72")
    made = changed(
        base, {k: v for k, v in surfaces_at("hgx-h100", "gb200-nvl72").items() if k != "base"}, "made"
    )
    assert made.matmul["nvfp4"].efficiency == base.matmul["fp8"].efficiency
    assert made.matmul["nvfp4"].peak_tflops == target.matmul["nvfp4"].peak_tflops
    assert {**compute_parameters_to(made)["attention"]} == compute_parameters_to(base)["attention"]


def test_rows_that_say_something() -> None:
    """Other machines, steps, and nothing that was tuned on."""
    chosen = ahead_cases(cases(), "hgx-h100")
    assert {case.machine.preset for case in chosen} >= {"dgx-a100", "hgx-b200", "gb200-nvl72", "gb300-nvl72"}
    assert all(case.machine.preset != "hgx-h100" and not case.row.tuned for case in chosen)
    with pytest.raises(UsageError, match="no operator times"):
        ahead_cases(chosen, "dgx-1v")


def test_scores_are_means_of_errors() -> None:
    case = one("gb200-nvl72")
    own = [Prediction(case, case.measured * factor) for factor in (0.9, 1.2)]
    other = [Prediction(with_surfaces(case, "hgx-h100"), case.measured * factor) for factor in (0.5, 1.1)]
    (score,) = ahead_scores(own, other)
    assert (score.family, score.machine, score.rows) == (case.family, "gb200-nvl72", 2)
    assert [score.mean, score.signed, score.own_mean, score.own_signed] == pytest.approx(
        [0.3, -0.2, 0.15, 0.05]
    )
    with pytest.raises(UsageError, match="not of the same cases"):
        ahead_scores(own[:1], [Prediction(one("hgx-b200"), 1.0)])


def test_command_and_function_agree(capsys: pytest.CaptureFixture[str]) -> None:
    name = "DGX Cloud BF16"
    assert run(["accuracy", "-q", "--family", name, "--surfaces", "hgx-b200", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["surfaces"] == "hgx-b200"
    found = ahead([case for case in cases() if case.family == name], "hgx-b200")
    assert [(row["machine"], row["rows"], row["mean"], row["own_mean"]) for row in document["ahead"]] == [
        (score.machine, score.rows, score.mean, score.own_mean) for score in found
    ]
    assert run(["accuracy", "-q", "--family", name, "--format", "json"]) == 0
    (scoreboard,) = json.loads(capsys.readouterr().out)["held_out"]
    assert scoreboard["mean"] == pytest.approx(found[0].own_mean)


@pytest.mark.parametrize("extra", [["--rows"], ["--intervals"], ["--max-error", "3"]])
def test_options_that_do_not_go_together(extra: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", "--family", "NVFP4", "--surfaces", "hgx-h100", *extra]) == 2
    assert "goes with" in capsys.readouterr().err
