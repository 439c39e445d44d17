"""Logs of nccl-tests and rccl-tests in every form: each row has to prove itself, and nothing else is believed."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from chakra.calibrate import Measurement, read_log
from chakra.errors import ConversionError, UsageError
from chakra.replay.collectives.measured.log_rows import printed
from chakra.replay.collectives.measured.nccl_log import read_whole_log
from chakra.replay.config.model import CollectiveKind as Kind

REPORTS = Path(__file__).resolve().parents[3] / "shared" / "reports"
SHARE = {"all_reduce": 2.0, "all_gather": 1.0, "alltoall": 1.0, "broadcast": 1.0}
SIZES = [1 << power for power in range(10, 28, 2)]
HEADING = (
    "#       size         count      type   redop    root"
    "     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
)


def time_of(size: int) -> float:
    return round(20 + size / 1e5, 2)


def values(program: str, ranks: int, size: int, factor: float = 1.0) -> tuple[str, str, str]:
    """Time, algbw and busbw as nccl-tests print them."""
    time = time_of(size) * factor
    rate = size / time / 1e3
    share = 1.0 if program == "broadcast" else SHARE[program] * (ranks - 1) / ranks
    return f"{time:.2f}", f"{rate:.2f}", f"{rate * share:.2f}"


def row(program: str, ranks: int, size: int, *, cells: str = "sum      -1", extra: str = "") -> str:
    three, again = values(program, ranks, size), values(program, ranks, size, 1.5)
    own, inside = (f"{t:>8} {a:>7} {b:>7}      0" for t, a, b in (three, again))
    return f"{size:12d} {size // 4:13d}     float     {cells} {own}{extra} {inside}{extra}\n"


def devices(ranks: int, groups: int = 1) -> str:
    return "# Using devices\n" + "".join(
        f"#  Rank {r:2d} Group {r * groups // ranks:2d} Pid  100 on node device {r % 8:2d} [0000:00:00] GPU\n"
        for r in range(ranks)
    )


def table(
    program: str = "all_reduce",
    ranks: int = 8,
    *,
    listed: str | None = None,
    named: bool = True,
    cells: str = "sum      -1",
) -> str:
    start = f"# Collective test starting: {program}_perf\n" if named else ""
    end = f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1\n#\n# Collective test concluded: {program}_perf\n"
    return (
        start + "# nThread 1 nGpus 1 minBytes 8 maxBytes 1 step: 2(factor) warmup iters: 5 iters: 20\n#\n"
        + (devices(ranks) if listed is None else listed) + "#\n" + HEADING
        + "".join(row(program, ranks, size, cells=cells) for size in SIZES) + end
    )  # fmt: skip


def read(
    tmp_path: Path, text: str, name: str = "x.log", **options: Any
) -> list[tuple[Kind, int, int, float]]:
    path = tmp_path / name
    path.write_text(text)
    return [(m.kind, m.ranks, m.size_bytes, m.time_us) for m in read_log(path, **options)]


def expected(kind: Kind = Kind.ALL_REDUCE, ranks: int = 8, factor: float = 1.0) -> list[Any]:
    return [(kind, ranks, size, pytest.approx(time_of(size) * factor, abs=0.006)) for size in SIZES]


@pytest.mark.parametrize("text", ["1e999", "0e999", "1e99999999999", "-2.5e308", "nan", "1.5x"])
def test_a_cell_whose_last_digit_has_no_worth_is_no_number(text: str) -> None:
    found = printed(text)
    assert found is None or 0 < found.unit < float("inf")


@pytest.mark.parametrize(
    "tag",
    [
        "[1,0]<stdout>:", "[1,0]<stdout>: ", "[1,0]<stdout>", "2026-11-02 12:03:04,567 ", "2026-11-02T12:03:04.5Z ",
        "2026-11-02T12:03:04.567890123Z [1,0]<stdout>:", "0: ", " 0: ", "[default0]:", "[12:03:04] ", "worker-0 | ",
        "node17: [1,0]<stdout>: ", "(node17, pid=12) ", "> ", "- 2026/11/02 12:03:04 1234 out ",
    ],
)  # fmt: skip
def test_what_stands_before_a_line_does_not_matter(tmp_path: Path, tag: str) -> None:
    """Tags of mpirun, srun, torchrun, kubectl and ray, and time stamps."""
    text = "".join(tag + line for line in table().splitlines(keepends=True))
    assert read(tmp_path, text) == expected()


@pytest.mark.parametrize("code", ["utf-16", "utf-8-sig", "utf-8"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_files_as_shells_write_them(tmp_path: Path, code: str, end: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(table().replace("\n", end).encode(code))
    assert [(m.kind, m.ranks, m.size_bytes, m.time_us) for m in read_log(path)] == expected()


@pytest.mark.parametrize("time", ["1e-300", "1e300"])
def test_times_that_no_collective_takes_are_refused(tmp_path: Path, time: str) -> None:
    text = "name,ranks,size,time_us\n" + "".join(f"all_reduce,8,{size},{time}\n" for size in SIZES)
    with pytest.raises(UsageError, match=r"x\.csv: line 2: a collective takes 1 ns to a year, not"):
        read(tmp_path, text, "x.csv")


def test_a_number_of_ranks_beyond_measure_is_none(tmp_path: Path) -> None:
    text = "name,ranks,size,time_us\n" + "".join(f"all_reduce,{10**20},{size},9\n" for size in SIZES)
    with pytest.raises(ConversionError, match="cannot tell how many ranks took part"):
        read(tmp_path, text, "x.csv")


@pytest.mark.parametrize(
    "cells", ["sum      -1", "none      -1", "       0", "sum", "", "        3", "avg   0"]
)
def test_empty_cells_do_not_move_the_columns(tmp_path: Path, cells: str) -> None:
    assert read(tmp_path, table(cells=cells)) == expected()
    assert read(tmp_path, table(cells=cells), in_place=True) == expected(factor=1.5)


def test_further_columns_do_not_move_them_either(tmp_path: Path) -> None:
    """Times of single iterations and a time stamp at the end, as recent nccl-tests print them."""
    rows = "".join(
        row("all_reduce", 8, size, extra="   10.00   12.00   11.90    1.20").replace(
            "\n", "  2026-11-02 12:03:04\n"
        )
        for size in SIZES
    )
    text = "# all_reduce_perf\n" + devices(8) + rows
    assert read(tmp_path, text) == expected()
    assert read(tmp_path, text, in_place=True) == expected(factor=1.5)


def test_a_table_without_its_headings_is_read_by_its_bandwidths(tmp_path: Path) -> None:
    rows = "".join(row("all_reduce", 8, size) for size in SIZES)
    assert read(tmp_path, rows, "all_reduce.txt") == expected()
    assert read(tmp_path, rows, kind=Kind.ALL_REDUCE) == expected()
    with pytest.raises(ConversionError, match="cannot tell which collective"):
        read(tmp_path, rows)


@pytest.mark.parametrize("lost", [0, 7])
def test_a_lost_line_of_the_list_of_devices_does_not_lose_a_rank(tmp_path: Path, lost: int) -> None:
    listed = "".join(line for line in devices(8).splitlines(keepends=True) if f"Rank  {lost} " not in line)
    assert read(tmp_path, table(listed=listed)) == expected()


def test_groups_have_the_ranks_of_a_group(tmp_path: Path) -> None:
    assert read(tmp_path, table(ranks=4, listed=devices(8, 2))) == expected(ranks=4)
    # older ones do not print the groups
    plain = re.sub(r" Group +\d+", "", devices(8, 2))
    path = tmp_path / "old.log"
    path.write_text(table(ranks=4, listed=plain))
    log = read_whole_log(path)
    assert {m.ranks for m in log.measurements} == {4}
    assert log.notes == (
        f"{path}: line 16: the log lists 8 ranks, and the bandwidths are those of 4: taken as 4",
    )


def test_programs_of_one_file_keep_to_themselves(tmp_path: Path) -> None:
    text = table("all_reduce", 8) + table("broadcast", 8) + table("all_gather", 4) + table("alltoall", 2)
    path = tmp_path / "all.log"
    path.write_text(text)
    log = read_whole_log(path)
    assert [(m.kind, m.ranks) for m in log.measurements[:: len(SIZES)]] == [
        (Kind.ALL_REDUCE, 8), (Kind.ALL_GATHER, 4), (Kind.ALL_TO_ALL, 2),
    ]  # fmt: skip
    assert len(log.measurements) == 3 * len(SIZES)
    assert log.notes == (f"{path}: line 44: broadcast is left out: not a collective that can be fitted",)


def test_a_table_that_lost_its_name_is_not_the_one_before(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="line 43: cannot tell which collective"):
        read(tmp_path, table("all_reduce") + table("all_gather", named=False))
    with pytest.raises(ConversionError, match="cannot tell which collective"):
        read(tmp_path, table("all_reduce") + table("all_gather", named=False), "all_gather.log")


def test_command_lines_name_the_table_that_follows(tmp_path: Path) -> None:
    text = "".join(
        f"$ mpirun -np {n} ./build/{program}_perf -b 1K\n"
        + table(program, n, named=False).rpartition("# Coll")[0]
        for program, n in (("all_gather", 4), ("all_reduce", 8))
    )
    assert read(tmp_path, text) == expected(Kind.ALL_GATHER, 4) + expected()


def spoiled(count: int) -> str:
    """A table whose last rows print another time than their bandwidth says."""
    lines = table().splitlines(keepends=True)
    rows = [index for index, line in enumerate(lines) if " float " in line]
    for index in rows[-count:]:
        lines[index] = re.sub(r"(sum +-1 +)[\d.]+", r"\g<1>77.77", lines[index])
    return "".join(lines)


def test_a_row_that_contradicts_itself_is_named_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text(spoiled(1))
    log = read_whole_log(path)
    assert [m.size_bytes for m in log.measurements] == SIZES[:-1]
    assert log.notes == (
        f"{path}: line 24: left out: time and bandwidths contradict each other or are missing",
    )


def test_a_log_of_contradictions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"line 21, .*and 1 more: .* in 4 of 9 rows"):
        read(tmp_path, spoiled(4))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, ("[" * 100_000 + "\n") * 2])
def test_json_nested_beyond_measure_is_no_log(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConversionError, match="no measurements"):
        read(tmp_path, text)


def test_a_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    whole = table().partition("# Out of")[0]
    assert read(tmp_path, whole[:-20]) == expected()
    cut = whole[: whole.rindex("sum") + 12]
    assert read(tmp_path, cut) == expected()[:-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 4}, "the bandwidths are those of 8 ranks, and --ranks says 4"),
        ({"kind": Kind.ALL_GATHER}, "the log says all_reduce, and --collective all_gather"),
    ],
)
def test_what_is_given_must_not_contradict_the_log(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConversionError, match=message):
        read(tmp_path, table(), **options)


def test_many_ranks_need_the_list_that_the_bandwidths_allow(tmp_path: Path) -> None:
    text = table(ranks=4096, listed="")
    with pytest.raises(ConversionError, match="cannot tell how many ranks took part"):
        read(tmp_path, text)
    assert read(tmp_path, text, ranks=4096) == expected(ranks=4096)
    with pytest.raises(ConversionError, match=r"lists 8 ranks, and the bandwidths are those of \d+ to \d+"):
        read(tmp_path, table(ranks=4096, listed=devices(8)))


def test_processor_times_are_no_times_of_collectives(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="line 14: the table has CPU times"):
        read(tmp_path, table().replace("  time ", "cputime"))


def nccl_json(program: str = "all_reduce", ranks: int = 8, groups: int = 1) -> str:
    def body(size: int, factor: float) -> dict[str, float]:
        time, algbw, busbw = (float(v) for v in values(program, ranks, size, factor))
        exact = size / time / 1e3
        return {
            "time": time,
            "alg_bw": round(exact, 6),
            "bus_bw": round(exact * busbw / algbw, 6) if algbw else 0.0,
            "nwrong": 0,
        }

    def exact(size: int, factor: float) -> dict[str, float]:
        entry = body(size, factor)
        entry["bus_bw"] = round(entry["alg_bw"] * SHARE[program] * (ranks - 1) / ranks, 6)
        return entry

    return json.dumps({
        "version": 1, "args": [f"./{program}_perf", "-b", "1K"], "env": ["A=1"], "nccl_version": 22803,
        "config": {"devices": [{"rank": r, "group": r * groups // (ranks * groups)} for r in range(ranks * groups)]},
        "results": [
            {"size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
             "out_of_place": exact(size, 1.0), "in_place": exact(size, 1.5)} for size in SIZES
        ],
    })  # fmt: skip


def rccl_records(ranks: int = 8, devices: int = 1) -> list[dict[str, object]]:
    records: list[dict[str, object]] = []
    for size in SIZES:
        for inside in (0, 1):
            time = round(time_of(size) * (1.5 if inside else 1), 2)
            rate = size / time / 1e3
            records.append({
                "numCycle": 0, "name": "AllReduce", "nodes": 1, "ranks": ranks // devices, "ranksPerNode": 1,
                "gpusPerRank": devices, "size": size, "type": "float", "redop": "sum", "inPlace": inside,
                "time": round(time, 6), "algBw": round(rate, 6), "busBw": round(rate * 2 * (ranks - 1) / ranks, 6),
                "wrong": "0",
            })  # fmt: skip
    return records


def test_json_of_nccl_tests(tmp_path: Path) -> None:
    assert read(tmp_path, nccl_json(), "r.json") == expected()
    assert read(tmp_path, nccl_json(), "r.json", in_place=True) == expected(factor=1.5)
    assert read(tmp_path, nccl_json(ranks=4, groups=2), "r.json") == expected(ranks=4)
    with pytest.raises(ConversionError, match="CPU times"):
        read(tmp_path, nccl_json().replace('"time"', '"cpu_time"'), "r.json")


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("lines", [False, True])
def test_json_of_rccl_tests(tmp_path: Path, devices: int, lines: bool) -> None:
    records = rccl_records(devices=devices)
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records)
    assert read(tmp_path, text, "r.json") == expected()
    assert read(tmp_path, text, "r.json", in_place=True) == expected(factor=1.5)


def test_csv_of_rccl_tests(tmp_path: Path) -> None:
    records = rccl_records()
    file = io.StringIO()
    writer = csv.DictWriter(file, records[0])
    writer.writeheader()
    writer.writerows(records)
    assert read(tmp_path, file.getvalue(), "r.csv") == expected()
    assert read(tmp_path, file.getvalue(), "r.csv", in_place=True) == expected(factor=1.5)


def test_csv_must_prove_its_times(tmp_path: Path) -> None:
    plain = "size,time\n" + "".join(f"{size},{time_of(size)}\n" for size in SIZES)
    with pytest.raises(ConversionError, match="neither a bandwidth nor the unit"):
        read(tmp_path, plain, "all_reduce.csv", ranks=8)
    stated = plain.replace("time\n", "time (us)\n")
    assert read(tmp_path, stated, "all_reduce.csv", ranks=8) == expected()
    milli = "size,time,algbw\n" + "".join(
        f"{size},{time_of(size) / 1e3:.6f},{size / time_of(size) / 1e3:.3f}\n" for size in SIZES
    )
    with pytest.raises(ConversionError, match="contradict each other"):
        read(tmp_path, milli, "all_reduce.csv", ranks=8)


CONTRADICT = "left out: time and bandwidths contradict each other or are missing"


def notes_of(tmp_path: Path, text: str, name: str = "x.log", **options: Any) -> tuple[int, list[str]]:
    """Number of rows taken, and notes without the file's name."""
    path = tmp_path / name
    path.write_text(text)
    log = read_whole_log(path, **options)
    return len(log.measurements), [note.removeprefix(f"{path}: ") for note in log.notes]


