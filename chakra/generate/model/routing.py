"""How many tokens each expert gets, where routing is not even: shares of experts, and whole tokens made of them.

Every rank that sends tokens has equally many, and routes the same number of them to each expert. So a rank needs two
figures: how many copies of tokens it sends to the experts of each expert-parallel position, and how many come from each.
No expert gets more than one copy of a token.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import comb, isfinite
from pathlib import Path

from chakra.errors import ConfigError, UsageError
from chakra.generate.model.config import TransformerConfig
from chakra.io.digits import decimal_number, is_whole, whole_number
from chakra.io.readable import counted, verb
from chakra.io.text import cells_by_line

#: largest exponent of a distribution: beyond it the first experts have all tokens anyway
_STEEPEST = 20.0
_COLUMNS = ("layer", "expert", "share")


@dataclass(frozen=True, slots=True)
class ExpertLoad:
    """Shares of the experts: ``exponent`` of Zipf's law, or ``given``, by layer (None: all others) and expert.

    By Zipf's law the k-th most visited expert has a share in proportion to k^-exponent. Which expert is the k-th is drawn
    for each layer from ``seed``, layer and expert number by a hash, so that equal requests have equal loads.
    """

    exponent: float = 0.0
    seed: int = 0
    given: Mapping[int | None, Mapping[int, float]] = field(default_factory=dict)
    source: str = ""
    _known: dict[tuple[int, ...], list[int]] = field(default_factory=dict, compare=False, repr=False)

    def copies(self, layer: int, experts: int, visited: int, tokens: int) -> list[int]:
        """Copies of ``tokens``, each of which visits so many experts, for every expert of a layer.

        Raises
        ------
        UsageError
            Shares that leave a token fewer experts than it visits.
        """
        key = layer, experts, visited, tokens
        if key not in self._known:
            weights = self._weights(layer, experts)
            shares = sum(weight > 0 for weight in weights)
            if shares < visited:
                raise UsageError(
                    f"{self.source}: {counted(shares, 'expert')} of layer {layer} {verb(shares, 'has', 'have')} a share, "
                    f"and a token visits {visited}"
                )
            self._known[key] = apportioned(tokens * visited, weights, tokens)
        return self._known[key]

    def check_layers(self, with_experts: Sequence[bool]) -> None:
        """Refuse shares of layers that the model does not have; ``with_experts`` says of each layer whether it has some.

        Raises
        ------
        UsageError
            A file with a line for such a layer: its layers are numbered otherwise, or are another model's.
        """
        for layer in sorted(key for key in self.given if key is not None):
            if layer >= len(with_experts):
                raise UsageError(
                    f"{self.source}: shares of layer {layer}, but the model has layers 0 to {len(with_experts) - 1}"
                )
            if not with_experts[layer]:
                raise UsageError(f"{self.source}: shares of layer {layer}, which has no experts")

    def _weights(self, layer: int, experts: int) -> list[int]:
        """What the shares of a layer's experts are in proportion to.

        Raises
        ------
        UsageError
            A file that names experts that the layer does not have, or no share above 0.
        """
        if not self.source:
            order = [hashlib.sha256(f"{self.seed} {layer} {one}".encode()).digest() for one in range(experts)]
            places = {
                one: place for place, one in enumerate(sorted(range(experts), key=order.__getitem__), start=1)
            }
            return _in_whole([float(places[one]) ** -self.exponent for one in range(experts)])
        shares = self.given.get(layer, self.given.get(None))
        if shares is None:
            raise UsageError(f"{self.source}: no shares for the experts of layer {layer}")
        if max(shares) >= experts:
            raise UsageError(
                f"{self.source}: a share of expert {max(shares)}, but layer {layer} has experts 0 to {experts - 1}"
            )
        return _in_whole([shares.get(expert, 0.0) for expert in range(experts)])


def _in_whole(shares: Sequence[float]) -> list[int]:
    """Whole numbers in exactly the proportion of floats."""
    exact = [Fraction(share) for share in shares]
    # denominators of floats are powers of two
    scale = max(one.denominator for one in exact)
    return [int(one * scale) for one in exact]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What a rank of one expert-parallel position exchanges in a layer, in copies of tokens.

    Attributes
    ----------
    sent
        Copies that a rank sends to each position.
    received
        Copies that come from each position.
    busy
        Experts of the rank that get any.
    """

    sent: tuple[int, ...]
    received: int
    busy: int

    @property
    def rows(self) -> int:
        """Copies that the experts of the rank work on, from all positions."""
        return self.received * len(self.sent)


@dataclass(frozen=True, slots=True)
class Experts:
    """How experts are visited, and the expert-parallel position whose ranks are built."""

    load: ExpertLoad
    position: int


