"""`chakra convert msccl`: algorithms by hand and our own exported, beside ours; wrong and hostile files."""

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_programs import (
    carried_out,
    doubling_all_gather,
    in_pieces,
    pairs_all_gather,
    pairs_all_reduce,
    ring_all_reduce,
    two_threadblocks,
)
from msccl_wrong import GOOD, PAIRS, RACE, WRONG

from chakra.builder import Workload
from chakra.cli.main import run
from chakra.converters.msccl import export_msccl, load_msccl, system_key, write_msccl
from chakra.converters.msccl.follow import follow
from chakra.converters.msccl.program import RECEIVES, MscclAlgorithm
from chakra.converters.msccl.reader import parse_xml
from chakra.errors import ConfigError, UsageError
from chakra.replay import simulate
from chakra.replay.topologies import fat_tree

BACKENDS = ("unaware", "aware", "flow")
TIMES = {"endpoint-delay": 10, "local-mem-bw": 50}


def loaded(text: str, folder: Path) -> MscclAlgorithm:
    path = folder / "algo.xml"
    path.write_text(text)
    return load_msccl(path)


def figures(
    system: dict[str, Any], kind: str, n: int, size: int, topology: str, backend: str
) -> tuple[int, int, int]:
    """End of the collective, bytes over all links, and messages that all links have carried."""
    workload = Workload(n)
    workload.run(lambda b: b.collective(kind, size_bytes=size))
    network = {"topology": [topology], "npus_count": [n], "bandwidth": [50], "latency": [500]}
    result = simulate(workload, {"preferred-dataset-splits": 1, **system}, network, backend=backend)
    links = result.links if backend != "unaware" else []
    return (
        int(result.finish_ns.max()),
        sum(link["bytes"] for link in links),
        sum(link.get("messages", 0) for link in links),
    )


def beside_ours(algorithm: MscclAlgorithm, ours: str, folder: Path, times: dict[str, int]) -> None:
    """The converted algorithm takes our algorithm's time, sends its bytes, in as many messages, on every backend."""
    n, kind = algorithm.npus, algorithm.collective
    size = n << 12
    write_msccl(algorithm, folder / "run", size_bytes=size, system=times)
    key = system_key(kind)
    for topology in ("Ring", "Switch", "FullyConnected"):
        for backend in BACKENDS:
            case = (kind.value.lower(), n, size, topology, backend)
            theirs = figures({**times, key: [str(folder / "run")]}, *case)
            assert theirs == figures({**times, key.removesuffix("-custom"): [ours]}, *case), (
                topology,
                backend,
            )


@pytest.mark.parametrize("n", [2, 3, 8])
def test_a_ring_by_hand_is_our_ring(n: int, tmp_path: Path) -> None:
    algorithm = loaded(ring_all_reduce(n), tmp_path)
    assert algorithm.messages == n * 2 * (n - 1)
    beside_ours(algorithm, "ring", tmp_path, TIMES)


def test_recursive_doubling_by_hand_is_ours(tmp_path: Path) -> None:
    algorithm = loaded(doubling_all_gather(8), tmp_path)
    assert algorithm.messages == 8 * 3
    beside_ours(algorithm, "recursiveDoubling", tmp_path, TIMES)


@pytest.mark.parametrize("n", [2, 5, 8])
def test_all_pairs_by_hand_are_our_direct(n: int, tmp_path: Path) -> None:
    beside_ours(loaded(pairs_all_gather(n), tmp_path), "direct", tmp_path, TIMES)


@pytest.mark.parametrize("n", [2, 4])
def test_all_pairs_over_scratch_memory_take_two_messages_and_the_sums(n: int, tmp_path: Path) -> None:
    """2 l + 3 e + (n - 1) r: two messages, endpoint delays, and one sum after the other."""
    algorithm = loaded(pairs_all_reduce(n), tmp_path)
    size = n << 12
    write_msccl(algorithm, tmp_path / "run", size_bytes=size, system=TIMES)
    system = {**TIMES, system_key(algorithm.collective): [str(tmp_path / "run")]}
    end, _, _ = figures(system, "all_reduce", n, size, "FullyConnected", "unaware")
    message = int(500 + 4096 / (50 * 2**30 / 1e9))
    assert end == 2 * message + 3 * 10 + (n - 1) * 3 * int(4096 / 50)