@pytest.mark.parametrize("time", ["nan", "inf", "99.99", "-36.13", ""])
def test_values_in_place_prove_themselves_too(tmp_path: Path, time: str) -> None:
    old = f"{time_of(SIZES[2]) * 1.5:.2f}"
    assert table().count(old) == 1
    text = table().replace(old, time)
    assert notes_of(tmp_path, text) == (len(SIZES), [])
    assert notes_of(tmp_path, text, in_place=True) == (len(SIZES) - 1, [f"line 18: {CONTRADICT}"])


def test_a_program_without_in_place_runs_has_none(tmp_path: Path) -> None:
    text = re.sub(r"(      0 ).*", r"\1     N/A     N/A     N/A    N/A", table("alltoall"))
    assert read(tmp_path, text) == expected(Kind.ALL_TO_ALL)
    with pytest.raises(ConversionError, match="no in-place times"):
        read(tmp_path, text, in_place=True)


@pytest.mark.parametrize("size", ["-1024", "1KiB", "1024.0", "nan", ""])
def test_a_row_without_a_size_is_named(tmp_path: Path, size: str) -> None:
    text = table().replace(f"{SIZES[0]:12d} ", f"{size:>12} ", 1)
    assert notes_of(tmp_path, text) == (len(SIZES) - 1, [f"line 16: {CONTRADICT}"])


