"""``chakra generate`` from the command line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from chakra.cli.commands import generate_workload
from chakra.errors import ChakraError, UsageError
from chakra.et import read_trace
from chakra.generate import read_manifest
from chakra.generate.model.presets import TRANSFORMERS
from chakra.platforms import platform_names

DOCS = Path(__file__).resolve().parents[2] / "docs" / "guides" / "generate.md"


def run(kind: str, *arguments: str) -> Any:
    result = CliRunner().invoke(getattr(generate_workload, kind), list(arguments))
    if isinstance(result.exception, ChakraError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_the_table_of_inference_shows_the_cache(tmp_path: Path) -> None:
    """By hand: keys and values, 1,024 tokens of 512 requests, 2 layers of width 768 in 2 bytes; parts add up."""
    sizes = (
        "--model",
        "gpt2-small",
        "--layers",
        "2",
        "--seq",
        "1000",
        "--micro-batch",
        "512",
        "-o",
        str(tmp_path / "w"),
    )
    result = run("transformer", *sizes, "--mode", "serve", "--decode-steps", "24")
    lines = result.stdout.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("stage"))
    assert "activations GB  cache GB  peak GB" in lines[at]
    states, activations, cache, peak = map(float, lines[at + 1].split()[-4:])
    assert cache == pytest.approx(2 * 1024 * 512 * 2 * 768 * 2 / 1e9, abs=5e-4)
    assert states + activations + cache == pytest.approx(peak, abs=2e-3)
    assert "cache GB" not in run("transformer", *sizes).stdout


def test_the_example_checks_writes_and_describes(tmp_path: Path) -> None:
    result = run(
        "transformer", "--model", "gpt3-175b", "--tp", "8", "--pp", "8", "--npus", "1024", "--micro-batches", "8",
        "--platform", "hgx-h100", "--check", "-o", str(tmp_path / "w"),
    )  # fmt: skip
    assert "WRONG" not in result.stdout
    assert len(re.findall(r" ok$", result.stdout, re.MULTILINE)) >= 10
    assert "1,024 NPUs (tp 8 x dp 16 x pp 8), 8 micro-batches" in result.stdout
    assert "peak GB" in result.stdout
    assert "wrote" in result.stderr
    workload = read_manifest(tmp_path / "w.workload.json")
    assert (workload.npus, len(workload.traces)) == (1024, 8)
    trace = workload.traces[0]
    assert trace.node(0).name == "F0 embedding.lookup"
    facts = {attribute.name: attribute for attribute in trace.metadata.attr}
    assert json.loads(facts["parameters"].string_val)["tp"] == 8
    assert facts["peer_mode"].string_val == "relative"


@pytest.mark.parametrize(("kind", "arguments"), [
    ("moe", ["--layers", "2", "--dp", "8", "--ep", "8", "--seq", "128"]),
    ("mlp", ["--widths", "64,128,64", "--dp", "4"]),
    ("resnet", ["--dp", "4", "--micro-batch", "2"]),
    ("dlrm", ["--dp", "4", "--micro-batch", "16"]),
    ("transformer", ["--model", "llama2-7b", "--mode", "serve", "--seq", "64", "--decode-steps", "2", "--tp", "2"]),
])  # fmt: skip
def test_every_kind_writes_plain_files(tmp_path: Path, kind: str, arguments: list[str]) -> None:
    run(kind, *arguments, "--files", "-o", str(tmp_path / "w"), "--quiet", "--platform", "dgx-a100")
    ranks = len(list(tmp_path.glob("w.*.et")))
    assert ranks in (2, 4, 8)
    assert (tmp_path / "w.comm_groups.json").exists()
    assert all(read_trace(tmp_path / f"w.{rank}.et").n_nodes > 5 for rank in range(ranks))


def test_the_summary_as_json() -> None:
    document = json.loads(
        run("transformer", "--model", "gpt2-small", "--tp", "2", "--pp", "2", "--format", "json").stdout
    )
    assert document["schema"] == "chakra.generate.summary/1"
    assert len(document["stages"]) == 2
    assert document["stages"][0]["memory"]["states"] > 0
    assert document["parameters_given"]["tp"] == 2


def test_parameters_from_a_file_and_options_before_it(tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_text("model: gpt2-small\ntp: 2\nmicro-batches: 3\nschedule: gpipe\n")
    document = json.loads(run("transformer", "--config", str(path), "--tp", "4", "--format", "json").stdout)
    given = document["parameters_given"]
    assert (given["tp"], given["micro_batches"], given["schedule"]) == (4, 3, "gpipe")


def test_all_models_are_listed() -> None:
    assert all(name in run("transformer", "--list-models").stdout for name in TRANSFORMERS)
    assert "gpt3" not in run("moe", "--list-models").stdout
    assert "dlrm-criteo" in run("dlrm", "--list-models").stdout


def test_tensors_are_made_once_and_used_once(tmp_path: Path) -> None:
    for recompute in ("none", "selective", "full"):
        run(
            "transformer", "--model", "gpt2-small", "--layers", "2", "--pp", "2", "--micro-batches", "3", "--no-flash",
            "--recompute", recompute, "--tensors", "-o", str(tmp_path / recompute), "--quiet", "--seq", "64",
        )  # fmt: skip
        for trace in read_manifest(tmp_path / f"{recompute}.workload.json").traces:
            made: dict[str, tuple[int, int]] = {}
            used: dict[str, int] = {}
            for i in range(trace.n_nodes):
                for name, size in pairs(trace.attr(i, "outputs", ())):
                    assert name not in made
                    made[name] = (i, size)
                for name, size in pairs(trace.attr(i, "inputs", ())):
                    assert name not in used
                    assert size == made[name][1]
                    assert i > made[name][0]
                    used[name] = i
            assert made.keys() == used.keys()


def pairs(flat: tuple[str, ...]) -> list[tuple[str, int]]:
    return [(name, int(size)) for name, size in zip(flat[::2], flat[1::2], strict=True)]


@pytest.mark.parametrize(("arguments", "message"), [
    (["--model", "xyz"], "no model preset 'xyz'; `chakra generate transformer --list-models` lists all "),
    (
        ["--model", "lama3-8b"],
        r"no model preset 'lama3-8b'; did you mean one of 'llama3-8b', 'llama3-70b', 'llama3-405b'\? `chakra generate ",
    ),
    (["--model", "vit"], r"did you mean one of 'vit-b16', 'vit-l16', 'vit-h14', 'vit-22b'\? `chakra generate "),
    (["--model", ""], "these sizes are needed: layers, hidden, heads, vocabulary, seq"),
    (["--tp", "7"], r"heads \(96\) must be a multiple of tp \(7\)"),
    (["--npus", "10", "--tp", "8"], r"npus \(10\) must be a multiple of tp\*cp\*pp = 8"),
    (["--npus", "16", "--tp", "8", "--dp", "4"], r"tp\*cp\*dp\*pp = 32, but npus is 16"),
    (["--global-batch", "10", "--micro-batch", "4"], r"global batch \(10\) must be a multiple of micro-batch\*dp = 4"),
    (["--global-batch", "8", "--micro-batches", "4"], r"= 4, but global batch is 8"),
    (["--dtype", "int3"], "dtype 'int3' is not one of fp32"),
    (["--zero", "4"], "zero must be 0, 1, 2 or 3"),
    (["--peak-tflops", "5"], "go together"),
    (["--peak-tflops", "-5", "--mem-gbps", "1"], "peak_flops must be a positive number"),
    (["--matmul-efficiency", "2", "--peak-tflops", "5", "--mem-gbps", "1"], "above 0 and at most 1"),
    (["--platform", "hgx-h10"], "did you mean 'hgx-h100'"),
    (["--platform", "hgx-h100 ovr 400G"], r"is not '\[COUNT x\] PRESET \[over RATE \.\.\.\]'"),
    (["--platform", "4x hgx-h100 over 400G", "--dp", "8"], "has 32 NPUs, and the workload 8 ranks; --npus"),
    (["--capacity", "0"], "capacity must be a positive number"),
    (["--micro-batch", "0"], "micro-batch must be at least 1"),
    (["--layers", "-3"], "layers must be at least 1, not -3"),
    (["--heads", "0"], "heads"),
    (["--kv-heads", "7"], "must be a multiple of kv-heads"),
    (["--files"], "give --output PREFIX too"),
    (["--stage-layers", "90,7", "--pp", "2"], "that add up to 96 layers"),
    (["--bucket-mb", "0"], "bucket bytes must be at least 1"),
    (["--mode", "decode", "--seq", "0"], "sequence must be at least 1"),
    (["--mode", "prefill", "--decode-steps", "4"], "is of mode decode, serve, disaggregated; mode prefill does not read"),
    (["--layer-pattern", "M"], "of at least 1, not 0: give --inner, --state-size, --state-heads, or a model that has"),
    (["--config", "/nonexistent.yml"], "cannot be read"),
])  # fmt: skip
def test_wrong_options_are_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(ChakraError, match=message) as caught:
        run("transformer", *arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    ["2x hgx-h100 over 400G", "2xhgx-h100 over 400G rails of 64 ports", "hgx-h100 over 400G fat tree"],
)
@pytest.mark.parametrize("how", [[], ["--ideal"]])
def test_a_machine_is_what_a_replay_takes(words: str, how: list[str], tmp_path: Path) -> None:
    """Its accelerator gives the durations, whatever joins the machines."""
    step = ["--model", "gpt2-small", "--layers", "2", "--dp", "16", "--quiet", *how]
    run("transformer", *step, "--platform", words, "-o", str(tmp_path / "words"))
    run("transformer", *step, "--platform", "hgx-h100", "-o", str(tmp_path / "preset"))
    made, wanted = (read_manifest(tmp_path / f"{name}.workload.json").traces for name in ("words", "preset"))
    assert [one.durations_ns().tolist() for one in made] == [one.durations_ns().tolist() for one in wanted]
    assert made[0].durations_ns().any()


def test_only_transformers_have_closed_forms_here() -> None:
    with pytest.raises(UsageError, match="closed forms of transformers only"):
        run("mlp", "--check")


@pytest.mark.parametrize("arguments", [
    ["--model", "llama2-70b", "--tp", "8", "--pp", "4", "--sp", "--recompute", "full", "--micro-batches", "8"],
    ["--model", "llama3-8b", "--tp", "2", "--cp", "2", "--dp", "2", "--zero", "3"],
    ["--model", "mixtral-8x7b", "--dp", "8", "--ep", "8"],
    ["--model", "gpt3-13b", "--pp", "4", "--vp", "2", "--schedule", "interleaved", "--micro-batches", "8", "--tp", "4"],
    ["--model", "gpt3-13b", "--pp", "4", "--schedule", "zb-h2", "--micro-batches", "8"],
    ["--model", "llama3-8b", "--layers", "4", "--pp", "2", "--tp", "2", "--cp", "2", "--seq", "512", "--mode", "prefill"],
])  # fmt: skip
def test_closed_forms_hold_for_many_layouts(arguments: list[str]) -> None:
    assert "WRONG" not in run("transformer", *arguments, "--check").stdout


def test_options_and_platforms_of_the_guide_exist() -> None:
    text = DOCS.read_text()
    known = {
        option
        for command in (generate_workload.transformer,)
        for param in command.params
        for option in [*param.opts, *param.secondary_opts]
    }
    known |= {"--npus", "--comm-streams"}
    assert set(re.findall(r"`(--[a-z-]+)", text)) <= known
    assert set(re.findall(r"--platform ([a-z0-9-]+)", text)) <= set(platform_names())


@pytest.mark.parametrize(("arguments", "reason"), [
    (["--model", "mixtral-8x7b", "--layers", "2", "--tp", "2"], "all 2 tensor-parallel ranks work on routers,"),
    (["--model", "vit-l16", "--layers", "2", "--tp", "4"], "all 4 tensor-parallel ranks work on the matrix of patches,"),
    (["--model", "whisper-large-v3", "--tp", "2"], "work on the convolutions of the spectrum,"),
    (["--model", "llama2-70b", "--layers", "2", "--tp", "16"], "work on copies of key-value heads,"),
    (["--model", "mixtral-8x7b", "--layers", "2", "--capacity", "2"], "with capacity 2 experts do not"),
    (["--model", "gpt2-small", "--mode", "prefill", "--causal"], "known of training alone"),
])  # fmt: skip
def test_flops_that_are_not_compared_are_named_with_the_reason(arguments: list[str], reason: str) -> None:
    said = run("transformer", *arguments, "--check").stdout
    [note] = [line for line in said.splitlines() if line.startswith("note:")]
    assert note.startswith("note: matrix FLOPs are not compared: ")
    assert reason in note
    assert "matrix FLOPs of all ranks  " not in said.partition("note:")[0]


@pytest.mark.parametrize("arguments", [
    ["--model", "mixtral-8x7b", "--layers", "2", "--tp", "2", "--sp"],
    ["--model", "vit-l16", "--layers", "2", "--dp", "2"],
    ["--model", "gpt2-small", "--tp", "2"],
])  # fmt: skip
def test_flops_that_are_compared_have_no_note(arguments: list[str]) -> None:
    said = run("transformer", *arguments, "--check").stdout
    assert "note:" not in said
    assert said.splitlines()[2].startswith("matrix FLOPs of all ranks")
