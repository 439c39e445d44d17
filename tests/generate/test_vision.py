"""Vision transformers: published sizes, closed forms, what is split, and what is refused."""

from typing import Any

import pytest

from chakra.errors import UsageError
from chakra.et.operators import MatrixProduct, parse_operators
from chakra.generate import TransformerRequest, build_workload, summarize
from chakra.generate.model.presets import transformer
from chakra.generate.verify import closed_forms as closed
from chakra.generate.verify.check import check_step

SIZES: dict[str, Any] = {
    "model": "", "layers": 8, "hidden": 64, "heads": 8, "ffn": 128, "vocabulary": 10, "image": 32, "patch": 8,
    "micro-batch": 3, "micro-batches": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "published"), [("vit-b16", 86_567_656), ("vit-l16", 304_326_632), ("vit-h14", 632_045_800)]
)
def test_presets_have_the_published_number_of_parameters(name: str, published: int) -> None:
    """Elements of the published classifiers of ImageNet's 1000 classes, to the last one."""
    assert closed.parameters(transformer(name)) == published


def test_the_model_of_22_billion() -> None:
    assert closed.parameters(transformer("vit-22b")) == pytest.approx(21.743e9, rel=1e-3)


def test_flops_of_vit_b() -> None:
    """17.58 billion multiply-adds an image of 224 pixels, products of attention included."""
    plan = TransformerRequest.from_mapping({"model": "vit-b16", "mode": "prefill"}).plan()
    (stage,) = summarize(plan)
    assert stage.matmul_flops == closed.inference_flops(transformer("vit-b16"), prompt=197)
    assert stage.matmul_flops / 2 == pytest.approx(17.58e9, rel=5e-3)


@pytest.mark.parametrize("sizes", [SIZES, {"model": "vit-b16", "layers": 4}], ids=["sizes", "vit-b16"])
@pytest.mark.parametrize(
    "parallel",
    [
        {},
        {"pp": 4, "dp": 2},
        {"tp": 2, "pp": 4},
        {"tp": 4, "pp": 4, "recompute": "full"},
        {"pp": 2, "vp": 2, "recompute": "selective"},
        {"pp": 4, "schedule": "zb-h1", "recompute": "full"},
        {"dp": 4, "zero": 3, "compiled": True},
        {"dp": 2, "zero": 1, "fuse": True},
    ],
    ids=str,
)
def test_every_closed_form_is_met(sizes: dict[str, Any], parallel: dict[str, Any]) -> None:
    request = TransformerRequest.from_mapping({"micro-batches": 4, **sizes, **parallel})
    plan = request.plan()
    checks = check_step(request, plan)
    # the matrix of the patches is whole on every tp rank
    assert ("matrix FLOPs of all ranks" in [check.name for check in checks]) is (request.tp == 1)
    assert [check for check in checks if not check.passed] == []
    assert all(trace.n_nodes for trace in build_workload(plan).traces)


def test_tp_repeats_the_patches_alone() -> None:
    one, two = (
        sum(
            s.matmul_flops * s.ranks
            for s in summarize(TransformerRequest.from_mapping({**SIZES, "tp": tp}).plan())
        )
        for tp in (1, 2)
    )
    # forward and weight gradient; images have no gradient
    assert two - one == 2 * 2 * (3 * 16) * 64 * (3 * 8 * 8) * 4


def test_patches_and_classes_are_products_of_their_shape() -> None:
    trace = build_workload(TransformerRequest.from_mapping({**SIZES, "micro-batches": 1}).plan()).traces[0]
    found = {}
    for i in range(trace.n_nodes):
        name = trace.node(i).name.split(" ")[-1]
        for operator, _ in parse_operators(str(trace.attr(i, "operator", ""))):
            if isinstance(operator, MatrixProduct) and not name.startswith("layer"):
                found[name] = (operator.m, operator.n, operator.k)
    assert found == {
        "embedding.patches": (48, 64, 192),
        "embedding.patches.wgrad": (192, 64, 48),
        "head.logits": (3, 10, 64),
        "head.logits.dgrad": (3, 64, 10),
        "head.logits.wgrad": (64, 10, 3),
    }


def test_larger_images_have_more_patches() -> None:
    model = TransformerRequest(model="vit-l16", image=384).config()
    assert (model.sequence, model.learned_positions) == (577, 577)
    # the published model of 384 pixels
    assert closed.parameters(model) == 304_715_752


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"tp": 2, "sp": True},
            "patches and the class token of an image are not split: sp must be off, and cp 1",
        ),
        ({"cp": 17}, "patches and the class token of an image are not split"),
        ({"causal": True}, "a vision model has no mask: causal must be off"),
        ({"mode": "decode"}, "a vision model does not decode: mode must be train or prefill"),
        ({"mode": "serve", "decode-steps": 2}, "a vision model does not decode"),
        ({"seq": 64}, "follows from image and patch: seq must not be given"),
        ({"image": 30}, r"image \(30\) must be a multiple of patch \(8\)"),
        ({"patch": 0}, "patch must be at least 1, not 0"),
    ],
)
def test_what_a_vision_model_has_not(more: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TransformerRequest.from_mapping({**SIZES, **more}).plan()
