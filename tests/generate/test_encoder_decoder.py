"""Encoder-decoder models: published sizes, closed forms, what travels between stages, caches, and what is refused."""

from typing import Any

import pytest
from generated_ranks import assert_folding_changes_nothing, assert_forms_hold, messages, ranks_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.errors import UsageError
from chakra.et.operators import Attention, MatrixProduct, parse_operators
from chakra.generate import TransformerRequest, build_workload, summarize
from chakra.generate.model.presets import transformer
from chakra.generate.verify import closed_forms as closed
from chakra.generate.verify.step_totals import total_matmul_flops, total_parameters
from chakra.replay.checks.run import check_workload

#: a source of 48 tokens, a target of 16; heads wider than hidden / heads
SIZES: dict[str, Any] = {
    "model": "", "layers": 4, "encoder-layers": 4, "hidden": 32, "heads": 4, "head-dim": 16, "ffn": 64,
    "vocabulary": 64, "seq": 16, "encoder-seq": 48, "micro-batch": 2, "micro-batches": 4, "bucket-mb": 0.01,
    "peak-tflops": 0.01, "mem-gbps": 10.0,
}  # fmt: skip


def request(**options: Any) -> TransformerRequest:
    return TransformerRequest.from_mapping(
        {**SIZES, **{name.replace("_", "-"): v for name, v in options.items()}}
    )


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("t5-small", 60_506_624),
        ("t5-base", 222_903_552),
        ("t5-large", 737_668_096),
        ("t5-3b", 2_851_598_336),
        ("t5-11b", 11_307_321_344),
        ("t5-v1.1-xl", 2_849_757_184),
        ("t5-v1.1-xxl", 11_135_332_352),
        ("bart-base", 139_420_416),
        ("bart-large", 406_291_456),
        ("whisper-large-v3", 1_543_490_560),
    ],
)
@pytest.mark.parametrize("stages", [1, 4])
def test_presets_have_the_published_number_of_parameters(name: str, published: int, stages: int) -> None:
    """Elements of the published checkpoints, to the last one; the embedding that stages share counts once."""
    assert closed.parameters(transformer(name)) == published
    plan = TransformerRequest.from_mapping({"model": name, "pp": stages, "micro-batches": stages}).plan()
    assert total_parameters(plan) == published


def test_flops_counted_by_hand() -> None:
    """A layer each, one sequence: every product with its three sizes."""
    plan = request(layers=1, encoder_layers=1, micro_batch=1, micro_batches=1).plan()
    wide, h, f, v, s, t = 4 * 16, 32, 64, 64, 48, 16
    encoder = 4 * s * h * wide + 2 * s * h * f + 2 * s * s * wide
    own = 4 * t * h * wide + 2 * t * h * f + 2 * t * t * wide
    cross = 2 * t * h * wide + 2 * s * h * wide + 2 * t * s * wide
    assert total_matmul_flops(plan) == 3 * 2 * (encoder + own + cross + t * h * v)


def test_flops_of_whispers_stem() -> None:
    """Two convolutions of three frames; the first has no gradient of its input."""
    whole = TransformerRequest(model="whisper-large-v3").plan()
    products: dict[str, list[tuple[int, int, int]]] = {}
    for operator, name in operators(whole):
        if isinstance(operator, MatrixProduct) and operator.role == "convolution":
            products.setdefault(name.split(".")[1], []).append((operator.m, operator.n, operator.k))
    assert products == {
        "conv1": [(3000, 1280, 3 * 128), (3 * 128, 1280, 3000)],
        "conv2": [(1500, 1280, 3 * 1280), (1500, 3 * 1280, 1280), (3 * 1280, 1280, 1500)],
    }


def operators(plan: Any) -> list[tuple[object, str]]:
    trace = build_workload(plan).traces[0]
    return [
        (operator, trace.node(i).name.split(" ")[-1])
        for i in range(trace.n_nodes)
        for operator, _ in parse_operators(str(trace.attr(i, "operator", "") or ""))
    ]


def test_queries_are_of_the_target_and_keys_of_the_source() -> None:
    found = {
        name: (what.queries, what.keys, what.causal)
        for what, name in operators(request(layers=1, encoder_layers=1, causal=True).plan())
        if isinstance(what, Attention) and "dgrad" not in name
    }
    assert found == {
        "encoder0.attention": (48, 48, False),
        "layer0.attention": (16, 16, True),
        "layer0.cross_attention": (16, 48, False),
    }


