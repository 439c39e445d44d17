"""Measured times in place of a library's model: where they reach, only where they are asked for, and named."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from library_runs import H100, MIB, job, network, run, system

from chakra.cli.commands.replay import command
from chakra.errors import ConfigError, WorkloadError
from chakra.replay.collectives.library import Communicator, library_time
from chakra.replay.collectives.measured import MeasuredTimes, read_measured
from chakra.replay.config.model import CollectiveKind as Kind


def table(path: Path, rows: list[tuple[str, int, int, float]]) -> str:
    """A CSV of collective, ranks, bytes and us."""
    lines = [f"{name},{ranks},{size},{time}" for name, ranks, size, time in rows]
    path.write_text("\n".join(["name,ranks,size,time_us", *lines]) + "\n")
    return str(path)


def some_rows(kind: str = "all_reduce") -> list[tuple[str, int, int, float]]:
    return [
        (kind, ranks, size, 10.0 * ranks + size / 1000) for ranks in (2, 8) for size in (1000, 3000, 9000)
    ]


def us(times: MeasuredTimes, size: float, comm: Communicator, kind: Kind = Kind.ALL_REDUCE) -> float | None:
    return times.time_us(kind, size, comm, 8)


def test_times_are_linear_in_size_and_ranks_and_end_where_measurements_end(tmp_path: Path) -> None:
    times = read_measured([table(tmp_path / "t.csv", some_rows())], "hgx-h100", "x")
    assert us(times, 1000, Communicator(2, 2)) == 21
    assert us(times, 2000, Communicator(8, 8)) == 82
    assert us(times, 2000, Communicator(5, 5)) == pytest.approx(52)
    for size, comm in (
        (999, Communicator(8, 8)),
        (9001, Communicator(8, 8)),
        (1000, Communicator(16, 8, 50.0)),
    ):
        assert us(times, size, comm) is None
    assert us(times, 1000, Communicator(8, 8), Kind.ALL_GATHER) is None
    # 8 ranks of 2 nodes are not those of one, and two ranks of two nodes are not two of one
    assert us(times, 1000, Communicator(8, 4, 50.0)) is None
    assert us(times, 1000, Communicator(2, 1, 50.0)) is None


def test_several_nodes_take_rows_of_whole_nodes_alone(tmp_path: Path) -> None:
    rows = [
        *some_rows(),
        *(("all_reduce", ranks, size, float(ranks)) for ranks in (16, 32) for size in (1000, 9000)),
    ]
    times = read_measured([table(tmp_path / "t.csv", rows)], "hgx-h100", "x")
    assert us(times, 5000, Communicator(24, 8, 50.0)) == 24
    assert us(times, 5000, Communicator(16, 4, 50.0)) is None
    assert us(times, 1000, Communicator(8, 8)) == 81


def test_the_median_of_repeated_measurements_holds(tmp_path: Path) -> None:
    rows = [("all_reduce", 8, size, time) for size in (1000, 2000) for time in (10.0, 11.0, 99.0)]
    assert us(read_measured([table(tmp_path / "t.csv", rows)], "x", "x"), 1500, Communicator(8, 8)) == 11


def test_rows_that_say_different_things_are_told(tmp_path: Path) -> None:
    """Medians hold; who gave a log in which one size took 1 us and 1,000 us should hear of it."""
    job(tmp_path, 8, "all_reduce", 2000)
    rows = [("all_reduce", 8, size, time) for size in (1000, 2000, 3000) for time in (1.0, 1000.0)]
    name = table(tmp_path / "t.csv", [*rows, ("all_reduce", 8, 4000, 5.0), ("all_reduce", 8, 4000, 5.5)])
    made = run(tmp_path, system(), network(8), measured=[name])
    assert made.to_dict()["collectives"][0]["transfer_ns"] == 500_500
    told = (
        "measured times of all_reduce of 1,000 bytes on 8 ranks go from 1 to 1000 us, and 2 more differ by over 2 times; "
        "the medians are taken"
    )
    assert told in made.notes


def test_rows_that_were_left_out_are_told(tmp_path: Path) -> None:
    name = table(tmp_path / "t.csv", some_rows())
    Path(name).write_text(Path(name).read_text() + "all_reduce,8,20000,\n")
    (note,) = read_measured([name], "hgx-h100", "x").notes
    assert note == f"{name}: line 8: left out: time and bandwidths contradict each other or are missing"


def test_logs_say_nothing_of_nodes_that_hold_unequal_numbers(tmp_path: Path) -> None:
    """Nine ranks on nodes of eight are no sixteen."""
    ranks = list(range(9))
    groups = {"1": ranks, "2": list(range(9, 16))}
    job(tmp_path, 16, "all_reduce", 2000, groups)
    name = table(tmp_path / "t.csv", [("all_reduce", n, size, 9.0) for n in (9, 16) for size in (1000, 3000)])
    plain = run(tmp_path, system(), network(8, 2))
    made = run(tmp_path, system(), network(8, 2), measured=[name])
    assert made.finish_ns[0] == plain.finish_ns[0]
    assert any("0 of 2 different ones" in note for note in made.notes)


@pytest.mark.parametrize("by", ["key", "option"])
def test_a_replay_takes_them_where_they_reach_and_says_so(tmp_path: Path, by: str) -> None:
    job(tmp_path, 8, "all_reduce", 2000)
    name = table(tmp_path / "t.csv", some_rows())
    plain = run(tmp_path, system(), network(8))
    asked = {"collective_times": [name]} if by == "key" else {}
    options = {"measured": [name]} if by == "option" else {}
    made = run(tmp_path, system(**asked), network(8), **options)
    assert [row["transfer_ns"] for row in made.to_dict()["collectives"]] == [82_000, 82_000]
    assert "measured times of collectives: 1 of 1 different ones are those of t.csv" in made.notes
    # the error that is reported stays that of the model
    assert plain.notes[0] in made.notes
    assert not any("measured times" in note for note in plain.notes)


def test_the_option_comes_before_the_system_file(tmp_path: Path) -> None:
    job(tmp_path, 8, "all_reduce", 2000)
    one = table(tmp_path / "one.csv", some_rows())
    other = table(tmp_path / "other.csv", [(k, n, s, 2 * t) for k, n, s, t in some_rows()])
    made = run(tmp_path, system(collective_times=one), network(8), measured=other)
    assert made.to_dict()["collectives"][0]["transfer_ns"] == 164_000


def test_the_model_takes_the_rest(tmp_path: Path) -> None:
    job(tmp_path, 8, "all_reduce", 3 * MIB)
    made = run(tmp_path, system(collective_times=table(tmp_path / "t.csv", some_rows())), network(8))
    expected = library_time(Kind.ALL_REDUCE, 3 * MIB, Communicator(8, 8), H100).time_ns
    assert {row["transfer_ns"] for row in made.to_dict()["collectives"]} == {expected}
    note = "0 of 1 different ones are those of t.csv; the model takes what was not measured, such as all_reduce of 3,145"
    assert any(note in one for one in made.notes)


def test_sizes_are_those_of_nccl_tests(tmp_path: Path) -> None:
    """What an all-gather ends with: 8 ranks with 500 bytes each."""
    job(tmp_path, 8, "all_gather", 500)
    name = table(tmp_path / "t.csv", some_rows("all_gather"))
    made = run(tmp_path, system(collective_times=name), network(8))
    assert made.to_dict()["collectives"][0]["transfer_ns"] == 84_000


def test_measured_times_are_not_those_of_what_a_library_is_held_to(tmp_path: Path) -> None:
    """A log does not say what ran, and an error of what a library chooses is none of what it is held to."""
    job(tmp_path, 8, "all_reduce", 2000)
    held: dict[str, Any] = {"collective_algorithm": "Tree", "collective_channels": 2}
    words = "Tree with 2 channels"
    measured = system(collective_times=table(tmp_path / "t.csv", some_rows()))
    made = run(tmp_path, measured, network(8), **held)
    assert made.to_dict()["collectives"][0]["transfer_ns"] == 82_000
    assert any(note.endswith(f"so {words} is of no effect on them") for note in made.notes)
    for result, said in ((made, True), (run(tmp_path, measured, network(8)), False)):
        assert any(f"of what the library chooses and not of {words}" in note for note in result.notes) is said
        assert any("no effect" in note for note in result.notes) is said
    beyond = run(
        tmp_path,
        system(collective_times=table(tmp_path / "t.csv", some_rows("all_gather"))),
        network(8),
        **held,
    )
    assert not any("no effect" in note for note in beyond.notes)


def test_compat_has_neither(tmp_path: Path) -> None:
    job(tmp_path, 8, "all_reduce", 2000)
    name = table(tmp_path / "t.csv", some_rows())
    plain = run(
        tmp_path,
        {key: v for key, v in system().items() if "collective-" not in key},
        network(8),
        compat="astra-sim",
    )
    rates = {"overlap-computing-rate": 0.5}
    made = run(tmp_path, system(collective_times=name, **rates), network(8), compat="astra-sim")
    assert made.finish_ns.tolist() == plain.finish_ns.tolist()
    also = "nor have measured times and overlap-computing-rate and overlap-collective-rate"
    assert any("no effect" in note and also in note for note in made.notes)


@pytest.mark.parametrize(
    ("names", "changes", "message"),
    [
        (["none.log"], {}, "--measured: .*none.log"),
        (["empty.csv"], {}, "no measurements"),
        (["t.csv"], {"collective-library": None, "collective-costs": None}, "stand in for a collective library's model"),
        (["aiconfigurator"], {}, r"aiconfigurator-core is not installed: pip install 'chakra-replay\[silicon\]'"),
        (["broken.parquet"], {}, "no parquet table|needs pyarrow"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], changes: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    job(tmp_path, 8, "all_reduce", 2000)
    table(tmp_path / "t.csv", some_rows())
    (tmp_path / "empty.csv").write_text("name,ranks,size,time_us\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no more")
    document = {key: value for key, value in {**system(), **changes}.items() if value is not None}
    with pytest.raises((ConfigError, WorkloadError), match=message) as error:
        run(tmp_path, document, network(8), measured=names)
    assert "\n" not in str(error.value)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package laid out as aiconfigurator-core is, with one table of each of two versions."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    for version, scale in (("2.9.1", 5.0), ("2.29.2", 1.0)):
        folder = (
            tmp_path / "aiconfigurator_core" / "systems" / "data" / "h100_sxm" / "comm" / "nccl" / version
        )
        folder.mkdir(parents=True)
        rows = [
            {"op_name": name, "nccl_dtype": dtype, "num_gpus": ranks, "message_size": size // width,
             "latency": scale * width * (0.01 * ranks + size * 1e-6)}
            for name in ("all_reduce", "alltoall") for dtype, width in (("int8", 1), ("half", 2))
            for ranks in (2, 8) for size in (1024, 4096)
        ]  # fmt: skip
        parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "nccl_perf.parquet")
    (tmp_path / "aiconfigurator_core" / "__init__.py").write_text(
        "raise RuntimeError('is read, never run')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "aiconfigurator_core", raising=False)
    return tmp_path


def test_tables_of_aiconfigurator_are_read_in_place(package: Path) -> None:
    """16-bit elements of the newest NCCL, latencies in ms, sizes in elements."""
    times = read_measured(["aiconfigurator"], "hgx-h100", "x")
    assert times.name.startswith("aiconfigurator-core")
    assert "h100_sxm, NCCL 2.29.2" in times.name
    assert times.time_us(Kind.ALL_REDUCE, 1024, Communicator(8, 8), 8) == pytest.approx(2 * (80 + 1.024))
    assert times.time_us(Kind.ALL_TO_ALL, 4096, Communicator(2, 2), 8) == pytest.approx(2 * (20 + 4.096))
    assert read_measured(["aiconfigurator:h100_sxm"], "my.yml", "x").name == times.name
    with pytest.raises(
        ConfigError, match=r"no NCCL table for 'my.yml'; say which with aiconfigurator:SYSTEM, one of h100"
    ):
        read_measured(["aiconfigurator"], "my.yml", "x")
    path = next(package.rglob("2.29.2/*.parquet"))
    assert np.array_equal(
        read_measured([str(path)], "x", "x").curves[Kind.ALL_REDUCE, 8][1],
        times.curves[Kind.ALL_REDUCE, 8][1],
    )


def test_an_installed_package_that_nobody_asked_for_changes_nothing(package: Path, tmp_path: Path) -> None:
    job(tmp_path, 8, "all_reduce", 2000)
    expected = library_time(Kind.ALL_REDUCE, 2000, Communicator(8, 8), H100).time_ns
    assert run(tmp_path, system(), network(8)).to_dict()["collectives"][0]["transfer_ns"] == expected


def test_parquet_with_the_columns_of_the_csv(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    rows = [dict(zip(("name", "ranks", "size", "time_us"), row, strict=True)) for row in some_rows()]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    assert us(read_measured([str(tmp_path / "t.parquet")], "x", "x"), 2000, Communicator(8, 8)) == 82


def test_the_command_names_them(tmp_path: Path) -> None:
    job(tmp_path, 8, "all_reduce", 2000)
    name = table(tmp_path / "t.csv", some_rows())
    options = ["-w", str(tmp_path / "w"), "--platform", "hgx-h100", "--measured", name, "--format", "json"]
    done = CliRunner().invoke(command, options)
    assert done.exit_code == 0, done.output
    assert any("are those of t.csv" in note for note in json.loads(done.stdout)["notes"])
