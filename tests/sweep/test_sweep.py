"""Running studies: the same results whoever runs the points, resumed, sharded, with failures recorded."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from chakra.accuracy import Job
from chakra.cli.commands.sweep import command
from chakra.cli.support.quiet import with_quiet
from chakra.errors import ConfigError, UsageError
from chakra.sweep import (
    Outcome,
    Shard,
    Store,
    front,
    ranked,
    run_point,
    run_study,
    runner,
    study_from,
    study_html,
    write_table,
)
from chakra.sweep.available import available
from chakra.sweep.doubt import doubt_notes, doubt_of
from chakra.sweep.point import point_key
from chakra.sweep.printed import ranked_table
from chakra.sweep.sensitivity import without_effect
from chakra.sweep.store import Outcome as StoredOutcome
from chakra.sweep.table import figures, notes, unranked

DOCS = Path(__file__).resolve().parents[2] / "docs" / "guides" / "sweeps.md"

STUDY: dict[str, Any] = {
    "study": "small",
    "workload": {"kind": "mlp", "widths": [64, 128, 64], "micro-batch": 8},
    "platform": "dgx-a100",
    "parameters": {
        "workload.dp": [2, 4, 8],
        "workload.micro-batches": [1, 2],
        "system.preferred-dataset-splits": [1, 4],
    },
}

GPT = {"kind": "transformer", "model": "gpt2-small", "layers": 1, "seq": 64}


def small(**changes: Any) -> Any:
    return study_from({**STUDY, **changes}, "small.yml")


def plain(outcomes: Sequence[Outcome]) -> list[Any]:
    return [(o.key, o.point, o.status, dict(o.metrics), o.reason) for o in outcomes]


def run(
    study: Any, folder: Path, *, workers: int = 1, threads: bool = False, **options: Any
) -> list[Outcome]:
    with runner(workers=workers, threads=threads) as place:
        return run_study(study, Store(folder), place, **options)


def test_processes_threads_and_serial_agree(tmp_path: Path) -> None:
    serial = run(small(), tmp_path / "a")
    assert len(serial) == 12
    assert all(outcome.ok for outcome in serial)
    assert plain(run(small(), tmp_path / "b", workers=2)) == plain(serial)
    assert plain(run(small(), tmp_path / "c", workers=2, threads=True)) == plain(serial)


def test_a_second_run_takes_everything_from_the_first(tmp_path: Path) -> None:
    first = run(small(), tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}
    second = run(small(), tmp_path)
    assert all(outcome.cached for outcome in second)
    assert plain(first) == plain(second)
    assert stamps == {path: path.stat().st_mtime_ns for path in (tmp_path / "points").iterdir()}


def test_an_interrupted_study_goes_on_where_it_was(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(done: int, total: int, outcome: Outcome) -> None:
        if done == 5:
            raise StopError

    with pytest.raises(StopError):
        run(small(), tmp_path, progress=stop)
    resumed = run(small(), tmp_path)
    assert sum(outcome.cached for outcome in resumed) == 5
    assert len(resumed) == 12


def test_a_damaged_cache_entry_is_run_again(tmp_path: Path) -> None:
    first = run(small(), tmp_path)
    (tmp_path / "points" / f"{first[3].key}.json").write_text("{")
    second = run(small(), tmp_path)
    assert [outcome.cached for outcome in second].count(False) == 1
    assert plain(first) == plain(second)


@pytest.mark.parametrize(
    "outcome",
    [
        {"status": "ok", "metrics": {"step_ms": "x"}},
        {"status": "ok", "metrics": {"step_ms": True}},
        {"status": "ok", "metrics": {"step_ms": float("nan")}},
        {"status": "ok", "metrics": {"step": 1.0}},
        {"status": "ok", "metrics": None},
        {"status": "ok", "metrics": [1]},
        {"status": "done", "metrics": {}},
        {"status": ["ok"], "metrics": {}},
        {"status": "failed", "reason": [1]},
    ],
)
def test_a_cache_entry_that_holds_no_outcome_is_run_again(tmp_path: Path, outcome: dict[str, Any]) -> None:
    study = small(parameters={"workload.dp": [2, 4]})
    first = run(study, tmp_path)
    path = tmp_path / "points" / f"{first[1].key}.json"
    path.write_text(json.dumps({"outcome": outcome}))
    second = run(study, tmp_path)
    assert [outcome.cached for outcome in second] == [True, False]
    assert plain(first) == plain(second)


def test_a_changed_input_is_another_point(tmp_path: Path) -> None:
    first = run(small(), tmp_path)
    second = run(small(system={"endpoint-delay": 500}), tmp_path)
    assert not {o.key for o in first} & {o.key for o in second}
    assert not any(outcome.cached for outcome in second)


def test_a_changed_file_is_another_point(tmp_path: Path) -> None:
    network, system = tmp_path / "n.yml", tmp_path / "s.json"
    system.write_text(json.dumps({"all-reduce-implementation": ["ring"]}))
    keys = []
    for bandwidth in (50, 60):
        network.write_text(
            f"topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ {bandwidth} ]\nlatency: [ 500 ]\n"
        )
        study = study_from(
            {
                "workload": {"kind": "mlp", "dp": 4, "peak-tflops": 1.0, "mem-gbps": 100.0},
                "network": str(network),
                "system": str(system),
            },
            "s",
        )
        (outcome,) = run(study, tmp_path / "out")
        assert outcome.ok, outcome.reason
        keys.append(outcome.key)
    assert keys[0] != keys[1]


def test_every_file_that_a_point_names_is_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines in words, values of a system, and what a system file names in turn."""
    monkeypatch.chdir(tmp_path)
    inner = tmp_path / "inner.csv"
    outer = tmp_path / "system.json"
    outer.write_text(json.dumps({"collective-times": ["inner.csv"]}))
    for changes in (
        {"platform": "4x inner.csv over 400G"},
        {"platform": "4x hgx-h100 over 400G of 64 ports places inner.csv"},
        {"system": {"collective-costs": "inner.csv"}},
        {"system": {"collective-times": ["inner.csv"]}},
        {"system": "system.json"},
        {"workload": {"kind": "mlp", "schedule-file": "inner.csv"}},
    ):
        keys = set()
        for text in ("a", "b"):
            inner.write_text(text)
            keys.add(point_key(small(**changes).merged({}), needs_memory=False))
        assert len(keys) == 2, changes


