"""Sizes of transformer models, and the presets by name."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from chakra.errors import UsageError
from chakra.generate.model.layer_kinds import STATE_SPACE, Feed, LayerKind, Mixer, pattern_layers
from chakra.io.nearest import nearest


def tokens_of(image: int, patch: int) -> int:
    """Tokens of a square image: its patches and the class token."""
    return (image // patch) ** 2 + 1


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Sizes of a transformer, decoder-only or of images.

    Attributes
    ----------
    layers, hidden, heads, ffn, vocabulary
        L, h, a, f, V.
    kv_heads
        k; fewer than ``heads`` for grouped-query attention.
    head_dim
        d; usually hidden / heads. With latent attention without the rotary part.
    q_rank, kv_rank, rope_dim, value_dim
        Latent attention (DeepSeek-V2, MLA): widths that queries (0: they are not compressed) and keys with values are
        compressed to, of the rotary part that a head has beside ``head_dim`` and whose keys all heads share, and of a
        head's values. ``kv_rank`` 0 is attention without compression.
    window, full_every
        Sliding windows: keys that a query sees, its own included (0: all), and every how many layers one sees all keys
        (0: none; 2: the second, fourth ...).
    sinks
        Each head has a learned sink in its softmax (GPT-OSS).
    gated
        Feed-forward with a gate (SwiGLU): three matrices instead of two.
    experts, experts_per_token, moe_ffn, shared_experts, dense_layers
        Mixture of experts: experts X per MoE layer, top-k, width of one expert, experts that every token visits,
        and how many first layers are dense. ``experts`` 0 is a dense model.
    tied
        Input and output embedding are one matrix.
    clamped
        The inputs of the activations are clamped (GPT-OSS).
    biases, layer_norm
        Linear layers (router and experts, too) with biases; LayerNorm (weight and bias) instead of RMSNorm (weight).
    learned_positions
        Rows of a learned position embedding, 0 for rotary or none.
    dropout
        Dropout masks are stored (training).
    mixer, feed
        What a layer has before its feed-forward, and which feed-forward (None: experts where the model has them).
    inner, state_size, conv_width
        State-space layers: channels, elements of each channel's state, and tokens that their convolution sees.
    state_heads, state_groups, chunk
        Mamba-2: heads of the channels, groups of heads that share inputs and outputs of their states, and tokens of a
        chunk.
    dt_rank, inner_norms
        Mamba: width that the step sizes are computed from, and whether what decides on the state is normed (Jamba).
    rotary
        Attention turns queries and keys by their positions, where positions are not learned.
    image, patch, channels
        Vision: sides of a square image and of its square patches, pixels, and colours; ``patch`` 0 is a text model. The
        sequence is the patches and a class token, positions are learned, and the vocabulary is the classes.
    kinds
        Layers of different sizes: what each of them has of its own. Empty: all are as the sizes above say.
    source
        Where the numbers come from.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    sequence: int
    gated: bool = True
    experts: int = 0
    experts_per_token: int = 0
    moe_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    value_dim: int = 0
    window: int = 0
    full_every: int = 0
    sinks: bool = False
    clamped: bool = False
    tied: bool = False
    biases: bool = False
    layer_norm: bool = False
    learned_positions: int = 0
    dropout: bool = False
    mixer: Mixer = Mixer.ATTENTION
    feed: Feed | None = None
    kinds: tuple[LayerKind, ...] = ()
    inner: int = 0
    state_size: int = 0
    state_heads: int = 0
    state_groups: int = 1
    conv_width: int = 4
    chunk: int = 256
    dt_rank: int = 0
    inner_norms: bool = False
    rotary: bool = True
    image: int = 0
    patch: int = 0
    channels: int = 3
    source: str = "given sizes"

    def __post_init__(self) -> None:
        self._check_least("layers", "hidden")
        if not self.kinds and self.mixer is Mixer.ATTENTION:
            self._check_least("heads", "kv_heads", "head_dim")
        self._check_least("vocabulary", "sequence")
        if self.patch or self.image:
            self._check_image()
        if self.kinds:
            self._check_kinds()
            return
        if self.mixer is Mixer.ATTENTION and self.heads % self.kv_heads:
            raise UsageError(
                f"model {self.name}: heads ({self.heads}) must be a multiple of kv-heads ({self.kv_heads})"
            )
        self._check_feed()
        if self.mixer in STATE_SPACE:
            self._check_state_space()
        self._check_attention()

    def _check_least(self, *names: str) -> None:
        for key in names:
            if getattr(self, key) < 1:
                raise UsageError(f"model {self.name}: {key} must be at least 1, not {getattr(self, key)}")

    def _check_image(self) -> None:
        self._check_least("image", "patch")
        if self.image % self.patch:
            raise UsageError(
                f"model {self.name}: image ({self.image}) must be a multiple of patch ({self.patch})"
            )
        if not self.sequence == self.learned_positions == tokens_of(self.image, self.patch):
            raise UsageError(
                f"model {self.name}: the sequence of an image is its patches and a class token, "
                f"{tokens_of(self.image, self.patch)}, not {self.sequence}"
            )
        if self.tied:
            raise UsageError(f"model {self.name}: an image has no embedding that could be tied")

    def _check_kinds(self) -> None:
        """Each kind of layer by itself, with the number of the first such layer in what is wrong."""
        if len(self.kinds) != self.layers:
            raise UsageError(
                f"model {self.name}: {len(self.kinds)} layers are listed, and layers is {self.layers}"
            )
        known: set[LayerKind] = set()
        for index, kind in enumerate(self.kinds):
            if kind in known:
                continue
            known.add(kind)
            try:
                self.at(index)
            except UsageError as error:
                raise UsageError(f"{error} (layer {index})") from None

    def _check_state_space(self) -> None:
        needed = ["inner", "state_size", "conv_width"]
        needed += ["state_heads", "state_groups", "chunk"] if self.mixer is Mixer.MAMBA2 else ["dt_rank"]
        for key in needed:
            if getattr(self, key) < 1:
                raise UsageError(
                    f"model {self.name}: a {self.mixer} layer needs {key.replace('_', '-')} of at least 1, not "
                    f"{getattr(self, key)}"
                )
        if self.biases:
            raise UsageError(f"model {self.name}: state-space layers with biases are not known")
        if self.mixer is Mixer.MAMBA2:
            for one, other in (("inner", "state_heads"), ("state_heads", "state_groups")):
                if getattr(self, one) % getattr(self, other):
                    raise UsageError(
                        f"model {self.name}: {one.replace('_', '-')} ({getattr(self, one)}) must be a multiple of "
                        f"{other.replace('_', '-')} ({getattr(self, other)})"
                    )

    def _check_feed(self) -> None:
        if self.feed is Feed.MOE and not self.experts:
            raise UsageError(f"model {self.name}: a layer with experts needs experts of at least 1")
        if self.experts and not 1 <= self.experts_per_token <= self.experts:
            raise UsageError(
                f"model {self.name}: experts-per-token must be 1..{self.experts}, not {self.experts_per_token}"
            )
        if self.experts and self.moe_ffn < 1:
            raise UsageError(f"model {self.name}: the expert width moe-ffn must be at least 1")
        dense = self.feed is Feed.MLP or (self.feed is None and (not self.experts or self.dense_layers))
        if self.ffn < 1 and dense:
            raise UsageError(f"model {self.name}: ffn must be at least 1, not {self.ffn}")
        if not 0 <= self.dense_layers <= self.layers:
            raise UsageError(
                f"model {self.name}: dense-layers must be 0..{self.layers}, not {self.dense_layers}"
            )

    def _check_attention(self) -> None:
        latent = {key: getattr(self, key) for key in ("kv_rank", "rope_dim", "value_dim")}
        if any(latent.values()) or self.q_rank:
            for key, value in latent.items():
                if value < 1:
                    raise UsageError(
                        f"model {self.name}: latent attention needs kv-rank, rope-dim and value-dim of at least 1; "
                        f"{key.replace('_', '-')} is {value}"
                    )
            if self.kv_heads != self.heads:
                raise UsageError(
                    f"model {self.name}: latent attention has as many kv-heads ({self.kv_heads}) as heads ({self.heads})"
                )
            if self.biases:
                raise UsageError(f"model {self.name}: latent attention with biases is not known")
        for key in ("q_rank", "window", "full_every"):
            if getattr(self, key) < 0:
                raise UsageError(
                    f"model {self.name}: {key.replace('_', '-')} must be at least 0, not {getattr(self, key)}"
                )
        if self.full_every and not self.window:
            raise UsageError(f"model {self.name}: full-every ({self.full_every}) needs a window")

    @property
    def latent(self) -> bool:
        """Whether keys and values are compressed (multi-head latent attention)."""
        return self.kv_rank > 0

    @property
    def attention_width(self) -> int:
        """Width of all query heads, a*d."""
        return self.heads * (self.head_dim + self.rope_dim)

    @property
    def kv_width(self) -> int:
        """Width of all key heads, k*d."""
        return self.kv_heads * (self.head_dim + self.rope_dim)

    @property
    def value_head(self) -> int:
        """Width of a head's values."""
        return self.value_dim or self.head_dim

    @property
    def attention_parameters(self) -> int:
        """Parameters of the matrices of one layer's attention."""
        values = self.heads * self.value_head
        if not self.latent:
            return self.hidden * 2 * (self.attention_width + self.kv_width)
        queries = self.hidden * self.attention_width
        if self.q_rank:
            queries = self.q_rank * (self.hidden + self.attention_width)
        down = self.hidden * (self.kv_rank + self.rope_dim)
        up = self.kv_rank * (self.heads * self.head_dim + values)
        return queries + down + up + values * self.hidden

    @property
    def state_space_parameters(self) -> int:
        """Parameters of the matrices of one state-space layer."""
        if self.mixer is Mixer.MAMBA:
            return self.inner * (3 * self.hidden + 2 * self.dt_rank + 2 * self.state_size)
        wide = 2 * self.inner + 2 * self.state_groups * self.state_size + self.state_heads
        return self.hidden * (wide + self.inner)

    @property
    def matrix_parameters(self) -> int:
        """Parameters of all matrices, every expert's included, without those of the input embedding."""
        fan = 3 if self.gated else 2
        total = (self.vocabulary + self.channels * self.patch**2) * self.hidden
        for one, count in self.variants().items():
            if one.mixer is Mixer.ATTENTION:
                total += count * one.attention_parameters
            elif one.mixer in STATE_SPACE:
                total += count * one.state_space_parameters
            if one.feed is Feed.MLP:
                total += count * fan * one.hidden * one.ffn
            elif one.feed is Feed.MOE:
                total += count * fan * one.hidden * one.moe_ffn * (one.experts + one.shared_experts)
        return total

    # ------------------------------------------------------------------ layers of different kinds

    @property
    def has_experts(self) -> bool:
        """Whether any layer has experts."""
        return any(one.feed is Feed.MOE for one in self.variants())

    def at(self, layer: int) -> "TransformerConfig":
        """The model as if all its layers were like this one: its own sizes, mixer and feed-forward said outright."""
        return self._variant(self.layer_key(layer))

    def layer_key(self, layer: int) -> object:
        """What tells the kinds of layers apart: layers with equal keys are alike."""
        if self.kinds:
            return self.kinds[layer]
        return self.is_moe(layer), self.window_of(layer)

    def variants(self) -> "dict[TransformerConfig, int]":
        """How many layers there are of each kind, in the order of the first of each, as `at` gives them."""
        keys: Counter[object]
        if self.kinds:
            keys = Counter(self.kinds)
        elif not (self.full_every or self.dense_layers):
            keys = Counter({self.layer_key(0): self.layers})
        else:
            keys = Counter(self.layer_key(layer) for layer in range(self.layers))
        return {self._variant(key): count for key, count in keys.items()}

    def _variant(self, key: object) -> "TransformerConfig":
        if isinstance(key, LayerKind):
            return self._of_kind(key)
        assert isinstance(key, tuple)
        moe, window = key
        feed = self.feed or (Feed.MOE if moe else Feed.MLP)
        return replace(self, feed=feed, window=window, full_every=0, dense_layers=0)

    def _of_kind(self, kind: LayerKind) -> "TransformerConfig":
        sizes: dict[str, Any] = kind.sizes()
        if kind.heads is not None:
            if kind.kv_heads is None:
                sizes["kv_heads"] = kind.heads if self.kv_heads == self.heads else self.kv_heads
            if kind.head_dim is None and not self.head_dim and kind.heads > 0:
                sizes["head_dim"] = self.hidden // kind.heads
        feed = kind.feed or (Feed.MOE if sizes.get("experts", self.experts) else Feed.MLP)
        return replace(self, kinds=(), mixer=kind.mixer, feed=feed, full_every=0, dense_layers=0, **sizes)

    def is_moe(self, layer: int) -> bool:
        """Whether this layer's feed-forward is a mixture of experts."""
        if self.kinds:
            return self.at(layer).feed is Feed.MOE
        if self.feed is not None:
            return self.feed is Feed.MOE
        return bool(self.experts) and layer >= self.dense_layers

    def window_of(self, layer: int) -> int:
        """Keys that a query of this layer sees; 0: all."""
        if self.kinds:
            return self.at(layer).window
        return 0 if self.full_every and (layer + 1) % self.full_every == 0 else self.window


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
_DEEPSEEK3 = "DeepSeek-AI 2024, arXiv 2412.19437, section 4.2 (without multi-token prediction)"
_GPT_OSS = "OpenAI 2025, arXiv 2508.10925, section 2, and the published configuration"
_OPENELM = "Mehta et al. 2024, arXiv 2404.14619, and the published configurations (norms of queries and keys left out)"
_MAMBA = "Gu and Dao 2023, arXiv 2312.00752, and the published configurations"
_MAMBA2 = "Dao and Gu 2024, arXiv 2405.21060, and the published configurations"
_JAMBA = "Lieber et al. 2024, arXiv 2403.19887, and the published configuration"
_NEMOTRON_H = "NVIDIA 2025, arXiv 2504.03624, and the published configurations"
_VIT = "Dosovitskiy et al. 2021, arXiv 2010.11929, table 1"
_VIT22 = (
    "Dehghani et al. 2023, arXiv 2302.05442, table 1 (blocks one after the other; biases of the MLP left out)"
)
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


