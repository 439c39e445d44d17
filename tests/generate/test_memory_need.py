"""A design that does not fit in memory: one figure and one capacity from generator, replay, report and study."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import Workload
from chakra.cli.commands.generate_workload import memory_notes
from chakra.cli.main import run
from chakra.et.memory_need import MemoryNeed, generated_totals, need_of
from chakra.generate import TransformerRequest, build_workload, summarize
from chakra.generate.plan.options import Recompute
from chakra.generate.verify.memory import stage_memory
from chakra.generate.verify.totals import memory_need, totals_of
from chakra.io.readable import decimal_bytes_text
from chakra.replay import simulate
from chakra.report.document import read_run
from chakra.report.tables import headline
from chakra.sweep import study_from
from chakra.sweep.point import run_point
from chakra.sweep.store import Outcome
from chakra.sweep.table import result_notes

SMALL = {"model": "gpt2-small", "npus": 2, "micro-batch": 1, "seq": 64, "layers": 2}
RING = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50.0], "latency": [500.0]}
SYSTEM = {"all-reduce-implementation": ["ring"]}


def workload(**words: Any) -> Any:
    request = TransformerRequest.from_mapping(words)
    plan = request.plan()
    return build_workload(plan, metadata={**request.facts("transformer"), **totals_of(request, plan).fact()})


def point(capacity_gb: float | None = None, *, needs_memory: bool = False, **words: Any) -> dict[str, Any]:
    system = {} if capacity_gb is None else {"local-mem-capacity": capacity_gb}
    made = {"kind": "transformer", **words}
    merged = {"workload": made, "platform": "hgx-h100", "network": {}, "system": system, "replay": {}}
    return run_point(merged, needs_memory=needs_memory, document_from_s=0.0)


def test_model_states_by_hand() -> None:
    """Weights of 2 bytes, gradients of 4, Adam's 12: 18 bytes a parameter; positions are those of the preset."""
    layer = 12 * 768 * 768 + 13 * 768
    parameters = 50257 * 768 + 1024 * 768 + 2 * layer + 2 * 768
    need = simulate(workload(**SMALL), SYSTEM, RING).memory_need
    assert need is not None
    assert (need.stage, need.states, need.cache) == ("", 18 * parameters, 0)
    assert need.peak_bytes == need.states + need.activations + need.transient


def test_a_cache_by_hand() -> None:
    """Keys and values of 12 layers, 768 numbers of 2 bytes each, for 4 requests of 100 tokens and the one decoded."""
    request = {"model": "gpt2-small", "npus": 2, "micro-batch": 4, "seq": 100, "mode": "decode", "tp": 2}
    need = simulate(workload(**request), SYSTEM, RING).memory_need
    assert need is not None
    assert need.cache == 12 * 2 * 768 * 2 * 4 * 101 // 2
    assert need.activations == 0


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_generator_replay_and_study_say_the_same(data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from(["train", "train", "decode", "serve"]))
    words: dict[str, Any] = {
        "model": "gpt2-small", "layers": 4, "seq": 64, "npus": 8, "mode": mode,
        "tp": data.draw(st.sampled_from([1, 2])), "pp": data.draw(st.sampled_from([1, 2, 4])),
        "micro-batch": data.draw(st.sampled_from([1, 4])),
    }  # fmt: skip
    if mode == "train":
        words |= {
            "zero": data.draw(st.integers(0, 1)),
            "micro-batches": 4,
            "recompute": data.draw(st.sampled_from(["none", "full"])),
        }
    stages = summarize(TransformerRequest.from_mapping(words).plan())
    peak = max(stage.memory.total for stage in stages)
    capacity = data.draw(st.sampled_from([peak - 1, peak, peak + 1]))
    found = point(capacity / 1e9, needs_memory=False, **words)
    need = found["document"]["memory_need"]
    assert need["peak_bytes"] == peak == round(found["metrics"]["memory_gb"] * 1e9)
    assert need["capacity_bytes"] == capacity
    assert found["metrics"]["memory_share"] == need["share"] == peak / capacity
    fullest = next(stage for stage in stages if stage.memory.total == peak)
    assert need["stage"] == (fullest.title if len(stages) > 1 else "")
    assert {name: need[f"{name}_bytes"] for name in asdict(fullest.memory)} == asdict(fullest.memory)
    noted = any("the job does not fit" in note for note in found["document"]["notes"])
    # the constraint refuses exactly what the note tells
    refused = point(capacity / 1e9, needs_memory=True, **words)
    assert noted == (peak > capacity) == (refused["status"] == "infeasible")
    if noted:
        assert refused["reason"] in next(n for n in found["document"]["notes"] if "does not fit" in n)