def test_links_of_unequal_delay_and_groups(tmp_path: Path) -> None:
    """On a fat tree some hops are longer than others; a process group's members are the algorithm's ranks."""
    algorithm = loaded(ring_all_reduce(8), tmp_path)
    write_msccl(algorithm, tmp_path / "run", size_bytes=8 << 12, system=TIMES)
    theirs = {**TIMES, system_key(algorithm.collective): [str(tmp_path / "run")]}
    ours = {**TIMES, "all-reduce-implementation": ["ring"], "preferred-dataset-splits": 1}
    whole = Workload(8)
    whole.run(lambda b: b.collective("all_reduce", size_bytes=8 << 12))
    halves = Workload(16)
    groups = [halves.add_group(range(first, 16, 2)) for first in (0, 1)]
    halves.run(lambda b: b.collective("all_reduce", size_bytes=8 << 12, group=groups[b.rank % 2]))
    tree = fat_tree([4, 2], [1, 2], bandwidth_gibps=50, latency_ns=500)
    ring = {"topology": ["Ring"], "npus_count": [16], "bandwidth": [50], "latency": [500]}
    for workload, network in ((whole, tree), (halves, ring)):
        for backend in BACKENDS:
            a, b = (simulate(workload, s, network, backend=backend).finish_ns for s in (theirs, ours))
            assert a.max() == b.max(), backend
            # a rank's traces end when its last message has arrived, too
            assert (a >= b).all(), backend


@pytest.mark.parametrize(
    "text", [doubling_all_gather(8), pairs_all_gather(8), ring_all_reduce(8), pairs_all_reduce(8)]
)
def test_sends_that_wait_for_receivers_do_not_block(text: str, tmp_path: Path) -> None:
    """With rendezvous a send waits until its receive is there; receives are posted before the sends of their rank end."""
    algorithm = loaded(text, tmp_path)
    write_msccl(algorithm, tmp_path / "run", size_bytes=8 << 12)
    workload = Workload(8)
    workload.run(lambda b: b.collective(algorithm.collective.value.lower(), size_bytes=8 << 12))
    system = {system_key(algorithm.collective): [str(tmp_path / "run")]}
    network = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [50], "latency": [500]}
    ends = [simulate(workload, system, network, rendezvous=ask).finish_ns.max() for ask in (False, True)]
    assert 0 < ends[0] < ends[1]


def test_sends_in_a_row_leave_one_by_one(tmp_path: Path) -> None:
    """Two ranks exchange four pieces; each send but the first waits for the one before it."""
    algorithm = loaded(in_pieces(4), tmp_path)
    write_msccl(algorithm, tmp_path / "run", size_bytes=4 << 12, system=TIMES)
    system = {**TIMES, system_key(algorithm.collective): [str(tmp_path / "run")]}
    end, _, _ = figures(system, "all_gather", 2, 4 << 12, "Ring", "unaware")
    message = int(500 + 4096 / (50 * 2**30 / 1e9))
    assert end == 10 + 4 * (message + 10)


