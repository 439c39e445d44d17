"""Presets of transformer models by name, and models of sizes that replace a preset's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from chakra.errors import UsageError
from chakra.generate.model.config import TransformerConfig, tokens_of
from chakra.generate.model.layer_kinds import Feed, LayerKind, Mixer, pattern_layers
from chakra.io.nearest import meant, nearest
from chakra.io.readable import counted


def _gpt(name: str, layers: int, hidden: int, heads: int, sequence: int, source: str) -> TransformerConfig:
    return TransformerConfig(
        name, layers, hidden, heads, heads, hidden // heads, 4 * hidden, 50257, sequence, gated=False, tied=True,
        biases=True, layer_norm=True, learned_positions=sequence, dropout=True, source=source,
    )  # fmt: skip


def _llama(
    name: str, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, sequence: int,
    source: str, *, tied: bool = False, head_dim: int | None = None,
) -> TransformerConfig:  # fmt: skip
    head_dim = head_dim or hidden // heads
    return TransformerConfig(
        name, layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary, sequence, tied=tied, source=source
    )


_GPT2 = "Radford et al. 2019, table 2 (GPT-2)"
_GPT3 = "Brown et al. 2020, arXiv 2005.14165, table 2.1"
_LLAMA1 = "Touvron et al. 2023, arXiv 2302.13971, table 2"
_LLAMA2 = "Touvron et al. 2023, arXiv 2307.09288; widths from the published model configurations"
_LLAMA3 = "Llama team 2024, arXiv 2407.21783, table 3"
_MIXTRAL = "Jiang et al. 2024, arXiv 2401.04088, table 1"
_MEGATRON = "Narayanan et al. 2021, arXiv 2104.04473, table 1"
_SELENE = "Korthikanti et al. 2022, arXiv 2205.05198, table 3"
_MPT = "MosaicML 2023, configurations of the llm-foundry benchmarks"
_DEEPSEEK2 = "DeepSeek-AI 2024, arXiv 2405.04434, and the published configuration"
_DEEPSEEK3 = "DeepSeek-AI 2024, arXiv 2412.19437, section 4.2 (multi-token prediction: --mtp 1)"
_GPT_OSS = "OpenAI 2025, arXiv 2508.10925, section 2, and the published configuration"
_OPENELM = "Mehta et al. 2024, arXiv 2404.14619, and the published configurations (norms of queries and keys left out)"
_MAMBA = "Gu and Dao 2023, arXiv 2312.00752, and the published configurations"
_MAMBA2 = "Dao and Gu 2024, arXiv 2405.21060, and the published configurations"
_JAMBA = "Lieber et al. 2024, arXiv 2403.19887, and the published configuration"
_NEMOTRON_H = "NVIDIA 2025, arXiv 2504.03624, and the published configurations"
_NEMOTRON_3 = "NVIDIA 2025, arXiv 2512.20856, and the published configurations"
_LLAMA_NEMOTRON = "NVIDIA 2025, arXiv 2505.00949, and the published configurations"
_VIT = "Dosovitskiy et al. 2021, arXiv 2010.11929, table 1"
_VIT22 = (
    "Dehghani et al. 2023, arXiv 2302.05442, table 1 (blocks one after the other; biases of the MLP left out)"
)
_T5 = "Raffel et al. 2020, arXiv 1910.10683, and the published configurations"
_T5_1 = "Raffel et al. 2020, arXiv 1910.10683; sizes of the published checkpoints 1.1 and Flan-T5"
_BART = "Lewis et al. 2020, arXiv 1910.13461, and the published configurations (norms before what they norm)"
_WHISPER = "Radford et al. 2022, arXiv 2212.04356, and the published configuration"
_LLAVA = "Liu et al. 2024, arXiv 2310.03744, and the published configurations"
_QWEN3 = "Qwen team 2025, arXiv 2505.09388, and the published model configurations"


def _megatron(name: str, layers: int, hidden: int, heads: int) -> TransformerConfig:
    return replace(_gpt(name, layers, hidden, heads, 2048, _MEGATRON), vocabulary=51200)


def _mpt(name: str, layers: int, hidden: int, heads: int) -> TransformerConfig:
    return TransformerConfig(
        name, layers, hidden, heads, heads, hidden // heads, 4 * hidden, 50368, 2048, gated=False, tied=True,
        layer_norm=True, learned_positions=2048, source=_MPT,
    )  # fmt: skip


def _deepseek(
    name: str, layers: int, hidden: int, heads: int, q_rank: int, ffn: int, vocabulary: int, experts: int, moe_ffn: int,
    *, per_token: int, shared: int, dense: int, source: str,
) -> TransformerConfig:  # fmt: skip
    return TransformerConfig(
        name, layers, hidden, heads, heads, 128, ffn, vocabulary, 4096, experts=experts, experts_per_token=per_token,
        moe_ffn=moe_ffn, shared_experts=shared, dense_layers=dense, q_rank=q_rank, kv_rank=512, rope_dim=64,
        value_dim=128, source=source,
    )  # fmt: skip


def _openelm(name: str, layers: int, hidden: int, head_dim: int) -> TransformerConfig:
    """Widths that grow from the first layer to the last: heads from a half to all, feed-forward from 1/2 to 4 h."""

    def rounded(width: float, step: int) -> int:
        near = max(step, int(width + step / 2) // step * step)
        # never more than a tenth below
        return near + step if near < 0.9 * width else near

    kinds = []
    for layer in range(layers):
        part = layer / (layers - 1)
        # four query heads share one of keys and values
        heads = rounded(hidden * round(0.5 + 0.5 * part, 2), 4 * head_dim) // head_dim
        kinds.append(
            LayerKind(heads=heads, kv_heads=heads // 4, ffn=rounded(hidden * round(0.5 + 3.5 * part, 2), 256))
        )
    last = kinds[-1]
    return TransformerConfig(
        name, layers, hidden, last.heads or 0, last.kv_heads or 0, head_dim, last.ffn or 0, 32000, 2048, tied=True,
        kinds=tuple(kinds), source=_OPENELM,
    )  # fmt: skip


def _mamba2(name: str, layers: int, hidden: int) -> TransformerConfig:
    return TransformerConfig(
        name, layers, hidden, 0, 0, 0, 0, 50288, 2048, tied=True, mixer=Mixer.MAMBA2, feed=Feed.NONE, inner=2 * hidden,
        state_size=128, state_heads=2 * hidden // 64, source=_MAMBA2,
    )  # fmt: skip


def _mamba(name: str, layers: int, hidden: int) -> TransformerConfig:
    return TransformerConfig(
        name, layers, hidden, 0, 0, 0, 0, 50280, 2048, tied=True, mixer=Mixer.MAMBA, feed=Feed.NONE, inner=2 * hidden,
        state_size=16, dt_rank=hidden // 16, source=_MAMBA,
    )  # fmt: skip


def _nemotron_h(
    name: str, pattern: str, hidden: int, ffn: int, heads: int, state: int, state_heads: int
) -> TransformerConfig:
    return TransformerConfig(
        name, len(pattern), hidden, heads, 8, 128, ffn, 131072, 8192, gated=False, kinds=pattern_layers(pattern, None),
        inner=64 * state_heads, state_size=state, state_heads=state_heads, state_groups=8, rotary=False,
        source=_NEMOTRON_H,
    )  # fmt: skip


def _nemotron_3(
    name: str,
    pattern: str,
    hidden: int,
    state_heads: int,
    experts: int,
    visited: int,
    moe_ffn: int,
    latent: int,
) -> TransformerConfig:
    """Experts in the place of perceptrons, one that all tokens visit of twice their width."""
    return TransformerConfig(
        name, len(pattern), hidden, 32, 2, 128, 0, 131072, 8192, gated=False, kinds=pattern_layers(pattern, None),
        experts=experts, experts_per_token=visited, moe_ffn=moe_ffn, shared_experts=2, moe_latent=latent,
        inner=64 * state_heads, state_size=128, state_heads=state_heads, state_groups=8, chunk=128, rotary=False,
        mtp_kinds=pattern_layers("*E", None), mtp_repeated=True, source=_NEMOTRON_3,
    )  # fmt: skip


def _jamba() -> TransformerConfig:
    """Blocks of eight layers: the fifth has attention, and every second one experts."""
    block = tuple(
        LayerKind(Mixer.ATTENTION if place == 4 else Mixer.MAMBA, Feed.MOE if place % 2 else Feed.MLP)
        for place in range(8)
    )
    return TransformerConfig(
        "jamba-v0.1", 32, 4096, 32, 8, 128, 14336, 65536, 4096, experts=16, experts_per_token=2, moe_ffn=14336,
        kinds=4 * block, inner=8192, state_size=16, dt_rank=256, inner_norms=True, rotary=False, source=_JAMBA,
    )  # fmt: skip


#: Llama-Nemotron, found by a search over Llama's layers: how many follow each other, whether they have attention, and how
#: wide the feed-forward is, as a multiple of 2/3 of the hidden width (0: none)
_SUPER = (
    (1, True, 2.625), (5, True, 5.25), (2, False, 2.625), (3, True, 5.25), (1, False, 3.28125), (30, True, 5.25),
    (1, False, 1.3125), (2, False, 2.625), (1, False, 1.3125), (1, False, 5.25), (1, False, 1.3125), (1, False, 2.625),
    (3, False, 1.3125), (1, True, 5.25), (1, False, 1.3125), (2, False, 1.0), (1, False, 1.3125), (3, False, 1.0),
    (2, False, 1.3125), (2, False, 0.5), (2, False, 1.0), (2, False, 0.5), (1, False, 1.0), (2, False, 0.5),
    (9, True, 5.25),
)  # fmt: skip
_ULTRA = (
    (1, True, 0.4875), (1, True, 0.975), (6, True, 1.4625), (1, True, 1.95), (4, False, 0), (3, True, 1.95),
    (2, True, 4.875), (6, False, 0), (3, True, 4.875), (5, False, 0), (3, True, 4.875), (1, True, 2.4375),
    (3, False, 0), (3, True, 1.95), (1, False, 1.95), (1, True, 4.875), (1, False, 4.875), (5, False, 0),
    (4, True, 4.875), (5, False, 0), (4, True, 4.875), (5, False, 0), (4, True, 4.875), (5, False, 0),
    (4, True, 4.875), (5, False, 0), (1, True, 4.875), (3, True, 3.4125), (2, False, 0), (1, True, 2.925),
    (3, True, 2.4375), (2, False, 2.4375), (1, True, 2.4375), (1, False, 0), (7, False, 2.4375), (1, True, 2.4375),
    (5, False, 0), (1, True, 2.925), (1, True, 4.875), (1, False, 4.875), (1, True, 4.875), (8, False, 0),
    (1, False, 36.5625), (8, False, 0), (1, False, 39.0), (8, False, 0), (1, False, 31.40625), (5, False, 0),
    (1, False, 27.5625), (1, False, 1.95), (1, True, 1.95), (1, True, 2.4375), (1, False, 0), (2, True, 2.4375),
    (1, True, 3.4125), (4, True, 4.875), (1, True, 2.4375),
)  # fmt: skip


def _llama_nemotron(
    name: str, hidden: int, heads: int, runs: Sequence[tuple[int, bool, float]]
) -> TransformerConfig:
    """Widths are whole multiples of 256."""
    kinds: list[LayerKind] = []
    for count, attends, multiple in runs:
        width = -(-int(2 * multiple * hidden / 3) // 256) * 256
        mixer, feed = Mixer.ATTENTION if attends else Mixer.NONE, Feed.MLP if width else Feed.NONE
        kinds += [LayerKind(mixer, feed, ffn=width or None)] * count
    widest = max(kind.ffn or 0 for kind in kinds)
    return TransformerConfig(
        name, len(kinds), hidden, heads, 8, hidden // heads, widest, 128256, 8192, kinds=tuple(kinds),
        source=_LLAMA_NEMOTRON,
    )  # fmt: skip


def _vit(name: str, layers: int, hidden: int, heads: int, patch: int) -> TransformerConfig:
    tokens = tokens_of(224, patch)
    return TransformerConfig(
        name, layers, hidden, heads, heads, hidden // heads, 4 * hidden, 1000, tokens, gated=False, biases=True,
        layer_norm=True, learned_positions=tokens, image=224, patch=patch, source=_VIT,
    )  # fmt: skip


def _behind_encoder(
    name: str, layers: int, hidden: int, heads: int, head_dim: int, ffn: int, vocabulary: int, sequence: int,
    source: str, **more: Any,
) -> TransformerConfig:  # fmt: skip
    """As many layers of an encoder as behind it, alike but for what reads a source and what has no mask."""
    return with_encoder(
        TransformerConfig(
            name,
            layers,
            hidden,
            heads,
            heads,
            head_dim,
            ffn,
            vocabulary,
            sequence,
            rotary=False,
            source=source,
            **more,
        ),
        layers,
        sequence,
    )


def with_encoder(model: TransformerConfig, layers: int, sequence: int) -> TransformerConfig:
    """A model behind an encoder of layers like its own, which reads words by the model's embedding."""
    encoder = replace(
        model, name=f"{model.name} encoder", layers=layers, sequence=sequence, masked=False, encoder=None,
        learned_positions=max(sequence, model.learned_positions) if model.learned_positions else 0,
    )  # fmt: skip
    return replace(model, encoder=encoder, shared_embedding=True)


