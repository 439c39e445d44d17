"""Studies of traces in files: the same times as their replays have, and what these say of them."""

from pathlib import Path
from typing import Any

import pytest

from chakra.accuracy.rates import replay_rates
from chakra.builder import Workload
from chakra.cli.main import run as chakra
from chakra.platforms import cluster
from chakra.replay import simulate
from chakra.sweep import Outcome, Store, run_point, run_study, runner, study_from, study_html
from chakra.sweep.available import available
from chakra.sweep.reasons import without_numbers
from chakra.sweep.remarks import remark_notes
from chakra.sweep.table import result_notes

#: 1 MiB from each of four NPUs on a ring: a direct all-to-all of 4 chunks takes 8,960 ns where nothing waits, and the
#: links need 9,766 ns for its bytes
NETWORK = "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n"
SYSTEM = '{"all-to-all-implementation": ["direct"], "preferred-dataset-splits": 4, "local-mem-bw": 50}'
BEATEN = (
    "a collective is faster than the bandwidth of its links allows: on the unaware backend messages do not share "
    "links (try --backend aware)"
)


def generated(folder: Path, *options: str) -> str:
    """A small workload for 16 NPUs, in files."""
    prefix = str(folder / "work")
    model = ["--model", "gpt2-small", "--layers", "1", "--seq", "64", "--npus", "16"]
    assert chakra(["generate", "transformer", *model, *options, "-o", prefix, "--quiet"]) == 0
    return prefix


def step_ms(files: str, platform: str, **system: Any) -> float:
    merged = {
        "workload": {"files": files},
        "platform": platform,
        "network": {},
        "system": system,
        "replay": {},
    }
    outcome = run_point(merged)
    assert outcome["status"] == "ok", outcome
    return float(outcome["metrics"]["step_ms"])


@pytest.mark.parametrize("ending", ["", ".workload.json"])
def test_durations_of_traces_count_on_a_machine_with_a_roofline(tmp_path: Path, ending: str) -> None:
    """As in ``chakra replay --platform``: a machine's own roofline takes over where it is asked for only."""
    efficiencies = ["--matmul-efficiency", "0.5", "--memory-efficiency", "0.5"]
    prefix = generated(tmp_path, "--peak-tflops", "100", "--mem-gbps", "800", *efficiencies)
    machine = cluster("dgx-2", 16)

    def replayed(roofline: int) -> float:
        result = simulate(prefix, machine.system(roofline_enabled=roofline), machine.network())
        return int(result.finish_ns.max()) / 1e6

    assert replayed(0) > 1.2 * replayed(1)
    assert step_ms(prefix + ending, "dgx-2") == pytest.approx(replayed(0))
    assert step_ms(prefix + ending, "dgx-2", **{"roofline-enabled": 1}) == pytest.approx(replayed(1))


def test_a_machine_of_any_size_has_as_many_npus_as_there_are_traces(tmp_path: Path) -> None:
    """A pod of 1,024 chips without a number takes 16, as ``chakra replay --platform`` does."""
    prefix = generated(tmp_path)
    machine = cluster("tpu-v3-pod", 16)
    replayed = int(simulate(prefix, machine.system(), machine.network()).finish_ns.max())
    assert step_ms(prefix, "tpu-v3-pod") == pytest.approx(replayed / 1e6)


