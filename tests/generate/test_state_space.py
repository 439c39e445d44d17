"""State-space layers and hybrids: published sizes, closed forms, the scan counted by hand, and states in decoding."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from chakra.cli.commands import generate_workload
from chakra.cli.main import cli
from chakra.errors import UsageError
from chakra.et import NodeType
from chakra.et.operators import Kernel, KernelKind, MatrixProduct, operator_text, parse_operators
from chakra.generate import TransformerRequest, build_workload, read_manifest, summarize
from chakra.generate.model.layer_kinds import Feed, LayerKind, Mixer, pattern_layers
from chakra.generate.model.presets import transformer
from chakra.generate.verify import closed_forms as closed
from chakra.generate.verify.check import check_step

SIZES: dict[str, Any] = {
    "model": "", "hidden": 64, "heads": 8, "kv-heads": 4, "ffn": 128, "vocabulary": 96, "seq": 48, "inner": 128,
    "state-size": 16, "state-heads": 8, "state-groups": 2, "chunk": 16, "dt-rank": 4, "micro-batches": 4,
}  # fmt: skip


def hybrid(pattern: str, **more: Any) -> TransformerRequest:
    given = {key.replace("_", "-"): value for key, value in more.items()}
    return TransformerRequest.from_mapping({**SIZES, "layer-pattern": pattern, **given})


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("mamba-130m", 129_135_360),
        ("mamba-2.8b", 2_768_345_600),
        ("mamba2-130m", 128_989_632),
        ("mamba2-2.7b", 2_702_599_680),
        ("jamba-v0.1", 51_570_323_328),
        ("nemotron-h-8b", 8_100_852_736),
        ("nemotron-3-nano-30b-a3b", 31_577_937_344),
        ("nemotron-3-super-120b-a12b", 120_668_687_360),
    ],
)
def test_presets_have_the_published_number_of_parameters(name: str, published: int) -> None:
    """Elements of the published checkpoints, to the last one."""
    assert closed.parameters(transformer(name)) == published


@pytest.mark.parametrize(
    ("name", "published"),
    [("jamba-v0.1", 12e9), ("nemotron-3-nano-30b-a3b", 3.6e9), ("nemotron-3-super-120b-a12b", 12.7e9)],
)
def test_so_many_parameters_are_active(name: str, published: float) -> None:
    assert closed.parameters(transformer(name), active=True) == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize("pattern", ["M", "m", "M-m*", "MEm-"])
@pytest.mark.parametrize(
    "parallel",
    [
        {},
        {"tp": 2, "pp": 4, "dp": 2, "sp": True},
        {"tp": 2, "pp": 4, "sp": True, "recompute": "full", "regather": False},
        {"tp": 2, "pp": 4, "recompute": "full"},
        {"tp": 4, "pp": 4},
        {"tp": 2, "pp": 2, "vp": 2, "recompute": "selective", "causal": True},
        {"pp": 4, "schedule": "zb-h1"},
        {"tp": 2, "pp": 4, "schedule": "dualpipe", "micro-batches": 8, "iterations": 2, "recompute": "full"},
        {"dp": 4, "zero": 3, "compiled": True},
        {"dp": 2, "zero": 1, "seq": 41},
        {"chunk": 64, "fuse": True},
    ],
    ids=str,
)
def test_every_closed_form_is_met(pattern: str, parallel: dict[str, Any]) -> None:
    experts = {"experts": 4, "experts-per-token": 2, "moe-ffn": 32} if "E" in pattern else {}
    request = hybrid(pattern, layers=8, **experts, **parallel)
    plan = request.plan()
    checks = check_step(request, plan)
    names = [check.name for check in checks]
    repeated = request.tp > 1 and not request.sp and bool(experts)
    copied = request.tp > 2 and "M" in pattern
    assert ("matrix FLOPs of all ranks" in names) is not (repeated or copied)
    if request.tp > 1 and request.pp > 2 and not experts:
        assert any(name.startswith("tp ") and name.endswith("bytes") for name in names)
    assert [check for check in checks if not check.passed] == []
    assert all(trace.n_nodes for trace in build_workload(plan).traces)


def test_norms_of_jamba_are_summed_over_tp() -> None:
    """Their gradients are terms of a sum: one all-reduce a step, of dt_rank + 2 states for each Mamba layer."""
    request = TransformerRequest(model="jamba-v0.1", layers=8, seq=64, tp=2)
    trace = build_workload(request.plan()).traces[0]
    sizes = [
        int(trace.comm_size[i])
        for i in range(trace.n_nodes)
        if trace.types[i] == NodeType.COMM_COLL and "grads.tp" in trace.node(i).name
    ]
    assert sizes == [7 * (256 + 2 * 16) * 4]


def _scan(chunk: int, sequence: int) -> int:
    """FLOPs of a scan, chunk by chunk and head by head."""
    head, state = 128 // 8, 16
    total = 0
    for _ in range(0, sequence, chunk):
        total += 2 * (2 * chunk * chunk * state)
        for _ in range(8):
            total += 2 * chunk * chunk * head + 2 * chunk * state * head + 2 * chunk * state * head
    return total


@pytest.mark.parametrize(("chunk", "sequence"), [(16, 48), (16, 41), (48, 48)])
def test_the_scan_is_counted_chunk_by_chunk(chunk: int, sequence: int) -> None:
    request = hybrid("M", chunk=chunk, seq=sequence)
    assert closed.scan_products(request.config(), sequence) == _scan(chunk, sequence)
    found = dict.fromkeys(("forward", "backward"), 0)
    trace = build_workload(request.plan()).traces[0]
    for i in range(trace.n_nodes):
        for operator, count in parse_operators(str(trace.attr(i, "operator", ""))):
            if isinstance(operator, MatrixProduct) and operator.role == "scan":
                found[operator.direction.value] += count * operator.flops
    assert found == {"forward": 4 * _scan(chunk, sequence), "backward": 8 * _scan(chunk, sequence)}


def test_what_nodes_say_is_what_they_cost() -> None:
    trace = build_workload(hybrid("Mm").plan()).traces[0]
    kinds = set()
    for i in range(trace.n_nodes):
        for operator, _ in parse_operators(str(trace.attr(i, "operator", ""))):
            if isinstance(operator, MatrixProduct):
                assert operator.flops == trace.num_ops[i]
            if isinstance(operator, Kernel):
                assert operator.bytes == trace.tensor_size[i]
                kinds.add(operator.kind)
    assert {KernelKind.CONV, KernelKind.SCAN, KernelKind.NORM} <= kinds


@pytest.mark.parametrize(
    ("pattern", "token", "chunk"),
    [("M", 2 * 64 + 2 * (128 + 2 * 2 * 16) + 8 + 3 * 128, 128 * 16), ("m", 2 * 64 + 5 * 128 + 4 + 2 * 16, 0)],
)
def test_activations_that_a_layer_keeps(pattern: str, token: int, chunk: int) -> None:
    """Synthetic workloads, section 2.4: elements a token, and a state for each chunk of 16 tokens."""
    plan = hybrid(pattern, layers=2, micro_batch=3).plan()
    first, second = (layer for layer in plan.model.chunks[0] if layer.name.startswith("layer"))
    assert first.saved_bytes == second.saved_bytes == 2 * 3 * (48 * token + 48 // 16 * chunk)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("pattern", ["M", "m", "M*m-"])
def test_decoding_keeps_a_state_that_does_not_grow(pattern: str, tp: int) -> None:
    caches = []
    for seq in (48, 480):
        request = hybrid(
            pattern, mode="serve", decode_steps=2, tp=tp, micro_batch=3, micro_batches=1, seq=seq
        )
        (stage,) = summarize(request.plan())
        model = request.config()
        assert stage.memory.cache * tp == 3 * closed.kv_cache_bytes(model, seq + 2)
        assert stage.matmul_flops * tp == 3 * closed.inference_flops(
            model, prompt=seq, contexts=(seq + 1, seq + 2)
        )
        caches.append(stage.memory.cache)
    # keys and values of the attention layer alone
    assert (caches[1] - caches[0]) * tp == 3 * pattern.count("*") * 432 * 2 * 4 * 8 * 2


def test_the_state_of_mamba2() -> None:
    """A head's channels times the state, and four inputs of the convolution."""
    model = transformer("mamba2-2.7b")
    assert closed.kv_cache_bytes(model, 1) == 64 * (80 * 64 * 128 + 4 * (5120 + 2 * 128)) * 2
    assert closed.kv_cache_bytes(model, 100_000) == closed.kv_cache_bytes(model, 1)