def test_text_document_and_report_tell_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Llama-3 70B on 16 H100s with nothing sharded but tensors: 219.6 GB for the 80 GB of each."""
    prefix = str(tmp_path / "big")
    line = "generate transformer --model llama3-70b --layers 8 --npus 8 --tp 2 --global-batch 8 --platform hgx-h100"
    assert run([*line.split(), "-o", prefix, "--format", "json"]) == 0
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    need = summary["memory_need"]
    assert need["peak_bytes"] == max(stage["memory_total_bytes"] for stage in summary["stages"])
    assert need["capacity_bytes"] == 80_000_000_000 < need["peak_bytes"]
    split = ", ".join(f"{part} {need[f'{part}_bytes'] / 1e9:.4g} GB" for part in ("states", "activations"))
    words = f"a rank ({split}) needs {need['peak_bytes'] / 1e9:.4g} GB of memory, the accelerator has 80 GB"
    assert f"note: the job does not fit: {words}" in shown.err
    machine = ["replay", "-w", prefix, "--platform", "hgx-h100"]
    assert run(machine) == 0
    text = capsys.readouterr().out
    share = (
        f"{need['peak_bytes'] / 1e9:.4g} GB of 80 GB ({100 * need['share']:.1f} %), each rank: does not fit"
    )
    assert f"\nmemory            {share}\n" in text
    assert f"\nnote              the job does not fit: {words}; times are as if it had enough\n" in text
    page = str(tmp_path / "run.json")
    assert run([*machine, "--format", "json", "-o", page, "-q"]) == 0
    document = json.loads(Path(page).read_text(encoding="utf-8"))
    assert document["memory_need"] == need
    assert dict(headline(read_run(page)))["Memory needed"] == share
    assert run([*machine, "--what-if", "npu.memory=3x", "--format", "json", "-q"]) == 0
    changed = json.loads(capsys.readouterr().out)["memory_need"]
    assert changed["before"] == need
    assert changed["after"] == {**need, "capacity_bytes": 240_000_000_000, "share": need["share"] / 3}
    assert run([*machine, "--what-if", "npu.memory=141"]) == 0
    text = capsys.readouterr().out
    assert f"memory: {share}; changed: {share.split(' of ')[0]} of 141 GB (" in text
    assert "npu.memory=141 changed nothing: it says whether a generated workload fits" in text


def test_a_machine_that_states_no_capacity_gives_the_need_alone() -> None:
    result = simulate(workload(**SMALL), SYSTEM, RING)
    assert result.memory_need is not None
    document = result.to_dict()["memory_need"]
    assert (document["capacity_bytes"], document["share"]) == (None, None)
    assert not [note for note in result.notes if "fit" in note]
    assert "memory            " in str(result)
    tight = simulate(workload(**SMALL), {**SYSTEM, "local-mem-capacity": 0.5}, RING)
    assert tight.notes[0].endswith("the accelerator has 500 MB; times are as if it had enough")


def test_nothing_is_said_where_nothing_is_known() -> None:
    """Other traces, ASTRA-sim's answers, changed numbers of ranks."""
    job = Workload(2)
    job.run(lambda b: b.compute("x", duration_ns=1000))
    tiny = {**SYSTEM, "local-mem-capacity": 1e-6}
    made = workload(**SMALL)
    for result in (
        simulate(job, tiny, RING),
        simulate(made, tiny, RING, compat="astra-sim"),
    ):
        assert result.memory_need is None
        assert "memory_need" not in result.to_dict()
        assert not [note for note in result.notes if "fit" in note]
        assert "\nmemory " not in str(result)
    assert need_of(generated_totals(made.traces, 2)) is not None
    assert generated_totals(made.traces, 4) == {}