def test_traces_that_a_point_names_are_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a manifest in another folder, and algorithms of collectives, by their prefix, beside what names them."""
    monkeypatch.chdir(tmp_path)
    for folder in ("jobs", "made of", "systems"):
        Path(folder).mkdir()
    trace = Path("made of", "step.class0.et")
    algorithm = Path("systems", "star.1.et")
    Path("systems", "star.0.et").write_text("rank 0")
    manifest = json.dumps({"traces": ["../made of/step.class0.et"]})
    Path("jobs", "job.workload.json").write_text(manifest)
    Path("jobs", "large.json").write_text(manifest.ljust(2 << 20))
    Path("systems", "inline.json").write_text('{"all-reduce-implementation-custom": "star"}')
    Path("systems", "nodes.json").write_text('{"per-node-custom-implementation": "nodes.yml"}')
    Path("systems", "nodes.yml").write_text("3: star\n")
    for changed, changes in (
        (trace, {"workload": {"files": "jobs/job"}}),
        (trace, {"workload": {"files": "jobs/job.workload.json"}}),
        (trace, {"workload": {"files": "jobs/large.json"}}),
        (algorithm, {"system": {"all-gather-implementation-custom": "systems/star"}}),
        (algorithm, {"system": "systems/inline.json"}),
        (algorithm, {"system": "systems/nodes.json"}),
    ):
        keys = set()
        for text in ("a", "b"):
            changed.write_text(text)
            keys.add(point_key(small(**changes).merged({}), needs_memory=False))
        assert len(keys) == 2, changes


def fabric(path: Path, bandwidth: float) -> Path:
    """A network file of four NPUs at one switch, link by link."""
    rows = "".join(f"- [{npu}, s, {bandwidth}, 500]\n" for npu in range(4))
    path.write_text(f"npus_count: [4]\nlinks:\n{rows}")
    return path


def test_networks_are_values_of_a_study(tmp_path: Path) -> None:
    """A file takes the place of the platform's network; the rest of the machine stays."""
    slow, fast = fabric(tmp_path / "slow.yml", 0.05), fabric(tmp_path / "fast.yml", 500)

    def metrics(parameters: dict[str, Any], **more: Any) -> list[dict[str, float]]:
        study = small(replay={"backend": "aware"}, parameters={**parameters, "workload.dp": [4]}, **more)
        return [dict(outcome.metrics) for outcome in run(study, tmp_path)]

    together = metrics({"network": [str(slow), str(fast)]})
    assert together == [*metrics({}, network=str(slow)), *metrics({}, network={"file": str(fast)})]
    assert together[0]["step_ms"] > together[1]["step_ms"]
    (refused,) = run(
        small(network={"file": str(fast), "dim0.bandwidth": 3}, parameters={"workload.dp": [4]}), tmp_path
    )
    assert "link by link, without 'bandwidth'" in refused.reason


def test_costs_are_those_of_all_npus(tmp_path: Path) -> None:
    """Price times NPUs times time, in each of its three forms."""
    model = {"kind": "transformer", "model": "gpt3-1.3b", "layers": 2, "micro-batch": 1, "npus": 4}
    document = {
        "workload": model,
        "parameters": {"platform": ["dgx-a100", "hgx-h100"]},
        "cost-per-npu-hour": {"dgx-a100": 1.5, "hgx-h100": 3},
        "objective": "cost_per_million_tokens",
    }
    for outcome, price in zip(run(study_from(document, "s"), tmp_path), (1.5, 3), strict=True):
        assert outcome.ok, outcome.reason
        found = outcome.metrics
        assert found["cost_per_hour"] == 4 * price
        steps_an_hour = 3_600_000 / found["step_ms"]
        assert found["cost_per_step"] * steps_an_hour == pytest.approx(found["cost_per_hour"])
        tokens_an_hour = found["tokens_per_s"] * 3600
        assert found["cost_per_million_tokens"] * tokens_an_hour / 1e6 == pytest.approx(4 * price)
    assert not any("cost" in name for outcome in run(small(), tmp_path / "free") for name in outcome.metrics)


def test_shards_together_are_the_whole_study(tmp_path: Path) -> None:
    for i in (1, 2, 3):
        part = run(small(), tmp_path / "shared", shard=Shard(i, 3))
        assert len(part) == 4
    together = run(small(), tmp_path / "shared")
    assert all(outcome.cached for outcome in together)
    assert plain(together) == plain(run(small(), tmp_path / "alone"))