def test_a_decode_step_reads_and_writes_the_state() -> None:
    trace = build_workload(hybrid("M", mode="decode", micro_batch=3, micro_batches=1).plan()).traces[0]
    (step,) = [i for i in range(trace.n_nodes) if trace.node(i).name.endswith("state_step")]
    state = 3 * 128 * 16
    assert trace.tensor_size[step] == 2 * (2 * state + 3 * (2 * 128 + 2 * 2 * 16))


def test_patterns_are_repeated_and_refused() -> None:
    kinds = pattern_layers("M-", 6)
    assert kinds == 3 * (LayerKind(Mixer.MAMBA2, Feed.NONE), LayerKind(Mixer.NONE, Feed.MLP))
    for pattern, layers, message in (
        ("M-x", None, "layer-pattern: 'x' is not one of M m"),
        ("", None, "must have 1 to"),
        ("M-", 5, r"layers \(5\) must be a multiple of the pattern's 2"),
    ):
        with pytest.raises(UsageError, match=message):
            pattern_layers(pattern, layers)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"cp": 2}, "pass a state along the whole sequence, which is not split: cp must be 1, not 2"),
        ({"tp": 3}, r"inner \(128\) must be a multiple of tp \(3\)"),
        ({"state-groups": 8, "state-heads": 12}, r"inner \(128\) must be a multiple of state-heads \(12\)"),
        ({"state-groups": 3}, r"state-heads \(8\) must be a multiple of state-groups \(3\)"),
        ({"state-size": 0}, "a mamba2 layer needs state-size of at least 1, not 0"),
        ({"layer-file": "x.csv"}, "layer-file and layer-pattern both say what the layers are"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        hybrid("M", **more).plan()


def _scans(path: Path) -> list[tuple[str, int]]:
    """Products of scans with their counts, node by node."""
    found = []
    for trace in read_manifest(path).traces:
        for i in range(trace.n_nodes):
            for operator, count in parse_operators(str(trace.attr(i, "operator", ""))):
                if isinstance(operator, MatrixProduct) and operator.role == "scan":
                    found.append((operator_text(operator), count))
    return found


def test_a_hybrid_is_written_replayed_and_rescaled(tmp_path: Path) -> None:
    """Scans stay what they are beside experts that spread, also where operators are merged into one node."""
    prefix = str(tmp_path / "w")
    arguments = [
        "--model", "", "--layer-pattern", "M*E-", "--hidden", "256", "--heads", "4", "--inner", "512", "--seq", "64",
        "--ffn", "512", "--moe-ffn", "128", "--experts", "8", "--experts-per-token", "2", "--vocabulary", "512",
        "--state-size", "16", "--state-heads", "8", "--dp", "2", "--ep", "2", "--fuse", "--no-overlap", "-q",
        "-o", prefix,
    ]  # fmt: skip
    assert CliRunner().invoke(generate_workload.transformer, arguments).exit_code == 0
    wide = str(tmp_path / "x")
    run = CliRunner().invoke(cli, ["rescale", prefix, "--npus", "4", "--along", "expert", "-o", wide])
    assert run.exit_code == 0, run.output
    scans = _scans(Path(f"{prefix}.workload.json"))
    assert len(scans) == 8
    assert _scans(Path(f"{wide}.workload.json")) == scans
    for path in (prefix, wide):
        run = CliRunner().invoke(cli, ["replay", "-w", path, "--platform", "hgx-h100"])
        assert run.exit_code == 0, run.output
        assert "finished after" in run.output


def test_no_interval_is_claimed_for_what_was_not_measured(tmp_path: Path) -> None:
    prefix = str(tmp_path / "w")
    arguments = ["--model", "mamba2-130m", "--layers", "2", "--seq", "64", "--dp", "2", "-o", prefix, "-q"]
    assert CliRunner().invoke(generate_workload.transformer, arguments).exit_code == 0
    run = CliRunner().invoke(cli, ["replay", "-w", prefix, "--platform", "hgx-h100", "--format", "json"])
    assert run.exit_code == 0, run.output
    interval = json.loads(run.stdout)["interval"]
    assert interval["low_ns"] is None
    assert "have no attention" in interval["reason"]
