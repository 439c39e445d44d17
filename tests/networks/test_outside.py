"""Networks that simulate themselves: the same times as ours where both are the same network."""

from typing import Any

import numpy as np
import pytest
from chakra_example import constant_delay as constant_delay_module
from chakra_example.constant_delay import ConstantDelay, constant_delay
from hypothesis import event, given, settings
from hypothesis import strategies as st
from network_runs import NOTHING, Switch, random_workload, system

from chakra.builder import TraceBuilder, Workload
from chakra.errors import ConfigError, StallError
from chakra.replay import ReplayResult, simulate
from chakra.replay.engines.messages import engine, tables
from chakra.replay.networks import Ended, OutsideNetwork, UseOverTime

#: so much bandwidth that no size makes a difference
ENDLESS = 1e30
ALGORITHMS = ("ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree", "rabenseifner", "oneRing")


def blocks(
    npus: int, latency: float, *, topology: str = "FullyConnected", bandwidth: float = ENDLESS
) -> dict[str, Any]:
    """A network of ours."""
    return {"topology": [topology], "npus_count": [npus], "bandwidth": [bandwidth], "latency": [latency]}


def same(a: ReplayResult, b: ReplayResult) -> bool:
    """Equal finish times and equal times of every node."""
    ours, theirs = a.raw, b.raw
    return bool(
        (a.finish_ns == b.finish_ns).all()
        and (ours.issue_ns == theirs.issue_ns).all()
        and (ours.finish_ns == theirs.finish_ns).all()
        and (ours.comm_ready_ns == theirs.comm_ready_ns).all()
    )


@pytest.mark.parametrize("rendezvous", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_constant_delay_is_the_closed_form_of_no_contention(algorithm: str, rendezvous: bool) -> None:
    """Ours with that latency and endless bandwidth, on a workload of collectives, groups and messages."""
    others = (
        "direct"
        if algorithm in ("halvingDoubling", "doubleBinaryTree", "rabenseifner", "oneRing")
        else algorithm
    )
    described = system(
        **{
            "all-reduce-implementation": [algorithm],
            "all-gather-implementation": [others],
            "reduce-scatter-implementation": [others],
            "all-to-all-implementation": [others],
            "active-chunks-per-dimension": 2,
        }
    )
    for seed in range(6):
        workload = random_workload(8, seed, groups=algorithm != "doubleBinaryTree")
        ours = simulate(workload, described, blocks(8, 700), engine="messages", rendezvous=rendezvous)
        theirs = simulate(workload, described, ConstantDelay(8, 700, ENDLESS), rendezvous=rendezvous)
        assert same(ours, theirs), seed


def test_a_ring_on_a_constant_delay_takes_the_closed_form() -> None:
    """e + 2(n - 1)(d + e) + (n - 1) r for each chunk, one after the other."""
    n, chunks, delay, e = 8, 4, 1234, 10
    workload = Workload(n)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=1 << 20))
    described = system(**{"preferred-dataset-splits": chunks, "endpoint-delay": e, "local-mem-bw": 50})
    done = simulate(workload, described, constant_delay(npus=n, delay_ns=delay))
    reduction = 3 * int((1 << 20) / chunks / n / 50e9 * 1e9)
    each = e + 2 * (n - 1) * (delay + e) + (n - 1) * reduction
    assert done.finish_ns.tolist() == [chunks * each] * n


def test_tables_of_steps_ask_for_the_stated_bandwidth() -> None:
    """An NPU's port is busy for bytes over bandwidth, which nobody but the network can say."""
    workload = Workload(4)
    workload.run(lambda b: b.collective("all_gather", size_bytes=1 << 20))
    described = system(**{"all-gather-implementation": ["bruck"], "preferred-dataset-splits": 1})
    for bandwidth in (50.0, 1e9):
        done = simulate(workload, described, constant_delay(npus=4, delay_ns=700, bandwidth=bandwidth))
        rate = bandwidth * (1 << 30) / 1e9
        rounds = [max(700, int(part * (1 << 20) / rate)) + 10 for part in (1, 2)]
        assert done.finish_ns.tolist() == [10 + sum(rounds)] * 4


