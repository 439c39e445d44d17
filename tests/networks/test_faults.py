"""A network that simulates itself and does something that cannot be: one line that names it, never a hang."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from network_runs import NOTHING, Switch, SwitchRun, ended, random_workload, system

from chakra.builder import Workload
from chakra.errors import ChakraError, ConfigError, UsageError
from chakra.replay import ReplayResult, simulate
from chakra.replay.config import dump_network, load_network
from chakra.replay.networks import NEVER_NS, Ended, LogicalDim
from chakra.replay.topologies import with_faults
from chakra.replay.what_if import what_if

Answer = Callable[[SwitchRun, int, Ended], Any]


class Wrong(Switch):
    """A switch that answers otherwise from its third answer on."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(4, 50, 500)
        self.answer = answer

    def begin(self) -> SwitchRun:
        """A run with another `advance`."""
        run = super().begin()
        right = run.advance
        count = iter(range(1 << 30))

        def advance(until_ns: int) -> Any:
            given = right(until_ns)
            return given if next(count) < 2 or not len(given.id) else self.answer(run, until_ns, given)

        run.advance = advance  # type: ignore[method-assign]
        return run


def replay(network: Any, **options: Any) -> ReplayResult:
    """A ring of four, alone."""
    workload = Workload(4)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=1 << 20))
    return simulate(workload, system(), network, **options)


def raises(run: SwitchRun, until_ns: int, given: Ended) -> Ended:
    """An exception of its own."""
    raise RuntimeError("the simulator died\nsecond line")


FAULTS: list[tuple[Answer, str]] = [
    (raises, r"failed in advance\(\): RuntimeError: the simulator died$"),
    (
        lambda run, until, given: ended(given.id, 1),
        r"went back in time: at \d+ ns it says what ended at 1 ns: \d+ \(NPU|before its start",
    ),
    (
        lambda run, until, given: ended([9999], int(given.end_ns[0])),
        r"ended transfer 9999, which it was never given",
    ),
    (
        lambda run, until, given: ended([-1], int(given.end_ns[0])),
        r"ended transfer -1, which it was never given",
    ),
    (
        lambda run, until, given: ended([0], int(given.end_ns[0])),
        r"ended a transfer twice: 0 \(NPU 0 to 1, 131,072 bytes",
    ),
    (
        lambda run, until, given: ended([*given.id, given.id[0]], int(given.end_ns[0])),
        r"ended a transfer twice: \d+ \(NPU",
    ),
    (
        lambda run, until, given: NOTHING,
        r"has lost transfers: nothing will end any more, but \d+ (is|are) under way: \d+ \(NPU \d to \d, ",
    ),
    (lambda run, until, given: ended(given.id, NEVER_NS), r"went too far: asked to run to \d+ ns"),
    (lambda run, until, given: ended(given.id, until + 1), r"went too far|ended at"),
    (
        lambda run, until, given: Ended(given.id, given.end_ns + np.arange(len(given.id))),
        r"it must stop at the first",
    ),
    (lambda run, until, given: Ended(given.id, given.end_ns[:-1]), r"returned 4 numbers and 3 ends"),
    (
        lambda run, until, given: Ended(given.id.astype(float), given.end_ns),
        r"arrays of whole numbers, not float64",
    ),
    (
        lambda run, until, given: Ended(given.id[None], given.end_ns[None]),
        r"one-dimensional arrays of whole numbers, not int64 of shape",
    ),
    (
        lambda run, until, given: Ended(given.id, np.full(len(given.id), 2**64 - 1, np.uint64)),
        r"answered 18446744073709551615, more than 2\^63 - 1$",
    ),
    (lambda run, until, given: None, r"returned a NoneType, not numbers and ends"),
    (lambda run, until, given: 7, r"returned an int, not numbers and ends"),
]


@pytest.mark.parametrize(("answer", "words"), FAULTS)
def test_a_wrong_answer_is_one_line_that_names_the_network(answer: Answer, words: str) -> None:
    network = Wrong(answer)
    with pytest.raises(ConfigError, match=words) as error:
        replay(network)
    assert str(error.value).startswith("network 'switch'")
    assert "\n" not in str(error.value)
    assert network.runs[0].closed


