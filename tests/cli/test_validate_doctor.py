"""`chakra validate` and `chakra doctor`."""

import importlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chakra.cli.commands import doctor
from chakra.cli.commands.validate import trace_files
from chakra.errors import WorkloadError

Chakra = Callable[..., Any]


def test_trace_files_are_found_by_rank(tmp_path: Path) -> None:
    for name in ("w.0.et", "w.1.et.gz", "w.2.et", "w.02.et", "w.x.et", "ww.3.et", "w.4.json"):
        (tmp_path / name).touch()
    prefix = str(tmp_path / "w")
    assert [Path(path).name for path in trace_files(prefix, None)] == ["w.0.et", "w.1.et.gz", "w.2.et"]
    assert trace_files(str(tmp_path / "w.0.et"), None) == [str(tmp_path / "w.0.et")]
    with pytest.raises(WorkloadError, match=r"no file for 2 ranks: 3, 4"):
        trace_files(prefix, 5)
    with pytest.raises(WorkloadError, match="rank 2, but there are only 2 NPUs"):
        trace_files(prefix, 2)
    with pytest.raises(WorkloadError, match="no such file for any rank"):
        trace_files(str(tmp_path / "none"), None)


def test_a_sound_workload(chakra: Chakra, ring8: Path) -> None:
    outcome = chakra("validate", "w", "-n", "network.yml")
    assert (outcome.code, outcome.err) == (0, "")
    document = json.loads(chakra("validate", "w", "--format", "json").out)
    assert document["schema"] == "chakra.validate/1"
    assert [finding for finding in document["findings"] if finding["severity"] == "error"] == []


def test_every_bad_file_is_named(chakra: Chakra, ring8: Path) -> None:
    for rank in (2, 6):
        (ring8 / f"w.{rank}.et").write_bytes(b"\x05junk")
    outcome = chakra("validate", "w")
    assert outcome.code == 2
    assert [line.startswith("error: ") for line in outcome.out.splitlines()] == [True, True]
    assert "w.2.et" in outcome.out
    assert "w.6.et" in outcome.out
    assert outcome.err == "chakra: error: w: 2 errors in 8 traces\n"


def test_a_rank_that_stays_away(chakra: Chakra, ring8: Path, et: SimpleNamespace) -> None:
    et.write(ring8 / "w.5.et", et.compute(0, 1))
    outcome = chakra("validate", "w")
    assert outcome.code == 2
    assert "error: " in outcome.out


def test_a_workload_whose_ranks_share_traces(chakra: Chakra, ring8: Path) -> None:
    """Both pipeline stages get the program of the first, whose messages then have nobody to take them."""
    step = ["--model", "gpt2-small", "--pp", "2", "--dp", "2", "--micro-batches", "2", "-q"]
    assert chakra("generate", "transformer", *step, "-o", "g").code == 0
    assert chakra("validate", "g").out == "g: 2 traces of 4 ranks: no findings\n"
    document = json.loads(chakra("validate", "g.workload.json", "--format", "json").out)
    assert (document["traces"], document["findings"]) == (2, [])
    few = chakra("validate", "g", "--npus", "8")
    assert (few.code, few.out) == (2, "")
    assert "the workload is for 4 NPUs, not 8" in few.err
    groups = chakra("validate", "g", "-g", "some.json")
    assert "a groups file goes with plain traces; g.workload.json holds its own" in groups.err
    shutil.copy("g.class0.et", "g.class1.et")
    outcome = chakra("validate", "g")
    assert (outcome.code, outcome.err) == (2, "chakra: error: g: 8 errors in 2 traces of 4 ranks\n")
    # a rank of each pipeline in each direction, for each of the two micro-batches
    assert outcome.out.count("comm_tag differs") == 8


def test_npus_of_network_and_option_must_agree(chakra: Chakra, ring8: Path) -> None:
    outcome = chakra("validate", "w", "-n", "network.yml", "--npus", "4")
    assert (outcome.code, outcome.err) == (2, "chakra: error: --npus 4: network.yml has 8 NPUs\n")


