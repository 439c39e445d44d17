"""The formulas of docs/reference/collective-costs.md, computed and compared with the engine, and with its schedules."""

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import collective_formulas as tool
import numpy as np
import pytest
from collective_runs import ENDPOINT, GIBPS, LATENCY, network, one, system

from chakra.errors import ConfigError
from chakra.replay import simulate
from chakra.replay.collectives import registry
from chakra.replay.collectives.algorithms import parse
from chakra.replay.collectives.in_network import port_bytes
from chakra.replay.collectives.steps import Do, Link
from chakra.replay.collectives.trees import chain_segments
from chakra.replay.engines.kernels import packets as kernel

ROOT = Path(__file__).resolve().parents[2]

RATE = GIBPS * (1 << 30) / 1e9  # bytes per ns
#: members end apart, so that a chunk begins before the one before it has ended everywhere
STAGGERED = {(name, Do.ALL_REDUCE) for name in ("binomialTree", "chain", "doubleBinaryTree", "pipelinedTree")}
NATIVE = (Do.ALL_REDUCE, Do.REDUCE_SCATTER, Do.ALL_GATHER, Do.ALL_TO_ALL)
TOPOLOGIES = ("Ring", "Switch", "FullyConnected")
CASES = [(name, formula) for name, formulas in tool.FORMULAS.items() for formula in formulas]
IDS = [f"{name}-{formula.do.name}" for name, formula in CASES]


def link_of(topology: str) -> Link:
    return Link((2 if topology == "Switch" else 1) * LATENCY + ENDPOINT, RATE)