def test_a_gated_model_without_a_tied_head_shares_the_embedding() -> None:
    """T5 1.1: three copies of the embedding are one matrix on two stages; the output matrix is another."""
    plan = TransformerRequest.from_mapping({"model": "t5-v1.1-xl", "pp": 4, "encoder-stages": 1}).plan()
    assert plan.model.tied_stages(4) == (0, 1)
    tied = TransformerRequest.from_mapping({"model": "t5-3b", "pp": 4, "encoder-stages": 3}).plan()
    assert tied.model.tied_stages(4) == (0, 3)
    three = TransformerRequest.from_mapping({"model": "t5-3b", "pp": 4}).plan()
    assert three.model.tied_stages(4) == (0, 2, 3)
    assert build_workload(three).groups["embed"].tolist() == [[0, 2, 3]]
    sound = TransformerRequest.from_mapping({"model": "whisper-large-v3", "pp": 4}).plan()
    assert sound.model.tied_stages(4) == (2, 3)


def test_the_encoders_output_travels_with_the_stages_behind_it() -> None:
    """Of five stages two are the encoder's: its output goes 1-2 as the layers' tensor, and 2-3, 3-4 beside theirs."""
    plan = request(pp=5, encoder_stages=2, micro_batch=1).plan()
    traces, _ = ranks_of(build_workload(plan))
    sent, received = messages(traces)
    assert sent == received
    source, own = 48 * 32 * 2, 16 * 32 * 2
    found: dict[tuple[int, int], list[int]] = {}
    for (sender, receiver, _, size), count in sent.items():
        assert count == 1
        found.setdefault((sender, receiver), []).append(size)
    both = sorted(4 * [source] + 4 * [own])
    assert {pair: sorted(sizes) for pair, sizes in found.items()} == {
        (0, 1): 4 * [source], (1, 2): 4 * [source], (2, 3): both, (3, 4): both,
        (1, 0): 4 * [source], (2, 1): 4 * [source], (3, 2): both, (4, 3): both,
    }  # fmt: skip


def test_gradients_of_all_layers_behind_the_encoder_are_summed() -> None:
    """The encoder's backward begins when every layer has given its part, on one stage as on four."""
    trace = build_workload(request(layers=2, encoder_layers=1, micro_batches=1, tp=2).plan()).traces[0]
    names = [trace.node(i).name for i in range(trace.n_nodes)]
    offsets, parents = trace.parents()
    data = {names[i]: {names[p] for p in parents[offsets[i] : offsets[i + 1]]} for i in range(trace.n_nodes)}
    last = data["B0 encoder_norm.norm.dgrad"]
    assert {f"B0 layer{i}.cross_kv.dgrad.all_reduce" for i in (0, 1)} <= last
    assert data["F0 layer1.cross_kv"] >= {"F0 encoder_norm.norm"}
    piped = build_workload(request(pp=4, micro_batch=1).plan())
    third = piped.traces[2]
    names = [third.node(i).name for i in range(third.n_nodes)]
    # the first stage behind the encoder gives its own gradient and that of the stage after it on
    send = names.index("B0 send.backward")
    offsets, parents = third.parents()
    assert {"B0 recv.backward.encoder", "B0 layer0.cross_kv.dgrad"} <= {
        names[p] for p in parents[offsets[send] : offsets[send + 1]]
    }


def test_keys_of_the_source_are_cached_once() -> None:
    """Each of four layers keeps keys and values of 48 source tokens, and of every token so far."""
    caches = [
        summarize(request(mode="serve", decode_steps=steps, seq=1).plan())[0].memory.cache for steps in (1, 9)
    ]
    requests, each = 2 * 4, 2 * 4 * 16 * 2
    assert caches == [requests * 4 * each * (48 + tokens) for tokens in (2, 10)]


def test_decoding_reads_the_cache_and_leaves_the_encoder_alone() -> None:
    names = [name for _, name in operators(request(mode="decode", decode_steps=2, micro_batches=1).plan())]
    assert not [name for name in names if "encoder" in name or "cross_kv" in name]
    assert names.count("layer3.cross_attention") == 2
    serving = operators(request(mode="serve", decode_steps=2, micro_batches=1, seq=1).plan())
    assert [name for _, name in serving].count("layer3.cross_kv") == 1
    keys = [what.keys for what, name in serving if isinstance(what, Attention) and name == "layer0.attention"]
    assert keys == [1, 2, 3]


def test_tokens_come_back_to_the_first_stage_behind_the_encoder() -> None:
    plan = request(mode="serve", decode_steps=3, pp=4, encoder_stages=1, micro_batches=1).plan()
    traces, groups = ranks_of(build_workload(plan))
    assert list(check_workload(traces, groups, 4)) == []
    sent, received = messages(traces)
    assert sent == received
    tokens = {pair[:2]: 0 for pair in sent if pair[3] == 2 * 4}
    assert list(tokens) == [(3, 1)]


