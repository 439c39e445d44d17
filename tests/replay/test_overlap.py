"""Computing and collectives that slow each other down while they run side by side on an NPU."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import TraceBuilder, Workload
from chakra.errors import ConfigError, WorkloadError
from chakra.platforms import collective_parameters
from chakra.replay import ReplayResult, simulate
from chakra.replay.collectives.library import Communicator, library_time
from chakra.replay.config.model import CollectiveKind as Kind

MIB = 1 << 20
H100 = collective_parameters("hgx-h100")
SYSTEM = {"collective-library": "nccl", "collective-costs": "hgx-h100", "active-chunks-per-dimension": 4} | {
    f"{kind}-implementation": ["ring"]
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
}
NETWORK = {
    "topology": ["Switch", "Switch"], "npus_count": [4, 2], "bandwidth": [419.095159, 419.095159],
    "latency": [936.25, 936.25],
}  # fmt: skip
#: every way to run it where messages never meet
WAYS: tuple[dict[str, Any], ...] = ({}, {"fold": False}, {"engine": "messages"})
#: where links are shared: building blocks, and one link from every NPU to a switch, on both backends
LISTED = {"npus_count": [8], "links": [[npu, "switch", 419.095159, 468.125] for npu in range(8)]}
SHARED: tuple[dict[str, Any], ...] = (
    {"backend": "aware"},
    {"backend": "flow"},
    {"backend": "flow", "fold": False},
    {"backend": "aware", "network": LISTED},
    {"backend": "flow", "network": LISTED},
)


def rates(computing: float = 1.0, collective: float = 1.0) -> dict[str, Any]:
    return {**SYSTEM, "overlap-computing-rate": computing, "overlap-collective-rate": collective}


def alone(size: int, ranks: int = 8) -> int:
    """Time of an all-reduce that nothing slows down, ns."""
    return library_time(Kind.ALL_REDUCE, size, Communicator(ranks, ranks), H100).time_ns


def run(traces: Workload, system: dict[str, Any], folder: Path, **options: Any) -> ReplayResult:
    traces.write(folder / "w")
    return simulate(
        folder / "w",
        system,
        options.pop("network", NETWORK),
        comm_groups=folder / "w.groups.json" if traces.groups else None,
        **options,
    )


def finish(result: ReplayResult, npu: int = 0) -> dict[str, int]:
    """End of every node of an NPU, by name."""
    raw = result.raw
    actor = raw.actor_of(npu)
    program = result.workload.programs[int(raw.program_of[actor])]
    names = np.array(program.trace.name_table)[program.trace.name_codes[program.order]]
    return dict(zip(names.tolist(), raw.finish_ns[raw.nodes(actor)].tolist(), strict=True))


# --- closed forms ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [*WAYS, *SHARED])
@pytest.mark.parametrize("micros", [1, 20, 100, 400, 5000])
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.8, 1.0), (1.0, 0.5), (0.75, 0.3)])
def test_a_collective_beside_computing(
    tmp_path: Path, a: float, b: float, micros: int, options: dict[str, Any]
) -> None:
    """C of computing and T of a collective begin together: both run slower until the first of them ends."""
    workload = Workload(8)

    def program(trace: TraceBuilder) -> None:
        trace.compute("C", duration_micros=micros)
        trace.collective("all_reduce", size_bytes=64 * MIB, name="T")

    workload.run(program)
    ends = finish(run(workload, rates(a, b), tmp_path, **options))
    c, t = 1000 * micros, alone(64 * MIB, 8)
    if c / a <= t / b:
        computed = math.ceil(Fraction(c) / Fraction(str(a)))
        moved = Fraction(t) - computed * Fraction(str(b))
        expected = {"C": computed, "T": computed + max(math.ceil(moved), 0)}
    else:
        ended = math.ceil(Fraction(t) / Fraction(str(b)))
        expected = {"T": ended, "C": ended + math.ceil(Fraction(c) - ended * Fraction(str(a)))}
    assert ends == expected


@pytest.mark.parametrize("options", WAYS)
def test_only_while_they_run_side_by_side(tmp_path: Path, options: dict[str, Any]) -> None:
    """A collective that begins in the middle of a node and ends in the middle of the next one."""
    workload = Workload(8)

    def program(trace: TraceBuilder) -> None:
        first = trace.compute("first", duration_micros=100)
        wait = trace.compute("host", duration_micros=70, cpu=True)
        trace.collective("all_reduce", size_bytes=64 * MIB, name="T", after=wait)
        trace.compute("second", duration_micros=1000, after=first)

    workload.run(program)
    ends = finish(run(workload, rates(0.5, 0.8), tmp_path, **options))
    t = alone(64 * MIB, 8)
    over = 70_000 + math.ceil(t / Fraction("0.8"))
    assert ends["first"] == 130_000  # 70 us alone, 30 us at half speed
    assert ends["T"] == over
    assert ends["second"] == over + 1_000_000 - (over - 130_000) // 2


@pytest.mark.parametrize("options", WAYS)
def test_several_collectives_slow_computing_down_once_and_each_is_slowed(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    workload = Workload(8)

    def program(trace: TraceBuilder) -> None:
        trace.compute("C", duration_micros=10_000)
        trace.collective("all_reduce", size_bytes=64 * MIB, name="S")
        trace.collective("all_reduce", size_bytes=128 * MIB, name="T")

    workload.run(program)
    ends = finish(run(workload, rates(0.9, 0.5), tmp_path, comm_streams=2, **options))
    s, t = 2 * alone(64 * MIB, 8), 2 * alone(128 * MIB, 8)
    assert (ends["S"], ends["T"]) == (s, t)
    assert ends["C"] == t + 10_000_000 - t * 9 // 10


@pytest.mark.parametrize("options", WAYS)
def test_one_member_that_computes_slows_all_down(tmp_path: Path, options: dict[str, Any]) -> None:
    """A collective is as slow as on its slowest member; a member that only waits for the others is no slower."""
    workload = Workload(8)

    def program(trace: TraceBuilder) -> None:
        if trace.rank == 3:
            trace.compute("C", duration_micros=100)
        host = trace.compute("host", duration_micros=50 if trace.rank == 3 else 1, cpu=True)
        trace.collective("all_reduce", size_bytes=64 * MIB, name="T", after=host)

    workload.run(program)
    result = run(workload, rates(0.5, 0.5), tmp_path, **options)
    # computed alone for 50 us, until the last member starts the collective; the other 50 us at half speed
    assert finish(result, 3)["C"] == 150_000
    assert finish(result, 0)["T"] == finish(result, 3)["T"] == 150_000 + alone(64 * MIB, 8) - 50_000


def test_what_runs_on_the_host_or_takes_no_time_slows_nothing_down(tmp_path: Path) -> None:
    workload = Workload(8)

    def program(trace: TraceBuilder) -> None:
        trace.compute("host", duration_micros=1000, cpu=True)
        trace.compute("nothing", duration_micros=0)
        trace.collective("all_reduce", size_bytes=64 * MIB, name="T")

    workload.run(program)
    assert finish(run(workload, rates(0.5, 0.5), tmp_path))["T"] == alone(64 * MIB, 8)


# --- a plain reference ----------------------------------------------------------------------------------------------


def fluid(works: list[int], gaps: list[int], collectives: list[int], a: Fraction, b: Fraction) -> list[int]:
    """Ends of collectives, then of compute nodes: both chains on one NPU, idle for `gaps` of host time between nodes.

    Time goes from one end to the next; ends are whole ticks.
    """
    chains: list[list[tuple[str, int]]] = [
        [("collective", t) for t in collectives],
        [step for c, gap in zip(works, gaps, strict=True) for step in (("work", c), ("idle", gap))],
    ]
    ends: list[list[int]] = [[], []]
    now = 0
    running: dict[int, tuple[str, Fraction]] = {}
    while True:
        for k, chain in enumerate(chains):
            if k not in running and chain:
                what, length = chain.pop(0)
                running[k] = (what, Fraction(length))
        if not running:
            return [*ends[0], *ends[1]]
        both = {what for what, _ in running.values()} == {"collective", "work"}
        rate = {"collective": b, "work": a, "idle": Fraction(1)} if both else {}
        step = min(math.ceil(left / rate.get(what, 1)) for what, left in running.values())
        now += step
        for k, (what, left) in list(running.items()):
            rest = left - step * rate.get(what, Fraction(1))
            if rest > 0:
                running[k] = (what, rest)
                continue
            del running[k]
            if what != "idle":
                ends[k].append(now)


STEPS = st.lists(st.integers(1, 900), min_size=1, max_size=6)


@given(
    works=STEPS, sizes=st.lists(st.integers(1, 40 * MIB), min_size=1, max_size=5), data=st.data(),
    a=st.integers(1, 10), b=st.integers(1, 10),
)  # fmt: skip
@settings(deadline=None, max_examples=40)
def test_random_chains_end_when_a_plain_reference_says(
    works: list[int], sizes: list[int], data: st.DataObject, a: int, b: int, tmp_path_factory: Any
) -> None:
    gaps = data.draw(st.lists(st.integers(1, 300), min_size=len(works), max_size=len(works)))
    folder = tmp_path_factory.mktemp("w")
    workload = Workload(8)

    def program(trace: TraceBuilder) -> None:
        last: Any = []
        for k, (micros, gap) in enumerate(zip(works, gaps, strict=True)):
            last = trace.compute(f"C{k}", duration_micros=micros, after=last)
            last = trace.compute(f"G{k}", duration_micros=gap, after=last, cpu=True)
        last = []
        for k, size in enumerate(sizes):
            last = trace.collective("all_reduce", size_bytes=size, name=f"T{k}", after=last)

    workload.run(program)
    expected = fluid(
        [1000 * c for c in works], [1000 * g for g in gaps], [alone(size, 8) for size in sizes],
        Fraction(a, 10), Fraction(b, 10),
    )  # fmt: skip
    for options in WAYS:
        ends = finish(run(workload, rates(a / 10, b / 10), folder, **options))
        found = [ends[f"T{k}"] for k in range(len(sizes))] + [ends[f"C{k}"] for k in range(len(works))]
        assert found == expected


# --- engines agree --------------------------------------------------------------------------------------------------


def random_job(seed: int, npus: int = 8) -> Workload:
    """Chains of computing, host time and collectives of rows, columns and all, with dependencies between the chains."""
    rng = np.random.default_rng(seed)
    workload = Workload(npus)
    rows = [workload.add_group(range(4 * k, 4 * k + 4)) for k in range(npus // 4)]
    columns = [workload.add_group(range(k, npus, 4)) for k in range(4)]
    kinds = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"]
    plan = [
        (
            int(rng.integers(4)),
            int(rng.integers(1, 400_000)),
            int(rng.integers(1, 20 * MIB)),
            int(rng.integers(5)),
        )
        for _ in range(int(rng.integers(4, 14)))
    ]
    spread = int(rng.integers(1, 4))

    def program(trace: TraceBuilder) -> None:
        last: list[Any] = []
        comm: list[Any] = []
        for k, (what, ns, size, kind) in enumerate(plan):
            group = (None, rows[trace.rank // 4], columns[trace.rank % 4])[size % 3]
            if what < 2:
                last = [trace.compute(f"C{k}", duration_ns=ns + 7 * (trace.rank % spread), after=last[-1:])]
            elif what == 2:
                name = kinds[kind]
                comm = [
                    trace.collective(
                        name, size_bytes=0 if name == "barrier" else size, group=group, after=comm + last[-1:]
                    )
                ]
            else:
                last = [trace.compute(f"H{k}", duration_ns=ns, after=last + comm, cpu=True)]

    workload.run(program)
    return workload


@pytest.mark.parametrize("seed", range(30))
def test_both_engines_and_folding_agree(tmp_path: Path, seed: int) -> None:
    workload = random_job(seed)
    system = rates(0.3 + 0.07 * (seed % 9), 0.45 + 0.06 * (seed % 7))
    results = [run(workload, system, tmp_path, comm_streams=2, **options) for options in WAYS]
    for other in results[1:]:
        assert np.array_equal(results[0].finish_ns, other.finish_ns)
    assert finish(results[1], 5) == finish(results[2], 5)
    assert (results[0].finish_ns >= run(workload, SYSTEM, tmp_path, comm_streams=2).finish_ns).all()


@pytest.mark.parametrize("options", [*WAYS, *SHARED])
@pytest.mark.parametrize("seed", range(5))
def test_full_speed_is_the_same_to_the_tick(tmp_path: Path, seed: int, options: dict[str, Any]) -> None:
    """Without the keys, with both at 1, and with a rate that rounds to 1, which runs all of the bookkeeping."""
    workload = random_job(100 + seed)
    without = run(workload, SYSTEM, tmp_path, comm_streams=2, **options)
    for system in (rates(), rates(0.99999, 0.99999)):
        with_keys = run(workload, system, tmp_path, comm_streams=2, **options)
        for name in ("issue_ns", "finish_ns", "order", "comm_ready_ns", "instance_ready_ns"):
            assert np.array_equal(getattr(without.raw, name), getattr(with_keys.raw, name)), name


def test_folded_npus_are_one_class(tmp_path: Path) -> None:
    workload = Workload(8)

    def program(trace: TraceBuilder) -> None:
        trace.compute("C", duration_micros=1000)
        trace.collective("all_reduce", size_bytes=64 * MIB, name="T")

    workload.run(program)
    assert run(workload, rates(0.5, 0.5), tmp_path).raw.partition.n_classes == 1


def test_events_that_mean_nothing_any_more_do_not_pile_up(tmp_path: Path) -> None:
    """A node beside hundreds of collectives, each of which moves its end twice."""
    workload = Workload(8)

    def program(trace: TraceBuilder) -> None:
        trace.compute("C", duration_micros=100_000)
        last: Any = []
        for k in range(300):
            last = trace.collective("all_reduce", size_bytes=1000 + k, name=f"T{k}", after=last)
            last = trace.compute(f"H{k}", duration_micros=3, after=last, cpu=True)

    workload.run(program)
    phases, messages = (run(workload, rates(0.5, 0.9), tmp_path, **options) for options in (WAYS[1], WAYS[2]))
    assert finish(phases) == finish(messages)
    beside = sum(math.ceil(alone(1000 + k, 8) / Fraction("0.9")) for k in range(300))
    assert finish(phases)["C"] == 100_000_000 + beside - beside // 2


@pytest.mark.parametrize("engine", ["phases", "messages"])
def test_compiled_and_plain_kernels_agree(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = random_job(7)
    plain = run(workload, rates(0.6, 0.7), tmp_path, engine=engine, fold=False)
    monkeypatch.setattr(f"chakra.replay.engines.{engine}.engine.worth_compiling", lambda *_: True)
    jitted = run(workload, rates(0.6, 0.7), tmp_path, engine=engine, fold=False)
    assert np.array_equal(plain.raw.finish_ns, jitted.raw.finish_ns)


# --- where messages share links -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_where_links_are_shared_a_collective_falls_behind_by_what_it_would_alone(
    tmp_path: Path, seed: int
) -> None:
    """One collective at a time: the time of its messages, stretched as the library's time is."""
    rng = np.random.default_rng(seed)
    workload = Workload(8)
    sizes = rng.integers(1, 40 * MIB, 4).tolist()
    micros = rng.integers(1, 900, 6).tolist()

    def program(trace: TraceBuilder) -> None:
        last: Any = []
        for k, size in enumerate(sizes):
            last = trace.collective("all_reduce", size_bytes=size, name=f"T{k}", after=last)
        last = []
        for k, one in enumerate(micros):
            last = trace.compute(f"C{k}", duration_micros=one, after=last)

    workload.run(program)
    free = run(workload, rates(0.7, 0.4), tmp_path)
    shared = run(workload, rates(0.7, 0.4), tmp_path, backend="aware")
    assert shared.raw.engine == "messages"
    assert finish(free) == finish(shared)


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1, 1.5, "fast", True, None])
def test_rates_are_between_nothing_and_full_speed(tmp_path: Path, value: object) -> None:
    with pytest.raises(ConfigError, match="overlap-computing-rate"):
        run(random_job(1), {**SYSTEM, "overlap-computing-rate": value}, tmp_path)