def test_channels_side_by_side_share_a_link(tmp_path: Path) -> None:
    """Two channels send half of the bytes each at one time: unaware links carry both at once, others one by one."""
    one, two = (loaded(ring_all_reduce(4, channels), tmp_path) for channels in (1, 2))
    assert two.messages == 2 * one.messages
    size, latency, bandwidth = 1 << 20, 500, 50 * 2**30 / 1e9
    ends = {}
    for name, algorithm in (("one", one), ("two", two)):
        write_msccl(algorithm, tmp_path / name, size_bytes=size, system={"endpoint-delay": 0})
        system = {system_key(algorithm.collective): [str(tmp_path / name)]}
        for backend in BACKENDS:
            ends[name, backend] = figures(system, "all_reduce", 4, size, "FullyConnected", backend)
    half, whole = (size / 4 / parts / bandwidth for parts in (2, 1))
    assert ends["two", "unaware"][0] == 6 * int(latency + half)
    assert ends["one", "unaware"][0] == 6 * int(latency + whole)
    assert ends["two", "flow"][0] == pytest.approx(6 * (latency + whole), abs=12)
    assert ends["two", "aware"][1] == ends["one", "aware"][1] == ends["two", "flow"][1] == 4 * 6 * size // 4


EQUAL = [
    *((name, "all_reduce") for name in ("ring", "rabenseifner", "recursiveDoubling", "bruck")),
    *((name, "reduce_scatter") for name in ("ring", "rabenseifner", "recursiveDoubling", "bruck")),
    *(
        (name, "all_gather")
        for name in ("ring", "direct", "direct1", "halvingDoubling", "rabenseifner", "bruck")
    ),
    *((name, "all_to_all") for name in ("ring", "direct", "direct1", "bruck")),
]


