"""Every correction of ASTRA-sim: both numbers, each derived from the rule that makes it, and its count."""

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import differences
import pytest

from chakra.builder import TraceBuilder, Workload
from chakra.errors import ChakraError, ConfigError, StallError
from chakra.et import Trace
from chakra.platforms import cluster
from chakra.replay import ReplayResult, simulate
from chakra.replay.config import load_groups
from chakra.replay.results.corrections import BY_NAME, REGISTRY, Correction

MIB = 1 << 20
#: bytes per ns of 50 GB/s, a GB being 2^30 bytes
RATE = 50 * (1 << 30) / 1e9

R8_SYSTEM = {
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    "local-mem-bw": 1600,
    **{
        f"{kind}-implementation": ["ring"]
        for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    },
}


def network(*dims: tuple[str, int, float, float]) -> dict[str, Any]:
    """A network of (topology, NPUs, GB/s, ns)."""
    return {
        "topology": [d[0] for d in dims],
        "npus_count": [d[1] for d in dims],
        "bandwidth": [d[2] for d in dims],
        "latency": [d[3] for d in dims],
    }


R8_NETWORK = network(("Ring", 8, 50.0, 500.0))
R2_NETWORK = network(("Ring", 2, 50.0, 500.0))


def trace(add: Callable[[TraceBuilder], object]) -> Trace:
    """A trace of what `add` puts into it."""
    builder = TraceBuilder()
    add(builder)
    return builder.build()


def collective(kind: str = "all_reduce", size: int = MIB, **more: Any) -> Trace:
    """A trace of one collective."""
    return trace(lambda b: b.collective(kind, size_bytes=size, **more))


def run(traces: Sequence[Trace] | Trace, compat: str | None, **changes: Any) -> ReplayResult:
    """Replay on R8, or on what `changes` say; one trace is everybody's."""
    net = changes.pop("network", R8_NETWORK)
    system = {**R8_SYSTEM, **changes.pop("system", {})}
    npus = 1
    for count in net["npus_count"]:
        npus *= count
    return simulate(
        [traces] * npus if isinstance(traces, Trace) else traces, system, net, compat=compat, **changes
    )


def both(name: str, traces: Sequence[Trace] | Trace, *, count: int, **changes: Any) -> tuple[int, int]:
    """Last finish under compat and by default; checks them against the registry, and the count."""
    example = BY_NAME[name].example
    right = run(traces, None, **changes)
    assert right.corrections.get(name, 0) == count
    theirs = run(traces, "astra-sim", **changes)
    assert theirs.corrections == {}
    numbers = int(theirs.finish_ns.max()), int(right.finish_ns.max())
    assert numbers == (example.astra, example.default)
    return numbers


def ring_chunk(n: int, chunk: int, e: int, *, latency: int = 500, reduces: bool = True) -> int:
    """Time of one chunk of a ring all-reduce, replay semantics section 4.7."""
    message = chunk // n
    hop = int(latency + message / RATE)
    reduction = 3 * int(message / 1600e9 * 1e9) if reduces else 0
    return e + 2 * (n - 1) * (hop + e) + (n - 1) * reduction


