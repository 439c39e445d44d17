"""Models of texts with images: published sizes, closed forms, encoders that are not trained, and what is refused."""

from typing import Any

import pytest
from generated_ranks import assert_folding_changes_nothing, assert_forms_hold, messages, ranks_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.errors import UsageError
from chakra.generate import TransformerRequest, build_workload, summarize
from chakra.generate.model.presets import transformer
from chakra.generate.verify import closed_forms as closed
from chakra.generate.verify.step_totals import total_matmul_flops, total_parameters
from chakra.replay.checks.run import check_workload

#: an image of 4 x 4 patches of 14 pixels: 16 of a sequence's 32 tokens
SIZES: dict[str, Any] = {
    "model": "llava-1.5-7b", "layers": 4, "encoder-layers": 4, "hidden": 32, "heads": 4, "ffn": 64, "vocabulary": 64,
    "image": 56, "seq": 32, "micro-batch": 2, "micro-batches": 4, "bucket-mb": 0.05, "peak-tflops": 1.0,
    "mem-gbps": 100.0,
}  # fmt: skip


def request(**options: Any) -> TransformerRequest:
    return TransformerRequest.from_mapping(
        {**SIZES, **{name.replace("_", "-"): v for name, v in options.items()}}
    )


def node_names(plan: Any, trace: int = 0) -> list[str]:
    one = build_workload(plan).traces[trace]
    return [one.node(i).name for i in range(one.n_nodes)]


def test_llava_has_the_published_number_of_parameters() -> None:
    """Elements of the published checkpoint, to the last one: tower, projector, and Vicuna with 64 rows more."""
    model = transformer("llava-1.5-7b")
    assert closed.parameters(model) == 7_063_427_072
    assert model.encoder is not None
    assert closed.encoder_parameters(model, model.encoder) == 303_507_456 + 20_979_712
    assert total_parameters(TransformerRequest(model="llava-1.5-7b", pp=2).plan()) == 7_063_427_072


def test_an_image_is_576_tokens() -> None:
    model = TransformerRequest(model="llava-1.5-7b", images=2).config()
    assert (model.image_tokens, model.sequence) == (2 * 24 * 24, 2048)


@pytest.mark.parametrize("frozen", [False, True])
def test_flops_counted_by_hand(frozen: bool) -> None:
    """One layer each, two images: every product with its three sizes."""
    plan = request(
        layers=1, encoder_layers=1, micro_batch=1, micro_batches=1, images=2, seq=48, freeze_encoder=frozen
    ).plan()
    h, wide, f, t = 1024, 32, 64, 48
    tower = 2 * 17 * (4 * h * h + 8 * h * h) + 4 * 17 * 17 * h
    patches, first, second = 2 * 16 * 588 * h, 2 * 16 * h * wide, 2 * 16 * wide * wide
    own = 2 * t * (4 * wide * wide + 3 * wide * f + wide * 64) + 4 * t * t * wide
    image = tower + patches + 2 * first + 3 * second if frozen else 3 * (tower + first + second) + 2 * patches
    assert total_matmul_flops(plan) == 3 * own + 2 * image


def test_a_frozen_encoder_has_no_gradients() -> None:
    names = node_names(request(freeze_encoder=True, dp=2, micro_batches=1).plan())
    back = [
        name for name in names if name.startswith("B") and ("encoder" in name or "project1.dgrad" in name)
    ]
    assert back == []
    assert "B0 projector.project1.wgrad" in names
    assert "B0 encoder0.qkv.wgrad" in node_names(request(dp=2, micro_batches=1).plan())
    frozen, trained = (summarize(request(freeze_encoder=one, dp=2).plan())[0] for one in (True, False))
    tower = 303_507_456 - 20 * (12 * 1024 * 1024 + 13 * 1024) - (577 - 17) * 1024
    assert frozen.parameters == trained.parameters
    # 2 bytes of weights, 4 of gradients and 12 of states
    assert trained.memory.states - frozen.memory.states == 16 * tower
    sums = [sum(t.size_bytes for t in stage.traffic if t.kind == "ALL_REDUCE") for stage in (trained, frozen)]
    assert sums[0] - sums[1] == 4 * tower


def test_nothing_comes_back_to_stages_that_are_not_trained() -> None:
    """Of four stages two have the encoder, the second the projector: gradients go 3-2 and 2-1, not 1-0."""
    plan = request(pp=4, encoder_stages=2, freeze_encoder=True).plan()
    traces, groups = ranks_of(build_workload(plan))
    assert list(check_workload(traces, groups, 4)) == []
    sent, received = messages(traces)
    assert sent == received
    assert {pair[:2] for pair in sent} == {(0, 1), (1, 2), (2, 3), (3, 2), (2, 1)}
    # what enters the model's first stage are its own tokens of images: 2 sequences of 16 tokens of 32 wide
    assert {pair[3] for pair in sent if pair[:2] == (1, 2)} == {2 * 16 * 32 * 2}