def test_several_logical_dimensions() -> None:
    """Collectives go through them one after the other, as on blocks."""

    class Two(ConstantDelay):
        def __init__(self) -> None:
            super().__init__(4, 700, 50)
            self.dims = [*self.dims, self.dims[0]._replace(npus=3)]

    workload = Workload(12)
    workload.run(
        lambda b: b.collective(
            "all_reduce", size_bytes=1 << 20, after=b.compute("w", duration_ns=50 * b.rank + 50)
        )
    )
    described = system(
        **{"all-reduce-implementation": ["ring", "direct"], "collective-optimization": "localBWAware"}
    )
    ours = {name: 2 * values for name, values in blocks(4, 700).items()} | {"npus_count": [4, 3]}
    assert same(simulate(workload, described, ours, engine="messages"), simulate(workload, described, Two()))


def switch_case(
    npus: int, seed: int, algorithm: str, chunks: int, rendezvous: bool, *, nodes: int = 6, messages: int = 6
) -> tuple[ReplayResult, ReplayResult, bool]:
    """A random workload on our aware switch and on the plain one, and whether an order within a tick may matter."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    named = {f"{kind}-implementation": [algorithm] for kind in kinds}
    if algorithm == "halvingDoubling":
        named["all-to-all-implementation"] = ["direct"]
    described = system(**named, **{"active-chunks-per-dimension": chunks})
    workload = random_workload(npus, seed, nodes=nodes, messages=messages)
    ours = simulate(
        workload,
        described,
        blocks(npus, 500, topology="Switch", bandwidth=50),
        backend="aware",
        engine="messages",
        rendezvous=rendezvous,
    )
    network = Switch(npus, 50, 500)
    theirs = simulate(workload, described, network, rendezvous=rendezvous)
    (run,) = network.runs
    assert run.closed
    return ours, theirs, run.tied


@pytest.mark.parametrize("algorithm", ["ring", "direct", "direct2", "halvingDoubling"])
def test_a_switch_that_stores_and_forwards_is_ours(algorithm: str) -> None:
    """The same queues, in plain Python behind the door."""
    untied = 0
    for seed in range(16):
        npus = 4 if algorithm == "halvingDoubling" else 2 + seed % 6
        ours, theirs, tied = switch_case(npus, seed, algorithm, 1 + seed % 2, seed % 3 == 0)
        untied += not tied
        assert tied or same(ours, theirs), seed
        assert {(row["from"], row["to"]): row["bytes"] for row in theirs.links} == {
            ("switch" if row["from"] < 0 else row["from"], "switch" if row["to"] < 0 else row["to"]): row[
                "bytes"
            ]
            for row in ours.links
        }
    assert untied > 2


@given(
    npus=st.integers(2, 8),
    seed=st.integers(0, 1 << 40),
    algorithm=st.sampled_from(["ring", "direct", "direct3"]),
    chunks=st.integers(1, 3),
    rendezvous=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_random_cases_on_the_switch(
    npus: int, seed: int, algorithm: str, chunks: int, rendezvous: bool
) -> None:
    """Where no order within a tick can matter, every time is equal."""
    ours, theirs, tied = switch_case(npus, seed, algorithm, chunks, rendezvous, nodes=2, messages=3)
    event(f"tied: {tied}")
    assert tied or same(ours, theirs)


def test_compiled_and_plain_kernels_meet_the_network_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same batches at the same ticks, and the same result."""
    outcomes = []
    for jit in (False, True):
        monkeypatch.setattr(engine, "worth_compiling", lambda *a, use=jit: use)
        network = Switch(6, 50, 500)
        done = simulate(random_workload(6, 5), system(), network)
        outcomes.append(
            (done.finish_ns.tolist(), done.raw.issue_ns.tolist(), network.runs[0].batches, list(done.links))
        )
    assert outcomes[0] == outcomes[1]


