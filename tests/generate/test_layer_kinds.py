"""Models whose layers are not all alike: files that list them, and the closed forms of each kind."""

from pathlib import Path
from typing import Any

import pytest

from chakra.errors import ConfigError, UsageError
from chakra.et import NodeType
from chakra.generate import TransformerRequest, build_workload, summarize
from chakra.generate.model.layer_kinds import Feed, LayerKind, Mixer, read_layers
from chakra.generate.model.presets import TRANSFORMERS, transformer
from chakra.generate.plan import training
from chakra.generate.verify import closed_forms as closed
from chakra.generate.verify.check import check_step

SIZES: dict[str, Any] = {
    "model": "", "hidden": 64, "heads": 8, "kv-heads": 4, "ffn": 128, "vocabulary": 96, "seq": 32, "gated": True,
    "micro-batches": 4,
}  # fmt: skip
DENSE = """\
# attention that is left out, narrow and wide layers
layers,mixer,feed,heads,kv-heads,head-dim,ffn,window
2,,,,,,,
1,none,mlp,,,,256,

1,attention,none,4,2,16,,8
2,,,16,4,4,64,
1,none,none,,,,,
1,,,,,,512,16
"""
EXPERTS = "layers,experts,experts-per-token,moe-ffn,feed\n1,,,,\n2,8,2,32,\n1,4,1,64,moe\n"


def listed(tmp_path: Path, text: str, **more: Any) -> TransformerRequest:
    path = tmp_path / "layers.csv"
    path.write_text(text)
    given = {key.replace("_", "-"): value for key, value in more.items()}
    return TransformerRequest.from_mapping({**SIZES, "layer-file": str(path), **given})


def test_a_file_lists_runs_of_layers(tmp_path: Path) -> None:
    model = listed(tmp_path, DENSE).config()
    assert model.layers == 8
    assert [model.at(layer).ffn for layer in (0, 2, 7)] == [128, 256, 512]
    assert [model.at(layer).mixer for layer in range(4)] == [Mixer.ATTENTION] * 2 + [
        Mixer.NONE,
        Mixer.ATTENTION,
    ]
    assert [model.at(layer).feed for layer in (0, 3, 6)] == [Feed.MLP, Feed.NONE, Feed.NONE]
    assert [model.at(layer).window for layer in (0, 3, 7)] == [0, 8, 16]
    assert list(model.variants().values()) == [2, 1, 1, 2, 1, 1]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("openelm-270m", 271_527_168), ("openelm-450m", 457_179_136), ("openelm-1.1b", 1_079_891_456),
        ("openelm-3b", 3_036_647_424),
    ],
)  # fmt: skip
def test_openelm_has_the_published_parameters(name: str, published: int) -> None:
    """To the last one, but for the norms of queries and keys, one weight each for an element of a head."""
    model = transformer(name)
    assert closed.parameters(model) + 2 * model.head_dim * model.layers == published


@pytest.mark.parametrize(
    ("name", "published", "attending", "skipped"),
    [("llama-nemotron-49b", 49_867_145_216, 49, 0), ("llama-nemotron-253b", 253_401_268_224, 64, 81)],
)
def test_llama_nemotron_has_the_published_blocks(
    name: str, published: int, attending: int, skipped: int
) -> None:
    """Parameters, layers with attention and layers without a feed-forward, counted from the published configurations."""
    model = transformer(name)
    assert closed.parameters(model) == published
    assert sum(kind.mixer is Mixer.ATTENTION for kind in model.kinds) == attending
    assert sum(kind.feed is Feed.NONE for kind in model.kinds) == skipped


def test_openelm_has_the_published_widths() -> None:
    kinds = transformer("openelm-270m").kinds
    assert [kind.heads for kind in kinds] == [12] * 5 + [16] * 7 + [20] * 4
    assert [kind.ffn for kind in kinds][:6] == [768, 1024, 1280, 1536, 1792, 2048]
    assert kinds[-1].ffn == 4 * 1280