def _t5(
    name: str, layers: int, hidden: int, heads: int, head_dim: int, ffn: int, *, newer: bool = False
) -> TransformerConfig:
    """Version 1.1 has gated feed-forwards and an output matrix of its own, and no dropout."""
    return _behind_encoder(
        name, layers, hidden, heads, head_dim, ffn, 32128, 512, _T5_1 if newer else _T5, gated=newer, tied=not newer,
        relative_buckets=32, dropout=not newer,
    )  # fmt: skip


def _bart(name: str, layers: int, hidden: int, heads: int) -> TransformerConfig:
    """The published tables of positions have two rows more than positions."""
    return _behind_encoder(
        name, layers, hidden, heads, hidden // heads, 4 * hidden, 50265, 1024, _BART, gated=False, tied=True,
        biases=True, layer_norm=True, learned_positions=1026, embedding_norm=True, final_norm=False,
        dropout=True,
    )  # fmt: skip


def _whisper(name: str, layers: int, hidden: int, mel: int, vocabulary: int) -> TransformerConfig:
    """30 s of sound are 3000 frames, and 1500 tokens."""
    own = TransformerConfig(
        name, layers, hidden, hidden // 64, hidden // 64, 64, 4 * hidden, vocabulary, 448, gated=False, tied=True,
        biases=True, layer_norm=True, learned_positions=448, key_bias=False, rotary=False, source=_WHISPER,
    )  # fmt: skip
    encoder = replace(
        own,
        name=f"{name} encoder",
        sequence=1500,
        learned_positions=1500,
        fixed_positions=True,
        masked=False,
        mel=mel,
    )
    return replace(own, encoder=encoder)