def test_a_full_mailbox_is_handed_over_within_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches get smaller and what ends may need several turns; times stay."""
    described = system(**{"all-to-all-implementation": ["direct"]})
    workload = Workload(64)
    workload.run(lambda b: b.collective("all_to_all", size_bytes=1 << 20))
    whole, parts = ConstantDelay(64, 700, 50), ConstantDelay(64, 700, 50)
    want = simulate(workload, described, whole)
    monkeypatch.setattr(tables, "LEAST_BATCH", 0)
    batches: list[int] = []
    began = parts.begin

    def begin() -> Any:
        run = began()
        take = run.submit

        def submit(transfers: Any) -> None:
            batches.append(len(transfers.id))
            take(transfers)

        monkeypatch.setattr(run, "submit", submit)
        return run

    monkeypatch.setattr(parts, "begin", begin)
    assert same(want, simulate(workload, described, parts))
    assert max(batches) < 64 * 63
    assert sum(batches) == 2 * 64 * 63


def test_a_network_may_be_used_again() -> None:
    """A description has no state: two runs are equal, and what-if runs it twice."""
    network = Switch(4, 50, 500)
    first, again = (simulate(random_workload(4, 1), system(), network) for _ in range(2))
    assert same(first, again)
    assert len(network.runs) == 2
    assert all(run.closed for run in network.runs)
    assert isinstance(network, OutsideNetwork)


def test_progress_may_end_a_run() -> None:
    """The simulation is closed, and the result says that it is a part."""
    network = Switch(4, 50, 500)
    seen: list[int] = []

    def stop(done: int, now: int) -> bool:
        seen.append(now)
        return False

    step, tell = engine.PLAIN_STEP, engine.TELL_S
    engine.PLAIN_STEP, engine.TELL_S = 1, 0.0
    try:
        done = simulate(random_workload(4, 1), system(), network, progress=stop)
    finally:
        engine.PLAIN_STEP, engine.TELL_S = step, tell
    assert done.partial
    assert len(seen) == 1
    assert network.runs[0].closed


def test_a_workload_that_cannot_end_is_told_as_ever() -> None:
    """Nothing is under way, an NPU waits: not the network's fault."""

    def waits(b: TraceBuilder) -> None:
        first = b.collective("all_reduce", size_bytes=1 << 16)
        if b.rank < 2:
            got = b.recv(1 - b.rank, size_bytes=64, after=first)
            b.send(1 - b.rank, size_bytes=64, after=got)

    workload = Workload(4)
    workload.run(waits)
    network = Switch(4, 50, 500)
    with pytest.raises(StallError, match="wait cycle: NPU 0 -> 1 -> 0"):
        simulate(workload, system(), network)
    assert network.runs[0].closed


def test_the_result_says_who_simulated() -> None:
    done = simulate(random_workload(4, 1), system(), Switch(4, 50, 500))
    assert done.to_dict()["backend"] == "outside"
    assert done.network.source == "network 'switch'"
    assert done.dimensions[0]["topology"] == "Outside"
    assert "another package simulates every transfer" in str(done)
    assert any("simulated outside the engine" in note for note in done.raw.notes)
    assert np.isfinite(done.dimensions[0]["utilisation"])


class Pausing(ConstantDelay):
    """A constant delay whose `advance` comes back half way, and which has something to say."""

    def begin(self) -> "PausingRun":
        """A simulation at tick 0."""
        return PausingRun(self.delay_ns)


class PausingRun(constant_delay_module.Run):
    """Goes half of the way that it is asked to go, as long as that is more than one tick."""

    def __init__(self, delay_ns: int) -> None:
        super().__init__(delay_ns)
        self.paused_ns: int | None = None
        self.clock = self.pauses = 0

    def advance(self, until_ns: int) -> Ended:
        """Half way, or as usual."""
        self.paused_ns = None
        first = min(until_ns, self.under_way[0][0] if self.under_way else until_ns)
        if first > self.clock + 1:
            self.clock = self.paused_ns = (self.clock + first) // 2
            self.pauses += 1
            return NOTHING
        self.clock = first
        return super().advance(until_ns)

    def notes(self) -> list[str]:
        """How often it paused."""
        return [f"paused {self.pauses} times"]


class Using(ConstantDelay):
    """A constant delay that says when its links were busy."""

    def __init__(self, answer: object) -> None:
        super().__init__(2, 700, 50)
        self.answer = answer

    def begin(self) -> "UsingRun":
        """A simulation at tick 0."""
        return UsingRun(self.delay_ns, self.answer)


class UsingRun(constant_delay_module.Run):
    """Answers what it was given."""

    def __init__(self, delay_ns: int, answer: object) -> None:
        super().__init__(delay_ns)
        self.answer = answer

    def use_over_time(self) -> Any:
        """What was given."""
        return self.answer


def one_message() -> Workload:
    workload = Workload(2)
    workload.run(lambda b: b.send(1, size_bytes=1) if b.rank == 0 else b.recv(0, size_bytes=1))
    return workload