def test_without_a_library_a_note_says_that_rates_have_no_effect(tmp_path: Path) -> None:
    bare = {key: value for key, value in SYSTEM.items() if not key.startswith("collective-")}
    workload = random_job(2)
    result = run(workload, {**bare, "overlap-collective-rate": 0.5}, tmp_path)
    assert np.array_equal(result.finish_ns, run(workload, bare, tmp_path).finish_ns)
    assert any("overlap-collective-rate have no effect" in note for note in result.notes)
    result = run(workload, {**rates(0.5, 0.5)}, tmp_path, compat="astra-sim")
    assert any("'nccl' has no effect: compat" in note for note in result.notes)
    assert np.array_equal(result.finish_ns, run(workload, bare, tmp_path, compat="astra-sim").finish_ns)


def test_durations_that_cannot_be_counted_are_refused(tmp_path: Path) -> None:
    workload = Workload(8)
    workload.run(lambda trace: trace.compute("C", duration_ns=1 << 50))
    with pytest.raises(WorkloadError, match="more than five days"):
        run(workload, rates(0.5), tmp_path)


def test_time_that_computing_loses_is_computing(tmp_path: Path) -> None:
    """Slowed computing hides as much of the collective as it lasts; nothing of it counts as exposed communication."""
    workload = Workload(8)

    def program(trace: TraceBuilder) -> None:
        trace.compute("C", duration_micros=5000)
        trace.collective("all_reduce", size_bytes=64 * MIB, name="T")

    workload.run(program)
    result = run(workload, rates(0.5), tmp_path)
    assert not result.astra_exposed_comm_ns.any()
    assert not result.exposed_comm_ns.any()
