"""The benchmark gate: what it calls slower, and that each commit runs its own code."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

import gate  # noqa: E402
from gate import Commit, Figures, RowError, check_out, compare, costly, lower_bound, measure_new, report  # noqa: E402
from gate_rows import ROWS  # noqa: E402


@pytest.mark.parametrize(("runs", "place"), [(4, 0), (5, 1), (8, 2), (11, 3), (21, 7)])
def test_the_bound_is_the_order_statistic_of_the_sign_test(runs: int, place: int) -> None:
    """P(Binomial(11, 1/2) < 3) is 3.3 %, P(... < 4) is 11.3 %: the third least of 11 is the bound. Four are too few."""
    ratios = [float(k) for k in range(runs, 0, -1)]
    assert lower_bound(ratios) == place


def test_a_row_fails_only_where_the_bound_is_above_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    noisy = Figures([1.0] * 11, [1.2, 0.9, 1.3, 0.95, 1.2, 1.1, 1.0, 1.3, 1.2, 0.9, 1.1])
    slower = Figures([1.0] * 11, [1.2] * 11)
    assert report("noisy", noisy, lower_bound(noisy.ratios), 1.05)
    assert not report("slower", slower, lower_bound(slower.ratios), 1.05)
    lines = capsys.readouterr().out.splitlines()
    assert ["SLOWER" in line for line in lines] == [False, True]


@pytest.mark.parametrize(("seconds", "rows"), [(7.9, []), (8.1, ["replay_102400_library"])])
def test_a_library_costs_at_most_twice_the_step_without(
    seconds: float, rows: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    heads = {"text": 1.0, "replay_102400": 4.0, "replay_102400_library": seconds}
    assert costly(heads) == rows
    assert ("TOO COSTLY" in capsys.readouterr().out) == bool(rows)
    assert costly({"replay_102400_library": seconds}) == []


def test_pairs_cancel_what_both_feel() -> None:
    """A machine that gets slower during a run makes no commit slower than the other."""
    load = [1.0 + 0.2 * k for k in range(11)]
    assert Figures(load, [1.01 * x for x in load]).ratios == pytest.approx([1.01] * 11)


def commit(name: str, code: Path, folder: Path) -> Commit:
    """A side of the comparison whose files lie in `folder`."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(gate.CUSTOMIZE)
    out = folder / f"{name}-out"
    out.mkdir()
    return Commit(name, code, folder / "kernels", folder, out)


def test_each_side_runs_the_code_of_its_own_copy(tmp_path: Path) -> None:
    """Even where this environment has another checkout installed, or the working tree is elsewhere."""
    if subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("not a git checkout")
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "traces").symlink_to(ROOT / "traces")
    base = commit("base", check_out("HEAD", tmp_path / "base"), tmp_path)
    head = commit("head", check_out(None, tmp_path / "head"), tmp_path)
    figures = compare("command_ring8", base, head, 2)
    assert figures.same
    assert len(figures.base) == len(figures.head) == 2
    assert min(figures.base + figures.head) > 0
    command = (head.code / "chakra" / "cli" / "main.py").read_text()
    (head.code / "chakra" / "cli" / "main.py").write_text(f"raise RuntimeError('mine')\n{command}")
    with pytest.raises(RowError, match="head: RuntimeError: mine"):
        compare("command_ring8", base, head, 2)


def test_a_row_that_the_older_commit_cannot_run_is_measured_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "traces").symlink_to(ROOT / "traces")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "keys.py").write_text("KEYS = ['peak-perf']\n", "utf-8")
    old, head = (
        commit("old", tmp_path / "old", tmp_path),
        commit("head", check_out(None, tmp_path / "head"), tmp_path),
    )
    for row in ROWS.values():
        assert head.knows(row.word)
    assert old.knows("")
    assert not old.knows(ROWS["replay_102400_beside"].word)
    assert ROWS["replay_102400_beside"].most
    figures = measure_new("command_ring8", head, 2)
    assert figures.new
    assert len(figures.head) == 2
    assert report("command_ring8", figures, lower_bound(figures.ratios), 1.05)
    assert "(new)" in capsys.readouterr().out


def test_code_from_elsewhere_is_refused(tmp_path: Path) -> None:
    """An empty copy would silently measure what is installed."""
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "traces").symlink_to(ROOT / "traces")
    (tmp_path / "nothing").mkdir()
    side = commit("side", tmp_path / "nothing", tmp_path)
    (tmp_path / "site" / "sitecustomize.py").write_text(f"import sys; sys.path.append({str(ROOT)!r})")
    with pytest.raises(RowError, match="code of another place"):
        compare("command_ring8", side, side, 2)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(["no-such-commit"], "is no commit"), (["HEAD", "--runs", "4"], "5 or more")],
)
def test_wrong_arguments_end_at_once(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        gate.main(words)
    assert end.value.code == 2
    assert complaint in capsys.readouterr().err


def test_rows_cover_what_users_wait_for() -> None:
    words = " ".join(ROWS)
    for part in (
        "command",
        "ring1024",
        "dag20000",
        "comp200000",
        "text",
        "million",
        "pytorch",
        "102400",
        "anonym",
    ):
        assert part in words
