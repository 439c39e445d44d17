"""Spaces, expressions and study files."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.errors import ChakraError, ConfigError, UsageError
from chakra.sweep import Shard, study_from
from chakra.sweep.expressions import Expression
from chakra.sweep.keys import REPLAY
from chakra.sweep.point import REPLAY_OPTIONS
from chakra.sweep.preflight import check_study
from chakra.sweep.space import grid, parameter_from, sampled

BASE: dict[str, Any] = {"workload": {"kind": "mlp", "dp": 8}, "platform": "hgx-h100"}


@pytest.mark.parametrize(("value", "listed"), [
    ([1, "a", True], (1, "a", True)),
    ({"values": [2.5]}, (2.5,)),
    ([1, True, "1", "true"], (1, True, "1", "true")),
    ({"range": [1, 4]}, (1, 2, 3, 4)),
    ({"range": [1, 8], "step": 3}, (1, 4, 7)),
    ({"range": [0.0, 1.0], "step": 0.25}, (0.0, 0.25, 0.5, 0.75, 1.0)),
    ({"range": [1, 16], "count": 5, "log": True}, (1, 2, 4, 8, 16)),
    ({"range": [0, 1.0], "count": 3}, (0, 0.5, 1.0)),
])  # fmt: skip
def test_parameters(value: Any, listed: tuple[Any, ...]) -> None:
    assert parameter_from("p", value, "s").listed() == pytest.approx(listed)


@pytest.mark.parametrize(("value", "message"), [
    (5, "must be a list"),
    ([], "non-empty list"),
    ({"values": [None]}, "not a plain value"),
    ({"values": [1, 2, 1]}, "1 is listed twice"),
    ({"values": [1, 1.0]}, "1.0 is listed twice"),
    ({"values": [[1, 2], [1, 2.0]]}, "listed twice"),
    ({"values": ["a", True, True]}, "listed twice"),
    ({"range": [2, 1]}, r"must be \[low, high\] with low <= high"),
    ({"range": [0, float("inf")]}, r"must be \[low, high\]"),
    ({"range": [1, 2], "step": 0}, "step must be a number above 0"),
    ({"range": [0, 2], "log": True}, "needs a range above 0"),
    ({"range": [1, 2], "step": 1, "count": 2}, "step or count"),
    ({"range": [1, 2], "values": [1]}, "needs either"),
    ({"rage": [1, 2]}, "needs either"),
])  # fmt: skip
def test_wrong_parameters_are_named(value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parameter_from("p", value, "s")


def test_a_real_range_without_step_cannot_be_crossed() -> None:
    with pytest.raises(ConfigError, match="needs a step or a count"):
        parameter_from("p", {"range": [0.5, 2.0]}, "s").listed()


def test_a_grid_is_every_combination_and_bounded() -> None:
    two = (parameter_from("a", [1, 2], "s"), parameter_from("b", [3, 4], "s"))
    assert list(grid(two)) == [{"a": 1, "b": 3}, {"a": 1, "b": 4}, {"a": 2, "b": 3}, {"a": 2, "b": 4}]
    huge = tuple(parameter_from(name, {"range": [1, 1000]}, "s") for name in "abc")
    with pytest.raises(ConfigError, match="more than"):
        next(grid(huge))


@given(st.integers(1, 30), st.integers(0, 5))
def test_samples_are_different_and_repeatable(samples: int, seed: int) -> None:
    parameters = (
        parameter_from("a", {"range": [1, 4]}, "s"),
        parameter_from("b", {"range": [0.5, 8.0], "log": True}, "s"),
    )
    points = list(sampled(parameters, samples, seed))
    assert len(points) == samples
    assert points == list(sampled(parameters, samples, seed))
    assert all(1 <= p["a"] <= 4 and 0.5 <= p["b"] <= 8 for p in points)


@pytest.mark.parametrize(("text", "value"), [
    ("a * b <= 6", True),
    ("a * b < 6", False),
    ("1 < a < b", True),
    ("a + b == 5 and not b > 3", True),
    ("a % 2 == 1 or b // 2 == 1", True),
    ("name == 'x'", True),
    ("-a < 0", True),
])  # fmt: skip
def test_expressions(text: str, value: bool) -> None:
    assert Expression(text, "s").value({"a": 2, "b": 3, "name": "x"}) is value


@pytest.mark.parametrize("text", [
    "__import__('os')", "a.b", "a[0]", "lambda: 1", "(x for x in a)", "a ** 99999999", "'a' * 9 if a else 1", "f'{a}'",
    "a +",     "", "[1]", "a is b", "1j", "a := 2", "a @ b", "~a", "a" * 600,
])  # fmt: skip
def test_nothing_but_arithmetic_is_an_expression(text: str) -> None:
    with pytest.raises(ConfigError):
        Expression(text, "s").value({"a": 2, "b": 3})


@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_one_error(text: str) -> None:
    with contextlib.suppress(ChakraError):
        Expression(text, "s").value({"a": 1})


def test_constraints_thin_out_a_grid() -> None:
    study = study_from(
        {
            **BASE,
            "parameters": {"workload.dp": [1, 2, 4], "workload.pp": [1, 2, 4]},
            "constraints": ["dp * pp == 4"],
        },
        "s",
    )
    assert [(p["workload.dp"], p["workload.pp"]) for p in study.points()] == [(1, 4), (2, 2), (4, 1)]


def test_a_point_replaces_fixed_values() -> None:
    study = study_from(
        {**BASE, "system": {"endpoint-delay": 5}, "parameters": {"workload.dp": [2], "system.endpoint-delay": [7],
         "network.dim0.latency": [3], "platform": ["dgx-a100"]}}, "s"
    )  # fmt: skip
    (point,) = study.points()
    merged = study.merged(point)
    assert merged["workload"] == {"kind": "mlp", "dp": 2}
    assert merged["system"] == {"endpoint-delay": 7}
    assert merged["network"] == {"dim0.latency": 3}
    assert merged["platform"] == "dgx-a100"


@pytest.mark.parametrize(("changes", "message"), [
    ({"worklod": {}}, "unknown key 'worklod'"),
    ({"workload": None}, "workload must be a map"),
    ({"platform": 5}, "platform must be a text"),
    ({"platform": None, "parameters": {"tp": [1]}}, "platform must be a text|must be 'platform', 'network'"),
    ({"parameters": {"tp": [1]}}, "parameter 'tp' must be 'platform', 'network' or 'system', or start with workload"),
    ({"parameters": [1]}, "parameters must be a map"),
    ({"objective": "speed"}, 'objective: "speed" is not one of step_ms'),
    ({"objective": ["step_ms"]}, "objective: a list is not one of step_ms"),
    ({"pareto": ["step_ms"]}, "pareto must be a list of two"),
    ({"method": "best"}, "method must be grid"),
    ({"method": {"random": 0}}, "method must be grid"),
    ({"method": {"random": 5, "seed": 1 << 64}}, "s.yml: method must be grid"),
    ({"method": {"random": 5, "batch": 1 << 64}}, "s.yml: method must be grid"),
    ({"method": {"random": 5, "optuna": 5}}, "method must be grid"),
    ({"constraints": "memory"}, "constraints must be a list"),
    ({"constraints": ["a +"]}, "is not an expression"),
    ({"constraints": ["step_ms < 1_0"]}, "'1_0' is not a number"),
    ({"constraints": ["step_ms < 0x10"]}, "'0x10' is not a number"),
    ({"constraints": ["step_ms < 1e400"]}, "'1e400' is not a number"),
])  # fmt: skip
def test_wrong_studies_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study_from({**BASE, **changes}, "s.yml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": {"dim0.bandwidth": float("nan")}}, "network.dim0.bandwidth: .*above 0, found"),
        ({"network": {"dim0.latency": "10ns"}}, "network.dim0.latency: .*'latency' entry 0 must be"),
        ({"parameters": {"network.dim0.bandwidth": [50, -5]}}, "network.dim0.bandwidth: .*above 0, found -5"),
        ({"parameters": {"network.dim0.topology": ["Ring", "Mesh"]}}, "network.dim0.topology: .*Mesh"),
        ({"system": {"active-chunks-per-dimension": 0}}, "system.active-chunks-per-dimension: .*from 1 to"),
    ],
)
def test_values_that_no_machine_takes_are_refused_before_a_run(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"s.yml: {message}"):
        check_study(study_from({**BASE, **changes}, "s.yml"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"range": [0.5, 1e308], "step": 0.5}, "inf values: more than|e.308 values: more than"),
        ({"range": [0, 10**400], "step": 1}, "range must"),
        (
            {"range": [-1e308, 1e308], "count": 3},
            "range must have a width that a floating-point number holds",
        ),
        ({"range": [0, 1], "step": 1e-320}, "values: more than"),
        ({"range": [0, 2 * 10**6]}, "2000001 values: more than 1000000"),
    ],
)
def test_ranges_beyond_numbers_are_refused(given: dict[str, Any], message: str) -> None:
    study = {**BASE, "parameters": {"workload.dp": given}}
    with pytest.raises(ConfigError, match=f"s.yml.*({message})"):
        study_from(study, "s.yml")


def test_a_random_study_lists_no_more_than_a_grid() -> None:
    """A range with a step is listed to be drawn from; one without is not."""
    stepped = {
        **BASE,
        "method": {"random": 3},
        "parameters": {"workload.dp": {"range": [0.5, 1e308], "step": 0.5}},
    }
    with pytest.raises(ConfigError, match=r"s\.yml: parameter workload\.dp: inf values"):
        study_from(stepped, "s.yml")
    free = {**BASE, "method": {"random": 3}, "parameters": {"workload.dp": {"range": [1, 10**12]}}}
    assert len(list(study_from(free, "s.yml").points())) == 3


@pytest.mark.parametrize("text", ["0/4", "5/4", "a/b", "3", "1/", "-1/4"])
def test_wrong_shards_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a shard is i/n"):
        Shard.parse(text)


@given(st.integers(0, 50), st.integers(1, 9))
def test_shards_partition_the_points(points: int, count: int) -> None:
    numbers: list[Any] = [{"n": n} for n in range(points)]
    parts = [Shard.parse(f"{i}/{count}").of(numbers) for i in range(1, count + 1)]
    assert sorted(p["n"] for part in parts for p in part) == list(range(points))


def test_the_options_of_replays_are_those_that_a_point_takes() -> None:
    """As ``chakra check-config`` and the reference list them."""
    listed = REPLAY.reader.allowed.removeprefix("map of ").split(", ")
    assert sorted(name.replace("-", "_") for name in listed) == sorted(REPLAY_OPTIONS)