def test_a_network_that_says_when_its_links_were_busy() -> None:
    """What it counts behind the end is not told, and an interval that the end cuts is as long as it lasts."""
    links: list[tuple[int | str, int | str, float]] = [(0, "a", 25.0), ("a", 1, 50.0)]
    busy = np.array([[200.0, 100.0, 50.0, 60.0], [0.0, 0.0, 100.0, 0.0]])
    done = simulate(one_message(), system(), Using(UseOverTime(300, links, busy)))
    assert done.finish_ns.max() == 700
    row = {"dim": 0, "alike": 1}
    assert done.link_use == {
        "interval_ns": 300,
        "mean": [0.3333, 0.1667, 0.75],
        "links": [
            {**row, "from": 0, "to": "a", "bandwidth_gibps": 25.0, "share": [0.6667, 0.3333, 0.5]},
            {**row, "from": "a", "to": 1, "bandwidth_gibps": 50.0, "share": [0.0, 0.0, 1.0]},
        ],
    }
    assert simulate(one_message(), system(), Using(None)).link_use == {}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (UseOverTime(0, [], np.zeros((0, 1))), "intervals of 0 ns"),
        (UseOverTime(1, [(0, 1, 1.0)], np.zeros((1, 700))), None),
        (
            UseOverTime(7, [(0, 1, 1.0)], np.zeros((2, 100))),
            r"a row .* for each of 1 link, .* shape \(2, 100\)",
        ),
        (
            UseOverTime(7, [(0, 1, 1.0)], np.full((1, 100), np.nan)),
            "busy times that are no numbers from 0 on",
        ),
        (UseOverTime(7, [(0, 1, 1.0)], np.full((1, 100), -1.0)), "busy times that are no numbers from 0 on"),
        ("often", r"failed in use_over_time\(\): AttributeError"),
    ],
)
def test_wrong_answers_of_use_over_time(answer: object, told: str | None) -> None:
    if told is None:
        assert simulate(one_message(), system(), Using(answer)).link_use["mean"] == [0.0] * 700
        return
    with pytest.raises(ConfigError, match=told):
        simulate(one_message(), system(), Using(answer))


def test_too_many_intervals_of_use_over_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chakra.replay.networks.exchange.MOST_INTERVALS", 699)
    with pytest.raises(
        ConfigError, match="intervals of 1 ns for a run of 700 ns; at most 699 intervals are kept"
    ):
        simulate(one_message(), system(), Using(UseOverTime(1, [(0, 1, 1.0)], np.zeros((1, 9)))))


@pytest.mark.parametrize("seed", range(4))
def test_a_network_that_pauses_and_tells(seed: int) -> None:
    """The same times as without pauses, even towards a tick without end; progress gets the network's clock."""
    workload = random_workload(6, seed)
    plain = simulate(workload, system(), ConstantDelay(6, 700, 50))
    paused = simulate(workload, system(), Pausing(6, 700, 50))
    assert same(plain, paused)
    (note,) = (note for note in paused.notes if note.startswith("paused"))
    assert int(note.split()[1]) > 100


def test_progress_has_the_clock_of_a_network_that_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows while one message is under way, and ends the run half way."""
    monkeypatch.setattr(engine, "TELL_S", 0.0)
    seen: list[int] = []

    def progress(_: int, now_ns: int) -> bool:
        seen.append(now_ns)
        return len(seen) < 4

    workload = Workload(2)
    workload.run(lambda b: b.send(1, size_bytes=1) if b.rank == 0 else b.recv(0, size_bytes=1))
    done = simulate(workload, system(), Pausing(2, 1 << 20, 50), progress=progress)
    assert done.partial
    assert sorted(set(seen)) == seen
    assert 0 < seen[-1] < 1 << 20


def test_a_fault_in_what_a_network_expects_is_one_line() -> None:
    """Whatever it raises but our own errors."""

    class Faulty(ConstantDelay):
        def expect(self, pairs: object, total_bytes: int) -> None:
            raise ZeroDivisionError("by nothing")

    with pytest.raises(
        ConfigError, match=r"^network 'constant-delay' failed in expect\(\): ZeroDivisionError: by nothing"
    ):
        simulate(random_workload(4, 0), system(), Faulty(4, 700, 50))
