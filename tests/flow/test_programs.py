"""Whole runs against exact fractions: messages, computing between them, all ways, slow links, bounds, building blocks."""

import math
import random
from fractions import Fraction
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from flow_programs import Compute, Fluid, Link, Message, Program, traces

from chakra.replay import ReplayResult, simulate

GIBPS = Fraction(2**30, 10**9)
SYSTEM = {"endpoint-delay": 0, "local-mem-bw": 10**9, "preferred-dataset-splits": 1}
ENDLESS = Fraction(10**9)


def draw_programs(chance: random.Random, npus: int) -> list[Program]:
    """Up to forty messages in one order that all NPUs keep, so that none waits for ever."""
    programs: list[list[Compute | Message]] = [[] for _ in range(npus)]
    longest = chance.choice([10, 2000, 200_000])
    for tag in range(chance.randrange(1, 40)):
        src, dst = chance.sample(range(npus), 2)
        if chance.random() < 0.5:
            programs[src].append(Compute(chance.randrange(1, longest)))
        size = chance.choice([1, 100, 4096, 10**5, 10**6, chance.randrange(1, 3 * 10**6)])
        programs[src].append(Message(True, dst, size, tag, chance.random() < 0.4))
        programs[dst].append(Message(False, src, size, tag, chance.random() < 0.6))
    return [list(program) for program in programs]


def check(net: dict[str, Any], fluid: Fluid, programs: list[Program], **options: Any) -> ReplayResult:
    """Finish times are equal to a ns, folded or not."""
    expected = fluid.run(programs)
    for fold in (True, False):
        done = simulate(traces(programs), SYSTEM, net, backend="flow", comm_streams=64, fold=fold, **options)
        late = [int(a) - b for a, b in zip(done.finish_ns, expected, strict=True)]
        assert all(0 <= x <= 1 for x in late), late
    return done


