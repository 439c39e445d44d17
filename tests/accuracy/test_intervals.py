"""Intervals: laws of how they are made, how many measured times they hold, and what replays say of them."""

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from chakra.accuracy import (
    Case,
    Interval,
    Job,
    NothingNear,
    Quantity,
    Residual,
    coverage,
    interval_of,
    measured_rows,
    predict,
    read_case,
    replay_interval,
    residuals,
)
from chakra.accuracy.interval import LEAST_ROWS, SHARE, WIDENING
from chakra.accuracy.measured_machine import MEMORY_GBPS, PORTS_GBPS
from chakra.cli.main import run
from chakra.platforms import Platform, cluster, load_platform
from chakra.replay import simulate
from chakra.replay.results.formatting import format_summary
from chakra.report import Run
from chakra.report.tables import headline

JOB = Job("dgx-a100", "megatron", "bf16", npus=64, parameters=7e9, tp=8)


def rows_of(count: int, job: Job = JOB, *, spread: float = 0.1, seed: int = 1) -> list[Residual]:
    """Rows of one family with normal logarithms."""
    draw = random.Random(seed)
    return [Residual("a family", job, math.exp(draw.gauss(0.02, spread))) for _ in range(count)]


def found(job: Job, rows: list[Residual] | None = None) -> Interval:
    interval = interval_of(job, rows)
    assert isinstance(interval, Interval), interval
    return interval


DIFFERENT = {
    "accelerator": {"machine": "hgx-h200"},
    "framework": {"framework": "fsdp1"},
    "element type": {"dtype": "fp8"},
    "experts": {"experts": True},
    "parallelism": {"pp": 2},
    "NPUs": {"npus": 512},
    "parameters": {"parameters": 70e9},
}


@pytest.mark.parametrize("what", list(DIFFERENT))
def test_whatever_differs_makes_it_wider_on_both_sides_and_is_named(what: str) -> None:
    job = replace(JOB, machine="hgx-h100")
    rows = rows_of(100, job)
    near = found(job, rows)
    far = found(replace(job, **DIFFERENT[what]), rows)  # type: ignore[arg-type]
    assert near.differs == ()
    assert len(far.differs) == 1
    assert far.low < near.low < near.median < near.high < far.high
    assert far.median == near.median


def test_differences_add_up_and_another_generation_is_farther() -> None:
    rows = rows_of(100, replace(JOB, machine="hgx-h100"))
    kin = found(replace(JOB, machine="hgx-h200"), rows)
    other = found(replace(JOB, machine="dgx-a100"), rows)
    both = found(replace(JOB, machine="dgx-a100", framework="fsdp1"), rows)
    assert kin.width < other.width < both.width
    assert both.differs == ("measured on hgx-h100", "measured with megatron")


def test_sizes_within_a_factor_of_the_measured_ones_do_not_differ() -> None:
    rows = rows_of(100)
    assert found(replace(JOB, npus=128, parameters=4e9), rows) == found(JOB, rows)


def test_nothing_is_near_a_job_of_quite_another_size() -> None:
    rows = rows_of(100)
    for changes in (
        {"npus": 64 * 33}, {"npus": 1, "tp": 1}, {"parameters": 7e9 * 33}, {"parameters": 7e9 / 33}
    ):  # fmt: skip
        made = interval_of(replace(JOB, **changes), rows)
        assert isinstance(made, NothingNear), changes
        assert "no step was measured with nearly" in made.reason
    assert found(replace(JOB, npus=64 * 32, parameters=7e9 / 32), rows).differs


def test_few_rows_are_wider_than_many() -> None:
    alike = [Residual("a family", JOB, 1.0)] * (LEAST_ROWS - 1)
    few, many = found(JOB, alike), found(JOB, [*alike, Residual("a family", JOB, 1.0)])
    assert few.width > many.width
    assert few.differs == (f"only {LEAST_ROWS - 1} rows",)
    assert math.log(many.high) == pytest.approx(WIDENING["source"])


def test_rows_that_use_the_same_degrees_are_taken_where_there_are_enough() -> None:
    """Rows with tp scatter ten times as much as those without: a job goes by its own, and by all if those are few."""
    plain = replace(JOB, tp=1)
    quiet, loud = rows_of(LEAST_ROWS, plain, spread=0.01), rows_of(30, spread=0.1, seed=2)
    for job, rows in ((plain, quiet), (JOB, loud)):
        own, mixed = found(job, rows), found(job, [*quiet, *loud])
        assert (mixed.low, mixed.high, mixed.rows) == (own.low, own.high, len(rows))
    few = found(plain, [*quiet[1:], *loud])
    assert few.rows == LEAST_ROWS - 1 + 30
    assert few.width > found(plain, [*quiet, *loud]).width
    # neither part is of jobs with a pipeline: all rows are, with what they lack
    assert found(replace(plain, pp=2), [*quiet, *loud]).differs == ("measured without pp",)