@pytest.mark.parametrize("end", ["# Out of bounds", "# Avg bus", "# Collective test concluded"])
def test_rows_behind_the_end_of_a_table_are_not_its_programs(tmp_path: Path, end: str) -> None:
    """An all-gather and a reduce-scatter have the same factor, so no bandwidth tells them apart."""
    lines = table("all_gather").splitlines(keepends=True)
    kept = [
        line for line in lines if line.startswith(end) or not line.startswith(("# Out", "# Avg", "# Coll"))
    ]
    text = lines[0] + "".join(kept)
    assert read(tmp_path, text) == expected(Kind.ALL_GATHER)
    stray = "".join(row("all_gather", 8, size) for size in SIZES)
    with pytest.raises(ConversionError, match="cannot tell which collective"):
        read(tmp_path, text + stray)


def test_times_of_wrong_results_are_left_out(tmp_path: Path) -> None:
    lines = table().splitlines(keepends=True)
    lines[15] = re.sub(r" 0 ", " 3 ", lines[15], count=1)
    lines[16] = re.sub(r" 0\n", " 7\n", lines[16])
    wrong = "left out: the program counted wrong elements in the result"
    assert notes_of(tmp_path, "".join(lines)) == (len(SIZES) - 1, [f"line 16: {wrong}"])
    assert notes_of(tmp_path, "".join(lines), in_place=True) == (len(SIZES) - 1, [f"line 17: {wrong}"])
    document = json.loads(nccl_json())
    document["results"][2]["out_of_place"]["nwrong"] = 5
    document["results"][3]["in_place"]["nwrong"] = 5
    for inside in (False, True):
        taken, (note,) = notes_of(tmp_path, json.dumps(document), "r.json", in_place=inside)
        assert (taken, wrong in note) == (len(SIZES) - 1, True)
    records = rccl_records()
    records[0]["wrong"] = "2"
    assert notes_of(tmp_path, json.dumps(records), "r.json") == (
        len(SIZES) - 1, [f"record 1 ({SIZES[0]} bytes): {wrong}"],
    )  # fmt: skip


