"""Packets by ns-3: times against closed forms, what buffers, windows and back pressure do, routes, repeatability."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_packets import collective
from packet_runs import (
    GIBPS,
    LOSSLESS_FRAME,
    LOSSLESS_HEADERS,
    TCP_FRAME,
    TCP_HEADERS,
    pair,
    sends,
    star,
    system,
)

from chakra import output_schemas
from chakra.errors import ConfigError
from chakra.replay import ReplayResult, simulate
from chakra.replay.config import load_network
from chakra.replay.networks.ns3.network import with_packets
from chakra.replay.networks.routes import link_graph

HAS_NS3 = all(importlib.util.find_spec(name) is not None for name in ("ns3", "cppyy"))
pytestmark = [
    pytest.mark.ns3,
    pytest.mark.skipif(not HAS_NS3, reason="ns-3 is not installed (the ns3 extra)"),
]
ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
#: no window or queue in the way
WIDE = {"initial_window": 4 * MIB, "largest_window": 4 * MIB, "buffer": 64 * MIB}


def run(workload: Any, network: Any, **options: Any) -> ReplayResult:
    return simulate(workload, system(), network, backend="ns3", **options)


def last(result: ReplayResult) -> int:
    return int(result.finish_ns.max())


def figures(result: ReplayResult) -> dict[str, int]:
    """Packets, dropped, marked, events, from the note."""
    (note,) = (line for line in result.notes if line.startswith("ns-3"))
    words = note.partition("): ")[2].replace(",", "").split()
    return {
        "packets": int(words[0]),
        "dropped": int(words[4]),
        "marked": int(words[6]),
        "events": int(words[8]),
    }


def on_wire_ns(size: int, mtu: int, headers: int, frame: int, bandwidth: float) -> float:
    """How long a link sends a message of `size` bytes."""
    packets = -(-size // (mtu - headers))
    return (size + packets * (headers + frame)) / (bandwidth * GIBPS)


@pytest.mark.parametrize("transport", ["tcp", "dctcp"])
@pytest.mark.parametrize("size", [1, 8948, 8949, 3 * MIB + 5])
def test_a_message_on_an_open_connection_takes_its_bytes_and_the_latency(transport: str, size: int) -> None:
    """To 2 ns: the rate is a whole number of bits per second, packets take whole ps."""
    wait = 10**9
    packets = {"transport": transport, "ecn_threshold": 32 * MIB, "queue": "red", **WIDE}
    done = run(sends(2, [(0, 1, size)] * 2, wait_ns=wait), pair(packets))
    expected = 5000 + on_wire_ns(size, 9000, TCP_HEADERS, TCP_FRAME, 1)
    assert abs(last(done) - wait - expected) <= 2
    assert figures(done)["dropped"] == 0


def test_the_first_message_of_a_pair_opens_a_connection() -> None:
    """One round trip more: two packets without payload and their latencies, and the acknowledgement before the data."""
    wait = 10**9
    once = last(run(sends(2, [(0, 1, MIB)]), pair(WIDE)))
    again = last(run(sends(2, [(0, 1, MIB)] * 2, wait_ns=wait), pair(WIDE))) - wait
    assert 2 * 5000 + 3 * 40 / GIBPS < once - again < 2 * 5000 + 3 * 80 / GIBPS


@pytest.mark.parametrize("size", [0, 1, 8956, 8957, MIB])
def test_lossless_packets_are_stored_and_forwarded_at_a_switch(size: int) -> None:
    """All packets on one link, the last of the longest behind it on the other, and both latencies."""
    done = run(sends(2, [(0, 1, size)]), star(2, {"transport": "lossless"}))
    each = LOSSLESS_HEADERS + LOSSLESS_FRAME
    payload = max(size, 1)
    packets = -(-payload // (9000 - LOSSLESS_HEADERS))
    tail = payload - (packets - 1) * (9000 - LOSSLESS_HEADERS)
    second = tail + each if packets == 1 else max(tail, 0) + each
    # a full packet ahead of a short one is still on the second link when that arrives
    behind = 0 if packets == 1 else 9000 + LOSSLESS_FRAME - (tail + each)
    expected = 2000 + (payload + packets * each + second + behind) / GIBPS
    assert abs(last(done) - expected) <= 2


@pytest.mark.parametrize("packets", [{"transport": "lossless", "buffer": 200_000}, WIDE])
def test_an_incast_fills_the_link_of_its_receiver(packets: dict[str, Any]) -> None:
    """Seven senders: back pressure or large buffers keep all packets, and the last link is never idle."""
    size = 4 * MIB
    done = run(sends(8, [(npu, 0, size) for npu in range(1, 8)]), star(8, packets))
    headers = (
        (LOSSLESS_HEADERS, LOSSLESS_FRAME)
        if packets.get("transport") == "lossless"
        else (TCP_HEADERS, TCP_FRAME)
    )
    least = 7 * on_wire_ns(size, 9000, *headers, 1)
    assert figures(done)["dropped"] == 0
    assert least < last(done) < least * 1.01 + 20_000


def test_back_pressure_reaches_the_senders() -> None:
    """A switch holds no more than its buffers: the senders' own links are slowed down to a seventh."""
    size = 4 * MIB
    network = star(8, {"transport": "lossless", "buffer": 100_000})
    done = run(sends(8, [(npu, 0, size) for npu in range(1, 8)]), network)
    rows = {row["from"]: row for row in done.links if row["to"] == "hub"}
    assert set(rows) == set(range(1, 8))
    for row in rows.values():  # what has not left the sender when the first seventh is through
        assert row["bytes"] > size
        assert row["busy_ns"] < last(done) / 6