def test_the_nearest_family_is_taken_and_rows_that_were_tuned_on_are_not() -> None:
    near = rows_of(30)
    far = [replace(row, family="another", job=replace(JOB, framework="fsdp1")) for row in rows_of(300)]
    assert found(JOB, [*far, *near]).family == "a family"
    assert found(JOB, [*far, *(replace(row, tuned=True) for row in near)]).family == "another"
    nothing = interval_of(JOB, [replace(row, tuned=True) for row in near])
    assert nothing == NothingNear("there are no measured rows")


def test_new_rows_of_the_same_kind_lie_inside() -> None:
    """Over many sets of measured rows the share of new ones is at least the one that is stated."""
    new = [1 / row.ratio for row in rows_of(1000, seed=2)]
    inside = 0
    for seed in range(100, 120):
        interval = found(JOB, rows_of(60, seed=seed))
        inside += sum(interval.low <= factor <= interval.high for factor in new)
    assert inside >= SHARE * 20 * len(new)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"framework": None}, "no framework is named"),
        ({"machine": "tpu-v5p"}, "no step was measured on a machine like tpu-v5p"),
        ({"dtype": "fp32"}, "no step was measured in fp32"),
    ],
)
def test_nothing_near_says_why(changes: dict[str, str | None], reason: str) -> None:
    assert interval_of(replace(JOB, **changes)) == NothingNear(reason)  # type: ignore[arg-type]


def test_intervals_hold_the_median_of_their_rows_and_the_order_of_rows_is_nothing() -> None:
    shipped = list(residuals())
    shuffled = random.Random(3).sample(shipped, len(shipped))
    for job in sorted({row.job for row in shipped if not row.job.states}, key=repr)[::7]:
        interval = found(job, shipped)
        assert interval.low < interval.median < interval.high
        assert found(job, shuffled) == interval
        assert found(job) == interval


def test_intervals_hold_what_they_say_for_families_that_they_have_not_seen() -> None:
    """Whole families left out: the stated share of all rows, and of those of families that are large enough."""
    everywhere, *families = coverage()
    assert everywhere.family == ""
    assert everywhere.rows == sum(family.rows for family in families)
    assert 0.85 <= everywhere.inside <= 0.95
    large = {family.family: family for family in families if family.rows >= 50}
    assert len(large) >= 3
    assert all(family.inside >= 0.85 for family in large.values())
    assert all(family.inside + family.below + family.above == pytest.approx(1) for family in families)
    assert everywhere.width < 2


def test_the_table_is_of_all_shipped_rows_and_of_this_model() -> None:
    """One row for each step that can be read; a fixed sample of each family is predicted anew."""
    cases = [case for case in map(read_case, measured_rows()) if isinstance(case, Case)]
    steps = [case for case in cases if case.quantity.value == "step time"]
    table = residuals()
    assert [(case.family, case.machine.preset, case.machine.npus) for case in steps] == [
        (row.family, row.job.machine, row.job.npus) for row in table
    ]
    assert [bool(case.row.tuned) for case in steps] == [row.tuned for row in table]
    # the first row of each family, and a few
    first = {row.family: at for at, row in reversed(list(enumerate(table)))}
    sample = sorted(
        {
            *first.values(),
            *(
                at
                for at, row in enumerate(table)
                if row.family in ("DGX Cloud BF16", "Selene") or at % 45 == 3
            ),
        }
    )
    anew = [1 + made.error for made in predict(steps[at] for at in sample)]
    assert [table[at].ratio for at in sample] == pytest.approx(anew, abs=1e-4)


GENERATE = (
    "generate", "transformer", "--quiet", "--model", "llama3-8b", "--layers", "16", "--seq", "512", "--npus", "8",
    "--tp", "2",
)  # fmt: skip


@pytest.fixture
def said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What a command prints."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> str:
        assert run(list(words)) == 0
        return capsys.readouterr().out

    return call


def line_of(text: str) -> str:
    return next((line for line in text.splitlines() if "interval" in line), "")