def test_documents_of_one_json_file_keep_to_themselves(tmp_path: Path) -> None:
    two = [json.loads(nccl_json("all_gather", 4)), json.loads(nccl_json("all_reduce", 8))]
    both = expected(Kind.ALL_GATHER, 4) + expected()
    for document in (two, {"runs": two}, {"first": two[0], "second": {"deep": [two[1]]}}):
        assert read(tmp_path, json.dumps(document), "r.json") == both
    # what says nothing of its program is none of another's
    del two[1]["args"]
    with pytest.raises(ConversionError, match="cannot tell which collective"):
        read(tmp_path, json.dumps(two), "r.json")


@pytest.mark.parametrize("key", ["time", "algBw", "busBw", "size"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "x", True, -3])
def test_a_record_with_a_cell_that_is_no_number_is_named(tmp_path: Path, key: str, value: object) -> None:
    records = rccl_records()[::2]
    records[1][key] = value
    taken, (note,) = notes_of(tmp_path, json.dumps(records), "r.json")
    assert taken == len(SIZES) - 1
    assert (note[:8], note.rpartition(": left")[2]) == ("record 2", CONTRADICT.removeprefix("left"))
    file = io.StringIO()
    writer = csv.DictWriter(file, records[0])
    writer.writeheader()
    writer.writerows(records)
    assert notes_of(tmp_path, file.getvalue(), "r.csv") == (len(SIZES) - 1, [f"line 3: {CONTRADICT}"])