@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        ("--platform hgx-h100", 0, ""),
        ("--platform 1xhgx-h100 --npus 8", 0, ""),
        ("--platform dgx-h100", 2, "no machine preset 'dgx-h100'; did you mean 'hgx-h100'?"),
        ("--platform 2xhgx-h100", 2, "'2xhgx-h100' has 16 NPUs, not 8: 1x would have as many"),
        ("--platform hgx-h100 --npus 4", 2, "--npus 4: hgx-h100 has 8 NPUs"),
        ("--platform hgx-h100 -n network.yml", 2, "--platform: the network is given by -n already"),
        ("-n hgx-h100", 2, "-n hgx-h100: no such file; a known machine is given by --platform hgx-h100"),
        ("-n none.yml", 2, "none.yml: cannot be read: No such file or directory"),
    ],
)
def test_a_known_machine_says_how_many_npus_there_are(
    chakra: Chakra, ring8: Path, words: str, code: int, err: str
) -> None:
    """As `chakra replay` takes it."""
    outcome = chakra("validate", "w", *words.split())
    assert (outcome.code, outcome.err) == (code, f"chakra: error: {err}\n" if err else "")


def test_words_for_a_machine_are_no_network_file(chakra: Chakra, ring8: Path) -> None:
    outcome = chakra("replay", "w", "-n", "2x hgx-h100")
    assert outcome.code == 2
    assert outcome.err == (
        "chakra: error: -n 2x hgx-h100: no such file; a known machine is given by --platform '2x hgx-h100'\n"
    )


def test_doctor_finds_this_installation_sound(chakra: Chakra) -> None:
    document = json.loads(chakra("doctor", "--format=json").out)
    assert [finding for finding in document["findings"] if finding["status"] == "fail"] == []
    assert document["ok"] is True
    names = {finding["name"] for finding in document["findings"]}
    assert {"Python", "schema", "numba", "replay"} <= names


def test_doctor_reports_what_is_broken(chakra: Chakra, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[doctor.Finding]:
        raise ImportError("no numba")

    monkeypatch.setattr(doctor, "CHECKS", (doctor.interpreter, broken))
    outcome = chakra("doctor")
    assert outcome.code == 1
    assert "fail  broken" in outcome.out
    assert "1 problem found" in outcome.out


@pytest.mark.parametrize(
    ("version", "wanted", "good"),
    [
        ("5.29.6", ">=5.29,<8", True),
        ("8.0", ">=5.29,<8", False),
        ("5.28.3", ">=5.29,<8", False),
        ("7.36.2", "<8,>=5.29", True),
        ("2.0", ">=2.0", True),
        ("2", ">=2.0.1", False),
        ("1.2+local", "", True),
    ],
)
def test_version_ranges(version: str, wanted: str, good: bool) -> None:
    assert doctor._satisfies(version, wanted) is good


def test_a_rival_distribution_is_found_and_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mlc-chakra installs modules into a package of our name."""
    conflicts = importlib.import_module("chakra.conflicts")
    (tmp_path / "mlc_chakra-1.0.0.dist-info").mkdir()
    assert conflicts.conflicting_distributions() == []
    monkeypatch.syspath_prepend(str(tmp_path))
    assert conflicts.conflicting_distributions() == [("mlc-chakra", "1.0.0")]
    with pytest.warns(conflicts.ConflictWarning, match="pip uninstall mlc-chakra chakra-replay"):
        conflicts.warn_of_conflicts()
    assert doctor.conflicts()[0].status == "fail"


def test_two_doctors_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One comes and goes while the other is about to remove its probe of the cache."""
    monkeypatch.setenv("CHAKRA_CACHE_DIR", str(tmp_path))
    remove = os.rmdir
    others = []

    def rmdir(path: str) -> None:
        monkeypatch.setattr("os.rmdir", remove)
        others.extend(doctor.kernels())
        remove(path)

    monkeypatch.setattr("os.rmdir", rmdir)
    found = doctor.kernels()
    assert [finding.status for finding in [*found, *others]] == ["ok"] * 4
    assert list(tmp_path.iterdir()) == []