def test_back_pressure_around_a_loop_is_named() -> None:
    """Four NPUs in a one-way ring, each sending three links on: all buffers fill, and nobody may go on."""
    links = [{"from": i, "to": (i + 1) % 4, "directed": True} for i in range(4)]
    network = {
        "npus_count": [4],
        "links": links,
        "bandwidth": 1,
        "latency": 1000,
        "packets": {"transport": "lossless", "buffer": 60_000},
    }
    with pytest.raises(ConfigError, match="links have stopped each other around a loop") as caught:
        run(sends(4, [(i, (i + 3) % 4, 8 * MIB) for i in range(4)]), network)
    assert "\n" not in str(caught.value)


def test_small_buffers_lose_packets_and_dctcp_marks_them_instead() -> None:
    """Seven senders to one: a full queue drops, and what is lost is sent again; DCTCP keeps below the buffer."""
    transfers = [(npu, 0, MIB) for npu in range(1, 8)]
    lossy = run(sends(8, transfers), star(8, {"buffer": 150_000}, latency=10_000))
    marking = {"transport": "dctcp", "mtu": 1500, "buffer": 600_000, "ecn_threshold": 60_000}
    marked = run(sends(8, transfers), star(8, marking, latency=10_000))
    flow = simulate(sends(8, transfers), system(), star(8, latency=10_000), backend="flow")
    assert figures(lossy)["dropped"] > 0
    assert last(lossy) > last(flow)
    assert figures(marked)["marked"] > 0
    assert figures(marked)["dropped"] == 0
    assert last(flow) < last(marked) < last(lossy)


def test_a_small_first_window_starts_slowly() -> None:
    """1 MiB over a long link: round trips in which the window doubles; with a window for all of it, only two.

    One opens the connection. The other is that of the first 65,535 bytes: what a receiver offers at first is not scaled
    (RFC 7323).
    """
    latency = 1_000_000
    quick = last(run(sends(2, [(0, 1, MIB)]), pair({"initial_window": 2 * MIB}, latency=latency)))
    slow = last(run(sends(2, [(0, 1, MIB)]), pair({"initial_window": 20_000}, latency=latency)))
    assert 5 * latency < quick < 5 * latency + 2 * MIB / GIBPS
    assert slow > quick + 2 * 2 * latency


def test_seed_and_early_drops() -> None:
    """Random early drops differ by the seed and by nothing else."""
    transfers = [(npu, 0, 2 * MIB) for npu in range(1, 6)]

    def times(seed: int) -> tuple[int, ...]:
        packets = {"queue": "red", "buffer": 400_000, "seed": seed, "least_timeout": 1_000_000}
        return tuple(run(sends(6, transfers), star(6, packets)).finish_ns.tolist())

    assert times(1) == times(1)
    assert times(1) != times(2)


def test_switches_of_packets_do_not_reduce() -> None:
    with pytest.raises(ConfigError, match="--backend ns3 forward packets and neither reduce nor multicast"):
        simulate(
            collective(4, "all_reduce", MIB),
            system(**{"all-reduce-implementation": ["inNetwork"]}),
            star(4) | {"switches": "reduces"},
            backend="ns3",
        )