def _llava(name: str, layers: int, hidden: int, heads: int, ffn: int) -> TransformerConfig:
    """CLIP's ViT-L/14 of 336 pixels before Vicuna, whose vocabulary was filled up to 32064."""
    tokens = tokens_of(336, 14)
    clip = replace(
        _vit("clip-l14", 24, 1024, 16, 14), image=336, sequence=tokens, learned_positions=tokens, embedding_norm=True,
        patch_bias=False, masked=False, source=_LLAVA,
    )  # fmt: skip
    return replace(_llama(name, layers, hidden, heads, heads, ffn, 32064, 2048, _LLAVA), encoder=clip)


def _gpt_oss(name: str, layers: int, experts: int) -> TransformerConfig:
    return TransformerConfig(
        name, layers, 2880, 64, 8, 64, 0, 201088, 4096, experts=experts, experts_per_token=4, moe_ffn=2880, window=128,
        full_every=2, sinks=True, clamped=True, biases=True, source=_GPT_OSS,
    )  # fmt: skip


_PRESETS = (
    _gpt("gpt2-small", 12, 768, 12, 1024, _GPT2),
    _gpt("gpt2-xl", 48, 1600, 25, 1024, _GPT2),
    _gpt("gpt3-1.3b", 24, 2048, 16, 2048, _GPT3),
    _gpt("gpt3-6.7b", 32, 4096, 32, 2048, _GPT3),
    _gpt("gpt3-13b", 40, 5120, 40, 2048, _GPT3),
    _gpt("gpt3-175b", 96, 12288, 96, 2048, _GPT3),
    _megatron("megatron-18b", 40, 6144, 48),
    replace(_megatron("megatron-22b", 48, 6144, 64), source=_SELENE),
    _megatron("megatron-39b", 48, 8192, 64),
    _megatron("megatron-145b", 80, 12288, 96),
    _megatron("megatron-530b", 105, 20480, 128),
    _megatron("megatron-1t", 128, 25600, 160),
    _mpt("mpt-125m", 12, 768, 12),
    _mpt("mpt-350m", 24, 1024, 16),
    _mpt("mpt-760m", 24, 1536, 12),
    _mpt("mpt-1b", 24, 2048, 16),
    _mpt("mpt-3b", 32, 2560, 20),
    _mpt("mpt-7b", 32, 4096, 32),
    _mpt("mpt-13b", 40, 5120, 40),
    _mpt("mpt-30b", 48, 7168, 56),
    _mpt("mpt-70b", 80, 8192, 64),
    _llama("llama-65b", 80, 8192, 64, 64, 22016, 32000, 2048, _LLAMA1),
    _llama("llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4096, _LLAMA2),
    _llama("llama2-13b", 40, 5120, 40, 40, 13824, 32000, 4096, _LLAMA2),
    _llama("llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4096, _LLAMA2),
    _llama("llama3-8b", 32, 4096, 32, 8, 14336, 128256, 8192, _LLAMA3),
    _llama("llama3-70b", 80, 8192, 64, 8, 28672, 128256, 8192, _LLAMA3),
    _llama("llama3-405b", 126, 16384, 128, 8, 53248, 128256, 8192, _LLAMA3),
    TransformerConfig(
        "mixtral-8x7b", 32, 4096, 32, 8, 128, 14336, 32000, 4096,
        experts=8, experts_per_token=2, moe_ffn=14336, source=_MIXTRAL,
    ),
    TransformerConfig(
        "mixtral-8x22b", 56, 6144, 48, 8, 128, 16384, 32768, 4096, experts=8, experts_per_token=2, moe_ffn=16384,
        source="Mistral AI 2024, published model configuration",
    ),
    TransformerConfig(
        "qwen1.5-moe-a2.7b", 24, 2048, 16, 16, 128, 0, 151936, 8192, experts=60, experts_per_token=4, moe_ffn=1408,
        shared_experts=4, source="Qwen team 2024, published model configuration (biases of q, k, v left out)",
    ),
    TransformerConfig(
        "qwen3-30b-a3b", 48, 2048, 32, 4, 128, 0, 151936, 4096, experts=128, experts_per_token=8, moe_ffn=768,
        source=_QWEN3,
    ),
    TransformerConfig(
        "qwen3-235b-a22b", 94, 4096, 64, 4, 128, 0, 151936, 4096, experts=128, experts_per_token=8, moe_ffn=1536,
        source=_QWEN3,
    ),
    TransformerConfig(
        "deepseek-moe-16b", 28, 2048, 16, 16, 128, 10944, 102400, 4096, experts=64, experts_per_token=6, moe_ffn=1408,
        shared_experts=2, dense_layers=1, source="Dai et al. 2024, arXiv 2401.06066, and the published configuration",
    ),
    _deepseek(
        "deepseek-v2-lite", 27, 2048, 16, 0, 10944, 102400, 64, 1408, per_token=6, shared=2, dense=1, source=_DEEPSEEK2,
    ),
    _deepseek(
        "deepseek-v2", 60, 5120, 128, 1536, 12288, 102400, 160, 1536, per_token=6, shared=2, dense=1, source=_DEEPSEEK2,
    ),
    _deepseek(
        "deepseek-v3", 61, 7168, 128, 1536, 18432, 129280, 256, 2048, per_token=8, shared=1, dense=3, source=_DEEPSEEK3,
    ),
    _gpt_oss("gpt-oss-20b", 24, 32),
    _gpt_oss("gpt-oss-120b", 36, 128),
    _mamba("mamba-130m", 24, 768),
    _mamba("mamba-2.8b", 64, 2560),
    _mamba2("mamba2-130m", 24, 768),
    _mamba2("mamba2-2.7b", 64, 2560),
    _jamba(),
    _nemotron_h(
        "nemotron-h-8b", "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", 4096, 21504, 32, 128, 128
    ),
    _nemotron_3(
        "nemotron-3-nano-30b-a3b", "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", 2688, 64, 128, 6, 1856, 0
    ),
    _nemotron_3(
        "nemotron-3-super-120b-a12b",
        "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
        4096, 128, 512, 22, 2688, 1024,
    ),
    _llama_nemotron("llama-nemotron-49b", 8192, 64, _SUPER),
    _llama_nemotron("llama-nemotron-253b", 16384, 128, _ULTRA),
    _vit("vit-b16", 12, 768, 12, 16),
    _vit("vit-l16", 24, 1024, 16, 16),
    _vit("vit-h14", 32, 1280, 16, 14),
    replace(_vit("vit-22b", 48, 6144, 48, 14), biases=False, layer_norm=False, source=_VIT22),
    _t5("t5-small", 6, 512, 8, 64, 2048),
    _t5("t5-base", 12, 768, 12, 64, 3072),
    _t5("t5-large", 24, 1024, 16, 64, 4096),
    _t5("t5-3b", 24, 1024, 32, 128, 16384),
    _t5("t5-11b", 24, 1024, 128, 128, 65536),
    _t5("t5-v1.1-xl", 24, 2048, 32, 64, 5120, newer=True),
    _t5("t5-v1.1-xxl", 24, 4096, 64, 64, 10240, newer=True),
    _bart("bart-base", 6, 768, 12),
    _bart("bart-large", 12, 1024, 16),
    _whisper("whisper-large-v3", 32, 1280, 128, 51866),
    _llava("llava-1.5-7b", 32, 4096, 32, 11008),
    _llava("llava-1.5-13b", 40, 5120, 40, 13824),
    _openelm("openelm-270m", 16, 1280, 64),
    _openelm("openelm-450m", 20, 1536, 64),
    _openelm("openelm-1.1b", 28, 2048, 64),
    _openelm("openelm-3b", 36, 3072, 128),
)  # fmt: skip

TRANSFORMERS: dict[str, TransformerConfig] = {model.name: model for model in _PRESETS}


def transformer(name: str) -> TransformerConfig:
    """The preset of this name.

    Raises
    ------
    UsageError
        No such preset; the message names the nearest, and the option that lists all.
    """
    if name not in TRANSFORMERS:
        family = [known for known in TRANSFORMERS if name and known.startswith(name.lower())]
        hint = meant(family) or nearest(name, TRANSFORMERS, most=3)
        raise UsageError(
            f"no model preset {name!r}{hint or ';'} `chakra generate transformer --list-models` lists all "
            f"{len(TRANSFORMERS)}"
        )
    return TRANSFORMERS[name]


#: parameters of a request that are sizes of the model
SIZES = (
    "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocabulary", "gated", "experts",
    "experts_per_token", "moe_ffn", "shared_experts", "moe_latent", "mtp", "q_rank", "kv_rank", "rope_dim", "value_dim",
    "window", "full_every", "sinks", "inner", "state_size", "state_heads", "state_groups", "conv_width", "chunk",
    "dt_rank", "image", "patch", "images", "encoder_layers", "encoder_seq",
)  # fmt: skip


#: sizes by name, as a request gives them
Sizes: TypeAlias = dict[str, Any]


def sized_transformer(
    name: str, sizes: Mapping[str, object], sequence: int | None = None, generated: int = 0
) -> TransformerConfig:
    """A preset with some sizes replaced, or with an empty name a model of sizes alone.

    A table of learned positions that is too short for the sequence, with the tokens that are ``generated`` behind it,
    is as long as they need.

    Raises
    ------
    UsageError
        No such preset, or sizes that are missing or contradict each other.
    """
    base = transformer(name) if name else None
    given: Sizes = dict(sizes)
    if sequence is not None:
        given["sequence"] = sequence
    if given.get("kinds"):
        given.setdefault("layers", len(given["kinds"]))
    of_images = base.encoder if base and base.encoder and base.encoder.patch else None
    if of_images is not None and base is not None:
        return _with_images(base, of_images, given)
    if given.get("images") is not None:
        raise UsageError(f"model {base.name if base else 'custom'} has no images: images must not be given")
    image, patch = (given.get(key, getattr(base, key) if base else 0) for key in ("image", "patch"))
    if image or patch:
        if sequence is not None:
            raise UsageError("the sequence of an image follows from image and patch: seq must not be given")
        given["sequence"] = given["learned_positions"] = tokens_of(image, max(patch, 1))
    encoder = {key: given.pop(f"encoder_{key}") for key in ("layers", "seq") if f"encoder_{key}" in given}
    if base is None:
        return _encoded(_from_sizes(given), {}, encoder)
    alone = _sized(replace(base, encoder=None), given) if given or encoder else base
    model = _encoded(alone, given, encoder, base.encoder)
    if not generated or not model.learned_positions:
        return model
    # behind an encoder a prompt is the token that begins the answer
    prompt = 1 if model.source_tokens and sequence is None else model.sequence
    rows = max(model.learned_positions, _position_rows(base, prompt + generated))
    return replace(model, learned_positions=rows)


def _position_rows(base: TransformerConfig, tokens: int) -> int:
    """Rows of a preset's table of positions for so many tokens: some tables have rows that no position uses."""
    unused = max(0, base.learned_positions - base.sequence)
    return max(base.learned_positions, tokens + unused)


def _sized(base: TransformerConfig, given: Sizes) -> TransformerConfig:
    """A model without an encoder, with some sizes replaced, and with them what follows from them."""
    if base.kinds and "kinds" not in given and "layers" in given:
        if given["layers"] > base.layers:
            raise UsageError(
                f"model {base.name} lists its {counted(base.layers, 'layer')}: layers can be fewer, not {given['layers']}"
            )
        given["kinds"] = base.kinds[: max(given["layers"], 0)]
    if "heads" in given and "kv_heads" not in given:
        given["kv_heads"] = given["heads"] if base.kv_heads == base.heads else base.kv_heads
    # a head of latent attention does not follow from the width
    wide = "hidden" in given or "heads" in given
    if wide and "head_dim" not in given and not base.latent:
        given["head_dim"] = given.get("hidden", base.hidden) // max(1, given.get("heads", base.heads))
    if base.learned_positions and "sequence" in given and "learned_positions" not in given:
        given["learned_positions"] = _position_rows(base, given["sequence"])
    return replace(base, **given) if given else base


def _with_images(base: TransformerConfig, encoder: TransformerConfig, given: Sizes) -> TransformerConfig:
    """A model of texts with images, with sizes of its own, and those of its encoder, replaced."""
    if "encoder_seq" in given:
        raise UsageError(
            "the sequence of an image follows from image and patch: encoder-seq must not be given"
        )
    changes: Sizes = {key: given.pop(key) for key in ("image", "patch") if key in given}
    if "encoder_layers" in given:
        changes["layers"] = given.pop("encoder_layers")
    if "image" in changes or "patch" in changes:
        patch = max(changes.get("patch", encoder.patch), 1)
        changes["sequence"] = changes["learned_positions"] = tokens_of(
            changes.get("image", encoder.image), patch
        )
    images = given.pop("images", base.images)
    own = _sized(replace(base, encoder=None), given)
    return replace(own, images=images, encoder=replace(encoder, **changes))


def _encoded(
    model: TransformerConfig,
    sizes: Sizes,
    of_encoder: Mapping[str, int],
    encoder: TransformerConfig | None = None,
) -> TransformerConfig:
    """A model with its encoder: a preset's, to which ``sizes`` of layers apply alike, or one like the model."""
    if encoder is None:
        if not of_encoder:
            return model
        if "layers" not in of_encoder:
            raise UsageError(
                f"model {model.name} has no encoder that encoder-seq could be of: give encoder-layers"
            )
        if model.kinds:
            raise UsageError(
                f"model {model.name} lists its layers one by one, and an encoder and what attends to it have layers of "
                "one kind: encoder-layers must not be given"
            )
        return with_encoder(model, of_encoder["layers"], of_encoder.get("seq", model.sequence))
    if model.encoder is encoder:
        return model
    own = ("layers", "sequence", "learned_positions")
    changes = {key: value for key, value in sizes.items() if key not in own}
    if "layers" in of_encoder:
        changes["layers"] = of_encoder["layers"]
    if "seq" in of_encoder:
        changes["sequence"] = of_encoder["seq"]
        if encoder.learned_positions:
            changes["learned_positions"] = _position_rows(encoder, of_encoder["seq"])
    return replace(model, encoder=replace(encoder, **changes))


def _from_sizes(sizes: Sizes) -> TransformerConfig:
    needed = ["layers", "hidden", "heads", "vocabulary", "sequence"]
    if sizes.get("kinds"):
        # each kind may have heads of its own
        needed.remove("heads")
        sizes.setdefault("heads", 0)
    missing = [key.replace("sequence", "seq") for key in needed if key not in sizes]
    if missing:
        raise UsageError(f"without a model preset these sizes are needed: {', '.join(missing)}")
    sizes.setdefault("kv_heads", sizes["heads"])
    sizes.setdefault("head_dim", sizes["hidden"] // sizes["heads"] if sizes["heads"] > 0 else 0)
    sizes.setdefault("ffn", 4 * sizes["hidden"])
    sizes.setdefault("gated", False)
    return TransformerConfig(name="custom", **sizes)
