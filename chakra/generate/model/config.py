"""Sizes of transformer models."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from chakra.errors import UsageError
from chakra.generate.model.layer_kinds import STATE_SPACE, Feed, LayerKind, Mixer
from chakra.io.readable import counted, verb


def tokens_of(image: int, patch: int) -> int:
    """Tokens of a square image: its patches and the class token."""
    return (image // patch) ** 2 + 1


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Sizes of a transformer: of text or images, alone or behind an encoder.

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
    moe_latent
        Width that tokens are compressed to before they are sent to experts, which work on it (LatentMoE, Nemotron 3
        Super); router and shared experts take the hidden width. 0: they are sent as they are.
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
    encoder
        The model that is computed before these layers, whose output each of them attends to (T5, BART, Whisper); None:
        there are these layers alone. It has no output matrix, and its source sequence is ``encoder.sequence``.
        An encoder of images is not attended to: a perceptron of two matrices, the projector, makes tokens of this model
        of its patches, and these stand in the place of as many of the sequence's.
    images
        Images of a sequence, where the encoder is one of images.
    shared_embedding
        The encoder looks its tokens up in the embedding of this model.
    masked
        A query sees no later key; encoders have no mask.
    relative_buckets
        Rows of a table with a number for each head, which scores get by the distance of query and key (T5); 0: none.
    embedding_norm, final_norm
        A norm stands behind the embedding (BART, CLIP), and one behind the last layer (not in BART).
    patch_bias
        The matrix of the patches has a bias where linear layers have (not in CLIP).
    key_bias
        Keys have a bias where linear layers have (Whisper's have none).
    mel
        Bands of a spectrum, two frames of which two convolutions make one token (Whisper's encoder); 0: text or images.
    fixed_positions
        The position embedding is not trained.
    mtp, mtp_kinds, mtp_repeated
        Multi-token prediction (DeepSeek-V3): modules behind the last layer, each of which predicts one token more. A
        module takes the hidden state and the embedding of the token ahead, each normed, through a matrix of 2h x h and
        a layer like the last one (or those of ``mtp_kinds``), and has a norm of its own before the output matrix, which
        all share. ``mtp_repeated``: all modules have the weights of the first (Nemotron 3). Inference has none of them.
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
    moe_latent: int = 0
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
    encoder: "TransformerConfig | None" = None
    shared_embedding: bool = False
    masked: bool = True
    relative_buckets: int = 0
    images: int = 1
    embedding_norm: bool = False
    final_norm: bool = True
    patch_bias: bool = True
    key_bias: bool = True
    mel: int = 0
    fixed_positions: bool = False
    mtp: int = 0
    mtp_kinds: tuple[LayerKind, ...] = ()
    mtp_repeated: bool = False
    source: str = "given sizes"

    def __post_init__(self) -> None:
        self._check_least("layers", "hidden")
        if not self.kinds and self.mixer is Mixer.ATTENTION:
            self._check_least("heads", "kv_heads", "head_dim")
        self._check_least("vocabulary", "sequence")
        if self.patch or self.image:
            self._check_image()
        if self.encoder is not None:
            self._check_encoder(self.encoder)
        if self.mtp:
            self._check_mtp()
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

    def _check_encoder(self, encoder: "TransformerConfig") -> None:
        """What a model that attends to an encoder, or has its images among its tokens, can be."""
        if encoder.patch:
            self._check_least("images")
            if self.image_tokens >= self.sequence:
                raise UsageError(
                    f"model {self.name}: {self.image_tokens} of a sequence's tokens are images', and it has "
                    f"{self.sequence}"
                )
            return
        for one in (self, encoder):
            if (
                one.kinds
                or one.mixer is not Mixer.ATTENTION
                or one.latent
                or one.experts
                or one.window
                or one.patch
            ):
                raise UsageError(
                    f"model {self.name}: an encoder and what attends to it have layers of one kind, of whole attention "
                    "and a perceptron: no layer list, states, experts, latent attention, windows or patches"
                )
        if encoder.hidden != self.hidden:
            raise UsageError(
                f"model {self.name}: the layers attend to what the encoder gives: its width ({encoder.hidden}) must be "
                f"theirs ({self.hidden})"
            )

    def _check_mtp(self) -> None:
        if self.mtp < 0:
            raise UsageError(f"model {self.name}: mtp must be at least 0, not {self.mtp}")
        if self.patch or self.encoder is not None:
            raise UsageError(
                f"model {self.name}: multi-token prediction is of text alone: mtp must be 0 for images and behind an "
                "encoder"
            )

    def _check_kinds(self) -> None:
        """Each kind of layer by itself, with the number of the first such layer in what is wrong."""
        if len(self.kinds) != self.layers:
            raise UsageError(
                f"model {self.name}: {counted(len(self.kinds), 'layer')} {verb(len(self.kinds), 'is', 'are')} "
                f"listed, and layers is {self.layers}"
            )
        known: set[LayerKind] = set()
        for index, kind in enumerate(self.kinds):
            if kind in known:
                continue
            known.add(kind)
            if unread := kind.unread(self.experts):
                raise UsageError(f"model {self.name}: {unread} (layer {index})")
            try:
                self.at(index)
            except UsageError as error:
                raise UsageError(f"{error} (layer {index})") from None

    def _check_state_space(self) -> None:
        needed = ["inner", "state_size", "conv_width"]
        needed += ["state_heads", "state_groups", "chunk"] if self.mixer is Mixer.MAMBA2 else ["dt_rank"]
        lacking = [key for key in needed if getattr(self, key) < 1]
        if lacking:
            first = lacking[0]
            asked = ", ".join(f"--{key.replace('_', '-')}" for key in lacking)
            raise UsageError(
                f"model {self.name}: a {self.mixer} layer needs {first.replace('_', '-')} of at least 1, not "
                f"{getattr(self, first)}: give {asked}, or a model that has such layers"
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
        if self.moe_latent < 0:
            raise UsageError(f"model {self.name}: moe-latent must be at least 0, not {self.moe_latent}")
        if self.moe_latent and self.biases:
            raise UsageError(f"model {self.name}: experts of a latent width with biases are not known")
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
    def image_tokens(self) -> int:
        """Tokens of a sequence that are its images': all patches, without the class token."""
        return self.images * (self.encoder.sequence - 1) if self.encoder and self.encoder.patch else 0

    @property
    def source_tokens(self) -> int:
        """Tokens of a source that the layers attend to; 0 where there is none."""
        return self.encoder.sequence if self.encoder and not self.encoder.patch else 0

    @property
    def depth(self) -> int:
        """Layers, the encoder's before the others."""
        return self.layers + (self.encoder.layers if self.encoder else 0)

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
    def expert_hidden(self) -> int:
        """Width of the tokens that experts take and give."""
        return self.moe_latent or self.hidden

    @property
    def matrix_parameters(self) -> int:
        """Parameters of all matrices, every expert's included, without those of the input embedding."""
        total = (self.vocabulary + self.channels * self.patch**2) * self.hidden
        total += sum(count * one._layer_matrices for one, count in self.variants().items())
        predictor = 2 * self.hidden**2 + sum(one._layer_matrices for one in self.mtp_layers())
        return total + self.mtp_modules * predictor

    @property
    def _layer_matrices(self) -> int:
        """The same of one layer of a model as `at` gives it."""
        total, fan = 0, 3 if self.gated else 2
        if self.mixer is Mixer.ATTENTION:
            total = self.attention_parameters
        elif self.mixer in STATE_SPACE:
            total = self.state_space_parameters
        if self.feed is Feed.MLP:
            total += fan * self.hidden * self.ffn
        elif self.feed is Feed.MOE:
            total += fan * self.expert_hidden * self.moe_ffn * self.experts
            total += self.hidden * (fan * self.moe_ffn * self.shared_experts + 2 * self.moe_latent)
        return total

    @property
    def mtp_modules(self) -> int:
        """Modules of multi-token prediction with weights of their own."""
        return min(self.mtp, 1) if self.mtp_repeated else self.mtp

    def mtp_layers(self) -> "tuple[TransformerConfig, ...]":
        """Layers of a module of multi-token prediction, as `at` gives them; none where there is no module."""
        if not self.mtp:
            return ()
        if self.mtp_kinds:
            return tuple(self._of_kind(kind) for kind in self.mtp_kinds)
        return (self.at(self.layers - 1),)

    # ------------------------------------------------------------------ layers of different kinds

    @property
    def has_experts(self) -> bool:
        """Whether any layer has experts."""
        return any(one.feed is Feed.MOE for one in (*self.variants(), *self.mtp_layers()))

    @property
    def has_states(self) -> bool:
        """Whether any layer passes a state along the sequence."""
        return any(one.mixer in STATE_SPACE for one in self.variants())

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
        (feed,) = kind.feeds(self.experts)
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