def test_a_replay_states_its_interval(said: Callable[..., str]) -> None:
    said(*GENERATE, "--framework", "megatron", "-o", "w")
    replay = ("replay", "-w", "w", "--platform", "hgx-h100")
    line = line_of(said(*replay))
    assert line.startswith("90 % interval     ")
    assert "DGX Cloud BF16, 2 measured rows; measured without tp; " in line
    document = json.loads(said(*replay, "--format", "json"))
    stated = document["interval"]
    last = max(document["finish_ns"])
    assert 0 < stated["low_ns"] < last < stated["high_ns"]
    assert (stated["share"], stated["family"], stated["reason"]) == (0.9, "DGX Cloud BF16", None)
    machine = cluster("hgx-h100", 8)
    interval = replay_interval(simulate("w", machine.system(), machine.network()))
    assert isinstance(interval, Interval)
    assert stated["high_ns"] == round(interval.high * last)
    family = [row.ratio for row in residuals() if row.family == "DGX Cloud BF16" and not row.tuned]
    assert interval.median == pytest.approx(1 / median(family), rel=1e-3)
    # times that were made before the replay are the same ones
    said(*GENERATE, "--framework", "megatron", "--platform", "hgx-h100", "-o", "timed")
    assert line_of(said("replay", "-w", "timed", "--platform", "hgx-h100")).startswith("90 % interval")


@pytest.mark.parametrize(
    ("low_ns", "high_ns", "said"),
    [
        (1_100, 1_500, "; such rows were measured slower than predicted)"),
        (500, 900, "; such rows were measured faster than predicted)"),
        (900, 1_100, "only 2 rows)"),
    ],
)
def test_an_interval_without_its_prediction_says_why(low_ns: int, high_ns: int, said: str) -> None:
    """A step of 1,000 ns: beside an interval of the console and of the report."""
    stated = {
        "share": 0.9, "low_ns": low_ns, "high_ns": high_ns, "family": "F", "rows": 2, "differs": ["only 2 rows"],
        "reason": None,
    }  # fmt: skip
    document = {"finish_ns": [1_000], "interval": stated}
    line = next(line for line in format_summary(document).splitlines() if line.startswith("90 % interval"))
    assert line.endswith(said)
    times = np.array([1_000])
    assert dict(headline(Run("run", document, times, times)))["Interval"].endswith(said)


def test_ports_do_not_take_the_interval_away(said: Callable[..., str]) -> None:
    """What links say without contention is latency and bandwidth, as of building blocks."""
    words = list(GENERATE)
    words[words.index("--npus") + 1] = "16"
    said(*words, "--pp", "2", "--framework", "megatron", "-o", "w")
    machines = [cluster(f"2x hgx-h100 over 400G{more}") for more in ("", " rails of 64 ports")]
    results = [simulate("w", machine.system(), machine.network()) for machine in machines]
    without, ported = (replay_interval(result) for result in results)
    assert isinstance(without, Interval)
    assert without == ported
    assert int(results[1].finish_ns.max()) == pytest.approx(int(results[0].finish_ns.max()), rel=1e-4)


@pytest.mark.parametrize(
    ("generate", "replay", "reason"),
    [
        ((), (), "no framework is named"),
        (("--framework", "fsdp2"), (), "no step was measured with fsdp2"),
        (("--mode", "decode", "--framework", "megatron"), (), "no inference was measured"),
        (("--framework", "megatron"), ("--ideal",), "computation is timed by a peak"),
        (("--framework", "megatron"), ("--slow-link", "0-sw0.0=0.5"), "links have failed or are slow"),
        (("--framework", "megatron"), ("--comm-scale", "2"), "the replay has another comm-scale"),
        (("--framework", "megatron"), ("--backend", "aware"), "predicted without it (--backend unaware)"),
        (("--framework", "megatron"), ("--backend", "flow"), "contention is simulated, and measured rows"),
        (
            ("--framework", "megatron", "--platform", "dgx-a100"), (),
            "the workload was generated with the times of dgx-a100",
        ),
    ],
)  # fmt: skip
def test_a_replay_says_plainly_that_nothing_is_near(
    said: Callable[..., str], generate: tuple[str, ...], replay: tuple[str, ...], reason: str
) -> None:
    said(*GENERATE, *generate, "-o", "w")
    words = ("replay", "-w", "w", "--platform", "hgx-h100", *replay)
    line = line_of(said(*words))
    assert line.startswith("interval          none: nothing measured is near (")
    assert reason in line
    stated = json.loads(said(*words, "--format", "json"))["interval"]
    assert (stated["low_ns"], stated["high_ns"], stated["differs"]) == (None, None, [])
    assert reason in stated["reason"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("collective-channels", 4),
        ("collective-protocol", "Simple"),
        ("node-ports", 1),
        ("network-plugin-latency", 30.0),
        ("overlap-computing-rate", 0.9),
    ],
)
def test_a_system_that_no_row_was_predicted_with_has_no_interval(
    said: Callable[..., str], key: str, value: object
) -> None:
    said(*GENERATE, "--framework", "megatron", "-o", "w")
    machine = cluster("hgx-h100", 8)
    found = replay_interval(simulate("w", {**machine.system(), key: value}, machine.network()))
    assert isinstance(found, NothingNear)
    assert "the system has another " in found.reason