def dispatch_of(
    load: ExpertLoad, model: TransformerConfig, layer: int, tokens: int, ep: int, position: int
) -> Dispatch:
    """The exchange of one layer: ``tokens`` of each rank, spread over the experts of ``ep`` positions.

    Raises
    ------
    UsageError
        Shares that do not fit the model's experts.
    """
    copies = load.copies(layer, model.experts, model.experts_per_token, tokens)
    here = model.experts // ep
    sent = tuple(sum(copies[first : first + here]) for first in range(0, model.experts, here))
    own = copies[position * here : (position + 1) * here]
    return Dispatch(sent, sent[position], sum(number > 0 for number in own))


def sent_once(tokens: int, experts: int, visited: int, domains: int) -> int:
    """Copies of ``tokens`` that travel where each goes once to a domain that has any of its experts, rounded up.

    A token visits ``visited`` of all experts, each set of them equally likely: of ``domains`` with equally many experts
    it reaches ``domains * (1 - C(experts - experts/domains, visited) / C(experts, visited))``.
    """
    all_sets = comb(experts, visited)
    missed = comb(experts - experts // domains, visited)
    return -(-tokens * domains * (all_sets - missed) // all_sets)


def apportioned(total: int, weights: Sequence[int], most: int) -> list[int]:
    """Whole numbers that add up to ``total``, in proportion to weights, none above ``most``.

    What lies above ``most`` goes to the others in proportion; then by largest remainders, lower numbers first.
    """
    open_, out = list(range(len(weights))), [most] * len(weights)
    while True:
        rest = total - most * (len(weights) - len(open_))
        weight = sum(weights[one] for one in open_) or 1
        over = {one for one in open_ if rest * weights[one] > most * weight}
        if not over:
            break
        open_ = [one for one in open_ if one not in over]
    for one in open_:
        out[one] = rest * weights[one] // weight
    by_remainder = sorted(open_, key=lambda one: (-(rest * weights[one] % weight), one))
    for one in by_remainder[: total - sum(out)]:
        out[one] += 1
    return out


def read_load(text: str | None, seed: int | None, path: str | Path | None) -> ExpertLoad | None:
    """The load that ``uniform``, ``zipf:EXPONENT`` or a file says; None where experts are visited evenly.

    Raises
    ------
    UsageError
        Words that are neither, or both words and a file.
    ConfigError
        A file that is wrong.
    """
    if seed is not None and (text is None or text == "uniform"):
        raise UsageError(
            "expert-seed draws which experts are visited most: it needs expert-load zipf:EXPONENT"
        )
    if path is not None:
        if text is not None:
            raise UsageError(
                "expert-load and expert-load-file both say how experts are visited: give one of them"
            )
        return ExpertLoad(given=_read_shares(path), source=str(path))
    if text is None or text == "uniform":
        return None
    word, _, number = text.partition(":")
    try:
        exponent = decimal_number(number)
    except ValueError:
        exponent = -1.0
    if word != "zipf" or not 0 <= exponent <= _STEEPEST:
        raise UsageError(
            f"expert-load must be uniform or zipf:EXPONENT, such as zipf:1.2 (0 to {_STEEPEST:g}), not {text[:40]!r}"
        )
    return ExpertLoad(exponent, seed or 0)


def _read_shares(path: str | Path) -> dict[int | None, dict[int, float]]:
    """Shares by layer and expert: a first line with the columns ``expert``, ``share`` and perhaps ``layer``."""
    lines = cells_by_line(path)
    columns = [cell.lower() for cell in lines[0][1]] if lines else []
    if len(set(columns)) != len(columns) or not {"expert", "share"} <= set(columns) <= set(_COLUMNS):
        raise ConfigError(
            f"{path}: the first line must name the columns expert, share and, if they differ, layer"
        )
    found: dict[int | None, dict[int, float]] = {}
    for number, cells in lines[1:]:
        where = f"{path}: line {number}"
        if len(cells) != len(columns):
            raise ConfigError(f"{where}: {counted(len(cells), 'cell')} for {counted(len(columns), 'column')}")
        row = dict(zip(columns, cells, strict=True))
        layer = _whole(row["layer"], "layer", where) if row.get("layer") else None
        expert = _whole(row["expert"], "expert", where)
        shares = found.setdefault(layer, {})
        if expert in shares:
            raise ConfigError(f"{where}: expert {expert} has a share already")
        shares[expert] = _share(row["share"], where)
    if not found:
        raise ConfigError(f"{path}: no shares below the names of columns")
    return found


def _whole(text: str, column: str, where: str) -> int:
    if not is_whole(text, 7):
        raise ConfigError(f"{where}: {column} must be a whole number of at least 0, not {text[:40]!r}")
    return whole_number(text)


def _share(text: str, where: str) -> float:
    try:
        value = decimal_number(text)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and 0 <= value <= 1e18):
        raise ConfigError(f"{where}: share must be a number of 0 to 10^18, not {text[:40]!r}")
    return value
