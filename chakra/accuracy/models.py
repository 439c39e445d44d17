"""Which model a row names: its printed sizes, or a published model of that name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from chakra.errors import UsageError
from chakra.generate.model.layer_kinds import Mixer
from chakra.generate.model.presets import TRANSFORMERS
from chakra.generate.request.transformers import TransformerRequest
from chakra.io.digits import whole_number

#: sizes in parentheses after a model's name, by what they are called there
_SIZE = re.compile(r"\b(layers|hidden|heads|kv|ffn|vocab)\s+([0-9]{1,12})(?:\.0)?\b")
_FIELDS = {"kv": "kv_heads", "vocab": "vocabulary"}
#: words that say what was done with a model, not which one it is
_NOT_THE_NAME = re.compile(
    r"\b(pre-?training|performance|training|maxtext|bf16|fp16|fp8|instruct)\b|\(w/ mtp\)|\(w/o mtp\)|\(dropless\)"
)
#: what tables call a model -> preset; names are compared without signs and in lower case
_ALIASES = {
    "llama31405b": "llama3-405b",
    "llama318b": "llama3-8b",
    "llama3170b": "llama3-70b",
    "megatron22b": "megatron-22b",
    "gpt3175b": "gpt3-175b",
    "mpt1b": "mpt-1b",
    "deepseekv3": "deepseek-v3",
    "qwen330ba3b": "qwen3-30b-a3b",
    "qwen3235ba22b": "qwen3-235b-a22b",
    "gptoss120b": "gpt-oss-120b",
    "gptoss20b": "gpt-oss-20b",
    "nemotron3nano": "nemotron-3-nano-30b-a3b",
    "nemotron3super": "nemotron-3-super-120b-a12b",
}
#: modules of multi-token prediction in the recipes of Megatron-Bridge (August 2026) for a model
MTP_MODULES = {"deepseek-v3": 1, "nemotron-3-super-120b-a12b": 2}
#: what a name says about the kind of model, where only sizes are printed
_KINDS = (("llama", "llama3-8b"), ("gpt", "gpt3-175b"), ("megatron", "gpt3-175b"), ("mpt", "mpt-7b"))
#: kinds of training and of model that no generated workload stands for
_NOT_MODELLED = (
    (re.compile(r"\blora\b|\bsft\b", re.I), "fine-tuning with packed sequences or adapters is not modelled"),
    (re.compile(r"tokendrop", re.I), "experts that drop tokens by a capacity that is not printed"),
)


@dataclass(frozen=True, slots=True)
class Model:
    """A model as parameters of a request.

    Attributes
    ----------
    name
        Name for people, the same for all rows of one model.
    values
        Parameters of a `TransformerRequest`.
    """

    name: str
    values: Mapping[str, object]


def plain_name(text: str) -> str:
    """A model's name in lower case without signs and without words that do not belong to it.

    >>> plain_name("LLAMA3.1_405B Pre-Training Performance")
    'llama31405b'
    """
    words = _NOT_THE_NAME.sub(" ", re.sub(r"[_]", " ", text.lower()))
    return re.sub(r"[^a-z0-9]+", "", words)


def read_model(text: str) -> Model | str:
    """The model that ``workload_model`` names, or why it cannot be told.

    Sizes in parentheses replace those of the preset of that name; a name without a preset stands for its kind (``GPT``:
    LayerNorm, biases, learned positions and tied embeddings; ``Llama``: RMSNorm, gated, rotary), where layers, hidden and
    heads are printed.
    """
    for pattern, why in _NOT_MODELLED:
        if pattern.search(text):
            return why
    name, _, rest = text.partition("(")
    sizes: dict[str, object] = {_FIELDS.get(key, key): int(number) for key, number in _SIZE.findall(rest)}
    preset = _preset(text) or _preset(name)
    if preset:
        return Model(preset, {"model": preset, **sizes})
    if not {"layers", "hidden", "heads"} <= set(sizes):
        return f"no model preset {text!r}, and its sizes are not printed"
    kind = next((preset for word, preset in _KINDS if word in name.lower()), None)
    if kind is None:
        return f"{name.strip()!r} is no kind of model that is known: {', '.join(word for word, _ in _KINDS)}"
    values = {"model": kind, **sizes}
    hidden = whole_number(str(sizes["hidden"]))
    if kind == "gpt3-175b":
        values.setdefault("ffn", 4 * hidden)
    values.setdefault("kv_heads", sizes["heads"])
    if "ffn" not in values:
        return "the width of the feed-forward layers (ffn) is not printed"
    label = f"{name.strip()} {sizes['layers']}x{hidden}"
    return Model(label, values)


def _preset(text: str) -> str | None:
    plain = plain_name(text)
    known = {re.sub(r"[^a-z0-9]+", "", name): name for name in TRANSFORMERS}
    name = _ALIASES.get(plain, known.get(plain))
    return name if name in TRANSFORMERS else None


def model_flops(request: TransformerRequest, sequences: int) -> int:
    """Model operations of a step as Megatron-LM counts them: ``6 B s (L (q + kv + proj + ffn) + V h) + 12 B s^2 L a d``.

    Forward and backward, attention over the whole square, no recomputation.

    Raises
    ------
    UsageError
        A model whose layers are of different kinds, or behind an encoder: nothing measured is one.
    """
    config = request.config()
    if config.kinds or config.patch or config.encoder or config.mixer is not Mixer.ATTENTION:
        raise UsageError(f"model {config.name}: operations of layers of different kinds are not counted here")
    seq = config.sequence
    matrices = 0
    for layer in range(config.layers):
        fan = 3 if config.gated else 2
        width = config.ffn
        if config.is_moe(layer):
            width = config.moe_ffn * (config.experts_per_token + config.shared_experts)
        matrices += config.attention_parameters + fan * config.hidden * width
    matrices += config.vocabulary * config.hidden
    core = config.layers * config.attention_width * seq
    return sequences * seq * (6 * matrices + 12 * core)