def asked(
    words: str, network: Mapping[str, object], system: Mapping[str, object]
) -> Interval | NothingNear | None:
    """The interval of the workload `w` on a machine in words, with other entries in its files."""
    machine = cluster(words)
    return replay_interval(simulate("w", {**machine.system(), **system}, {**machine.network(), **network}))


@pytest.mark.parametrize(
    ("words", "network", "system", "reason"),
    [
        ("2x hgx-h100", {}, {}, ""),
        ("2x hgx-h100", {}, {"local-mem-capacity": 1000, "preferred-dataset-splits": 1}, ""),
        ("2x dgx-a100 over 100G", {}, {}, ""),
        ("2x dgx-a100", {}, {"local-mem-bw": 1555}, ""),
        ("2x hgx-h100 over 400G rails of 64 ports spread", {}, {}, ""),
        # a leaf switch that holds a single machine is the fabric's all the same: spread, or with ports for one only
        ("2x hgx-h100 over 400G fat tree of 64 ports spread within 9 machines", {}, {}, ""),
        ("2x hgx-h100 over 400G fat tree of 16 ports within 3 machines", {}, {}, ""),
        (
            "4x hgx-h100 over 400G dragonfly of 32 ports", {}, {},
            "machines or switches are joined to others beside them, and those of measured steps by switches above",
        ),
        ("2x hgx-h100 over 200G", {}, {}, "an NPU's port has 200 Gb/s, and in measured steps 400"),
        ("2x dgx-a100 over 400G", {}, {}, "an NPU's port has 400 Gb/s, and in measured steps 100 to 200"),
        ("2x hgx-h100 over 800G fat tree of 64 ports", {}, {}, "an NPU's port has 800 Gb/s, and in measured steps 400"),
        (
            "16x hgx-h100 over 400G rails of 16 ports oversubscribed 3", {}, {},
            "its switches have less bandwidth up than down, and those of measured steps as much",
        ),
        # 900 GB/s of 10^9 are 838.19 of 2^30
        (
            "2x hgx-h100", {"bandwidth": [838.19, 46.5661]}, {},
            "an NPU sends 900 GB/s inside its machine, and in measured steps 450",
        ),
        (
            "2x hgx-h100", {"topology": ["FullyConnected", "Switch"]}, {},
            "an NPU sends 3,150 GB/s inside its machine, and in measured steps 450",
        ),
        # a flat list of links: eight neighbours are a machine
        ("2x hgx-h100 over 400G rails of 64 ports", {"npus_count": [16], "routing": "hops"}, {}, ""),
        # two dimensions inside a machine, one of them with the bandwidth of ports
        (
            "2x hgx-h100",
            {
                "topology": ["Switch"] * 3, "npus_count": [4, 2, 2], "bandwidth": [419.095, 46.5661, 46.5661],
                "latency": [936.25, 1000, 1000],
            },
            {}, "an NPU sends 50 to 450 GB/s inside its machine, and in measured steps 450",
        ),
        (
            "2x hgx-h100", {"npus_count": [4, 4]}, {},
            "machines have 4 NPUs, and those of measured steps more than half of 8",
        ),
        ("2x hgx-h100", {"latency": [936.25, 9000]}, {}, "a hop takes 936.2 to 9,000 ns, and measured steps were "),
        ("2x hgx-h100", {"switches": ["reduces", "plain"]}, {}, "its switches do more than forward (reduces)"),
        (
            "2x hgx-h100 over 400G rails of 64 ports", {"switches": "multicasts"}, {},
            "its switches do more than forward (multicasts)",
        ),
        ("2x hgx-h100", {}, {"peak-perf": 500}, "the accelerator's peak is 500 TFLOP/s, and in measured steps 989"),
        ("2x hgx-h100", {}, {"local-mem-bw": 4800}, "memory has 4,800 GB/s, and in measured steps 3,350"),
        ("2x hgx-h100", {}, {"model-shared-bus": 1, "L": 1, "o": 1, "g": 1, "G": 0.1}, "another shared bus than"),
        ("2x hgx-h100", {}, {"collective-costs": "hgx-b200"}, "collectives take other costs than those of the machine"),
    ],
)  # fmt: skip
def test_a_machine_on_which_no_step_was_measured_has_no_interval(
    said: Callable[..., str], words: str, network: dict[str, object], system: dict[str, object], reason: str
) -> None:
    """Whatever a network or system file says that changes times, and nothing that does not."""
    npus = cluster(words).node_npus
    given = list(GENERATE)
    given[given.index("--npus") + 1] = str(npus)
    said(*given, "--framework", "megatron", "-o", "w")
    found = asked(words, network, system)
    if reason:
        assert isinstance(found, NothingNear)
        assert reason in found.reason
    else:
        assert isinstance(found, Interval)