def test_the_memory_of_the_source_is_kept_once_a_stage() -> None:
    """With layers computed again a stage keeps their inputs, and the encoder's output once."""
    four, two = (
        summarize(request(layers=layers, pp=2, recompute="full", micro_batches=1).plan())[
            1
        ].memory.activations
        for layers in (4, 2)
    )
    one = 2 * 16 * 32 * 2
    assert four - two == 2 * one
    assert two > 2 * one + 2 * 48 * 32 * 2


@st.composite
def requests(draw: st.DrawFn) -> TransformerRequest:
    pp = draw(st.sampled_from([1, 2, 4]))
    options: dict[str, Any] = {
        "pp": pp, "tp": draw(st.sampled_from([1, 2])), "dp": draw(st.sampled_from([1, 2])), "sp": draw(st.booleans()),
        "layers": draw(st.integers(3, 4)), "encoder-layers": draw(st.integers(3, 5)), "causal": draw(st.booleans()),
        "overlap": draw(st.booleans()), "comm-order": draw(st.sampled_from(["program", "stream"])),
        "fuse": draw(st.booleans()), "host": draw(st.sampled_from(["none", "ahead"])),
        "compiled": draw(st.booleans()), "gated": draw(st.booleans()), "regather": draw(st.booleans()),
        "exposed": draw(st.sampled_from(["", "tp", "dp,pp"])), "order": draw(
            st.sampled_from(["tp-cp-ep-dp-pp", "pp-dp-tp-cp-ep"])
        ),
    }  # fmt: skip
    if pp > 1:
        options["encoder-stages"] = draw(st.integers(max(1, pp - 3), pp - 1))
    mode = draw(st.sampled_from(["train", "train", "prefill", "serve", "decode"]))
    if mode == "train":
        options |= {
            "zero": draw(st.integers(0, 3)), "recompute": draw(st.sampled_from(["none", "selective", "full"])),
            "iterations": draw(st.sampled_from([1, 2])),
            "schedule": draw(st.sampled_from(["gpipe", "1f1b", "zb-h1", "zb-h2"])),
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
        ({"cp": 2}, "context parallelism splits one sequence, and a model with an encoder has two"),
        ({"pp": 2, "vp": 2}, "vp must be 1, and the schedule"),
        ({"mode": "disaggregated"}, "keys and values of an encoder's output stay on the ranks"),
        ({"pp": 4, "schedule": "dualpipe", "micro_batches": 8}, "dualpipe"),
        ({"pp": 4, "encoder_stages": 4}, "1 to 3 of pp = 4, not 4"),
        ({"pp": 1, "encoder_stages": 1}, "one stage has the encoder and what is behind it"),
        ({"pp": 2, "encoder_stages": 1, "stage_layers": (4, 4)}, "encoder-stages must not be given"),
        ({"experts": 4, "experts_per_token": 1, "moe_ffn": 8}, "layers of one kind"),
        ({"window": 4}, "layers of one kind"),
        ({"layer_pattern": "*-"}, "layers of one kind"),
        ({"encoder_layers": None}, "has no encoder that encoder-seq could be of"),
        ({"encoder_layers": None, "encoder_seq": None, "encoder_stages": 1, "pp": 2}, "has no encoder that"),
        ({"model": "openelm-270m", "encoder_layers": 3}, "encoder-layers must not be given"),
        (
            {"pp": 4, "schedule": "dualpipe", "micro_batches": 8, "model": "t5-v1.1-xl"},
            "dualpipe: an encoder",
        ),
        ({"encoder_layers": 0}, "layers must be at least 1, not 0"),
        ({"tp": 2, "sp": True, "encoder_seq": 47}, r"sequence/cp \(47\) must be a multiple of tp \(2\)"),
    ],
    ids=str,
)
def test_what_an_encoder_does_not_go_with(options: dict[str, Any], message: str) -> None:
    given = {**SIZES, **{name.replace("_", "-"): value for name, value in options.items()}}
    with pytest.raises(UsageError, match=message):
        TransformerRequest.from_mapping({key: v for key, v in given.items() if v is not None}).plan()


@pytest.mark.parametrize(("stages", "encoder"), [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3)])
def test_of_two_cuts_as_near_the_one_with_fewer_stages_of_the_encoder_is_taken(
    stages: int, encoder: int
) -> None:
    """Decoder layers do more than those of an encoder, which attend to one thing only."""
    plan = TransformerRequest(model="t5-base", pp=stages, micro_batch=1).plan()
    kinds = [any(layer.encoder for layer in chunk) for chunk in plan.model.chunks]
    assert kinds == [True] * encoder + [False] * (stages - encoder)