def test_transfers_that_end_before_their_start() -> None:
    """A clock that stands still is not a clock that went back."""

    class Early(Switch):
        def begin(self) -> SwitchRun:
            run = super().begin()
            run.advance = lambda until_ns: ended([0], 3)  # type: ignore[method-assign]
            return run

    with pytest.raises(ConfigError, match=r"a transfer ended at 3 ns, before its start: 0 \(NPU 0 to 1"):
        replay(Early(4, 50, 500))


@pytest.mark.parametrize("method", ["begin", "submit", "close", "links"])
def test_an_exception_of_any_method(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise OSError("no licence")

    monkeypatch.setattr(Switch if method == "begin" else SwitchRun, method, fail)
    with pytest.raises(ConfigError, match=rf"network 'switch' failed in {method}\(\): OSError: no licence$"):
        replay(Switch(4, 50, 500))


def test_the_first_fault_is_told_when_closing_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise OSError("and this")

    monkeypatch.setattr(SwitchRun, "close", fail)
    with pytest.raises(ConfigError, match="the simulator died"):
        replay(Wrong(raises))


DESCRIPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"dims": []}, "network 'switch' has no dimensions"),
    ({"dims": None}, "network 'switch' states no dimensions: TypeError"),
    ({"dims": [(4, 50, 500)]}, "dimension 0: npus must be a whole number of NPUs, at least 2, not None"),
    ({"dims": [LogicalDim(1, 50, 500)]}, "npus must be a whole number of NPUs, at least 2, not 1"),
    ({"dims": [LogicalDim(4, 0, 500)]}, "bandwidth_gibps must be a number of GB/s above 0, not 0"),
    (
        {"dims": [LogicalDim(4, float("inf"), 500)]},
        "bandwidth_gibps must be a number of GB/s above 0, not inf",
    ),
    ({"dims": [LogicalDim(4, 50, -1)]}, "latency_ns must be a number of ns, 0 or more, not -1"),
    ({"dims": [LogicalDim(1 << 40, 50, 1)]}, "NPUs in all, more than the"),
    ({"name": ""}, "the name of a Switch must be a text, not ''"),
    ({"begin": 3}, "a Switch has not what an OutsideNetwork has"),
]


@pytest.mark.parametrize(("changes", "words"), DESCRIPTIONS)
def test_a_description_that_cannot_be(changes: dict[str, Any], words: str) -> None:
    network = Switch(4, 50, 500)
    for name, value in changes.items():
        setattr(network, name, value)
    with pytest.raises(ConfigError) as error:
        load_network(network)
    assert words in str(error.value)


def test_a_description_without_a_name() -> None:
    class Nameless:
        def begin(self) -> None:
            """Never called."""

    with pytest.raises(ConfigError, match="a Nameless has no name: AttributeError"):
        load_network(Nameless())


def test_what_such_a_network_does_not_take() -> None:
    """Options that reach into a network are refused, not left without effect."""
    network = Switch(4, 50, 500)
    for options, words in (
        ({"backend": "aware"}, "decides how transfers share links; 'aware' is not for it"),
        ({"engine": "phases"}, "engine: 'phases' cannot run network 'switch'"),
        ({"fail_links": ["0-1"]}, "--fail-link and --slow-link do not reach its links"),
        ({"slow_links": {"0-1": 0.5}}, "--fail-link and --slow-link do not reach its links"),
    ):
        with pytest.raises(ChakraError, match=words):
            replay(network, **options)
    with pytest.raises(UsageError, match="'outside' is for networks that another package simulates"):
        replay(
            {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}, backend="outside"
        )
    with pytest.raises(UsageError, match="cannot be written as a file"):
        dump_network(load_network(network))
    with pytest.raises(UsageError, match="simulated by another package"):
        with_faults(load_network(network), ["0-1"])
    with pytest.raises(UsageError, match=r"dim0.bandwidth: network 'switch' is simulated by another package"):
        what_if(random_workload(4, 1), system(), network, "dim0.bandwidth=2x")
    assert what_if(random_workload(4, 1), system(), network, "system.splits=4").changed.finish_ns.max() > 0


def test_a_network_that_begins_nothing_is_named() -> None:
    class Nothing(Switch):
        def begin(self) -> Any:
            """No run."""

    with pytest.raises(
        ConfigError, match=r"^network '.*': begin\(\) returned a NoneType without submit\(\)$"
    ):
        replay(Nothing(4, 50, 500))