@pytest.mark.parametrize("ending", ["", ".workload.json"])
def test_files_that_were_generated_have_the_rates_of_their_replay(tmp_path: Path, ending: str) -> None:
    """Of three steps each takes a third; tokens, products and costs are those that ``chakra replay`` tells."""
    prefix = generated(tmp_path, "--micro-batches", "2", "--iterations", "3")
    given = {"study": "steps", "workload": {"files": prefix + ending}, "platform": "2x hgx-h100 over 400G"}
    parameters = {"replay.comm-streams": [1]}
    study = study_from({**given, "parameters": parameters, "cost-per-npu-hour": 2}, "study.yml")
    with runner(workers=1) as place:
        [outcome] = run_study(study, Store(tmp_path / "results"), place)
    machine = cluster("2x hgx-h100 over 400G", 16)
    result = simulate(prefix, machine.system(), machine.network(), comm_streams=1)
    finish_ns = int(result.finish_ns.max())
    tokens = 3 * 2 * 16 * 64  # steps of two micro-batches of a sequence of 64 on each of 16 replicas
    assert outcome.metrics["step_ms"] == pytest.approx(finish_ns / 3e6)
    assert outcome.metrics["tokens_per_s"] == pytest.approx(tokens / finish_ns * 1e9)
    assert outcome.metrics["cost_per_step"] == pytest.approx(16 * 2 * finish_ns / 3e9 / 3600)
    rates = replay_rates(result, price=2.0)
    assert rates.keys() <= outcome.metrics.keys() <= available(study)
    assert {name: outcome.metrics[name] for name in rates} == pytest.approx(rates)


def exchanged(folder: Path, **changes: Any) -> tuple[Any, list[Outcome]]:
    """A study of an all-to-all, and what its points came to."""
    work = Workload(4)
    for rank in range(4):
        work.builder(rank).collective("all_to_all", size_bytes=1 << 20)
    work.write(folder / "a2a")
    (folder / "network.yml").write_text(NETWORK)
    (folder / "system.json").write_text(SYSTEM)
    given = {
        "study": "exchange",
        "workload": {"files": str(folder / "a2a")},
        "network": str(folder / "network.yml"),
        "system": str(folder / "system.json"),
        "parameters": {"replay.backend": ["unaware", "aware"]},
    }
    study = study_from({**given, **changes}, "study.yml")
    with runner(workers=1) as place:
        outcomes = run_study(study, Store(folder / "results"), place)
    assert all(outcome.ok for outcome in outcomes)
    return study, outcomes


def test_times_below_the_bandwidth_of_links_are_told(tmp_path: Path) -> None:
    """The best design is one of them: on ``aware`` the same machine takes longer than its bound."""
    study, outcomes = exchanged(tmp_path)
    times = {outcome.point["replay.backend"]: outcome.metrics["step_ms"] for outcome in outcomes}
    assert times["unaware"] < 9_766 / 1e6 <= times["aware"] * 1.001
    note = f"{BEATEN} (1 of 2 designs)"
    assert note in result_notes(study, outcomes, outcomes)
    assert note in study_html(study, outcomes)
    study, again = exchanged(tmp_path)
    assert [(o.cached, list(o.remarks)) for o in again] == [(True, list(o.remarks)) for o in outcomes]
    assert note in result_notes(study, again, again)


def test_designs_whose_collectives_keep_to_their_links_have_no_such_note(tmp_path: Path) -> None:
    study, outcomes = exchanged(tmp_path, parameters={"replay.backend": ["aware", "flow"]})
    assert not [note for note in result_notes(study, outcomes, outcomes) if "faster than" in note]


def test_what_a_replay_warns_of_is_told(tmp_path: Path) -> None:
    """A trace more than there are NPUs is a warning of the replay, of every design alike."""
    study, outcomes = exchanged(tmp_path)
    (tmp_path / "a2a.4.et").write_bytes((tmp_path / "a2a.0.et").read_bytes())
    study, outcomes = exchanged(tmp_path)
    assert (
        len([note for note in result_notes(study, outcomes, outcomes) if "traces of 1 more rank" in note])
        == 1
    )


def outcome(*remarks: str) -> Outcome:
    return Outcome("key", {}, "ok", {}, remarks=remarks)


def test_remarks_that_differ_in_numbers_are_one() -> None:
    designs = [
        outcome("off by 1.5 ms", "plain"),
        outcome("off by 2 ms", "off by 3 ms", "plain"),
        outcome("plain"),
    ]
    assert remark_notes(designs) == ["such as: off by 1.5 ms (2 of 3 designs)", "plain"]
    assert without_numbers("off by 1,234.5 ms") == without_numbers("off by 2 ms")
    assert remark_notes([]) == []
