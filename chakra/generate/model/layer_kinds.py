"""What the layers of a model are, where they are not all alike: kinds of layers, and files that list them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path

from chakra.errors import ConfigError, UsageError
from chakra.io.digits import is_whole, whole_number
from chakra.io.limits import MAX_GENERATED_LAYERS
from chakra.io.nearest import nearest
from chakra.io.readable import counted
from chakra.io.text import cells_by_line


class Mixer(StrEnum):
    """What a layer mixes tokens with."""

    ATTENTION = "attention"
    #: state-space layers
    MAMBA = "mamba"
    MAMBA2 = "mamba2"
    #: the layer is a feed-forward alone
    NONE = "none"


#: mixers that pass a state along the sequence
STATE_SPACE = (Mixer.MAMBA, Mixer.MAMBA2)


class Feed(StrEnum):
    """What a layer's feed-forward is."""

    MLP = "mlp"
    MOE = "moe"
    #: the layer is a mixer alone
    NONE = "none"


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What a layer has of its own; None is what the model says of all layers.

    Attributes
    ----------
    mixer
        What mixes tokens.
    feed
        Which feed-forward; None is experts where the layer has them, else a perceptron.
    heads, kv_heads, head_dim, window
        Attention, as in `TransformerConfig`. Where the model has as many heads of keys as of
        queries, ``heads`` alone mean both.
    ffn
        Feed-forward width.
    experts, experts_per_token, moe_ffn, shared_experts
        Experts.
    inner, state_size, state_heads, state_groups
        State-space layers.
    """

    mixer: Mixer = Mixer.ATTENTION
    feed: Feed | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    window: int | None = None
    ffn: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    moe_ffn: int | None = None
    shared_experts: int | None = None
    inner: int | None = None
    state_size: int | None = None
    state_heads: int | None = None
    state_groups: int | None = None

    def feeds(self, experts: int | None = None) -> tuple[Feed, ...]:
        """Which feed-forward it has; both kinds where that depends on a number of experts that is not known.

        Parameters
        ----------
        experts
            Experts that the model says for all layers; None where that is not known.
        """
        if self.feed is not None:
            return (self.feed,)
        own = experts if self.experts is None else self.experts
        return (Feed.MLP, Feed.MOE) if own is None else (Feed.MOE if own else Feed.MLP,)

    def reads(self, experts: int | None = None) -> tuple[str, ...]:
        """Names of the sizes that it reads.

        Parameters
        ----------
        experts
            Experts that the model says for all layers; None where that is not known.
        """
        # of a feed-forward that is not said the number of experts tells which it is
        told = ("experts",) if self.feed is None else ()
        names = {
            *_MIXER_SIZES[self.mixer],
            *told,
            *(name for feed in self.feeds(experts) for name in _FEED_SIZES[feed]),
        }
        return tuple(name for name in SIZE_NAMES if name in names)

    def unread(self, experts: int | None = None) -> str | None:
        """That it has a size that it does not read, in words; None where it has none.

        Parameters
        ----------
        experts
            Experts that the model says for all layers; None where that is not known.
        """
        there = self.reads(experts)
        extra = next((name for name in self.sizes() if name not in there), None)
        if extra is None:
            return None
        feed = " or ".join(self.feeds(experts))
        said = f"a layer of mixer {self.mixer} and feed {feed} does not read {extra.replace('_', '-')}"
        return f"{said}; it reads {', '.join(name.replace('_', '-') for name in there) or 'no sizes'}"

    def sizes(self) -> dict[str, int]:
        """The sizes that it has of its own."""
        found = ((name, getattr(self, name)) for name in SIZE_NAMES)
        return {name: value for name, value in found if value is not None}


#: fields of a kind that are sizes
SIZE_NAMES = tuple(item.name for item in fields(LayerKind) if item.name not in ("mixer", "feed"))
#: sizes that each mixer and each feed-forward read
_MIXER_SIZES: Mapping[Mixer, tuple[str, ...]] = {
    Mixer.ATTENTION: ("heads", "kv_heads", "head_dim", "window"),
    Mixer.MAMBA: ("inner", "state_size"),
    Mixer.MAMBA2: ("inner", "state_size", "state_heads", "state_groups"),
    Mixer.NONE: (),
}
_FEED_SIZES: Mapping[Feed, tuple[str, ...]] = {
    Feed.MLP: ("ffn",),
    Feed.MOE: ("experts", "experts_per_token", "moe_ffn", "shared_experts"),
    Feed.NONE: (),
}
#: column with the number of layers of a line
_COUNT = "layers"
#: no size in a file is larger
_MOST = 1 << 40


def read_layers(path: str | Path) -> tuple[LayerKind, ...]:
    """The layers that a CSV file lists: a first line with names of columns, then a line for each run of equal layers.

    Columns are ``layers`` (how many there are in a row, 1 if it is left out), ``mixer``, ``feed`` and the sizes of
    `LayerKind` that its mixer and feed-forward read; ``-`` and ``_`` are the same in names. An empty cell is the
    model's own. Lines that are empty or begin
    with ``#`` are passed over.

    Raises
    ------
    ConfigError
        The file cannot be read, or a line is wrong; the message names file, line and column.
    """
    lines = cells_by_line(path)
    if not lines:
        raise ConfigError(f"{path}: no line with names of columns, such as 'layers,ffn'")
    columns = _columns(lines[0][1], f"{path}: line {lines[0][0]}")
    kinds: list[LayerKind] = []
    for number, cells in lines[1:]:
        where = f"{path}: line {number}"
        if len(cells) > len(columns):
            raise ConfigError(f"{where}: {counted(len(cells), 'cell')} for {counted(len(columns), 'column')}")
        given = {name: cell for name, cell in zip(columns, cells, strict=False) if cell}
        count = _number(given.pop(_COUNT, "1"), _COUNT, where)
        if count < 1 or len(kinds) + count > MAX_GENERATED_LAYERS:
            raise ConfigError(
                f"{where}: layers must be 1 or more, and all together at most {MAX_GENERATED_LAYERS}"
            )
        kinds += [_kind(given, where)] * count
    if not kinds:
        raise ConfigError(f"{path}: no layers below the names of columns")
    return tuple(kinds)


def pattern_layers(pattern: str, layers: int | None) -> tuple[LayerKind, ...]:
    """The layers that a pattern of letters says, repeated until there are ``layers``.

    Each is a mixer or a feed-forward alone: ``M`` is Mamba-2, ``m`` Mamba, ``*`` attention, ``-`` a perceptron and ``E``
    experts (Megatron-LM's letters, but ``m``).

    Raises
    ------
    UsageError
        Another letter, or a number of layers that is no multiple of the pattern's.
    """
    if not pattern or len(pattern) > MAX_GENERATED_LAYERS:
        raise UsageError(f"layer-pattern must have 1 to {MAX_GENERATED_LAYERS} letters, such as 'M-M*-'")
    for letter in pattern:
        if letter not in _LETTERS:
            raise UsageError(
                f"layer-pattern: {letter!r} is not one of {' '.join(_LETTERS)} (Mamba-2, Mamba, attention, perceptron, "
                "experts)"
            )
    count = len(pattern) if layers is None else layers
    if count < 1 or count % len(pattern):
        raise UsageError(f"layers ({count}) must be a multiple of the pattern's {len(pattern)}")
    return tuple(_LETTERS[letter] for letter in pattern) * (count // len(pattern))


#: letters of a pattern
_LETTERS = {
    "M": LayerKind(Mixer.MAMBA2, Feed.NONE),
    "m": LayerKind(Mixer.MAMBA, Feed.NONE),
    "*": LayerKind(Mixer.ATTENTION, Feed.NONE),
    "-": LayerKind(Mixer.NONE, Feed.MLP),
    "E": LayerKind(Mixer.NONE, Feed.MOE),
}


def _columns(cells: list[str], where: str) -> list[str]:
    known = (_COUNT, *(item.name for item in fields(LayerKind)))
    columns = [cell.lower().replace("-", "_") for cell in cells]
    for column in columns:
        if column not in known:
            names = [name.replace("_", "-") for name in known]
            hint = nearest(column.replace("_", "-"), names) or f"; there are: {', '.join(names)}"
            raise ConfigError(f"{where}: no column {column.replace('_', '-')[:40]!r}{hint}")
        if columns.count(column) > 1:
            raise ConfigError(f"{where}: column {column!r} is there twice")
    return columns


def _kind(given: dict[str, str], where: str) -> LayerKind:
    sizes = {name: _number(cell, name, where) for name, cell in given.items() if name in SIZE_NAMES}
    mixer = Mixer(_word(given.get("mixer", Mixer.ATTENTION), "mixer", [item.value for item in Mixer], where))
    feed = given.get("feed")
    if feed is not None:
        feed = Feed(_word(feed, "feed", [item.value for item in Feed], where))
    kind = LayerKind(mixer, feed, **sizes)
    if unread := kind.unread():
        raise ConfigError(f"{where}: {unread}")
    return kind


def _word(text: str, column: str, words: list[str], where: str) -> str:
    if text.lower() not in words:
        raise ConfigError(f"{where}: {column} must be one of {', '.join(words)}, not {text[:40]!r}")
    return text.lower()


def _number(text: str, column: str, where: str) -> int:
    if not (is_whole(text, 13) and whole_number(text) <= _MOST):
        raise ConfigError(
            f"{where}: {column.replace('_', '-')} must be a whole number of 0 to 2^40, not {text[:40]!r}"
        )
    return whole_number(text)