@pytest.mark.parametrize(
    "parallel",
    [
        {},
        {"tp": 2, "pp": 4, "dp": 2, "sp": True},
        {"tp": 2, "pp": 4, "sp": True, "regather": False, "recompute": "full"},
        {"tp": 2, "pp": 4, "recompute": "full"},
        {"tp": 4, "pp": 2, "vp": 2, "recompute": "selective", "causal": True},
        {"tp": 2, "pp": 8},
        {"pp": 8, "schedule": "zb-h1", "recompute": "full"},
        {"cp": 2, "dp": 2, "context": "ring"},
        {"cp": 2, "context": "ulysses"},
        {"dp": 4, "zero": 3},
        {"dp": 4, "zero": 2, "compiled": True},
        {"stage-layers": (1, 5, 0, 2), "pp": 4, "tp": 2},
    ],
    ids=str,
)
def test_every_closed_form_is_met(tmp_path: Path, parallel: dict[str, Any]) -> None:
    request = listed(tmp_path, DENSE, **parallel)
    plan = request.plan()
    checks = check_step(request, plan)
    names = [check.name for check in checks]
    copied = request.tp > 2
    assert ("matrix FLOPs of all ranks" in names) is not copied
    if request.tp > 1 and request.pp > 2:
        assert any(name.startswith("tp ") for name in names)
    assert [check for check in checks if not check.passed] == []
    for trace in build_workload(plan).traces:
        assert trace.n_nodes > 0


def test_the_closed_forms_of_listed_layers_can_fail(tmp_path: Path) -> None:
    plan = listed(tmp_path, DENSE).plan()
    other = listed(tmp_path, DENSE.replace("256", "264"))
    failed = {check.name for check in check_step(other, plan) if not check.passed}
    assert failed == {"parameters", "matrix FLOPs of all ranks"}


@pytest.mark.parametrize(
    "parallel", [{"dp": 4, "ep": 2}, {"dp": 4, "ep": 4, "zero": 1}, {"pp": 4, "dp": 2, "ep": 2}], ids=str
)
def test_layers_with_other_experts(tmp_path: Path, parallel: dict[str, Any]) -> None:
    request = listed(tmp_path, EXPERTS, **parallel)
    assert [request.config().is_moe(layer) for layer in range(4)] == [False, True, True, True]
    checks = check_step(request, request.plan())
    assert "matrix FLOPs of all ranks" in [check.name for check in checks]
    assert [check for check in checks if not check.passed] == []


def test_a_list_of_equal_layers_is_the_model_itself(tmp_path: Path) -> None:
    """DeepSeek-V2-Lite, whose first layer is dense, said in a file: the same traces."""
    base = {"model": "deepseek-v2-lite", "layers": 4, "seq": 64, "tp": 2, "sp": True, "dp": 2, "ep": 2}
    path = tmp_path / "layers.csv"
    path.write_text("layers,feed\n1,mlp\n3,moe\n")
    # without what traces say of the parameters, which do differ
    plain = training.build_workload(TransformerRequest.from_mapping(base).plan())
    said = training.build_workload(TransformerRequest.from_mapping({**base, "layer-file": str(path)}).plan())
    assert [trace.content_hash for trace in plain.traces] == [trace.content_hash for trace in said.traces]


@pytest.mark.parametrize("tp", [1, 2])
def test_inference_caches_what_each_layer_keeps(tmp_path: Path, tp: int) -> None:
    request = listed(tmp_path, DENSE, mode="serve", decode_steps=3, tp=tp, micro_batch=2, micro_batches=1)
    plan = request.plan()
    model = request.config()
    (stage,) = summarize(plan)
    assert stage.memory.cache * tp == 2 * closed.kv_cache_bytes(model, 32 + 3)
    # 2 + 2 layers of the model's heads (one of them with a window of 16), and the narrow one with 8
    heads = [4 * 8, 4 * 8, 0, 2 * 16, 4 * 4, 4 * 4, 0, 4 * 8]
    kept = [35, 35, 0, 8, 35, 35, 0, 16]
    assert closed.kv_cache_bytes(model, 35) == sum(2 * h * n * 2 for h, n in zip(heads, kept, strict=True))
    assert stage.matmul_flops * tp == 2 * closed.inference_flops(model, prompt=32, contexts=(33, 34, 35))


def test_a_layer_of_nothing_makes_no_node(tmp_path: Path) -> None:
    text = "layers,mixer,feed\n1,,\n1,none,none\n1,,\n"
    trace = build_workload(listed(tmp_path, text, recompute="full").plan()).traces[0]
    computed = [trace.node(i).name for i in range(trace.n_nodes) if trace.types[i] == NodeType.COMP]
    assert any("layer2." in name for name in computed)
    assert not any("layer1." in name for name in computed)


