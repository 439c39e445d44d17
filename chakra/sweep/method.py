"""How the points of a study are chosen."""

from dataclasses import dataclass

from chakra.arguments import check_fields
from chakra.errors import UsageError
from chakra.replay.config.key import Schema, UnfitError
from chakra.sweep.values import MAX_POINTS


@dataclass(frozen=True, slots=True)
class Method:
    """How points are chosen: ``grid``, ``random`` (``number`` samples) or ``optuna`` (``number`` trials).

    Attributes
    ----------
    kind
        "grid", "random" or "optuna".
    number
        Samples or trials.
    seed
        Seed of what is random.
    """

    kind: str = "grid"
    number: int = 0
    seed: int = 0
    #: Optuna: points asked for at a time; part of the study, so that the number of workers changes nothing
    batch: int = 8

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kind not in ("grid", "random", "optuna"):
            raise UsageError(f"kind: {self.kind!r} is not one of grid, random, optuna")
        if min(self.number, self.seed) < 0 or self.batch < 1:
            raise UsageError("number and seed must be at least 0, batch at least 1")

    def __str__(self) -> str:
        """As a study file may say it."""
        if self.kind == "grid":
            return self.kind
        batch = f", batch: {self.batch}" if self.kind == "optuna" else ""
        return f"{self.kind}: {self.number}, seed: {self.seed}{batch}"


_FORMS = "grid, {random: SAMPLES, seed: N} or {optuna: TRIALS, seed: N, batch: N}"
_KINDS = ("random", "optuna")


#: the largest seed, and number of points asked for at a time
_MOST = (1 << 63) - 1


def _is_count(value: object, least: int, most: int = _MOST) -> bool:
    return type(value) is int and least <= value <= most


@dataclass(frozen=True, slots=True)
class MethodReader:
    """Reader of a method."""

    allowed: str = _FORMS
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> Method:
        """The method."""
        if value == "grid":
            return Method()
        if isinstance(value, dict) and set(value) <= {"seed", "batch", *_KINDS}:
            chosen = [kind for kind in _KINDS if kind in value]
            rest = {name: value[name] for name in ("seed", "batch") if name in value}
            if (
                len(chosen) == 1
                and _is_count(value[chosen[0]], 1, MAX_POINTS)
                and _is_count(rest.get("seed", 0), 0)
                and _is_count(rest.get("batch", 1), 1)
            ):
                return Method(chosen[0], value[chosen[0]], **rest)
        raise UnfitError(f"must be {_FORMS}")

    def schema(self) -> Schema:
        """The word, or a map of either kind."""
        rest = {
            "seed": {"type": "integer", "minimum": 0, "maximum": _MOST},
            "batch": {"type": "integer", "minimum": 1, "maximum": _MOST},
        }
        number = {"type": "integer", "minimum": 1, "maximum": MAX_POINTS}
        maps = [
            {
                "type": "object",
                "properties": {kind: number, **rest},
                "required": [kind],
                "additionalProperties": False,
            }
            for kind in _KINDS
        ]
        return {"anyOf": [{"const": "grid"}, *maps]}
