"""A prefix names one workload: an older result under its name is not replayed in the place of a newer one."""

from pathlib import Path

import pytest

from chakra.builder import TraceBuilder, Workload
from chakra.cli.main import run
from chakra.errors import UsageError
from chakra.io.rank_files import left_behind
from chakra.replay import simulate

NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}
READERS = (
    "info w", "validate w", "replay w --platform hgx-h100", "rescale w -o more --npus 8", "anonymize w other",
    "timeline w.json --workload w t.json",
)  # fmt: skip


def computing(npus: int, duration_ns: int) -> Workload:
    """Ranks that compute once."""
    workload = Workload(npus)

    def program(builder: TraceBuilder) -> None:
        builder.compute("work", duration_ns=duration_ns)

    workload.run(program)
    return workload


def test_traces_in_gzip_over_plain_ones(tmp_path: Path) -> None:
    """The plain ones, of 100 ns, were replayed after those of 200 ns were written."""
    prefix = tmp_path / "w"
    computing(4, 100).write(prefix)
    computing(4, 200).write(prefix, compress=True)
    with pytest.raises(UsageError, match=r"w\.0\.et: w\.0\.et\.gz is there, too, and a rank has one trace"):
        simulate(prefix, {}, NETWORK)
    for rank in range(4):
        (tmp_path / f"w.{rank}.et").unlink()
    assert simulate(prefix, {}, NETWORK).finish_ns.tolist() == [200] * 4


@pytest.mark.parametrize("reader", READERS)
def test_traces_of_ranks_over_a_generated_workload(
    reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The transformer was replayed in the place of the collective, and told of by other commands as well."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.json").write_text('{"schema": "chakra.replay.result/1", "finish_ns": [1]}')
    model = "--layers 1 --hidden 64 --heads 4 --vocabulary 128 --seq 32 --tp 4"
    assert run(f"generate transformer {model} -o w --quiet".split()) == 0
    capsys.readouterr()
    assert (
        run(["generate", "collective", "--kind", "all_gather", "--size", "1MiB", "--npus", "4", "-o", "w"])
        == 0
    )
    said = capsys.readouterr().err
    assert "chakra: warning: w.workload.json is from an earlier result and was left alone" in said
    assert run(reader.split()) == 2
    assert "two workloads have this name, w.workload.json and w.0.et" in capsys.readouterr().err
    # its whole name tells which is meant
    assert run(["info", "w.workload.json"]) == 0


def test_what_a_result_of_fewer_ranks_leaves_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "generate collective --kind all_gather --size 1MiB -o w --npus"
    assert run([*line.split(), "8"]) == run([*line.split(), "8"]) == 0
    assert "warning" not in capsys.readouterr().err
    assert run([*line.split(), "4"]) == 0
    assert capsys.readouterr().err.splitlines()[1:] == [
        "chakra: warning: w.4.et and 3 more files of this name are from an earlier result and were left alone"
    ]
    assert left_behind("none", []) == ""


def test_a_conversion_of_fewer_ranks_tells_what_an_earlier_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded = Path(__file__).resolve().parent.parent / "data" / "pytorch" / "rank_start"
    assert run(["convert", "pytorch", "--dir", str(recorded), "-o", "job"]) == 0
    one = tmp_path / "one"
    one.mkdir()
    (one / "job.rank0.kineto.json").write_bytes((recorded / "job.rank0.kineto.json").read_bytes())
    capsys.readouterr()
    assert run(["convert", "pytorch", "--dir", str(one), "-o", "job"]) == 0
    assert "chakra: warning: job.1.et is from an earlier result and was left alone" in capsys.readouterr().err