def test_presets_with_a_list_take_fewer_layers_not_more() -> None:
    model = TransformerRequest(model="openelm-270m", layers=3).config()
    assert model.kinds == TRANSFORMERS["openelm-270m"].kinds[:3]
    with pytest.raises(UsageError, match="lists its 16 layers: layers can be fewer, not 17"):
        TransformerRequest(model="openelm-270m", layers=17).config()


def test_heads_of_a_line_bring_their_heads_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "layers.csv"
    path.write_text("heads\n16\n")
    request = TransformerRequest.from_mapping(
        {"model": "", "hidden": 64, "vocabulary": 96, "seq": 32, "layer-file": str(path)}
    )
    (one,) = request.config().variants()
    assert (one.heads, one.kv_heads, one.head_dim) == (16, 16, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line with names of columns"),
        ("layers,ffn\n", "no layers below the names of columns"),
        ("layers,fnn\n1,2\n", r"line 1: no column 'fnn'; did you mean 'ffn'\?"),
        ("ffn,ffn\n1,2\n", "line 1: column 'ffn' is there twice"),
        ("layers,ffn\n1,2,3\n", "line 2: 3 cells for 2 columns"),
        ("layers,ffn\n0,64\n", "line 2: layers must be 1 or more"),
        ("layers,ffn\n70000,64\n", "line 2: layers must be 1 or more, and all together at most 65536"),
        ("layers,ffn\n1,-5\n", "line 2: ffn must be a whole number of 0 to 2"),
        ("layers,ffn\n1,6e3\n", "line 2: ffn must be a whole number"),
        ("mixer\nattn\n", "line 2: mixer must be one of attention, "),
        ("feed\ndense\n", "line 2: feed must be one of mlp, moe, none, not 'dense'"),
        # what a kind of layer does not read
        (
            "mixer,heads\nattention,4\nnone,4\n",
            "line 3: a layer of mixer none and feed mlp or moe does not read heads; it reads ffn, experts, ",
        ),
        (
            "feed,ffn\nnone,64\n",
            "line 2: .* feed none does not read ffn; it reads heads, kv-heads, head-dim, window",
        ),
        ("feed,moe-ffn\nmlp,64\n", "does not read moe-ffn; it reads heads, kv-heads, head-dim, window, ffn"),
        (
            "feed,ffn\nmoe,64\n",
            "does not read ffn; .* window, experts, experts-per-token, moe-ffn, shared-experts",
        ),
        (
            "mixer,feed,inner\nnone,none,64\n",
            "mixer none and feed none does not read inner; it reads no sizes",
        ),
        ("mixer,state-heads\nmamba,4\n", "does not read state-heads; it reads ffn, experts"),
        ("mixer,window\nmamba2,4\n", "does not read window"),
        ("inner\n64\n", "a layer of mixer attention and feed mlp or moe does not read inner"),
        ("experts,ffn\n4,64\n", "feed moe does not read ffn"),
        ("experts,moe-ffn\n0,64\n", "feed mlp does not read moe-ffn; it reads .* ffn, experts$"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "layers.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_layers(path)


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("layers,ffn\n2,64\n", {"layers": 3}, "2 layers are listed, and layers is 3"),
        ("layers,heads\n2,\n1,6\n", {}, r"heads \(6\) must be a multiple of kv-heads \(4\) \(layer 2\)"),
        ("layers,feed\n1,mlp\n1,moe\n", {}, r"a layer with experts needs experts of at least 1 \(layer 1\)"),
        ("layers,ffn\n1,64\n1,66\n", {"tp": 4}, r"ffn \(66\) must be a multiple of tp \(4\) \(layer 1\)"),
        ("layers,ffn\n1,64\n1,0\n", {}, r"ffn must be at least 1, not 0 \(layer 1\)"),
        (
            "layers,moe-ffn\n1,\n1,64\n",
            {},
            r"feed mlp does not read moe-ffn; it reads .* ffn, experts \(layer 1\)",
        ),
        ("layers,ffn\n1,64\n", {"experts": 4, "moe_ffn": 8}, r"feed moe does not read ffn; .* \(layer 0\)"),
        ("layers,ffn\n2,64\n", {"dp": 2, "ep": 2}, r"expert parallelism \(ep=2\) needs a model with experts"),
    ],
)
def test_layers_that_do_not_fit_are_refused(
    tmp_path: Path, text: str, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        listed(tmp_path, text, **more).plan()


def test_a_kind_keeps_only_what_it_says() -> None:
    assert LayerKind(ffn=3).sizes() == {"ffn": 3}
    assert LayerKind().sizes() == {}