def links_of(chance: random.Random, npus: int) -> list[Link]:
    kind = chance.choice(["star", "two switches", "ring", "any", "spines", "shared interfaces"])
    if kind == "star":
        return [(npu, "a") for npu in range(npus)]
    if kind == "two switches":
        return [*((npu, "ab"[npu % 2]) for npu in range(npus)), ("a", "b")]
    if kind == "ring":
        return [(npu, (npu + 1) % npus) for npu in range(npus)]
    if kind == "any":
        graph = nx.gnm_random_graph(npus, chance.randrange(npus, 2 * npus), seed=chance.randrange(10**6))
        parts = [min(part) for part in nx.connected_components(graph)]
        return [*graph.edges, *pairwise(parts)]
    if kind == "spines":
        spines = [f"spine{k}" for k in range(chance.randrange(1, 4))]
        return [
            *((npu, f"leaf{npu % 2}") for npu in range(npus)),
            *((f"leaf{k}", s) for k in (0, 1) for s in spines),
        ]
    return [
        *((npu, f"nic{npu // 2}") for npu in range(npus)),
        *((f"nic{k}", "top") for k in range((npus + 1) // 2)),
    ]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("spray", [False, True])
def test_programs_on_single_links(seed: int, spray: bool) -> None:
    chance = random.Random(2 * seed + spray)
    npus = chance.randrange(3, 8)
    mixed, same = chance.random() < 0.7, chance.choice([10, 50])
    names = links_of(chance, npus)
    rows = [
        [
            *ends,
            chance.choice([1, 2.5, 10, 50, 100, 33.3]) if mixed else same,
            chance.choice([0, 1, 500, 300.75, 1234.5]) if mixed else 500,
        ]
        for ends in names
    ]
    slow = {}
    if chance.random() < 0.3:
        a, b, _, _ = chance.choice(rows)
        slow[f"{a}-{b}"] = chance.choice([0.5, 0.125, 0.25])
    graph: Any = nx.DiGraph()
    capacity: dict[Link, Fraction] = {}
    latency: dict[Link, Fraction] = {}
    for a, b, speed, ns in rows:
        for way in ((a, b), (b, a)):
            graph.add_edge(*way)
            capacity[way] = Fraction(str(speed)) * Fraction(slow.get(f"{a}-{b}", 1)) * GIBPS
            latency[way] = Fraction(ns)
    cap = chance.choice([None, None, 1, 7.5])
    net: dict[str, Any] = {"npus_count": [npus], "links": rows, "ecmp": "spray" if spray else "hash"}
    if cap is not None:
        net["flow_cap"] = cap
    ways: dict[tuple[int, int], tuple[list[list[Link]], int]] = {}
    routes = []
    for src in range(npus):
        for dst in set(range(npus)) - {src}:
            paths = sorted(nx.all_shortest_paths(graph, src, dst), key=str)
            if not spray:
                paths = [chance.choice(paths)]
                routes.append(paths[0])
            steps: list[list[Link]] = [list(pairwise(path)) for path in paths]
            ways[src, dst] = steps, int(max(sum(latency[link] for link in path) for path in steps))
    if not spray:
        net["routes"] = routes
    fluid = Fluid(capacity, lambda a, b: ways[a, b], ENDLESS if cap is None else Fraction(cap) * GIBPS)
    done = check(net, fluid, draw_programs(chance, npus), slow_links=slow or None)
    bytes_of = {(link["from"], link["to"]): link["bytes"] for link in done.links if link["bytes"]}
    assert set(bytes_of) <= set(fluid.carried)
    for link, carried in fluid.carried.items():
        assert abs(bytes_of.get(link, 0) - carried) <= 40  # a byte a message, where it is parted


def block_way(counts: list[int], kinds: list[str], src: int, dst: int) -> list[tuple[int, Link]]:
    """Dimension and link of each hop: one dimension after the other, rings the shorter way round, ascending on a tie."""
    here, there = [], []
    for n in counts:
        here.append(src % n)
        there.append(dst % n)
        src, dst = src // n, dst // n
    way: list[tuple[int, Link]] = []
    for d, (n, kind) in enumerate(zip(counts, kinds, strict=True)):
        up = (there[d] - here[d]) % n
        step = 1 if up <= n - up else -1
        while here[d] != there[d]:
            before = tuple(here)
            here[d] = (here[d] + step) % n if kind == "Ring" else there[d]
            if kind == "Switch":
                way += [(d, (d, before)), (d, (tuple(here), d))]
            else:
                way.append((d, (before, tuple(here))))
    return way


@pytest.mark.parametrize("seed", range(60))
def test_programs_on_building_blocks(seed: int) -> None:
    chance = random.Random(seed)
    counts: list[int] = []
    while not 3 <= (npus := math.prod(counts)) <= 24:
        counts = [chance.choice([2, 3, 4, 5]) for _ in range(chance.randrange(1, 4))]
    kinds = [chance.choice(["Ring", "Switch", "FullyConnected"]) for _ in counts]
    speed = [chance.choice([1, 10, 50, 33.3]) for _ in counts]
    latency = [chance.choice([0, 500, 300.75, 12.5]) for _ in counts]
    cap = chance.choice([None, None, 5])
    net: dict[str, Any] = {"topology": kinds, "npus_count": counts, "bandwidth": speed, "latency": latency}
    if cap is not None:
        net["flow_cap"] = cap
    capacity: dict[Link, Fraction] = {}

    def ways(src: int, dst: int) -> tuple[list[list[Link]], int]:
        way = block_way(counts, kinds, src, dst)
        for d, link in way:
            capacity[link] = Fraction(str(speed[d])) * GIBPS
        return [[link for _, link in way]], int(sum(Fraction(latency[d]) for d, _ in way))

    fluid = Fluid(capacity, ways, ENDLESS if cap is None else Fraction(cap) * GIBPS)
    done = check(net, fluid, draw_programs(chance, npus))
    assert sum(link["bytes"] for link in done.links) == sum(fluid.carried.values())
