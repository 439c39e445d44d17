"""What reports, comparisons and summaries show of every kind of generated model."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.cli.main import run as chakra
from chakra.errors import UsageError
from chakra.et.families import kernel_family
from chakra.generate import TransformerRequest, summarize
from chakra.generate.model.ir import OpKind
from chakra.generate.model.stage_model import balanced
from chakra.generate.verify.check import check_step
from chakra.io.readable import counted_name, without_step

#: kinds of models, small enough for a replay
MODELS: dict[str, dict[str, Any]] = {
    "mamba": {
        "model": "mamba2-130m", "layers": 2, "hidden": 64, "inner": 128, "state-heads": 4, "vocabulary": 96, "seq": 64,
    },
    "vision": {"model": "vit-b16", "layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "image": 32},
    "hybrid": {
        "model": "jamba-v0.1", "layers": 8, "hidden": 64, "heads": 4, "kv-heads": 4, "ffn": 64, "moe-ffn": 64,
        "inner": 128, "dt-rank": 8, "vocabulary": 96, "seq": 64,
    },
    "encoder-decoder": {
        "model": "t5-small", "layers": 2, "encoder-layers": 2, "vocabulary": 96, "seq": 16, "encoder-seq": 32,
    },
    "images": {
        "model": "llava-1.5-7b", "layers": 2, "encoder-layers": 2, "hidden": 64, "heads": 4, "ffn": 128, "vocabulary": 96,
        "image": 28, "seq": 16, "freeze-encoder": True,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        *MODELS.values(),
        {"model": "mamba-130m"},
        {"model": "bart-base"},
        {"model": "whisper-large-v3"},
        {"model": "deepseek-v3"},
        {"model": "gpt-oss-20b"},
        {"model": "deepseek-v3", "mode": "decode"},
        {"model": "mamba2-130m", "mode": "decode"},
    ],
    ids=str,
)
def test_every_operator_has_the_family_of_what_it_is(options: dict[str, Any]) -> None:
    """A product is never shown among others, nor what memory bounds among products."""
    for chunk in TransformerRequest.from_mapping(options).plan().model.chunks:
        for layer in chunk:
            for op in layer.operators:
                if not op.forward:
                    continue
                family = kernel_family(f"F0 {layer.name}.{op.name}")
                if op.kind is OpKind.GEMM:
                    assert family in ("matmul", "convolution"), op.name
                elif op.kind is OpKind.ATTENTION:
                    assert family == "attention", op.name
                else:
                    assert family not in ("matmul", "attention", "other"), op.name


def test_layers_of_an_encoder_are_counted_like_others() -> None:
    assert counted_name("F3 encoder12.fc1") == "F# encoder#.fc1"
    assert counted_name("B0 encoder_embedding.conv2.dgrad") == "B# encoder_embedding.conv2.dgrad"


@pytest.mark.parametrize(
    ("name", "counted", "single"),
    [
        ("step12.F3 layer4.fc1", "F# layer#.fc1", "F3 layer4.fc1"),
        ("step0 optimizer", "optimizer", "optimizer"),
        ("step1 params.bucket3.all_gather", "params.bucket#.all_gather", "params.bucket3.all_gather"),
        ("F3.1 layer4.fc1", "F# layer#.fc1", "F3.1 layer4.fc1"),
        ("D2.0 head.logits", "D# head.logits", "D2.0 head.logits"),
        ("stepper motor", "stepper motor", "stepper motor"),
        ("step3", "step3", "step3"),
    ],
)
def test_steps_and_chunks_of_a_stage_are_counted_like_micro_batches(
    name: str, counted: str, single: str
) -> None:
    assert counted_name(name) == counted
    assert without_step(name) == single


def test_reports_and_comparisons_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, options in MODELS.items():
        words = [word for key, value in options.items() for word in _words(key, value)]
        generated = ["generate", "transformer", *words, "--pp", "2", "--micro-batches", "2", "-q", "-o", name]
        assert chakra([*generated, "--platform", "hgx-h100"]) == 0
        replay = ["replay", "-w", name, "--platform", "hgx-h100", "-q", "--format", "json", "--nodes"]
        assert chakra([*replay, "-o", f"{name}.json"]) == 0
        assert chakra(["report", f"{name}.json", "-q", "-o", f"{name}.html"]) == 0
        page = Path(f"{name}.html").read_text(encoding="utf-8")
        assert "layer#." in page
        assert ("encoder#." in page) is (name in ("encoder-decoder", "images"))
    first, *others = MODELS
    for other in others:
        assert chakra(["compare", f"{first}.json", f"{other}.json", "--format", "json", "-o", "c.json"]) == 0
        assert json.loads(Path("c.json").read_text(encoding="utf-8"))


def _words(key: str, value: object) -> list[str]:
    return [f"--{key}"] if value is True else [f"--{key}", str(value)]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.data())
def test_balanced_chunks_have_the_least_possible_most(costs: list[int], data: st.DataObject) -> None:
    """Against all ways to cut, found one by one."""
    chunks = data.draw(st.integers(1, len(costs)))
    sizes = balanced(costs, chunks)
    assert (len(sizes), sum(sizes), min(sizes) >= 1) == (chunks, len(costs), True)

    def most(parts: list[int]) -> int:
        ends = [sum(parts[:k]) for k in range(len(parts) + 1)]
        return max(sum(costs[a:b]) for a, b in pairwise(ends))

    def ways(layers: int, parts: int) -> list[list[int]]:
        if parts == 1:
            return [[layers]]
        return [[n, *rest] for n in range(1, layers - parts + 2) for rest in ways(layers - n, parts - 1)]

    assert most(sizes) == min(most(way) for way in ways(len(costs), chunks))


@pytest.mark.parametrize("model", ["llama-nemotron-49b", "t5-3b", "llava-1.5-7b", "deepseek-v3"])
def test_balanced_stages_meet_the_closed_forms_and_differ_less(model: str) -> None:
    options = {"model": model, "pp": 4, "micro-batches": 4}
    even, cut = (
        TransformerRequest.from_mapping({**options, "balance-stages": balance}) for balance in (False, True)
    )
    plans = [one.plan() for one in (even, cut)]
    assert [check for check in check_step(cut, plans[1]) if not check.passed] == []
    spread = [
        max(stage.matmul_flops for stage in summarize(plan))
        / sum(stage.matmul_flops for stage in summarize(plan))
        for plan in plans
    ]
    assert spread[1] < spread[0]
    assert spread[1] < 0.29


def test_stages_say_which_layers_they_have() -> None:
    plan = TransformerRequest.from_mapping(
        {"model": "t5-small", "pp": 3, "stage-layers": (4, 5, 3), "micro-batches": 3}
    ).plan()
    assert [stage.layers for stage in summarize(plan)] == ["encoder 0-3", "encoder 4-5, 0-2", "3-5"]
    dual = TransformerRequest.from_mapping(
        {"model": "gpt2-small", "layers": 8, "pp": 2, "schedule": "dualpipev", "micro-batches": 4}
    ).plan()
    assert [stage.layers for stage in summarize(dual)] == ["0-1, 6-7", "2-5"]


def test_balanced_and_given_stages_exclude_each_other() -> None:
    for more in ({"stage-layers": (6, 6)}, {"model": "t5-small", "encoder-stages": 1}):
        with pytest.raises(UsageError, match="balance-stages says what every stage has"):
            TransformerRequest.from_mapping(
                {"model": "gpt2-small", "pp": 2, "balance-stages": True, **more}
            ).plan()