def test_r8_itself() -> None:
    assert 4 * ring_chunk(8, MIB // 4, 10) == 64440
    for compat in (None, "astra-sim"):
        result = run(collective(), compat)
        assert result.finish_ns.tolist() == [64440] * 8
        assert result.corrections == {}


def test_c1_collective_of_no_bytes() -> None:
    astra, right = both("C1", collective(size=0), count=8)
    assert astra == 4 * ring_chunk(8, 8, 10)  # 4 chunks of as many bytes as there are NPUs
    assert right == 0
    assert any("0 bytes" in warning for warning in run(collective(size=0), None).warnings)


def test_c1_waits_for_the_last_member() -> None:
    late = trace(lambda b: b.collective("all_reduce", size_bytes=0, after=[b.compute(duration_micros=3)]))
    result = run([collective(size=0)] * 7 + [late], None)
    assert result.finish_ns.tolist() == [3000] * 8


def test_c2_compute_of_no_time() -> None:
    def chain(b: TraceBuilder) -> None:
        last = b.compute(duration_micros=0)
        for _ in range(999):
            last = b.compute(duration_micros=0, after=[last])

    assert both("C2", trace(chain), count=8000) == (1000 * 1, 1000 * 0)


def test_c3_sizes_that_splits_do_not_divide() -> None:
    astra, right = both("C3", collective(size=1_000_001), count=8)
    assert astra == 5 * ring_chunk(8, 250_000, 10)  # a fifth chunk for the last byte
    assert right == ring_chunk(8, 250_001, 10) + 3 * ring_chunk(8, 250_000, 10)


def test_c3_smallest_sizes_have_no_jump() -> None:
    times = [int(run(collective(size=size), None).finish_ns.max()) for size in range(1, 40)]
    assert times == sorted(times)
    assert times[0] == ring_chunk(8, 8, 10)  # one chunk whose messages are 1 byte


def test_c4_five_dimensions() -> None:
    five = network(*[("Ring", 2, 50.0, 500.0)] * 5)
    lists = {"all-reduce-implementation": ["ring"] * 5}
    astra, right = both("C4", collective(), network=five, system=lists, count=32)
    phase = ring_chunk(2, MIB // 4, 10)  # an all-reduce in each dimension, the chunks one behind the other
    assert right == (5 + 4 - 1) * phase
    assert astra == (4 + 4 - 1) * phase


def test_c5_message_across_dimensions() -> None:
    net = network(("Ring", 4, 100.0, 500.0), ("Switch", 2, 25.0, 2000.0))
    idle = trace(lambda b: b.compute(duration_micros=0))
    traces = [idle] * 8
    traces[0] = trace(lambda b: b.send(5, size_bytes=MIB, tag=0))
    receiver = TraceBuilder(5)
    receiver.recv(0, size_bytes=MIB, tag=0)
    traces[5] = receiver.build()
    astra, right = both("C5", traces, network=net, count=2)
    ring, switch = int(500 + MIB / (2 * RATE)), int(2 * 2000 + MIB / (RATE / 2))
    assert (astra, right) == (ring, ring + switch)


def test_c5_groups_and_flat_rings_are_counted() -> None:
    net = network(("Ring", 4, 50.0, 500.0), ("Ring", 2, 50.0, 500.0))
    groups = {"1": [0, 5], "2": [1, 2], "3": [3, 4], "4": [6, 7]}
    traces = [collective(group=next(g for g, ranks in groups.items() if i in ranks)) for i in range(8)]
    two = {"all-reduce-implementation": ["ring", "ring"]}
    result = run(traces, None, network=net, system=two, comm_groups=groups)
    assert result.corrections == {"C5": 4}
    flat = {"all-reduce-implementation": ["oneRing"]}
    assert run(collective(), None, network=net, system=flat).corrections == {"C5": 8}


def test_c6_broadcast_is_priced_by_the_network() -> None:
    astra, right = both("C6", collective("broadcast"), count=8)
    # a chain of 7 hops in 8 segments, each of which a member sends when it has sent the one before
    segment = MIB // 4 // 8
    assert right == 4 * (10 + 7 * (int(500 + segment / RATE) + 10) + 7 * (int(segment / RATE) + 10))
    assert astra == 1


@pytest.mark.parametrize("kind", ["reduce", "gather", "scatter", "barrier", "reduce_scatter_block"])
def test_c6_other_kinds_have_a_price(kind: str) -> None:
    result = run(collective(kind, 0 if kind == "barrier" else MIB), None)
    assert result.corrections.get("C6") == 8
    assert result.finish_ns.min() > 0


def test_c6_barrier_costs_its_latencies() -> None:
    result = run(collective("barrier", 0), None)
    assert result.finish_ns.tolist() == [10 + 14 * (500 + 10)] * 8


@pytest.mark.parametrize("topology", ["Ring", "Switch", "FullyConnected"])
@pytest.mark.parametrize(
    "algorithm",
    [
        *("ring", "direct", "direct2", "halvingDoubling", "doubleBinaryTree", "rabenseifner"),
        *("recursiveDoubling", "bruck", "binomialTree", "chain", "pipelinedTree"),
    ],
)
def test_c6_barrier_sends_messages_of_no_bytes(algorithm: str, topology: str) -> None:
    """At 0.93 ns a byte and 936.25 ns a hop a message of one byte would take a nanosecond more."""
    net = {"topology": [topology], "npus_count": [8], "bandwidth": [1], "latency": [936.25]}
    traces = [trace(lambda b: b.collective("barrier", size_bytes=0))] * 8
    runs = [
        simulate(traces, {"all-reduce-implementation": [algorithm], "endpoint-delay": 0}, net, engine=engine)
        for engine in ("phases", "messages")
    ]
    assert runs[0].finish_ns.tolist() == runs[1].finish_ns.tolist()
    if algorithm == "recursiveDoubling" and topology != "Ring":
        hops = 2 if topology == "Switch" else 1
        assert runs[0].finish_ns.tolist() == [3 * int(hops * 936.25)] * 8


def test_c7_group_of_one() -> None:
    def alone(b: TraceBuilder) -> None:
        first = b.collective("all_reduce", size_bytes=MIB, group="1")
        b.compute(duration_micros=5, after=[first])

    example = BY_NAME["C7"].example
    traces = [trace(alone), *[trace(lambda b: b.compute(duration_micros=1))] * 7]
    for compat in (None, "astra-sim"):  # there is no number to keep
        result = run(traces, compat, comm_groups={"1": [0]})
        assert int(result.finish_ns[0]) == example.default == 5000
    corrected = run(traces, None, comm_groups={"1": [0]})
    assert corrected.corrections["C7"] == 1
    assert [row["algorithm"] for row in corrected.collectives] == ["none"]


def test_c8_roofline_without_operations() -> None:
    node = trace(lambda b: b.compute(num_ops=0, tensor_bytes=1_000_000))
    system = {"roofline-enabled": 1, "peak-perf": 900}
    result = run(node, None, system=system)
    assert int(result.finish_ns.max()) == BY_NAME["C8"].example.default == int(1_000_000 / 1600e9 * 1e9)
    assert result.corrections["C8"] == 8
    assert BY_NAME["C8"].example.astra == 2**63
    with pytest.raises(ChakraError, match="num_ops is 0"):
        run(node, "astra-sim", system=system)


def test_c9_exposed_communication() -> None:
    def work(b: TraceBuilder) -> None:
        host = b.compute(duration_micros=10, cpu=True)
        b.collective("all_reduce", size_bytes=MIB, after=[host])

    example = BY_NAME["C9"].example
    astra, right = (run(trace(work), compat) for compat in ("astra-sim", None))
    assert int(astra.exposed_comm_ns[0]) == example.astra == 10_000 + 64_440
    assert int(right.exposed_comm_ns[0]) == example.default == 64_440
    assert right.corrections == {"C9": 8}


@pytest.mark.parametrize("accelerator_us", [0, 3])
def test_c9_a_host_operator_hides_nothing(accelerator_us: int) -> None:
    """Work of the host beside a collective: exposed all the same, unless the trace has no other work at all."""

    def work(b: TraceBuilder) -> None:
        b.compute(duration_micros=20, cpu=True)
        b.collective("all_reduce", size_bytes=MIB)
        if accelerator_us:
            b.compute(duration_micros=accelerator_us)

    result = run(trace(work), None)
    took = 64_440
    account = {name: int(values[0]) for name, values in result.account.items()}
    hidden = 1000 * (accelerator_us or 20)
    assert int(result.exposed_comm_ns[0]) == took - hidden
    assert account["compute_ns"] == 1000 * accelerator_us
    assert account["cpu_ns"] == (0 if accelerator_us else 20_000)
    assert sum(account.values()) == int(result.finish_ns[0]) == took
    assert int(result.astra_exposed_comm_ns[0]) == took - 1000 * accelerator_us


def test_c10_nodes_of_no_time() -> None:
    builder = TraceBuilder()
    nothing = builder.metadata("marker")
    builder.compute(duration_micros=2, after=[nothing])
    builder.compute(duration_micros=5, cpu=True)
    astra, right = both("C10", builder.build(), count=8)
    assert astra == 5000 + 2000  # the child waits until the CPU node has ended
    assert right == max(2000, 5000)


def test_c11_unmatched_ends() -> None:
    traces = [
        trace(lambda b: b.send(1, size_bytes=MIB, tag=0)),
        receive(size=MIB // 2),
    ]
    with pytest.raises(StallError, match="comm_size differs") as error:
        run(traces, None, network=R2_NETWORK)
    assert error.value.exit_code == 3
    alone = [traces[0], trace(lambda b: b.compute(duration_micros=1))]
    with pytest.raises(StallError, match="never receives"):
        run(alone, None, network=R2_NETWORK)
    assert run(alone, "astra-sim", network=R2_NETWORK).finish_ns.tolist() == [int(500 + MIB / RATE), 1000]


def receive(size: int = MIB, tag: int = 0) -> Trace:
    """Rank 1 receives from rank 0."""
    builder = TraceBuilder(1)
    builder.recv(0, size_bytes=size, tag=tag)
    return builder.build()


def test_c12_endpoint_delay_of_groups() -> None:
    net = network(("FullyConnected", 8, 50.0, 500.0))
    groups = {"1": [0, 1, 2, 3]}
    idle = trace(lambda b: b.compute(duration_micros=0))
    traces = [collective(group="1")] * 4 + [idle] * 4
    astra, right = both(
        "C12", traces, network=net, comm_groups=groups, system={"endpoint-delay": 100}, count=4
    )
    assert (astra, right) == (4 * ring_chunk(4, MIB // 4, 10), 4 * ring_chunk(4, MIB // 4, 100))


def test_c13_blocked_queues() -> None:
    net = network(*[("Ring", 2, 50.0, 500.0)] * 3)
    system = {"all-reduce-implementation": ["ring"] * 3, "collective-optimization": "localBWAware"}
    late = trace(lambda b: b.collective("all_reduce", size_bytes=MIB, after=[b.compute(duration_micros=5)]))
    traces = [late] + [collective()] * 7
    with pytest.raises(StallError, match="block each other"):
        run(traces, "astra-sim", network=net, system=system)
    result = run(traces, None, network=net, system=system)
    assert (result.finish_ns > 5000).all()
    assert result.corrections["C13"] == 1


def test_c14_booleans_and_keys(tmp_path: Path) -> None:
    node = trace(lambda b: b.compute(duration_micros=5, num_ops=10**9, tensor_bytes=10**6))
    off = tmp_path / "system.json"
    off.write_text(json.dumps({**R8_SYSTEM, "roofline-enabled": False, "peak-perf": 900}))
    astra, right = (simulate([node] * 8, off, R8_NETWORK, compat=compat) for compat in ("astra-sim", None))
    example = BY_NAME["C14"].example
    assert int(astra.finish_ns[0]) == example.astra == int(10**9 / 900e12 * 1e9)
    assert int(right.finish_ns[0]) == example.default == 5000
    with pytest.raises(ConfigError, match="endpoint-delay"):
        run(node, None, system={"endpoint-dealy": 10})


def test_c15_endpoint_delay_zero() -> None:
    result = run(collective(), None, system={"endpoint-delay": 0})
    assert int(result.finish_ns.max()) == BY_NAME["C15"].example.default == 4 * ring_chunk(8, MIB // 4, 0)
    assert result.corrections == {"C15": 8}


def test_c16_algorithms_that_cannot_run() -> None:
    tree = {"reduce-scatter-implementation": ["doubleBinaryTree"]}
    for compat in (None, "astra-sim"):
        with pytest.raises(ConfigError, match="doubleBinaryTree"):
            run(collective("reduce_scatter"), compat, system=tree)
    odd = network(("Ring", 6, 50.0, 500.0))
    with pytest.raises(ConfigError, match=r"halvingDoubling.*6 NPUs"):
        run(collective(), None, network=odd, system={"all-reduce-implementation": ["halvingDoubling"]})


def test_c17_scales() -> None:
    astra, right = both("C17", collective(), comm_scale=2.0, count=8)
    assert (astra, right) == (4 * ring_chunk(8, MIB // 4, 10), 4 * ring_chunk(8, 2 * MIB // 4, 10))
    work = trace(lambda b: b.compute(duration_micros=5))
    assert run(work, "astra-sim", compute_scale=2.0).finish_ns.tolist() == [5000] * 8
    assert run(work, None, compute_scale=2.0).finish_ns.tolist() == [10000] * 8


def test_c18_names_of_groups() -> None:
    result = run(collective(group="tp"), None, comm_groups={"tp": list(range(8))})
    assert int(result.finish_ns.max()) == BY_NAME["C18"].example.default
    assert result.corrections == {"C18": 8}
    with pytest.raises(ConfigError, match="'0'"):
        run(collective(), None, comm_groups={"0": [0, 1]})


def test_c19_tags_do_not_wrap() -> None:
    traces = [trace(lambda b: b.send(1, size_bytes=MIB, tag=500_000_001)), receive(tag=1)]
    astra = run(traces, "astra-sim", network=R2_NETWORK)
    assert astra.finish_ns.tolist() == [BY_NAME["C19"].example.astra] * 2 == [int(500 + MIB / RATE)] * 2
    with pytest.raises(StallError, match="comm_tag differs"):
        run(traces, None, network=R2_NETWORK)
    equal = [traces[0], receive(tag=500_000_001)]
    assert run(equal, None, network=R2_NETWORK).corrections == {"C19": 2}


def test_c20_message_of_no_bytes() -> None:
    traces = [trace(lambda b: b.send(1, size_bytes=0, tag=0)), receive(size=0)]
    result = run(traces, None, network=R2_NETWORK)
    assert result.finish_ns.tolist() == [BY_NAME["C20"].example.default] * 2 == [500, 500]
    assert result.corrections == {"C20": 2}


def test_c21_durations_in_ns() -> None:
    assert both("C21", trace(lambda b: b.compute(duration_ns=300)), count=8) == (1000, 300)


def test_c21_counts_times_that_differ_and_are_taken() -> None:
    """A roofline's node has the model's time in both, 1000 ns are 1 us, and one of 0 ns is C2's."""
    roofline = {**R8_SYSTEM, "roofline-enabled": True, "peak-perf": 1}
    modelled = trace(lambda b: b.compute(duration_ns=300, num_ops=10**6, tensor_bytes=10))
    results = [
        simulate([modelled] * 8, roofline, R8_NETWORK, compat=compat) for compat in (None, "astra-sim")
    ]
    assert [result.finish_ns.max() for result in results] == [1000, 1000]
    assert "C21" not in results[0].corrections
    for exact, counted in ((0, {"C2": 8}), (1000, {}), (300, {"C21": 8})):
        nodes = trace(functools.partial(TraceBuilder.compute, duration_ns=exact))
        assert run(nodes, None).corrections == counted


def test_c17_counts_what_a_scale_changes() -> None:
    """A node of no time and a collective of no bytes stay what they are."""
    nodes = trace(lambda b: (b.compute(duration_micros=0), b.compute(duration_micros=2)))
    assert run(nodes, None, compute_scale=2.0).corrections["C17"] == 8
    assert "C17" not in run(collective(size=0), None, comm_scale=2.0).corrections


def test_c22_the_word_empty(tmp_path: Path) -> None:
    folder = tmp_path / "my_empty_room"
    folder.mkdir()
    path = folder / "groups.json"
    path.write_text('{"1": [0, 1]}')
    assert load_groups(path, compat="astra-sim") == {}
    assert load_groups(path) == {"1": (0, 1)}
    assert load_groups("empty") == {}


def test_c23_halving_doubling_brings_back_what_it_took_apart() -> None:
    """Four chunks of 31 B: halves of 15, 7 and 3 B go out; ASTRA-sim doubles 31 // 16 = 1 B on the way back."""
    slow = 0.05 * (1 << 30) / 1e9
    system = {"all-reduce-implementation": ["halvingDoubling"]}
    numbers = both(
        "C23", collective(size=124), count=8, system=system, network=network(("Ring", 8, 0.05, 500.0))
    )
    for got, back in zip(numbers, ((2, 4, 8), (3, 7, 15)), strict=True):
        ways = zip((1, 2, 4, 4, 2, 1), (15, 7, 3, *back), strict=True)
        assert got == 4 * (10 + sum(int(hops * 500 + size / slow) + 10 for hops, size in ways))
    whole = run(collective(size=128), None, system=system)
    assert "C23" not in whole.corrections


# -- the registry and its page -----------------------------------------------------------------------------------


def test_the_registry_is_complete() -> None:
    assert [correction.name for correction in REGISTRY] == [f"C{k}" for k in range(1, 24)]


@pytest.mark.parametrize("correction", REGISTRY, ids=lambda correction: correction.name)
def test_every_correction_has_a_test(correction: Correction) -> None:
    tests = [name for name in globals() if name.startswith(f"test_{correction.name.lower()}_")]
    assert tests
    assert correction.example.astra != correction.example.default


def test_the_page_is_in_step() -> None:
    page = differences.PAGE.read_text(encoding="utf-8")
    assert page == differences.page(), "run python tools/differences.py"
    assert "\n| [C23](#c23-" in page


def test_the_pages_anomaly() -> None:
    def graph(b: TraceBuilder, micros: int) -> None:
        first = b.compute(duration_micros=6, cpu=True)
        second = b.compute(duration_micros=6, after=[first])
        b.compute(duration_micros=8, cpu=True, after=[second])
        b.compute(duration_micros=6, after=[b.compute(duration_micros=micros)])

    times = {}
    for micros in (5, 7):
        times[micros] = int(run(trace(functools.partial(graph, micros=micros)), None).finish_ns.max())
    assert times[7] < times[5]
    assert f"{times[5] // 1000} us" in differences.page()
    assert f"{times[7] // 1000} us" in differences.page()


def test_no_correction_is_counted_under_compat() -> None:
    for kind in ("all_reduce", "all_gather"):
        assert run(collective(kind, 999), "astra-sim").corrections == {}


def test_the_text_names_corrections_that_change_a_time() -> None:
    """A name of a group lets ASTRA-sim end at once, which is no time; a size that splits do not divide changes one."""
    work = Workload(8)
    work.add_group(range(8), "tp")
    work.run(lambda b: b.collective("all-reduce", size_bytes=1_000_001, group="tp"), uniform=True)
    system = {"all-reduce-implementation": ["ring"], "preferred-dataset-splits": 4}
    result = simulate(work, system, R8_NETWORK)
    assert {name: result.corrections[name] for name in ("C3", "C18")} == {"C3": 8, "C18": 8}
    [line] = [line for line in str(result).splitlines() if line.startswith("corrections")]
    assert "C3 8x" in line
    assert "C18" not in line


def test_a_librarys_collectives_have_no_corrections() -> None:
    """They take times that no algorithm of ASTRA-sim gives; a group across two dimensions would count as C5."""
    machine = cluster("2x hgx-h100 over 400G")
    work = Workload(16)
    work.add_group(range(16), "some")
    work.run(lambda b: b.collective("all-reduce", size_bytes=1 << 20, group="some"), uniform=True)
    result = simulate(work, machine.system(), machine.network())
    assert result.corrections == {}
    system = machine.system()
    del system["collective-library"], system["collective-costs"]
    result = simulate(work, system, machine.network())
    assert result.corrections["C18"] == 16