def _vit(name: str, layers: int, hidden: int, heads: int, patch: int) -> TransformerConfig:
    tokens = tokens_of(224, patch)
    return TransformerConfig(
        name, layers, hidden, heads, heads, hidden // heads, 4 * hidden, 1000, tokens, gated=False, biases=True,
        layer_norm=True, learned_positions=tokens, image=224, patch=patch, source=_VIT,
    )  # fmt: skip


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
    _vit("vit-b16", 12, 768, 12, 16),
    _vit("vit-l16", 24, 1024, 16, 16),
    _vit("vit-h14", 32, 1280, 16, 14),
    replace(_vit("vit-22b", 48, 6144, 48, 14), biases=False, layer_norm=False, source=_VIT22),
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
        No such preset; the message names the nearest, or lists those there are.
    """
    if name not in TRANSFORMERS:
        family = [known for known in TRANSFORMERS if name and known.startswith(name.lower())]
        if len(family) > 1:
            hint = f"; did you mean one of {', '.join(family)}?"
        else:
            hint = nearest(name, list(TRANSFORMERS)) or f"; there are: {', '.join(TRANSFORMERS)}"
        raise UsageError(f"no model preset {name!r}{hint}")
    return TRANSFORMERS[name]


#: parameters of a request that are sizes of the model
SIZES = (
    "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocabulary", "gated", "experts",
    "experts_per_token", "moe_ffn", "shared_experts", "q_rank", "kv_rank", "rope_dim", "value_dim", "window",
    "full_every", "sinks", "inner", "state_size", "state_heads", "state_groups", "conv_width", "chunk", "dt_rank",
    "image", "patch",
)  # fmt: skip


def sized_transformer(name: str, sizes: Mapping[str, Any], sequence: int | None = None) -> TransformerConfig:
    """A preset with some sizes replaced, or with an empty name a model of sizes alone.

    Raises
    ------
    UsageError
        No such preset, or sizes that are missing or contradict each other.
    """
    base = transformer(name) if name else None
    given = dict(sizes)
    if sequence is not None:
        given["sequence"] = sequence
    image, patch = (given.get(key, getattr(base, key) if base else 0) for key in ("image", "patch"))
    if image or patch:
        if sequence is not None:
            raise UsageError("the sequence of an image follows from image and patch: seq must not be given")
        given["sequence"] = given["learned_positions"] = tokens_of(image, max(patch, 1))
    if given.get("kinds"):
        given.setdefault("layers", len(given["kinds"]))
    if base is None:
        return _from_sizes(given)
    if base.kinds and "kinds" not in given and "layers" in given:
        if given["layers"] > base.layers:
            raise UsageError(
                f"model {base.name} lists its {base.layers} layers: layers can be fewer, not {given['layers']}"
            )
        given["kinds"] = base.kinds[: max(given["layers"], 0)]
    if "heads" in given and "kv_heads" not in given:
        given["kv_heads"] = given["heads"] if base.kv_heads == base.heads else base.kv_heads
    # a head of latent attention does not follow from the width
    sized = "hidden" in given or "heads" in given
    if sized and "head_dim" not in given and not base.latent:
        given["head_dim"] = given.get("hidden", base.hidden) // max(1, given.get("heads", base.heads))
    if base.learned_positions and sequence is not None:
        given["learned_positions"] = max(sequence, base.learned_positions)
    return replace(base, **given) if given else base


def _from_sizes(sizes: dict[str, Any]) -> TransformerConfig:
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