@pytest.mark.parametrize("key", ["name", "size", "time"])
def test_a_line_with_an_empty_cell_is_named(tmp_path: Path, key: str) -> None:
    for order in (("name", "size", "time", "algBw", "busBw"), ("size", "time", "algBw", "busBw", "name")):
        rows = [{part: record[part] for part in order} for record in rccl_records()[::2]]
        rows[4][key] = ""
        file = io.StringIO()
        writer = csv.DictWriter(file, order)
        writer.writeheader()
        writer.writerows(rows)
        assert notes_of(tmp_path, file.getvalue(), "r.csv") == (len(SIZES) - 1, [f"line 6: {CONTRADICT}"])


def test_a_time_without_unit_needs_a_bandwidth_in_every_row(tmp_path: Path) -> None:
    records = rccl_records()[::2]
    for record in records[3:4]:
        del record["algBw"], record["busBw"]
    assert notes_of(tmp_path, json.dumps(records), "r.json") == (
        len(SIZES) - 1, [f"record 4 ({SIZES[3]} bytes): {CONTRADICT}"],
    )  # fmt: skip
    for record in records:
        record.pop("algBw", None)
    assert read(tmp_path, json.dumps(records[:3]), "r.json") == expected()[:3]
    for record in records:
        record.pop("busBw", None)
    with pytest.raises(ConversionError, match="contradict each other or are missing in 9 of 9"):
        read(tmp_path, json.dumps(records), "r.json")


