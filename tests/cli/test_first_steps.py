"""What somebody types who has never used the commands: it works, or the message says what would."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Chakra = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["generate", "gpt"],
            "No such command 'gpt'. There are: collective, dlrm, mlp, moe, resnet, transformer.",
        ),
        (["generate", "transfromer"], "No such command 'transfromer'. Did you mean 'transformer'?"),
        (["topology", "fat"], "Did you mean 'fat-tree'?"),
        (["inspect", "w.0.et"], "No such command 'inspect'. Did you mean 'info'?"),
        (["generate", "inspect"], "No such command 'inspect'. There are: collective"),
        (["generate", "transformer", "--model", "gpt2"], "did you mean one of 'gpt2-small', 'gpt2-xl'?"),
        (
            ["replay", "-w", "w", "-n", "network.yml"],
            "Missing option '-s' / '--system' / '--system-configuration', or",
        ),
        (["replay", "-w", "w", "-s", "system.json"], "or '--platform' for a known machine."),
        (["replay", "-w", "w", "--platform", "hgx"], "no machine preset 'hgx'"),
        (
            ["replay", "-w", "w", "--platform", "2x hgx-h100"],
            "'2x hgx-h100' has 16 NPUs, not 8; --replicate repeats the traces that there are",
        ),
        (
            ["replay", "-w", "kineto", "-s", "system.json", "-n", "network.yml"],
            "there are recordings: `chakra convert pytorch --dir kineto -o OUT` makes traces of them",
        ),
        (
            ["replay", "-w", "w", "--platform", "hgx-h100", "--backend", "congestion_aware"],
            "Did you mean 'aware'?",
        ),
        (
            ["replay", "-w", "w", "--platform", "hgx-h100", "--backend", "congestion_unaware"],
            "Did you mean 'unaware'?",
        ),
        (
            ["replay", "-w", "w", "--platform", "hgx-h100", "--what-if", "gpu.speed=2x"],
            "did you mean 'accelerator.speed'?",
        ),
        (
            ["replay", "-w", "w", "--platform", "hgx-h100", "--what-if", "cpu.speed=2x"],
            "did you mean 'host.speed'?",
        ),
        (["convert", "pytorch", "--device", ".", "-o", "x"], "--device: . is a folder; --dir . takes"),
        (["convert", "pytorch", ".", "-o", "x"], "or FOLDER/JOB, goes behind --dir"),
        (
            ["info", "linked.json"],
            "a linked PyTorch trace, not an execution trace; `chakra convert pytorch --input linked.json",
        ),
        (
            ["replay", "-w", "w", "--platform", "hgx-h100", "-s", "system.json", "-n", "network.yml"],
            "--platform: the machine is given by -s and -n already",
        ),
        (
            ["replay", "-w", "w.0.et", "-s", "system.json", "-n", "network.yml"],
            "the prefix of this file is w",
        ),
        (["timeline", "w.0.et", "t.json"], "a replay's result (chakra replay --format json --nodes)"),
        (
            ["report", "run.json", "page.html"],
            "page.html: there is no such file; the page to write goes behind -o",
        ),
        (["check-config", "kineto.json"], "kineto.json: this is a Kineto trace, not a configuration file"),
        (["info", "nothing"], "and no nothing.<rank>.et or nothing.workload.json"),
        (
            ["sweep", "study.yaml"],
            "study.yaml: cannot be read: No such file or directory; did you mean study.yml?",
        ),
        (["anonymize", "w"], "name what to write: chakra anonymize IN OUT"),
        (["platform", "write", "cs-2", "-o", "x"], "one machine is one NPU; say how many"),
    ],
)
def test_a_wrong_guess_is_told_the_right_one(
    chakra: Chakra, ring8: Path, words: list[str], message: str
) -> None:
    (ring8 / "study.yml").write_text("study: x\n")
    (ring8 / "linked.json").write_text('{"nodes": [{"id": 1, "exclusive_dur": 1}]}')
    (ring8 / "kineto.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    outcome = chakra(*words)
    assert outcome.code == 2
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_known_machine_in_place_of_files(chakra: Chakra, ring8: Path) -> None:
    """It has as many NPUs as the workload has ranks, and gives what its written files give."""
    assert chakra("platform", "write", "hgx-h100", "-o", "box").code == 0
    files = chakra("replay", "-w", "w", "-s", "box.system.json", "-n", "box.network.yml")
    words = chakra("replay", "-w", "w", "--platform", "hgx-h100")
    assert words.code == files.code == 0
    assert words.out == files.out
    mixed = chakra("replay", "-w", "w", "--platform", "hgx-h100", "-s", "system.json")
    assert mixed.code == 0
    assert mixed.out != words.out


@pytest.mark.parametrize("suffix", ["json", "csv", "txt"])
def test_the_suffix_says_the_form_and_the_file_is_named(chakra: Chakra, ring8: Path, suffix: str) -> None:
    outcome = chakra("replay", "-w", "w", "-s", "system.json", "-n", "network.yml", "-o", f"run.{suffix}")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", f"wrote run.{suffix}\n")
    text = (ring8 / f"run.{suffix}").read_text()
    if suffix == "json":
        assert json.loads(text)["finish_ns"] == [117780] * 8
    else:
        assert text.startswith({"csv": "npu,finish_ns,", "txt": "sys[0] finished, 117780 cycles"}[suffix])


def test_output_goes_behind_o_as_elsewhere(chakra: Chakra, ring8: Path) -> None:
    assert chakra("visualize", "w.0.et", "-o", "w.svg").code == 0
    assert (
        chakra("replay", "-w", "w", "-s", "system.json", "-n", "network.yml", "--nodes", "-o", "r.json").code
        == 0
    )
    assert chakra("timeline", "r.json", "-o", "t.json").code == 0
    assert chakra("jsonize", "w.0.et", "-o", "w.json").code == 0
    assert chakra("anonymize", "w.0.et", "-o", "a.et").code == 0
    assert (ring8 / "w.svg").stat().st_size
    assert (ring8 / "w.json").stat().st_size
    assert (ring8 / "a.et").stat().st_size
    assert json.loads((ring8 / "t.json").read_text())["traceEvents"]


GENERATE = ("generate", "transformer", "--model", "gpt2-small", "--layers", "2", "--npus", "8", "--tp", "2")


def test_peak_speed_is_said_where_a_generated_workload_is_timed(chakra: Chakra, ring8: Path) -> None:
    made = chakra(*GENERATE, "--platform", "hgx-h100", "--ideal", "-o", "g")
    assert "computation is timed at 100 % of peak FLOP/s and memory bandwidth" in made.err
    assert "set --matmul-efficiency and --memory-efficiency" in made.err
    timed = chakra("replay", "-w", "g", "--platform", "hgx-h100")
    assert (
        "note              the workload was generated at 100 % of peak FLOP/s and memory bandwidth"
        in timed.out
    )
    assert chakra("platform", "write", "hgx-h100", "-o", "box").code == 0
    files = ("-s", "box.system.json", "-n", "box.network.yml")
    assert chakra(*GENERATE, "-o", "untimed").code == 0
    roofline = "note              the roofline computes at 100 % of 989 TFLOP/s"
    assert roofline in chakra("replay", "-w", "untimed", *files, "--ideal").out
    modelled = chakra("replay", "-w", "untimed", *files).out
    assert roofline not in modelled
    assert "note              computation takes the operator times of hgx-h100 (H100 SXM; fitted" in modelled


def test_durations_of_the_generator_are_those_of_a_replay(chakra: Chakra, ring8: Path) -> None:
    """One workload without durations serves every machine; with them it has those of the machine that was named."""
    made = chakra(*GENERATE, "--platform", "dgx-a100", "--durations", "-o", "timed")
    assert "computation is timed by the operator times of dgx-a100" in made.err
    assert chakra(*GENERATE, "--platform", "dgx-a100", "--no-durations", "-o", "untimed").code == 0

    def finish(prefix: str, machine: str) -> int:
        assert chakra("replay", "-w", prefix, "--platform", machine, "-o", "r.json").code == 0
        return int(json.loads((ring8 / "r.json").read_text())["account"]["compute_ns"][0])

    assert finish("timed", "dgx-a100") == pytest.approx(finish("untimed", "dgx-a100"), rel=1e-4)
    assert finish("timed", "hgx-h100") == finish("timed", "dgx-a100")
    assert finish("untimed", "hgx-h100") < finish("untimed", "dgx-a100")
    refused = chakra(*GENERATE, "--durations", "-o", "x")
    assert refused.code == 2
    assert "give --platform" in refused.err


def test_efficiencies_of_the_generator_are_not_dropped_in_silence(chakra: Chakra, ring8: Path) -> None:
    """A known machine takes the durations; a system file whose roofline replaces them makes the run warn."""
    shares = ("--matmul-efficiency", "0.5", "--memory-efficiency", "0.5")
    made = chakra(*GENERATE, "--platform", "hgx-h100", *shares, "-o", "half")
    assert "100 %" not in made.err
    assert chakra(*GENERATE, "--platform", "hgx-h100", "--ideal", "-o", "full").code == 0

    def compute_ns(prefix: str) -> int:
        assert chakra("replay", "-w", prefix, "--platform", "hgx-h100", "-o", "r.json").code == 0
        return int(json.loads((ring8 / "r.json").read_text())["account"]["compute_ns"][0])

    assert compute_ns("half") == pytest.approx(2 * compute_ns("full"), rel=1e-3)
    assert chakra("platform", "write", "hgx-h100", "-o", "box").code == 0
    system = json.loads((ring8 / "box.system.json").read_text())
    del system["operator-model"]
    (ring8 / "box.system.json").write_text(json.dumps(system))
    overridden = chakra("replay", "-w", "half", "-s", "box.system.json", "-n", "box.network.yml")
    assert "durations (matmul-efficiency 0.5, memory-efficiency 0.5) are not used" in overridden.err


def test_a_generated_workload_is_described_by_its_prefix(chakra: Chakra, ring8: Path) -> None:
    assert chakra(*GENERATE, "-o", "g").code == 0
    by_prefix, by_manifest = chakra("info", "g"), chakra("info", "g.workload.json")
    assert by_prefix.code == 0
    assert by_prefix.out == by_manifest.out
    assert by_prefix.out.startswith("g.class0.et\n")
    for name in ("g", "g.workload.json"):
        checked = chakra("validate", name, "--strict")
        assert (checked.code, checked.err) == (0, "")
        assert re.fullmatch(rf"{name}: 1 trace of [0-9]+ ranks: no findings\n", checked.out)


def test_sizes_in_any_case(chakra: Chakra, ring8: Path) -> None:
    for number, size in enumerate(("64MiB", "64mib", "64MIB")):
        outcome = chakra("generate", "collective", "--size", size, "--npus", "1", "-o", f"c{number}")
        assert outcome.err == f"wrote 1 file: c{number}.0.et\n"
    assert len({(ring8 / f"c{number}.0.et").read_bytes() for number in range(3)}) == 1