def names(name: str, n: int, d: int, topology: str, mem_gbps: float, window: int = 0) -> dict[str, Any]:
    """What the names of a formula stand for on a network of `collective_runs`."""
    table = name in registry.OURS

    def whole(m: Any) -> int:
        return max(1, int(-(-Fraction(m) // 1)) if table else int(Fraction(m) // 1))

    def delay(m: Any, k: Any = 1) -> int:
        at = int(k) % n
        hops = {"Ring": min(at, n - at), "Switch": 2, "FullyConnected": 1}[topology]
        return int(hops * LATENCY + whole(m) / RATE)

    return {
        "n": n,
        "d": d,
        "e": ENDPOINT,
        "w": window,
        "s": segments(name, n, d, topology),
        "l": delay,
        "far": lambda m: max(delay(m, k) for k in range(1, n)),
        "o": lambda m: int(whole(m) / RATE),
        "r": lambda m: 3 * int(whole(m) / (mem_gbps * 1e9) * 1e9) if mem_gbps else 0,
    }


def segments(name: str, n: int, d: int, topology: str) -> int:
    if name == "chain":
        return chain_segments(n, d, link_of(topology))
    if name == "pipelinedTree":
        return int(registry.steps(name, Do.ALL_REDUCE, n, d, link_of(topology)).whole) // 2
    return 1


def finish(
    name: str, do: Do, n: int, size: int, topology: str, splits: int, mem: float, active: int = 1, **more: Any
) -> Any:
    keys = {"local_mem_bw": mem, "active_chunks_per_dimension": active}
    return simulate(
        [one(do.name, size)] * n, system([name], splits, **keys), able_network(topology, n), **more
    ).finish_ns


def able_network(topology: str, n: int) -> dict[str, Any]:
    """A dimension whose switch, if it has one, can do what switches do."""
    return {**network([topology], [n]), "switches": ["reduces" if topology == "Switch" else "plain"]}


def pieces(size: int, splits: int) -> list[int]:
    each, more = divmod(size, splits)
    return [each + 1] * more + [each] * (splits - more)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize(("name", "formula"), CASES, ids=IDS)
def test_the_engine_takes_the_time_of_the_formula(name: str, formula: Any, topology: str) -> None:
    if formula.equal and topology == "Ring":
        pytest.skip("distances differ on a ring")
    if formula.switch and topology != "Switch":
        pytest.skip("refused: there is no switch")
    for n in (2, 3, 4, 5, 8, 12, 16):
        power = n & (n - 1) == 0
        if name in ("halvingDoubling", "doubleBinaryTree") and not power:
            continue  # refused
        for size, splits, mem in ((1 << 20, 1, 0.0), (1 << 20, 4, 50.0), (999_999, 3, 50.0), (5_000, 1, 7.0)):
            for window in (2, 3) if name == "direct<w>" else (0,):
                called = f"direct{window}" if window else name
                wanted = sum(
                    tool.value(formula.time, names(name, n, d, topology, mem, window))
                    for d in pieces(size, splits)
                )
                took = int(finish(called, formula.do, n, size, topology, splits, mem).max())
                case = (called, n, size, splits, mem, took, int(wanted))
                holds = formula.exact == "any" or (formula.exact == "power of two" and power)
                if holds and not (splits > 1 and (name, formula.do) in STAGGERED):
                    assert took == wanted, case
                elif (
                    not formula.exact or (power and holds) or (name == "binomialTree" and topology != "Ring")
                ):
                    assert wanted / 8 < took <= wanted, case


@pytest.mark.parametrize("name", ["ring", "direct", "direct1", "halvingDoubling", "rabenseifner", "bruck"])
@pytest.mark.parametrize("active", [2, 3])
def test_chunks_run_in_rounds_of_those_that_are_active(name: str, active: int) -> None:
    """C equal chunks take ceil(C / active) times one chunk's time."""
    formula = tool.FORMULAS[name][0]
    n, splits, d = 8, 8, 1 << 17
    wanted = tool.value(formula.time, names(name, n, d, "Switch", 50.0)) * -(-splits // active)
    assert finish(name, formula.do, n, splits * d, "Switch", splits, 50.0, active).max() == wanted


@pytest.mark.parametrize("n", [3, 5, 6, 8])
def test_direct_all_reduce_on_a_ring(n: int) -> None:
    """Near messages arrive first, and each lets one of the second round go: between nearest and farthest."""
    for size in (n * 1000, 1 << 20):
        given = names("direct", n, size, "Ring", 50.0)
        low, high = (
            tool.value(f"3*e + {way} + r(d/n)", given) for way in ("l(d/n) + far(d/n)", "2*far(d/n)")
        )
        assert low <= finish("direct", Do.ALL_REDUCE, n, size, "Ring", 1, 50.0).max() <= high


@pytest.mark.parametrize(("name", "formula"), CASES, ids=IDS)
def test_steps_and_bytes_are_those_of_the_schedule(name: str, formula: Any) -> None:
    for n in (2, 3, 4, 5, 8, 16):
        if formula.exact == "power of two" and n & (n - 1):
            continue
        d = 16 * 9 * 5 * 7 * 1024
        given = names(name, n, d, "Switch", 0.0, 2)
        steps, sent = (int(tool.value(text, given)) for text in (formula.steps, formula.sent))
        if name in registry.OURS:
            table = registry.steps(name, formula.do, n, d, link_of("Switch"))
            bytes_of = np.zeros(n)
            share = table.messages[:, 2]
            np.add.at(bytes_of, table.messages[:, 0], -(-d * share // table.whole))
            if name == "pipelinedTree":
                assert 0.4 * steps <= table.rounds <= steps, (n, table.rounds, steps)
                assert bytes_of.max() <= sent
            else:
                assert (table.rounds, int(bytes_of.max())) == (steps, sent), n
        elif name == "inNetwork":
            assert (steps, sent) == (2, port_bytes(formula.do, d, n)[0])
        elif name != "doubleBinaryTree":  # its steps and shares: test_pictures
            algorithm = parse("direct2" if name == "direct<w>" else name, "")
            window = algorithm.window_in(n)
            family, do = int(algorithm.family), int(formula.do)
            count = kernel.packet_count(family, do, n)
            rounds = 2 if formula.do is Do.ALL_REDUCE else 1
            if name.startswith("direct"):
                assert steps == rounds * -(-(count // rounds) // window)
            else:
                assert steps == count
            assert sent == sum(kernel.packet_bytes(family, do, n, count, d, p, False) for p in range(count))


def guide() -> str:
    return (ROOT / "docs" / "guides" / "collectives.md").read_text(encoding="utf-8")


def rows(first_cell: str) -> list[list[str]]:
    """Cells of the guide's table whose head begins with a cell."""
    lines = guide().splitlines()
    start = lines.index(next(line for line in lines if line.startswith(f"| {first_cell} |")))
    table = itertools.takewhile(lambda line: line.startswith("|"), lines[start:])
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_guides_table_of_what_runs_what_is_true() -> None:
    head, _, *body = rows("algorithm")
    assert [cell.upper().replace("-", "_") for cell in head[1:5]] == [do.name for do in NATIVE]
    known = set()
    for first, *kinds, numbers, bus, compat in body:
        name = first.split(",")[0].strip("`")
        known.add(name)
        ran = dict(zip(NATIVE, [cell == "yes" for cell in kinds], strict=True))
        for do, yes in ran.items():
            assert runs(name, do, 4) is yes, (name, do)
        some = next((do for do, yes in ran.items() if yes), None)
        if some is not None:
            assert runs(name, some, 6) is (numbers == "any"), name
            assert runs(name, some, 4, bus=True) is (bus == "yes"), name
            assert runs(name, some, 4, backend="aware"), name
            assert runs(name, some, 4, compat="astra-sim") is (compat == "yes"), name
            for topology in TOPOLOGIES:
                assert runs(name, some, 4, topology) is (name != "inNetwork" or topology == "Switch")
    assert known == {"ring", "direct", "halvingDoubling", "doubleBinaryTree", "inNetwork", *registry.OURS}


def runs(name: str, do: Do, n: int, topology: str = "Switch", *, bus: bool = False, **more: Any) -> bool:
    made = system([name])
    if bus:
        made |= {"model-shared-bus": 1, "L": 1, "o": 1, "g": 1, "G": 0.1}
    try:
        simulate([one(do.name, 4096)] * n, made, able_network(topology, n), **more)
    except ConfigError as error:
        return name not in str(error)  # refused, and by name
    return True


def test_the_guides_table_of_times_is_true() -> None:
    head, _, times = rows("`ring` | `halvingDoubling`")
    for cell, time in zip(head, times, strict=True):
        result = simulate(
            [one("ALL_REDUCE", 100_000_000)] * 8,
            system([cell.strip("`")], 8),
            network(["Switch"], [8], latency=[10]),
        )
        assert f"{result.finish_ns.max():,}" == time, cell
        assert int(result.collectives[0]["bound_ns"]) == 3_259_629
    assert "bound 3,259,629" in guide()


def test_the_guides_time_in_the_network_is_true() -> None:
    result = simulate(
        [one("ALL_REDUCE", 100_000_000)] * 8,
        system(["inNetwork"], 8),
        {**able_network("Switch", 8), "latency": [10]},
    )
    bound = int(result.collectives[0]["bound_ns"])
    told = f"takes {result.finish_ns.max():,} ns by `inNetwork`; its bound is {bound:,}"
    assert told in guide()


def test_what_the_guide_says_of_the_aware_backend() -> None:
    n, d = 8, 1 << 20

    def wire(m: int) -> int:
        return int(m / RATE)

    for topology in TOPOLOGIES:
        wanted = finish("ring", Do.ALL_REDUCE, n, d, topology, 1, 0.0).max()
        if topology == "Switch":
            hop = int(LATENCY + d // n / RATE)
            wanted = ENDPOINT + 2 * (n - 1) * (2 * hop + ENDPOINT)
        assert finish("ring", Do.ALL_REDUCE, n, d, topology, 1, 0.0, backend="aware").max() == wanted
    for do, m in ((Do.ALL_GATHER, d), (Do.REDUCE_SCATTER, d // n), (Do.ALL_TO_ALL, d // n)):
        wanted = 2 * ENDPOINT + (n - 2) * wire(m) + 2 * int(LATENCY + m / RATE)
        assert finish("direct", do, n, d, "Switch", 1, 0.0, backend="aware").max() == wanted


@pytest.mark.parametrize("name", ["ring", "halvingDoubling", "bruck", "rabenseifner"])
def test_flat_rings_are_bounded_by_their_slowest_pair(name: str) -> None:
    """Two dimensions of full meshes: the slowest pair differs in both."""
    n, d = 8, 1 << 20
    flat = "one" + name[:1].upper() + name[1:]
    net = network(["FullyConnected", "FullyConnected"], [4, 2])
    took = simulate([one("ALL_REDUCE", d)] * n, system([flat]), net).finish_ns.max()
    given = names(name, n, d, "FullyConnected", 0.0)
    near = given["l"]
    bound = tool.value(tool.FORMULAS[name][0].time, given | {"l": lambda m, k=1: 2 * near(m, k)})
    assert tool.value(tool.FORMULAS[name][0].time, given) <= took <= bound


def test_every_algorithm_and_kind_has_a_formula() -> None:
    for name, algorithm in registry.OURS.items():
        assert {formula.do for formula in tool.FORMULAS[name]} == set(algorithm.kinds), name