def test_a_json_file_that_was_cut_says_so(tmp_path: Path) -> None:
    for text in (nccl_json()[:-90], "\n".join(map(json.dumps, rccl_records()))[:-9]):
        with pytest.raises(ConversionError, match=r"r\.json: no measurements: begins as JSON, and is none"):
            read(tmp_path, text, "r.json", kind=Kind.ALL_REDUCE, ranks=8)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("log", "kind", "ranks", "first_us", "last_us", "rows"),
    [
        ("nccl-split/split.log", Kind.ALL_REDUCE, 4, 35.73, 1036.90, 14),
        ("alltoall-empty-redop/alltoall_old.log", Kind.ALL_TO_ALL, 8, 95.9, 2986.0, 7),
        ("pt-calibrate-rank-count/log.txt", Kind.ALL_REDUCE, 16, 135.8, 47535.0, 31),
    ],
)
def test_reported_logs_are_read_right(
    log: str, kind: Kind, ranks: int, first_us: float, last_us: float, rows: int
) -> None:
    path = REPORTS / log
    if not path.exists():
        pytest.skip(f"needs {path}")
    found: list[Measurement] = read_log(path, kind=kind)
    assert {(m.kind, m.ranks) for m in found} == {(kind, ranks)}
    assert (found[0].time_us, found[-1].time_us, len(found)) == (first_us, last_us, rows)