def test_the_first_stage_has_the_encoder_where_nothing_is_said() -> None:
    chunks = request(pp=2).plan().model.chunks
    assert [layer.encoder for layer in chunks[0]] == [True] * len(chunks[0])
    assert chunks[1][0].name == "embedding"


def test_decoding_leaves_images_alone() -> None:
    names = node_names(request(mode="serve", decode_steps=2, micro_batches=1).plan())
    assert [name for name in names if name.startswith("P") and "encoder0.qkv" in name]
    assert not [name for name in names if name.startswith("D") and ("encoder" in name or "images" in name)]
    cache = summarize(request(mode="decode", decode_steps=8).plan())[0].memory.cache
    # keys and values of the sequence, its images' included, in 4 layers for 8 requests
    assert cache == 8 * 4 * 2 * 32 * (32 + 8) * 2


@st.composite
def requests(draw: st.DrawFn) -> TransformerRequest:
    pp = draw(st.sampled_from([1, 2, 4]))
    options: dict[str, Any] = {
        "pp": pp, "tp": draw(st.sampled_from([1, 2])), "dp": draw(st.sampled_from([1, 2])), "sp": draw(st.booleans()),
        "images": draw(st.sampled_from([1, 2])), "seq": 48, "causal": draw(st.booleans()),
        "overlap": draw(st.booleans()), "comm-order": draw(st.sampled_from(["program", "stream"])),
        "fuse": draw(st.booleans()), "host": draw(st.sampled_from(["none", "ahead"])),
        "compiled": draw(st.booleans()),
        "exposed": draw(st.sampled_from(["", "tp", "dp,pp"])),
    }  # fmt: skip
    if pp > 1 and draw(st.booleans()):
        options["encoder-stages"] = draw(st.integers(1, pp - 1))
    elif pp == 4 and draw(st.booleans()):
        # an encoder that ends within a stage
        options["stage-layers"] = (2, 3, 2, 1)
    mode = draw(st.sampled_from(["train", "train", "prefill", "serve", "decode"]))
    if mode == "train":
        options |= {
            "zero": draw(st.integers(0, 3)), "recompute": draw(st.sampled_from(["none", "selective", "full"])),
            "iterations": draw(st.sampled_from([1, 2])), "reshard": draw(st.booleans()),
            "schedule": draw(st.sampled_from(["gpipe", "1f1b", "zb-h1", "zb-h2"])),
            "freeze-encoder": draw(st.booleans()),
        }  # fmt: skip
    else:
        options |= {"mode": mode, "sp": False}
    if mode in ("serve", "decode"):
        options["decode-steps"] = draw(st.integers(1, 3))
    return TransformerRequest.from_mapping({**SIZES, **options})


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_closed_forms_hold(one: TransformerRequest) -> None:
    assert_forms_hold(one)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_messages_match_and_folded_replays_are_those_of_all_ranks(one: TransformerRequest) -> None:
    assert_folding_changes_nothing(build_workload(one.plan()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": 2}, "32 of a sequence's tokens are images', and it has 32"),
        ({"images": 0}, "images must be at least 1, not 0"),
        ({"image": 57}, r"image \(57\) must be a multiple of patch \(14\)"),
        ({"encoder_seq": 20}, "the sequence of an image follows from image and patch"),
        ({"cp": 2}, "patches and the class token of an image are not split"),
        ({"pp": 2, "vp": 2}, "vp must be 1"),
        ({"mode": "disaggregated"}, "an encoder's output stay on the ranks"),
        ({"model": "llama2-7b", "encoder_layers": None, "image": None}, "has no images: images must not be given"),
        (
            {"model": "llama2-7b", "encoder_layers": None, "image": None, "images": None, "freeze_encoder": True},
            "has no encoder that freeze-encoder could be of",
        ),
        (
            {"model": "t5-small", "image": None, "images": None, "freeze_encoder": True, "head_dim": 8},
            "freeze-encoder is of one of images",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_what_does_not_go_with_images(options: dict[str, Any], message: str) -> None:
    given = {**SIZES, "images": 1, **{name.replace("_", "-"): value for name, value in options.items()}}
    with pytest.raises(UsageError, match=message):
        TransformerRequest.from_mapping({key: v for key, v in given.items() if v is not None}).plan()