def test_points_that_cannot_be_are_recorded_and_the_rest_kept(tmp_path: Path) -> None:
    study = small(
        parameters={"workload.tp": [1, 3], "network.dim0.bandwidth": [100, 1e-80], "workload.dp": [4]}
    )
    outcomes = run(study, tmp_path)
    assert [outcome.status for outcome in outcomes] == ["ok", "failed", "infeasible", "infeasible"]
    assert "must be a multiple of tp (3)" in outcomes[2].reason
    assert "bandwidth" in outcomes[1].reason
    again = run(study, tmp_path, retry_failed=True)
    assert [outcome.cached for outcome in again] == [True, False, True, True]


def test_memory_is_a_constraint(tmp_path: Path) -> None:
    study = study_from(
        {
            "workload": {"kind": "transformer", "model": "gpt3-13b", "fuse": True, "dp": 2, "pp": 1},
            "platform": "hgx-h100",
            "parameters": {"workload.tp": [1, 4]},
            "constraints": ["memory", "step_ms < 1000000000"],
        },
        "s",
    )
    outcomes = run(study, tmp_path)
    assert [outcome.status for outcome in outcomes] == ["infeasible", "ok"]
    assert re.search(r"needs \d+\.\d GB of memory, the accelerator has 80 GB", outcomes[0].reason)


def test_constraints_on_results(tmp_path: Path) -> None:
    outcomes = run(small(constraints=["npus <= 4"]), tmp_path)
    assert {(o.metrics["npus"] <= 4, o.status) for o in outcomes} == {(True, "ok"), (False, "infeasible")}


def test_a_constraint_on_a_figure_that_a_point_does_not_have_is_not_met(tmp_path: Path) -> None:
    """A prefill is not counted in tokens, training is."""
    modes = {"workload.mode": ["train", "prefill"]}
    outcomes = run(
        small(workload={**GPT, "dp": 2}, parameters=modes, constraints=["tokens_per_s > 1"]), tmp_path
    )
    assert [(o.status, o.reason) for o in outcomes] == [
        ("ok", ""),
        ("infeasible", "constraint cannot be met: tokens_per_s > 1: the point has no tokens_per_s"),
    ]


def test_a_step_among_several_takes_as_long_as_one(tmp_path: Path) -> None:
    """Nothing goes over from one step of one stage to the next, so that three take three times as long as one."""
    study = small(parameters={"workload.iterations": [1, 3]}, **{"cost-per-npu-hour": 2})
    one, three = (outcome.metrics for outcome in run(study, tmp_path))
    assert one["step_ms"] > 0
    for metric in ("step_ms", "exposed_ms", "samples_per_s", "cost_per_step"):
        assert three[metric] == pytest.approx(one[metric], rel=1e-9)


def test_ranking_and_front() -> None:
    def outcome(name: str, step: float, memory: float, status: str = "ok") -> Outcome:
        return StoredOutcome(name, {}, status, {"step_ms": step, "memory_gb": memory})

    outcomes = [
        outcome("slow-small", 9, 1), outcome("fast-big", 1, 9), outcome("beaten", 5, 9), outcome("middle", 4, 4),
        outcome("failed", 0, 0, "failed"), outcome("equal", 4, 4),
    ]  # fmt: skip
    study = small()
    assert [o.key for o in ranked(study, outcomes)] == ["fast-big", "middle", "equal", "beaten", "slow-small"]
    # points that nothing tells apart are on the front together
    assert [o.key for o in front(study, outcomes)] == ["fast-big", "middle", "equal", "slow-small"]


def test_more_is_better_for_some_objectives(tmp_path: Path) -> None:
    study = small(objective="samples_per_s")
    rates = [o.metrics["samples_per_s"] for o in ranked(study, run(study, tmp_path))]
    assert rates == sorted(rates, reverse=True)


def test_durations_keep_the_efficiencies(tmp_path: Path) -> None:
    """At 50 % efficiency no more than half of the peak is used, whatever the system file says by default."""
    study = study_from(
        {
            "workload": {
                "kind": "transformer",
                "model": "gpt2-xl",
                "dp": 8,
                "micro-batch": 8,
                "matmul-efficiency": 0.5,
            },
            "platform": "dgx-a100",
        },
        "s",
    )
    (outcome,) = run(study, tmp_path)
    metrics = outcome.metrics
    assert 0.1 < metrics["mfu"] < 0.5
    assert metrics["hfu"] == metrics["mfu"]  # nothing is computed again
    assert metrics["tokens_per_s_per_npu"] == pytest.approx(metrics["tokens_per_s"] / metrics["npus"])


def test_what_is_computed_again_counts_in_hfu_only(tmp_path: Path) -> None:
    """Full recomputation: the forward pass of all layers once more, so 4 instead of 3 parts of layers' products."""
    model = {
        "kind": "transformer",
        "layers": 2,
        "hidden": 256,
        "heads": 4,
        "vocabulary": 1000,
        "seq": 256,
        "dp": 2,
    }
    study = small(workload=model, parameters={"workload.recompute": ["none", "selective", "full"]})
    points = run(study, tmp_path)
    none, selective, full = (outcome.metrics for outcome in points)
    work = {name: metrics["mfu"] * metrics["step_ms"] for name, metrics in (("none", none), ("full", full))}
    assert work["full"] == pytest.approx(work["none"])
    assert none["hfu"] == none["mfu"]
    assert 1 < selective["hfu"] / selective["mfu"] < full["hfu"] / full["mfu"] < 4 / 3