def test_speeds_of_measured_machines_are_those_of_the_rows() -> None:
    """Ports of jobs of several machines, and memories, of every preset on which a step was measured."""
    ports: dict[str, set[float]] = {}
    memories: dict[str, set[float]] = {}
    for case in map(read_case, measured_rows()):
        if (
            not isinstance(case, Case)
            or case.quantity is not Quantity.STEP
            or case.machine.surfaces is not None
        ):
            continue
        machine, platform = case.machine, load_platform(case.machine.preset)
        own = 8 * platform.dims[-1].bandwidth.value
        if machine.npus > platform.node_npus:
            ports.setdefault(machine.preset, set()).add(machine.fabric or own)
        memories.setdefault(machine.preset, set()).add(machine.mem_gbps or platform.accelerator.mem_gbps)

    def port(platform: Platform) -> float:
        return 8 * platform.dims[-1].bandwidth.value

    def memory(platform: Platform) -> float:
        return platform.accelerator.mem_gbps

    for table, found, own_of in ((PORTS_GBPS, ports, port), (MEMORY_GBPS, memories, memory)):
        assert table.keys() <= found.keys()
        for name, values in found.items():
            own = own_of(load_platform(name))
            assert table.get(name, (own, own)) == (min(values), max(values))


def test_measured_products_have_no_interval(said: Callable[..., str]) -> None:
    """Named by option or system file: no measured step was predicted with them."""
    Path("t.csv").write_text("m,n,k,time_us\n4096,4096,4096,200\n")
    said(*GENERATE, "--framework", "megatron", "-o", "w")
    words = ("replay", "-w", "w", "--platform", "hgx-h100", "--measured", "t.csv")
    reason = "measured times are in use (--measured), and no measured step was predicted with them"
    assert line_of(said(*words)) == f"interval          none: nothing measured is near ({reason})"
    machine = cluster("hgx-h100", 8)
    found = replay_interval(simulate("w", {**machine.system(), "operator-times": "t.csv"}, machine.network()))
    assert found == NothingNear("the system has another operator times than measured rows")


def test_other_replays_say_nothing_of_it(said: Callable[..., str]) -> None:
    """ASTRA-sim's number, and output that is data alone; on a machine without operator times nothing is near."""
    said(*GENERATE, "--framework", "megatron", "-o", "w")
    compat = ("replay", "-w", "w", "--platform", "hgx-h100", "--compat", "astra-sim")
    plain = ("replay", "-w", "w", "--platform", "dgx-2")
    quiet = ("replay", "-w", "w", "--platform", "hgx-h100", "-q")
    for words in (compat, quiet):
        assert "interval" not in said(*words)
    assert "interval" not in json.loads(said(*compat, "--format", "json"))
    assert "no step was measured on such a machine" in line_of(said(*plain))
    assert json.loads(said(*plain, "--format", "json"))["interval"]["low_ns"] is None


def test_the_command_prints_how_many_they_hold(said: Callable[..., str]) -> None:
    lines = said("accuracy", "--intervals").splitlines()
    assert lines[1].split() == ["family", "rows", "inside", "%", "below", "%", "above", "%", "width"]
    assert lines[2].startswith("all rows")
    document = json.loads(said("accuracy", "--intervals", "--format", "json"))
    assert document["intervals"][0]["family"] is None
    gap = lines.index("")
    assert len(document["intervals"]) == gap - 2
    assert lines[gap + 3].split()[:2] == ["all", "pairs"]
    assert len(document["pairs"]) == len(lines) - gap - 3
    assert document["pairs"][0]["differing"] is document["pairs"][0]["factor"] is None
    assert document["pairs"][1]["factor"] > 1
    assert run(["accuracy", "--intervals", "--rows"]) == 2