@pytest.mark.parametrize("given", [
    {}, {"memory": 3}, {"memory": {"stage": 0}},
    {"memory": {"stage": "0", "states": 1, "activations": 1, "transient": 1}},
    {"memory": {"stage": "0", "states": -1, "activations": 1, "transient": 1, "cache": 0}},
    {"memory": {"stage": "0", "states": 1.5, "activations": 1, "transient": 1, "cache": 0}},
    {"memory": {"stage": "0", "states": True, "activations": 1, "transient": 1, "cache": 0}},
])  # fmt: skip
def test_totals_that_cannot_be_are_no_need(given: dict[str, object]) -> None:
    assert need_of(given) is None


def test_what_the_generator_writes_is_what_a_replay_reads() -> None:
    need = MemoryNeed("decode 1 ep 2", 5, 4, 3, 2)
    assert need_of({"memory": json.loads(json.dumps(need.fact()))}) == need
    assert need.peak_bytes == 14
    assert (need.fits(14), need.fits(13)) == (True, False)


def test_a_study_counts_designs_that_do_not_fit() -> None:
    study = study_from(
        {"workload": {"kind": "transformer"}, "platform": "hgx-h100", "parameters": {"workload.tp": [1, 2]}},
        "s",
    )
    outcomes = [
        Outcome(str(share), {"workload.tp": 1}, "ok", {"step_ms": 1.0, "memory_share": share})
        for share in (0.5, 1.0, 1.01, 2.0)
    ]
    assert any(
        note.startswith("2 designs that ran need more") for note in result_notes(study, outcomes, outcomes)
    )
    assert not any("memory" in note for note in result_notes(study, outcomes[:2], outcomes[:2]))


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ("--zero 2", "and with --comm-order stream "),
        ("--zero 2 --comm-order stream", ""),
        ("--zero 1", ""),
        ("--recompute selective", "--recompute selective saves no memory"),
        ("--recompute selective --no-flash", ""),
        ("--recompute none", ""),
    ],
)
def test_what_is_to_save_memory_and_does_not_is_noted(
    capsys: pytest.CaptureFixture[str], options: str, note: str
) -> None:
    """Whole gradients of ZeRO 2, and attention computed again that keeps no scores; the note has the table's figures."""
    line = (
        "generate transformer --model gpt2-small --pp 2 --dp 4 --bucket-mb 1 --micro-batches 4 --format json"
    )

    def planned(*more: str) -> tuple[int, str]:
        assert run([*line.split(), *more]) == 0
        out, err = capsys.readouterr()
        return json.loads(out)["memory_need"]["peak_bytes"], err

    peak, told = planned(*options.split())
    assert ("comm-order stream" in told or "selective saves no memory" in told) == bool(note)
    assert note in told
    if options == "--zero 2":
        less, _ = planned("--zero", "2", "--comm-order", "stream")
        assert less < peak
        assert (
            f"a rank needs {decimal_bytes_text(peak)}, and with --comm-order stream {decimal_bytes_text(less)}"
            in told
        )
    if options == "--recompute selective":
        assert peak >= planned()[0]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"pp": 2, "micro_batches": 4},
        {"zero": 2},
        {"zero": 3},
        {"flash": False},
        {"tp": 2, "vp": 2, "pp": 2, "micro_batches": 4},
    ],
)
def test_memory_without_recomputation_is_told_of_the_plan_with_it(more: dict[str, Any]) -> None:
    """A plan is made once: what would be kept without recomputation is known of it."""
    given = {"model": "gpt2-small", "dp": 2, **more}
    with_it, without = (
        TransformerRequest.from_mapping({**given, "recompute": how}).plan() for how in ("selective", "none")
    )
    asked = replace(with_it, training=replace(with_it.training, recompute=Recompute.NONE))
    assert [stage_memory(asked, stage) for stage in asked.stages] == [
        stage_memory(without, stage) for stage in without.stages
    ]


def test_a_note_on_recomputation_plans_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    request = TransformerRequest.from_mapping({"model": "gpt2-small", "dp": 2, "recompute": "selective"})
    plan = request.plan()
    need = memory_need(summarize(plan))
    monkeypatch.setattr(type(request), "plan", lambda _: pytest.fail("planned anew"))
    [note] = memory_notes(request, plan, need)
    assert "saves no memory" in note