@pytest.mark.parametrize("transport", ["tcp", "dctcp", "lossless"])
def test_use_of_links_over_time(transport: str) -> None:
    """Shares times spans are the busy times of links; a port into which two send is full until the second has ended."""
    window = {} if transport == "lossless" else {"initial_window": MIB}
    transfers = [(0, 3, 4 * MIB), (1, 3, 4 * MIB), (2, 1, MIB)]
    done = run(sends(4, transfers), star(4, {"transport": transport, **window}))
    use, end = done.link_use, last(done)
    n, interval = len(use["mean"]), use["interval_ns"]
    assert (n - 1) * interval < end <= n * interval
    assert 64 < n <= 128
    spans = np.full(n, float(interval))
    spans[-1] = end - (n - 1) * interval
    busy = {(link["from"], link["to"]): link["busy_ns"] for link in done.links}
    for link in use["links"]:
        assert len(link["share"]) == n
        assert max(link["share"]) <= 1
        counted = float((np.array(link["share"]) * spans).sum())
        assert abs(counted - busy[link["from"], link["to"]]) <= 1 + 5e-5 * end  # shares have four places
    port = next(link for link in use["links"] if (link["from"], link["to"]) == ("hub", 3))
    assert use["links"][0] is port
    assert min(port["share"][1 : n // 2]) > 0.99


def test_use_over_time_is_of_the_clock_of_the_replay() -> None:
    """Two messages with half a minute between: ns-3 skips what is quiet, the intervals do not."""
    pause = 30_000_000_000
    done = run(sends(2, [(0, 1, 16 * MIB), (0, 1, 16 * MIB)], wait_ns=pause), pair({"transport": "lossless"}))
    use = done.link_use
    (link,) = use["links"]
    n = len(use["mean"])
    assert (n - 1) * use["interval_ns"] < last(done) <= n * use["interval_ns"]
    assert [k for k, share in enumerate(link["share"]) if share > 0] in ([0, n - 1], [0, n - 2, n - 1])


def test_another_process_has_the_same_answer() -> None:
    """Nothing of earlier runs is left in one: a new process gives the same result, after other runs in this one."""
    code = (
        "import sys; sys.path += sys.argv[1:]\n"
        "from bench_packets import collective\nfrom packet_runs import star, system\n"
        "from chakra.replay import simulate\n"
        "r = simulate(collective(6, 'all_to_all', 1 << 20), system(), star(6, {'mtu': 1500}), backend='ns3')\n"
        "print(r.finish_ns.tolist(), [n for n in r.notes if n.startswith('ns-3')])\n"
    )
    here = run(collective(6, "all_to_all", MIB), star(6, {"mtu": 1500}))
    told = subprocess.run(
        [sys.executable, "-c", code, *sys.path],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    notes = [note for note in here.notes if note.startswith("ns-3")]
    assert told.stdout.strip() == f"{here.finish_ns.tolist()} {notes}"


def test_packets_take_the_routes_of_the_other_backends() -> None:
    """Links that carried something are those of the ways there and back, chosen by hash among equal ones."""
    spines = [[f"leaf{leaf}", f"spine{spine}", 1, 500] for leaf in range(2) for spine in range(4)]
    links = [[npu, f"leaf{npu // 4}", 1, 500] for npu in range(8)] + spines
    description = {"npus_count": [8], "links": links}
    transfers = [(npu, 7 - npu, 100_000) for npu in range(4)]
    done = run(sends(8, transfers), description)
    network = load_network(description)
    assert network.links is not None
    pairs = np.array([ends for src, dst, _ in transfers for ends in ((src, dst), (dst, src))])
    graph = link_graph(network, pairs)
    names = [*range(8), *network.links.vertices]
    expected = set()
    for src, dst in pairs.tolist():
        key = src * 8 + dst
        for hop in graph.routes[graph.route_start[key] : graph.route_start[key + 1]].tolist():
            link = network.links.links[hop]
            expected.add((names[link.src], names[link.dst]))
    assert {(row["from"], row["to"]) for row in done.links} == expected


def test_one_way_links_and_links_of_two_speeds() -> None:
    """Each direction has its own rate and latency, and a way back may be another one."""
    ring = [{"from": i, "to": (i + 1) % 3, "directed": True, "latency": 1000 * (i + 1)} for i in range(3)]
    network = {"npus_count": [3], "links": ring, "bandwidth": 1, "packets": WIDE}
    wait = 10**9
    done = run(sends(3, [(0, 1, 1), (0, 1, 1)], wait_ns=wait), network)
    assert abs(last(done) - wait - 1000 - on_wire_ns(1, 9000, TCP_HEADERS, TCP_FRAME, 1)) <= 2
    assert {(row["from"], row["to"]) for row in done.links} == {(0, 1), (1, 2), (2, 0)}


def test_failed_and_slow_links() -> None:
    """Building blocks link by link: a ring of 4 without a link, and with a slow one."""
    ring = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [1], "latency": [500], "packets": WIDE}
    workload = sends(4, [(0, 1, 4 * MIB)])
    whole, around = last(run(workload, ring)), run(workload, ring, fail_links=["0-1"])
    assert {(row["from"], row["to"]) for row in around.links} >= {(0, 3), (3, 2), (2, 1)}
    assert last(around) > whole
    slow = last(run(workload, ring, slow_links={"0-1": 0.5}))
    assert slow == pytest.approx(2 * whole, rel=0.01)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_large_messages_take_the_time_of_flows(kind: str) -> None:
    """Within 5 %, once the headers are taken off the flows' bandwidth."""
    size, packets = 32 * MIB, {"mtu": 9000, **WIDE}
    share = (9000 - TCP_HEADERS) / (9000 + TCP_FRAME)
    ours = last(run(collective(4, kind, size), star(4, packets)))
    flows = simulate(collective(4, kind, size), system(), star(4, bandwidth=share), backend="flow")
    assert ours == pytest.approx(last(flows), rel=0.05)


def test_long_waits_between_messages_are_not_simulated() -> None:
    """Three times longer than a simulation in ps can last, and each message as long as without."""
    wait = 1 << 54
    done = run(sends(2, [(0, 1, MIB)] * 4, wait_ns=wait), pair(WIDE))
    expected = 3 * wait + 5000 + on_wire_ns(MIB, 9000, TCP_HEADERS, TCP_FRAME, 1)
    assert abs(last(done) - expected) <= 3


def test_one_simulation_at_a_time() -> None:
    """A second one is refused while the first is open, and may begin after it."""
    outside = with_packets(load_network(pair())).outside
    assert outside is not None
    first = outside.begin()
    with pytest.raises(ConfigError, match="one network at a time"):
        run(sends(2, [(0, 1, 1)]), pair())
    first.close()
    assert last(run(sends(2, [(0, 1, 1)]), pair())) > 0


def test_a_run_can_be_ended_before_anything_has_ended() -> None:
    """Progress is asked for while one large message is under way."""
    asked: list[int] = []

    def progress(_: int, now_ns: int) -> bool:
        asked.append(now_ns)
        return len(asked) < 3

    done = run(sends(2, [(0, 1, 1 << 30)]), pair({"mtu": 1500}), progress=progress)
    assert done.partial
    assert len(asked) == 3
    assert 0 < asked[0] < asked[1] < asked[2] < (1 << 30) / GIBPS


def test_rendezvous_and_groups() -> None:
    """The engine's own rules hold: a request of 8 KiB goes the other way first."""
    once = run(sends(2, [(0, 1, MIB)]), pair({"transport": "lossless"}))
    asked = run(sends(2, [(0, 1, MIB)]), pair({"transport": "lossless"}), rendezvous=True)
    request = 5000 + on_wire_ns(8192, 9000, LOSSLESS_HEADERS, LOSSLESS_FRAME, 1)
    assert abs(last(asked) - last(once) - request) <= 3


def test_the_command_and_its_document(tmp_path: Path) -> None:
    """The page's own words: a network file with `packets`, and `--backend ns3`."""
    traces = ROOT / "traces" / "allreduce_ring8"
    network = (traces / "network.yml").read_text(encoding="utf-8")
    (tmp_path / "network.yml").write_text(f"{network}packets: {{transport: dctcp, mtu: 4096}}\n")
    command = [sys.executable, "-m", "chakra", "replay", "-w", str(traces / "workload")]
    command += [
        "-s",
        str(traces / "system.json"),
        "-n",
        "network.yml",
        "--backend",
        "ns3",
        "--format",
        "json",
        "--quiet",  # it takes long enough for a line of progress
    ]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert (told.returncode, told.stderr) == (0, "")
    document = json.loads(told.stdout)
    pytest.importorskip("jsonschema").validate(document, output_schemas.load("chakra.replay.result"))
    assert document["backend"] == "ns3"
    assert document["inputs"]["network"]["packets"]["transport"] == "dctcp"
    assert any(note.startswith("ns-3 (dctcp, MTU 4096)") for note in document["notes"])