def test_points_that_measured_rows_are_near_state_an_interval(tmp_path: Path) -> None:
    """As `chakra replay` of the same workload does; without a framework nothing measured is near."""
    model = {"kind": "transformer", "model": "llama3-8b", "layers": 4, "dp": 8, "dtype": "bf16", "seq": 2048}
    study = study_from(
        {
            "study": "near",
            "workload": {**model, "framework": "megatron"},
            "platform": "hgx-h100",
            "parameters": {"workload.micro-batches": [16, 17, 80]},
        },
        "near.yml",
    )
    first, second, long = run(study, tmp_path / "near")
    for outcome in (first, second, long):
        step, low, high = (outcome.metrics[name] for name in ("step_ms", "step_low_ms", "step_high_ms"))
        assert low < step < high
        assert high / low == pytest.approx(first.metrics["step_high_ms"] / first.metrics["step_low_ms"])
    best = ranked(study, [first, second, long])
    # they differ in the batch alone, of which pairs of rows are off by 1.089 at most
    assert second.metrics["step_ms"] < 1.08 * first.metrics["step_ms"] < long.metrics["step_ms"]
    assert doubt_of(study, best).near == (second,)
    interval, note = doubt_notes(doubt_of(study, best), best)
    low, high = (first.metrics[f"step_{end}_ms"] for end in ("low", "high"))
    assert f"a 90 % interval of {low:,.4g} to {high:,.4g} ms (DGX Cloud BF16, 2 measured rows; " in interval
    assert note.startswith(
        "1 other design cannot be told from the best one. What differs, and from which ratio on"
    )
    assert note.endswith(
        "NPUs or batch alone from 1.09x on, by 847 pairs of measured rows that differ in NPUs or batch"
    )
    assert doubt_notes(doubt_of(study, [first, long]), [first, long])[1].startswith(
        "every other design is told from the best one. "
    )
    # of the objectives those tell that follow from the step's time
    by_memory = replace(study, objective="memory_gb")
    assert doubt_of(by_memory, best).near == ()
    assert [*doubt_notes(doubt_of(by_memory, best), best)] == [interval]
    found = Store(tmp_path / "near").find(first.key, first.point)
    assert found is not None
    assert found.job == first.job == Job(
        "hgx-h100", "megatron", "bf16", npus=8, parameters=first.job.parameters if first.job else 0
    )  # fmt: skip
    assert "90 % from [ms]" in ranked_table(study, best, best, 3, 400)
    [plain_one] = run(
        study_from({"study": "far", "workload": model, "platform": "hgx-h100"}, "far.yml"), tmp_path / "far"
    )
    assert "step_low_ms" not in plain_one.metrics
    assert doubt_notes(doubt_of(study, [plain_one]), [plain_one]) == []
    assert "; nothing measured is near (no framework is named), so that nothing says how far" in study_html(
        study, [plain_one]
    )


def test_results_as_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the parquet extra is not installed")
    study = small(
        parameters={"workload.tp": [1, 3], "workload.dp": [4], "platform": ["dgx-a100", "hgx-h100"]}
    )
    path = write_table(run(study, tmp_path), tmp_path)
    assert path.name == "results.parquet"
    rows = parquet.read_table(path).to_pylist()
    assert [row["status"] for row in rows] == ["ok", "ok", "infeasible", "infeasible"]
    assert rows[0]["workload.tp"] == 1
    assert rows[0]["step_ms"] > 0
    assert rows[2]["step_ms"] is None


def test_results_as_csv_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = write_table(run(small(), tmp_path), tmp_path)
    lines = path.read_text().splitlines()
    assert path.name == "results.csv"
    assert len(lines) == 13
    assert lines[0].startswith(
        "workload.dp,workload.micro-batches,system.preferred-dataset-splits,status,step_ms"
    )


def test_random_studies_run_and_resume(tmp_path: Path) -> None:
    study = small(method={"random": 5, "seed": 3})
    outcomes = run(study, tmp_path)
    assert len(outcomes) == 5
    assert all(outcome.cached for outcome in run(study, tmp_path))


def test_an_optimised_study_finds_the_best_of_a_small_grid_and_resumes(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="the optimize extra is not installed")
    grid = ranked(small(), run(small(), tmp_path / "grid"))
    study = small(method={"optuna": 40, "seed": 1, "batch": 4})
    outcomes = run(study, tmp_path / "search")
    assert len(outcomes) == 40
    assert ranked(study, outcomes)[0].metrics["step_ms"] == grid[0].metrics["step_ms"]
    again = run(study, tmp_path / "search", workers=2, threads=True)
    assert all(outcome.cached for outcome in again)
    assert plain(again) == plain(outcomes)
    with pytest.raises(UsageError, match="has no shards"):
        run(study, tmp_path / "search", shard=Shard(1, 2))


