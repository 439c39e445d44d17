"""Algorithms that are tables of steps: closed forms of the papers, bounds, and what every schedule must do."""

import math
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
import pytest
from collective_runs import ENDPOINT, KEYS, LATENCY, message_ns, network, one, run, system
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.errors import ConfigError
from chakra.replay import plugins, simulate
from chakra.replay.collectives import registry
from chakra.replay.collectives.pipelined_tree import two_trees
from chakra.replay.collectives.steps import (
    Do,
    Link,
    StepAlgorithm,
    Steps,
    Symmetry,
    best_segments,
    from_rounds,
)
from chakra.replay.config import algorithms, register_algorithm

LINK = Link(510.0, 53.687)
ABLE = [(name, do) for name, algorithm in registry.OURS.items() for do in sorted(algorithm.kinds)]


def log2(n: int) -> int:
    return (n - 1).bit_length()


def rounds_time(sizes: list[int], reduced: list[int] | None = None, mem_gbps: float = 0.0) -> int:
    """e, then per round the delay, e and the reduction."""
    reduce = sum(3 * int(size / (mem_gbps * 1e9) * 1e9) for size in reduced or []) if mem_gbps else 0
    return ENDPOINT + sum(message_ns(size) + ENDPOINT for size in sizes) + reduce


@pytest.mark.parametrize("n", [2, 4, 8, 32])
def test_powers_of_two_follow_the_papers(n: int) -> None:
    d, levels, mem = 1 << 20, log2(n), 50.0
    halves = [d >> (k + 1) for k in range(levels)]
    forms = {
        ("ALL_REDUCE", "recursiveDoubling"): ([d] * levels, [d] * levels),
        ("ALL_REDUCE", "rabenseifner"): (halves + halves[::-1], halves),
        ("REDUCE_SCATTER", "rabenseifner"): (halves, halves),
        ("ALL_GATHER", "recursiveDoubling"): ([d << k for k in range(levels)], []),
        ("ALL_REDUCE", "bruck"): (halves + halves[::-1], halves),
        ("ALL_TO_ALL", "bruck"): ([d // 2] * levels, []),
        ("ALL_REDUCE", "binomialTree"): ([d] * 2 * levels, [d] * levels),
    }
    for (kind, algorithm), (sizes, reduced) in forms.items():
        result = run(kind, algorithm, n, d, local_mem_bw=mem)
        assert result.finish_ns.max() == rounds_time(sizes, reduced, mem), (kind, algorithm)


@pytest.mark.parametrize("n", [3, 5, 6, 7, 12, 13])
def test_any_number_of_members(n: int) -> None:
    """Off powers of two: fold and unfold (recursive doubling), exchange halves (Rabenseifner), ceil(log2 n) (Bruck)."""
    d = 13 * 7 * 6 * 5 * 1024
    p = 1 << (n.bit_length() - 1)
    levels = log2(p)
    # a member whose partner waits for it already gets its message without the latency
    waited = LATENCY * levels
    wanted = rounds_time([d] * (levels + 2))
    assert wanted - waited <= run("ALL_REDUCE", "recursiveDoubling", n, d).finish_ns.max() <= wanted
    halves = [-(-d // (2 << k)) for k in range(levels)]
    wanted = rounds_time([-(-d * (p // 2) // p)] * 2 + halves + halves[::-1] + [d])
    assert wanted - 2 * waited <= run("ALL_REDUCE", "rabenseifner", n, d).finish_ns.max() <= wanted
    shares = [min(1 << k, n - (1 << k)) for k in range(log2(n))]
    assert run("ALL_GATHER", "bruck", n, d).finish_ns.max() == rounds_time([s * d for s in shares])
    blocks = [sum(i >> k & 1 for i in range(n)) for k in range(log2(n))]
    sizes = [-(-d * b // n) for b in blocks]
    assert run("ALL_TO_ALL", "bruck", n, d).finish_ns.max() == rounds_time(sizes)


def test_chain_is_a_pipeline() -> None:
    n, d = 8, 1 << 24
    steps = registry.steps("chain", Do.BROADCAST, n, d, LINK)
    s = steps.whole
    assert s == best_segments(n - 2, 1, 1, n, d, LINK) > 1
    assert steps.rounds == n - 2 + s

    def cost(k: int) -> float:
        return (n - 2 + k) * (LINK.latency_ns + d / k / LINK.bytes_per_ns)

    assert cost(s) <= min(cost(s - 1), cost(s + 1))


def reach(steps: Steps) -> np.typing.NDArray[np.bool_]:
    """reach[i, j]: member i's data, or something made of them, has come to member j."""
    known = np.eye(steps.n, dtype=bool)
    start = 0
    for k, flags in enumerate(steps.messages[:, 3]):
        if flags & 2:
            now = steps.messages[start : k + 1]
            before = known.copy()
            for source, target, _, _ in now.tolist():
                known[:, target] |= before[:, source]
            start = k + 1
    return known


@pytest.mark.parametrize(("name", "do"), ABLE)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 11, 16, 25])
def test_data_come_where_they_belong(name: str, do: Do, n: int) -> None:
    """Everybody learns of everybody; after a broadcast of the root; a reduce's root learns of everybody."""
    known = reach(registry.steps(name, do, n, 100_000, LINK))
    if do is Do.BROADCAST:
        assert known[0].all()
    elif do is Do.REDUCE:
        assert known[:, 0].all()
    else:
        assert known.all()


@pytest.mark.parametrize(("name", "do"), ABLE)
@pytest.mark.parametrize("n", [2, 3, 6, 8, 13])
def test_enough_bytes_move(name: str, do: Do, n: int) -> None:
    """No schedule moves fewer bytes than the operation needs."""
    steps = registry.steps(name, do, n, 1 << 20, LINK)
    received = np.zeros(n)
    np.add.at(received, steps.messages[:, 1], steps.messages[:, 2] / steps.whole)
    least = {
        Do.ALL_REDUCE: 2 * (n - 1) / n,
        Do.REDUCE_SCATTER: (n - 1) / n,
        Do.ALL_GATHER: n - 1,
        Do.ALL_TO_ALL: (n - 1) / n,
    }
    if do in least:
        assert received.sum() >= n * least[do] - 1e-9
        if do in (Do.ALL_GATHER, Do.ALL_TO_ALL):  # a reduced block may come at once
            assert received.min() >= least[do] - 1e-9
    else:
        assert received.sum() >= (n - 1) - 1e-9


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 9, 30])
def test_two_trees_share_the_work(n: int) -> None:
    """Both are trees of all members, and hardly a member has children in both."""
    inner = []
    for parents in two_trees(n):
        assert sum(p < 0 for p in parents) == 1
        for i in range(n):
            seen, at = set(), i
            while parents[at] >= 0:
                assert at not in seen
                seen.add(at)
                at = parents[at]
        inner.append({p for p in parents if p >= 0})
        assert max(np.bincount([p for p in parents if p >= 0], minlength=1)) <= 2
    assert len(inner[0] & inner[1]) <= 3


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(registry.OURS)),
    st.sampled_from(sorted(KEYS)),
    st.integers(2, 20),
    st.integers(1, 1 << 26),
    st.integers(1, 6),
    st.sampled_from(["Ring", "Switch", "FullyConnected"]),
)
def test_no_time_beats_the_bandwidth(
    name: str, kind: str, n: int, size: int, splits: int, topology: str
) -> None:
    """Each NPU sends and receives over its links one after the other, so a port's bytes bound the time."""
    if Do[kind] not in registry.OURS[name].kinds:
        with pytest.raises(ConfigError, match=rf"{name}.* cannot run {kind}"):
            run(kind, name, n, size, topology, splits=splits)
        return
    result = run(kind, name, n, size, topology, splits=splits)
    row = result.collectives[0]
    rounds = registry.steps(name, Do[kind], n, size, LINK).rounds
    assert row["algorithm"] == name
    # every message is cut to whole nanoseconds
    assert row["transfer_ns"] >= row["bound_ns"] - splits * (rounds + 64 + n)
    apart = run(kind, name, n, size, topology, splits=splits, fold=False)
    assert np.array_equal(result.finish_ns, apart.finish_ns)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_late_members_delay_nobody_before_their_start(data: st.DataObject) -> None:
    """Unequal starts: no member of an all-reduce ends before the last one starts; delay all, and all end later by it."""
    from chakra.builder import TraceBuilder

    name = data.draw(st.sampled_from([n for n, a in registry.OURS.items() if Do.ALL_REDUCE in a.kinds]))
    n = data.draw(st.integers(2, 9))
    starts = data.draw(st.lists(st.integers(0, 20_000), min_size=n, max_size=n))
    more = data.draw(st.integers(1, 1000))

    def finish(shift: int) -> Any:
        traces = []
        for start in starts:
            builder = TraceBuilder(rank=0)
            before = builder.compute(duration_ns=start + shift)
            builder.collective("ALL_REDUCE", size_bytes=100_000, after=before)
            traces.append(builder.build())
        return simulate(traces, system([name]), network(["Switch"], [n])).finish_ns

    ends = finish(0)
    assert ends.min() >= max(starts)
    assert np.array_equal(finish(more), ends + more)


def test_pipelined_tree_against_the_double_binary_tree() -> None:
    """Half of the data per tree, pipelined: within twice the ring's time where ASTRA-sim's tree takes thrice."""
    times = {
        name: int(run("ALL_REDUCE", name, 8, 100_000_000, "Switch", splits=8).finish_ns.max())
        for name in ("ring", "doubleBinaryTree", "pipelinedTree")
    }
    assert times["pipelinedTree"] < 1.5 * times["ring"] < times["doubleBinaryTree"] / 1.5


def test_flat_form_and_groups() -> None:
    """one<Name> runs on one ring of all NPUs; a group uses the algorithm on its flat ring."""
    size = 1 << 20
    net = network(["Switch", "Switch"], [2, 4])
    flat = simulate([one("ALL_REDUCE", size)] * 8, system(["oneRabenseifner"]), net)
    assert flat.collectives[0]["algorithm"] == "oneRabenseifner"
    apart = simulate([one("ALL_REDUCE", size)] * 8, system(["oneRabenseifner"]), net, fold=False)
    assert np.array_equal(flat.finish_ns, apart.finish_ns)
    traces = [one("ALL_REDUCE", size, group="a" if i < 3 else "b") for i in range(8)]
    groups = {"a": [0, 1, 2], "b": [3, 4, 5, 6, 7]}
    for name in (n for n, a in registry.OURS.items() if Do.ALL_REDUCE in a.kinds):
        folded, every = (
            simulate(traces, system([name]), net, comm_groups=groups, fold=fold).finish_ns
            for fold in (True, False)
        )
        assert np.array_equal(folded, every)


def test_powers_of_two_name_the_alternatives() -> None:
    with pytest.raises(ConfigError, match="needs a power of two, but 6 NPUs take part; use rabenseifner"):
        run("ALL_REDUCE", "halvingDoubling", 6, 1000)
    with pytest.raises(ConfigError, match="but 6 NPUs take part; use pipelinedTree"):
        run("ALL_REDUCE", "doubleBinaryTree", 6, 1000)
    with pytest.raises(ConfigError, match="cannot run the REDUCE_SCATTER that localBWAware"):
        simulate(
            [one("ALL_REDUCE", 1000)] * 6,
            system(["chain", "ring"], collective_optimization="localBWAware"),
            network(["Ring", "Ring"], [2, 3]),
        )


def test_astra_sim_does_not_know_them() -> None:
    with pytest.raises(ConfigError, match="rabenseifner"):
        run("ALL_REDUCE", "rabenseifner", 4, 1000, compat="astra-sim")


def star(do: Do, n: int, size_bytes: int, link: Link) -> Steps:
    """All-reduce over member 0: everybody sends in turn, then gets the result in turn."""
    del do, size_bytes, link
    up = [[(i, 0, 1, True)] for i in range(1, n)]
    return from_rounds(n, up + [[(0, i, 1, False)] for i in range(1, n)], 1)


def star_ns(n: int, size: int) -> int:
    """The last member's message is received after all others; the last copy leaves the star after all others."""
    each = int(size / (50 * (1 << 30) / 1e9)) + ENDPOINT
    up = ENDPOINT + message_ns(size) + ENDPOINT + (n - 2) * each
    return up + (n - 2) * each + message_ns(size) + ENDPOINT


STAR = StepAlgorithm("star", frozenset({Do.ALL_REDUCE}), star, "a star", "e + 2 (n - 1) (l + e)", "this test")


@pytest.fixture
def _star(monkeypatch: pytest.MonkeyPatch) -> Any:
    point = metadata.EntryPoint("star", f"{__name__}:STAR", registry.GROUP)
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda self: STAR)
    monkeypatch.setattr(metadata, "entry_points", lambda **_: [point])
    for cached in (registry.find, plugins.offered, registry.steps):
        cached.cache_clear()
    yield
    for cached in (registry.find, plugins.offered, registry.steps):
        cached.cache_clear()


@pytest.fixture
def _nothing_registered(monkeypatch: pytest.MonkeyPatch) -> Any:
    yield
    algorithms.REGISTERED.clear()
    for cached in (registry.find, registry.steps):
        cached.cache_clear()


@pytest.mark.usefixtures("_nothing_registered")
def test_a_registered_algorithm_is_named_by_system_files_and_runs() -> None:
    with pytest.raises(ConfigError, match="not an algorithm"):
        run("ALL_REDUCE", "star", 5, 4096)
    register_algorithm("star", STAR)
    register_algorithm("star", STAR)  # again, as when a cell of a notebook is run again
    n, d = 5, 64 * 1024
    assert run("ALL_REDUCE", "star", n, d).finish_ns.max() == star_ns(n, d)
    assert run("ALL_REDUCE", "oneStar", n, d, "Ring").finish_ns.max() > 0
    for name, other in (("star", replace(STAR, source="another")), ("ring", STAR), ("bruck", STAR)):
        with pytest.raises(ConfigError, match="there is another collective algorithm"):
            register_algorithm(name, other)
    register_algorithm("wrong", "no algorithm")
    with pytest.raises(
        ConfigError, match="registered collective algorithm 'wrong' is a str, not a StepAlgorithm"
    ):
        run("ALL_REDUCE", "wrong", 5, 4096)


@pytest.mark.usefixtures("_star")
def test_another_package_adds_an_algorithm() -> None:
    n, d = 5, 64 * 1024
    assert run("ALL_REDUCE", "star", n, d).finish_ns.max() == star_ns(n, d)


@pytest.mark.parametrize(
    ("rounds", "text"),
    [
        (
            [[(0, 1, 1, False), (0, 2, 1, False)]],
            "round 0 \\(from 0\\): member 0 sends 2 messages; one is the most",
        ),
        ([[(0, 2, 1, False), (1, 2, 1, False)]], "member 2 receives 2 messages"),
        ([[(1, 1, 1, False)]], "member 1 sends to itself"),
        ([[(0, 3, 1, False)]], "members are 0 to 2"),
        ([[(0, 1, 99, False)]], "shares are"),
    ],
)
def test_a_wrong_schedule_is_refused(rounds: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        from_rounds(3, rounds, 1, Symmetry.NONE)


def test_every_algorithm_says_what_it_is() -> None:
    for algorithm in registry.OURS.values():
        assert all((algorithm.summary, algorithm.formula, algorithm.source))
    assert math.isclose(registry.OURS["bruck"].schedule(Do.ALL_TO_ALL, 4, 1, LINK).rounds, 2)