@pytest.mark.parametrize("n", [5, 8])
@pytest.mark.parametrize(("name", "collective"), EQUAL)
def test_an_exported_algorithm_comes_back_as_ours(name: str, collective: str, n: int, tmp_path: Path) -> None:
    if name in ("rabenseifner", "recursiveDoubling", "halvingDoubling") and n & (n - 1):
        with pytest.raises(
            ConfigError, match=f"'{name}' is written for a power of two of ranks, not for {n}"
        ):
            export_msccl(name, collective, n)
        return
    beside_ours(loaded(export_msccl(name, collective, n), tmp_path), name, tmp_path, TIMES)


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("direct", "all_reduce"),
        ("halvingDoubling", "all_reduce"),
        ("direct1", "reduce_scatter"),
        ("binomialTree", "all_reduce"),
    ],
)
def test_other_exported_algorithms_send_our_bytes(name: str, collective: str, tmp_path: Path) -> None:
    """Their times differ (docs/reference/msccl.md); bytes and messages do not."""
    algorithm = loaded(export_msccl(name, collective, 8), tmp_path)
    write_msccl(algorithm, tmp_path / "run", size_bytes=8 << 12)
    key = system_key(algorithm.collective)
    case = (collective, 8, 8 << 12, "Switch", "aware")
    theirs = figures({key: [str(tmp_path / "run")]}, *case)
    assert theirs[1:] == figures({key.removesuffix("-custom"): [name]}, *case)[1:]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("chain", "its steps depend on size and network"),
        ("pipelinedTree", "its steps depend on size and network"),
        ("doubleBinaryTree", "its steps depend on size and network"),
        ("direct2", "have no window of messages"),
        ("oneRing", "has ranks and no dimensions"),
        ("rink", "did you mean 'ring'"),
    ],
)
def test_what_cannot_be_exported(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        export_msccl(name, "all_reduce", 8)


def test_sizes_that_do_not_divide_are_rounded_up(tmp_path: Path) -> None:
    algorithm = loaded(ring_all_reduce(3), tmp_path)
    write_msccl(algorithm, tmp_path / "run", size_bytes=1000)
    system = {system_key(algorithm.collective): [str(tmp_path / "run")]}
    assert figures(system, "all_reduce", 3, 1000, "Ring", "aware")[1] == 3 * 4 * 334
    with pytest.raises(UsageError, match=r"size_bytes must be 1 to 2\^50, not 0"):
        write_msccl(algorithm, tmp_path / "run", size_bytes=0)


# --------------------------------------------------------------------------------------------------------------
# Wrong programs


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_one_line(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, words = WRONG[case]
    assert text not in (GOOD, PAIRS), "the case changes something"
    path = tmp_path / "a.xml"
    path.write_text(text)
    assert run(["convert", "msccl", "-i", str(path), "-o", str(tmp_path / "x"), "--size", "4096"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"chakra: error: {path}: ")
    assert words in said.err
    assert not list(tmp_path.glob("x.*"))


def test_the_race_that_is_refused_is_one() -> None:
    """Some orders of the threadblocks give the right sums, others do not."""
    algorithm = parse_xml(WRONG[RACE][0].encode(), "x")
    assert {carried_out(algorithm, random.Random(seed)) for seed in range(40)} == {False, True}


def mutated(algorithm: MscclAlgorithm, chance: random.Random) -> MscclAlgorithm:
    """One change of one step: a dependence less, another chunk, another type."""
    ranks = [list(blocks) for blocks in algorithm.ranks]
    rank = chance.randrange(len(ranks))
    at = chance.randrange(len(ranks[rank]))
    block = ranks[rank][at]
    k = chance.randrange(len(block.steps))
    step = block.steps[k]
    change = chance.choice(("after", "source", "target", "type"))
    if change == "after":
        step = replace(step, after=None)
    elif change == "source" and step.source >= 0:
        step = replace(step, source=chance.randrange(algorithm.npus))
    elif change == "target" and step.target >= 0:
        step = replace(step, target=chance.randrange(algorithm.npus))
    elif step.type in ("rrc", "rrcs"):
        step = replace(step, type={"rrc": "r", "rrcs": "rcs"}[step.type], source=-1)
    ranks[rank][at] = replace(block, steps=(*block.steps[:k], step, *block.steps[k + 1 :]))
    return replace(algorithm, ranks=tuple(tuple(blocks) for blocks in ranks))


PROGRAMS = [
    ring_all_reduce(3),
    pairs_all_reduce(3),
    doubling_all_gather(4),
    export_msccl("bruck", "all_reduce", 3),
    export_msccl("bruck", "all_to_all", 4),
    export_msccl("direct", "reduce_scatter", 3),
    export_msccl("halvingDoubling", "reduce_scatter", 4),
]


@pytest.mark.parametrize("text", PROGRAMS)
def test_accepted_programs_are_right_in_any_order(text: str) -> None:
    algorithm = parse_xml(text.encode(), "x")
    follow(algorithm)
    assert all(carried_out(algorithm, random.Random(seed)) for seed in range(5))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PROGRAMS), st.integers(0, 10**6))
def test_following_agrees_with_running_on_numbers(text: str, seed: int) -> None:
    """What is accepted gives the right sums in every order tried; what gives wrong ones is refused."""
    chance = random.Random(seed)
    algorithm = parse_xml(text.encode(), "x")
    for block in (block for rank in algorithm.ranks for block in rank):
        assert all(step.source < 0 or step.type not in ("r", "rcs") for step in block.steps)
    algorithm = mutated(algorithm, chance)
    try:
        follow(algorithm)
    except ConfigError:
        return
    assert all(carried_out(algorithm, random.Random(seed + k)) for k in range(8))


def test_a_hundred_thousand_steps_take_linear_time() -> None:
    """Four times the steps (long threadblocks that wait for each other) take about four times the time."""

    def spent(steps: int) -> float:
        data = two_threadblocks(steps).encode()
        start = time.process_time()
        algorithm = parse_xml(data, "x")
        follow(algorithm)
        assert algorithm.steps == 2 * (2 * steps - 3)
        return time.process_time() - start

    small = min(spent(6_250) for _ in range(3))
    assert spent(25_000) < 10 * small


def test_an_algorithm_of_more_members_is_no_algorithm(tmp_path: Path) -> None:
    """Four of eight positions, each of which only talks to these four, ran without a word."""
    workload = Workload(8)
    workload.run(lambda b: b.send((b.rank // 4) * 4 + (b.rank + 1) % 4, size_bytes=4096))
    workload.run(lambda b: b.recv((b.rank // 4) * 4 + (b.rank - 1) % 4, size_bytes=4096))
    workload.write(tmp_path / "two_rings")
    job = Workload(4)
    job.run(lambda b: b.collective("all_reduce", size_bytes=4096))
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
    system = {"all-reduce-implementation-custom": [str(tmp_path / "two_rings")]}
    with pytest.raises(ConfigError, match=r"more positions than the 4 members .*two_rings\.4\.et"):
        simulate(job, system, network)
    as_upstream = simulate(job, system, network, compat="astra-sim")
    assert any("more positions" in text for text in as_upstream.warnings)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
@pytest.mark.parametrize("n", [2, 4, 8])
def test_bytes_that_no_such_collective_sends_are_told(kind: str, n: int, tmp_path: Path) -> None:
    """Sizes are those of the traces: an algorithm for 1 MiB runs for 1 KiB and 1 GiB as well, and says so."""
    (tmp_path / "a.xml").write_text(export_msccl("direct" if kind == "all_to_all" else "ring", kind, n))
    algorithm = load_msccl(tmp_path / "a.xml")
    write_msccl(algorithm, tmp_path / "run", size_bytes=1 << 20)
    system = {system_key(algorithm.collective): [str(tmp_path / "run")]}
    network = {"topology": ["Ring"], "npus_count": [n], "bandwidth": [50], "latency": [500]}
    for power, told in ((10, True), (20, False), (30, True)):
        job = Workload(n)
        size = 1 << power
        job.run(lambda b, size=size: b.collective(kind, size_bytes=size))  # type: ignore[misc]
        said = [text for text in simulate(job, system, network).warnings if "bytes in all" in text]
        assert bool(said) is told, (power, said)


def test_receives_are_those_types() -> None:
    assert {"r", "rcs", "rrs", "rrc", "rrcs"} == RECEIVES


def test_the_command_says_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, prefix = tmp_path / "ring.xml", tmp_path / "ring"
    assert (
        run(
            [
                "convert",
                "msccl",
                "--algorithm",
                "ring",
                "--collective",
                "all_reduce",
                "--npus",
                "4",
                "-o",
                str(path),
            ]
        )
        == 0
    )
    assert run(["convert", "msccl", "-i", str(path), "-o", str(prefix), "--size", "4KiB"]) == 0
    said = capsys.readouterr().err
    assert f'a system file names them: "all-reduce-implementation-custom": ["{prefix}"]' in said
    assert [f.name for f in sorted(tmp_path.glob("ring.*.et"))] == [f"ring.{rank}.et" for rank in range(4)]
    in_units = [f.read_bytes() for f in sorted(tmp_path.glob("ring.*.et"))]
    assert run(["convert", "msccl", "-i", str(path), "-o", str(prefix), "--size", "4096"]) == 0
    assert [f.read_bytes() for f in sorted(tmp_path.glob("ring.*.et"))] == in_units
    bounded = path.read_text().replace('coll="', 'minBytes="8192" maxBytes="65536" coll="')
    path.write_text(bounded)
    assert run(["convert", "msccl", "-i", str(path), "-o", str(prefix), "--size", "4096"]) == 0
    assert "note: the file says that it is for 8192 to 65536 bytes, not for 4096" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "give an algorithm of MSCCL with --input, or one of ours with --algorithm"),
        ("-i a.xml", "--input needs --output PREFIX and --size SIZE"),
        (
            "-i a.xml -o x --size 1MX",
            "'1MX' is not a size; write bytes (1048576) or a unit (1MiB, 64kB, 1.5GB)",
        ),
        ("-i a.xml -o x --size 1 --npus 4", "--collective and --npus go with --algorithm"),
        ("--algorithm ring --size 4", "--size and --system go with --input"),
        ("--algorithm ring", "--algorithm needs --collective and --npus"),
    ],
)
def test_options_that_do_not_go_together(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", "msccl", *line.split()]) == 2
    assert words in capsys.readouterr().err