def test_a_worker_that_dies_fails_its_own_task_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crashing_work.py").write_text(
        "import os, time\ndef work(n):\n    if n == 3:\n        os._exit(9)\n    time.sleep(0.01)\n    return n\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    from crashing_work import work  # type: ignore[import-not-found]

    with runner(workers=2) as place:
        results = dict(place(work, [{"n": n} for n in range(8)]))
    assert results.pop(3) == {"status": "failed", "reason": "the worker process died (out of memory?)"}
    assert results == {n: n for n in range(8) if n != 3}


def test_an_absent_scheduler_is_one_line() -> None:
    pytest.importorskip("distributed", reason="the cluster extra is not installed")
    with (
        pytest.raises(UsageError, match="no Dask scheduler answers at nonsense"),
        runner(scheduler="nonsense://x"),
    ):
        pass


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore:Port .* already in use"
)
def test_two_hundred_points_on_a_cluster_that_loses_a_worker(tmp_path: Path) -> None:
    """Every point is done once, and the results equal the serial run's."""
    distributed = pytest.importorskip("distributed", reason="the cluster extra is not installed")
    study = small(
        parameters={
            "workload.dp": [2, 4, 8],
            "workload.micro-batch": {"range": [1, 67]},
            "workload.zero": [0],
        },
    )
    serial = run(study, tmp_path / "serial")
    assert len(serial) == 201
    killed: list[int] = []

    def kill_one(done: int, total: int, outcome: Outcome) -> None:
        if done == total // 4 and not killed:
            pids = {address: nanny.pid for address, nanny in cluster.workers.items()}
            killed.append(next(iter(pids.values())))
            os.kill(killed[0], signal.SIGKILL)

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options, silence_logs=50) as cluster:
        recorded = []
        store = Store(tmp_path / "cluster")

        class Counting(Store):
            def put(self, key: str, *rest: Any) -> Outcome:
                recorded.append(key)
                return store.put(key, *rest)

        with runner(scheduler=cluster.scheduler_address) as place:
            outcomes = run_study(study, Counting(tmp_path / "cluster"), place, progress=kill_one)
    assert killed
    assert sorted(recorded) == sorted(o.key for o in serial)
    assert plain(outcomes) == plain(serial)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore:Port .* already in use"
)
def test_results_that_die_with_their_worker_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distributed = pytest.importorskip("distributed", reason="the cluster extra is not installed")
    (tmp_path / "slow_work.py").write_text("import time\ndef work(n):\n    time.sleep(0.01)\n    return n\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # for the workers
    from slow_work import work  # type: ignore[import-not-found]

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    results = {}
    with (
        distributed.LocalCluster(**options, silence_logs=50) as cluster,
        runner(scheduler=cluster.scheduler_address) as place,
    ):
        for index, result in place(work, [{"n": n} for n in range(120)]):
            results[index] = result
            if len(results) == 20:
                time.sleep(0.5)  # now results that nobody has fetched lie on both workers
                os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
                time.sleep(0.1)  # and their loss has been told
    assert results == {n: n for n in range(120)}


# ------------------------------------------------------------------------------------------------- command line


def write_study(folder: Path, **changes: Any) -> Path:
    path = folder / "small.yml"
    path.write_text(json.dumps({**STUDY, **changes}))
    return path


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(command, list(arguments))


def test_the_command_writes_table_plot_and_report(tmp_path: Path) -> None:
    result = invoke(str(write_study(tmp_path)), "--workers", "1", "--top", "3")
    assert result.exit_code == 0, result.output
    assert "small: 12 points: 12 ran, 0 infeasible, 0 failed" in result.stdout
    names = {path.name for path in (tmp_path / "small.results").iterdir()}
    assert {"points", "best.json", "best.html", "pareto.svg"} <= names
    assert json.loads((tmp_path / "small.results" / "best.json").read_text())["npus"] >= 2
    again = invoke(str(tmp_path / "small.yml"), "--workers", "1", "--format", "json", "--no-report")
    document = json.loads(again.stdout)
    assert document["counts"] == {"ok": 12, "infeasible": 0, "failed": 0, "cached": 12}
    steps = [entry["metrics"]["step_ms"] for entry in document["ranked"]]
    assert steps == sorted(steps)


def test_a_shard_writes_points_only(tmp_path: Path) -> None:
    result = invoke(str(write_study(tmp_path)), "--workers", "1", "--shard", "2/4")
    assert result.exit_code == 0, result.output
    assert [path.name for path in (tmp_path / "small.results").iterdir()] == ["points"]
    assert len(list((tmp_path / "small.results" / "points").iterdir())) == 3


def test_a_study_without_a_result_is_an_error(tmp_path: Path) -> None:
    path = write_study(tmp_path, parameters={"workload.tp": [3]})
    result = invoke(str(path), "--workers", "1")
    assert isinstance(result.exception, UsageError)
    assert "none of 1 point gave a result; the first: width 128" in str(result.exception)


def test_designs_without_the_objective_are_counted(tmp_path: Path) -> None:
    outcomes = run(small(parameters={"workload.dp": [2, 4, 8]}), tmp_path)
    study = small(objective="step_high_ms", parameters={"workload.dp": [2, 4, 8]})
    assert all(outcome.ok for outcome in outcomes)
    assert unranked(study, outcomes) == ["3 designs that ran have no step_high_ms, not ranked"]
    interval = dict(outcomes[0].metrics) | {"step_low_ms": 1.0, "step_high_ms": 2.0}
    measured = [replace(outcomes[0], metrics=interval), *outcomes[1:2]]
    assert unranked(study, measured) == ["1 design that ran has no step_high_ms, not ranked"]
    assert "1 design that ran has no step_high_ms" in study_html(study, measured)
    assert unranked(study, measured[:1]) == []


def test_an_objective_that_no_point_has_is_named(tmp_path: Path) -> None:
    path = write_study(tmp_path, parameters={"workload.dp": [2, 3]}, objective="step_high_ms")
    result = invoke(str(path), "--workers", "1")
    assert isinstance(result.exception, ConfigError)
    said = "small.yml: objective: no point of this study has step_high_ms; its points have step_ms, "
    assert said in str(result.exception)
    assert not (tmp_path / "small.results").exists()


def test_failures_of_any_kind_are_outcomes() -> None:
    merged: dict[str, Any] = {
        "workload": {"kind": "x"},
        "network": {},
        "system": {},
        "replay": {},
        "platform": "dgx-a100",
    }
    assert run_point(merged)["status"] == "failed"
    merged["workload"] = {"kind": "mlp", "dp": 2}
    merged["replay"] = {"bakend": "x"}
    assert "unknown replay option 'bakend'" in run_point(merged)["reason"]
    merged["replay"] = {}
    merged["network"] = {"dim9.latency": 1}
    assert "the network has 1 dimension" in run_point(merged)["reason"]
    merged["network"] = {"speed": 1}
    assert "must be dim<k>" in run_point(merged)["reason"]


def blocks(language: str) -> Iterator[str]:
    for match in re.finditer(rf"```{language}\n(.*?)```", DOCS.read_text(), re.DOTALL):
        yield match.group(1)


def test_the_studies_in_the_guide_are_valid() -> None:
    from chakra.io.yaml import parse_document

    studies = [parse_document(text, "guide") for text in blocks("yaml")]
    assert len(studies) >= 2
    for document in studies:
        study_from(document, "guide")


def test_the_command_says_why_points_cannot_be(tmp_path: Path) -> None:
    """A point that cannot be is found by its reason on the screen, not in a file."""
    path = write_study(tmp_path, parameters={"workload.tp": [1, 3], "workload.dp": [4]})
    done = invoke(str(path), "--workers", "1", "--no-report")
    assert (
        "infeasible 1x (workload.tp 3, workload.dp 4): width 128 of dense0 must be a multiple of tp (3)"
        in done.output
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": {"platform": ["dgx-a100", "dgx-a10"]}}, "no machine preset 'dgx-a10'; did you mean 'dgx-a100'?"),
        ({"platform": "8x hgx-h10"}, "no machine preset 'hgx-h10'; did you mean"),
        ({"platform": "hgx-h100 over fat tree"}, "a fabric needs a port rate"),
        (
            {"workload": {}, "parameters": {"workload.model": ["gpt3-175b", "gpt3-175"]}},
            "no model preset 'gpt3-175'; did you mean 'gpt3-175b'?",
        ),
        ({"workload": {"kind": "dlrm", "model": "dlrm-crieto"}}, "no DLRM preset 'dlrm-crieto'; did you mean"),
        ({"parameters": {"workload.kind": ["mlp", "mpl"]}}, 'no workload "mpl"; did you mean '),
        ({"parameters": {"workload.micro-batchs": [1]}}, "did you mean 'micro-batches'?"),
        ({"parameters": {"workload.dp": [2, "x"]}}, "dp must be a whole number, not 'x'"),
        ({"parameters": {"network.dim0.bandwith": [2]}}, "did you mean 'bandwidth'?"),
        ({"replay": {"comm-stream": 2}}, "did you mean 'comm-streams'?"),
        ({"parameters": {"replay.backend": ["unaware", "awrae"]}}, "did you mean 'aware'?"),
        ({"method": {"optuna": 4}, "platform": "dgx-a10"}, "did you mean 'dgx-a100'?"),
        ({"parameters": {"network": ["none.yml"]}}, "network: there is no file none.yml"),
        ({"parameters": {"network": [3]}}, "network: must be the path of a file, not 3"),
        ({"cost-per-npu-hour": {"dgx-a10": 1}}, "no machine preset 'dgx-a10'; did you mean 'dgx-a100'?"),
        ({"cost-per-npu-hour": {"hgx-h100": 1}}, "no price for dgx-a100; there are prices for hgx-h100"),
        ({"cost-per-npu-hour": -1}, "cost-per-npu-hour must be a number above 0"),
        ({"cost-per-npu-hour": 1.7e308}, "cost-per-npu-hour must be a number above 0"),
        ({"objective": "cost_per_step"}, "cost_per_step needs a price: cost-per-npu-hour"),
        ({"constraints": ["cost_per_hour < 3"]}, "cost_per_hour needs a price: cost-per-npu-hour"),
        ({"objective": "steady_cost_per_million_tokens"}, "steady_cost_per_million_tokens needs a price"),
        ({"objective": "tokens_per_s"}, "objective: no point of this study has tokens_per_s; its points have step_ms"),
        ({"pareto": ["step_ms", "tokens_per_s"]}, "pareto: no point of this study has tokens_per_s; its points have"),
        ({"constraints": ["tokens_per_s > 5"]}, "'tokens_per_s > 5': no point of this study has tokens_per_s; its"),
        (
            {"workload": {"model": "gpt2-small", "mode": "prefill"}, "objective": "tokens_per_s", "parameters": {}},
            "its points have step_ms, exposed_ms, memory_gb, memory_share, samples_per_s, ttft_ms, mfu, hfu, npus",
        ),
        (
            {"workload": {"model": "gpt2-small", "mode": "decode"}, "objective": "ttft_ms", "parameters": {}},
            "samples_per_s, tokens_per_s, tokens_per_s_per_npu, tpot_ms, decode_tokens_per_s, mfu, hfu, npus",
        ),
        ({"constraints": ["step_m < 5"]}, "no value named 'step_m'; did you mean 'step_ms'?"),
        ({"constraints": ["tp <= 8"]}, "'tp <= 8': the study gives no value named 'tp'"),
        ({"constraints": ["workload_kind == mlp"]}, "no value named 'mlp', and it is no metric; a text stands in quotes"),
    ],
)  # fmt: skip
def test_a_mistyped_word_stops_the_study_before_anything_runs(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    result = invoke(str(write_study(tmp_path, **changes)), "--workers", "1")
    assert isinstance(result.exception, ConfigError)
    assert result.exception.exit_code == 2
    assert message in str(result.exception)
    assert str(tmp_path / "small.yml") in str(result.exception)
    assert not (tmp_path / "small.results").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "bad.yml",
            "topology: [ Rng ]\nnpus_count: [ 2 ]\nbandwidth: [ 1 ]\nlatency: [ 1 ]\n",
            "did you mean 'Ring'?",
        ),
        ("bad.yml", "topology: [ Ring\n", "bad.yml"),
        ("bad.json", '{"schedulin-policy": "LIFO"}', "did you mean 'scheduling-policy'?"),
        ("bad.json", '{"all-reduce-implementation": ["rnig"]}', "did you mean 'ring'?"),
    ],
)
@pytest.mark.parametrize("varied", [False, True])
def test_a_wrong_file_stops_the_study_before_anything_runs(
    tmp_path: Path, name: str, text: str, message: str, varied: bool
) -> None:
    """The content of the second file was only found out when its points ran."""
    bad, section = tmp_path / name, "network" if name.endswith(".yml") else "system"
    bad.write_text(text)
    changes = {"parameters": {section: [str(bad)]}} if varied else {section: str(bad)}
    result = invoke(str(write_study(tmp_path, **changes)), "--workers", "1")
    assert isinstance(result.exception, ConfigError)
    said = str(result.exception)
    assert message in said
    assert str(bad) in said
    assert str(tmp_path / "small.yml") in said
    assert not (tmp_path / "small.results").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cost-per-npu-hour": 2.0},
        {"workload": GPT},
        {"workload": {**GPT, "mode": "decode"}},
        {"workload": {**GPT, "framework": "megatron-2022"}},
        {"workload": {**GPT, "layers": 2, "pp": 2, "micro-batches": 4}},
        {"workload": {**GPT, "layers": 2, "pp": 2, "mode": "serve", "decode-steps": 2}},
        {
            "workload": {**GPT, "layers": 2, "pp": 2, "tp": 4},
            "platform": "hgx-h100 over 400G rails of 8 ports",
        },
    ],
)
def test_metrics_that_points_have_are_those_that_a_study_may_ask_for(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    study = small(parameters={"workload.dp": [2]}, **changes)
    [point] = run(study, tmp_path)
    assert point.ok, point.reason
    # an interval is promised where a framework is named, and kept where measured rows are near
    assert available(study) - {"step_low_ms", "step_high_ms"} == point.metrics.keys() - {
        "step_low_ms",
        "step_high_ms",
    }
    assert available(study) >= point.metrics.keys() - {"iterations"}


def test_what_only_some_kinds_have_is_no_mistake(tmp_path: Path) -> None:
    """Widths belong to one of the two kinds: points of the other cannot be, the study goes on."""
    study = small(parameters={"workload.kind": ["mlp", "resnet"], "workload.dp": [2]})
    assert [outcome.status for outcome in run(study, tmp_path)] == ["ok", "infeasible"]


def test_a_column_of_figures_has_one_form() -> None:
    assert figures([1208530.0, 998.25, 12.0]) == ["1,208,530.00", "998.25", "12.00"]
    assert figures([1208530.4, 1108530.4]) == ["1,208,530", "1,108,530"]
    assert figures([0.012345678, 0.5, None]) == ["0.01235", "0.50000", "-"]
    assert figures([100.0, 50.0, 1024]) == ["100", "50", "1,024"]
    assert figures(["ring", True, [1, 2]]) == ["ring", "True", "[1, 2]"]
    assert figures([0.0, 0.0]) == ["0", "0"]


def test_the_table_has_units_and_no_powers_of_ten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chakra.cli.commands.sweep.output_width", lambda: 400)
    path = write_study(tmp_path, parameters={"workload.dp": [2, 4], "workload.micro-batch": [8, 4096]})
    lines = invoke(str(path), "--workers", "1", "--no-report").stdout.splitlines()
    header = next(line for line in lines if line.startswith("rank"))
    assert "MFU [% of peak]  HFU [% of peak]" in header
    assert "step [ms]" in header
    rows = lines[lines.index(header) + 1 : lines.index(header) + 5]
    assert not any("e+" in row or "e-" in row for row in rows)
    decimals = [[cell.partition(".")[2] for cell in re.split(r"\s{2,}", row)] for row in rows]
    assert len({tuple(map(len, row[:8])) for row in decimals}) == 1


def test_peak_speed_that_nobody_asked_for_is_said(tmp_path: Path) -> None:
    path = str(write_study(tmp_path, parameters={"workload.dp": [2]}))
    modelled = invoke(path, "--workers", "1", "--no-report").stdout
    assert "note: computation takes the operator times of dgx-a100" in modelled
    path = str(write_study(tmp_path, parameters={"workload.dp": [2], "replay.ideal": [True]}))
    shown = invoke(path, "--workers", "1", "--no-report").stdout
    assert "note: computation runs at 100 % of peak FLOP/s and memory bandwidth" in shown
    assert "set workload.matmul-efficiency and workload.memory-efficiency" in shown
    document = json.loads(invoke(path, "--workers", "1", "--no-report", "--format", "json").stdout)
    assert len(document["notes"]) == 1
    half = notes(small(parameters={"workload.matmul_efficiency": [0.5]}))
    assert ["matmul-efficiency" in note for note in half] == [False]
    workload = {**STUDY["workload"], "matmul-efficiency": 0.5, "memory-efficiency": 0.8}
    assert notes(small(workload=workload)) == []
    assert notes(small(workload={"files": "x"})) == []


def test_a_study_without_a_terminal_says_when_it_begins_and_ends(tmp_path: Path) -> None:
    path = str(write_study(tmp_path))
    said = invoke(path, "--workers", "1", "--no-report").stderr.splitlines()
    # said where the cache is cold, and without the parquet extra
    elsewhere = re.compile("kernels to be compiled|pyarrow is not installed")
    first = [line for line in said if not elsewhere.search(line)]
    assert first[0] == "small: 12 points on 1 worker"
    assert re.fullmatch(r"small: 12 points done in \d+\.\d s", first[1])
    said = invoke(path, "--workers", "2", "--threads", "--no-report").stderr.splitlines()
    again = [line for line in said if not elsewhere.search(line)]
    assert again[0] == "small: 12 points on 2 threads"
    assert re.fullmatch(r"small: 12 points done in \d+\.\d s, 12 of them in earlier runs", again[1])
    quiet = CliRunner().invoke(with_quiet(command), [path, "--workers", "1", "--no-report", "--quiet"])
    assert quiet.exit_code == 0
    assert quiet.stderr == ""


def test_a_parameter_that_changes_nothing_is_named(tmp_path: Path) -> None:
    """Durations are those of the generated nodes' operator model, which a speed of recorded times does not divide."""
    study = small(
        platform="hgx-h100",
        parameters={"workload.dp": [4, 8], "replay.accelerator-speed": [1.0, 2.0, 4.0]},
    )
    found = run(study, tmp_path)
    assert len(found) == 6
    # 3 speeds make 3 pairs for each of 2 values of dp
    [note] = without_effect(study, found)
    assert note == (
        "replay.accelerator-speed changed nothing in any of 6 pairs of designs: it divides recorded times alone; "
        "accelerator.FAMILY (--kernel-speed) divides those of operator models, too"
    )
    # stored points say it again
    assert without_effect(study, run(study, tmp_path)) == [note]
    assert "changed nothing in any of 6 pairs" in study_html(study, found, {})


def test_a_parameter_without_pairs_is_not_judged(tmp_path: Path) -> None:
    """Values of a list that go together: no design differs from another in one of them alone."""
    study = small(parameters={"workload.dp": [4]})
    assert without_effect(study, run(study, tmp_path)) == []
    study = small(parameters={"workload.dp": [2, 4], "workload.micro-batches": [1, 2]})
    assert without_effect(study, run(study, tmp_path)) == []
    # as long as two of the same study differ, nothing is said
    mixed = run(study, tmp_path)
    mixed = [one for one in mixed if one.point["workload.micro-batches"] == 1]
    assert without_effect(study, mixed) == []


def test_a_slow_point_is_not_run_again_for_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of slow points are kept until the pages are written; those that have a page stay for the next time."""
    folders = {}
    for name, slow_s in (("quick", 1e9), ("slow", 0.0)):
        (tmp_path / name).mkdir()
        path = write_study(tmp_path / name, parameters={"workload.dp": [2, 4, 8]})
        monkeypatch.setattr("chakra.sweep.outcomes.SLOW_S", slow_s)
        if name == "slow":
            monkeypatch.setattr("chakra.sweep.run_point", None)
        assert invoke(str(path), "--workers", "1", "--reports", "1").exit_code == 0
        assert invoke(str(path), "--workers", "1", "--reports", "1").exit_code == 0
        folders[name] = path.with_suffix(".results")
    assert not (folders["quick"] / "documents").exists()
    kept = list((folders["slow"] / "documents").iterdir())
    assert len(kept) == 2
    designs = [json.loads(path.read_text())["design"] for path in kept]
    assert all(design["workload.dp"] in ("2", "4", "8") for design in designs)
    assert len({design["workload.dp"] for design in designs}) == 2
    first, second = (json.loads((folder / "best.json").read_text()) for folder in folders.values())
    assert first == second
    pages = [sorted(path.name for path in (folder / "reports").iterdir()) for folder in folders.values()]
    assert pages[0] == pages[1]
    assert len(pages[0]) == 1
