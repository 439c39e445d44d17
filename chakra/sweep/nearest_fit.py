"""The design that comes nearest to fitting in memory where none fits, and what would make it fit."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from chakra.errors import ChakraError
from chakra.generate.plan.options import Recompute
from chakra.sweep.given import plain
from chakra.sweep.point import memory_of
from chakra.sweep.store import Outcome
from chakra.sweep.study import Study

#: degrees that spread a model over more ranks, and by which factors they are tried
_DEGREES = ("tp", "pp", "ep")
_FACTORS = (2, 4, 8)
#: values of a parameter that take less memory, the least change first
_THRIFTIER: Mapping[str, tuple[str | int, ...]] = {
    "recompute": (Recompute.SELECTIVE.value, Recompute.FULL.value),
    "zero": (1, 2, 3),
}
#: remedies that are told
_MOST_TOLD = 4
#: a change of a design's parameters
_Change = tuple[tuple[str, str | int], ...]


class _Need(NamedTuple):
    """What a point needs of an NPU's memory: GB, and as a share of it."""

    gb: float
    share: float


def fits(outcome: Outcome) -> bool:
    """Whether a design needs no more memory than an NPU has; true where either is not known."""
    return outcome.metrics.get("memory_share", 0) <= 1


def nearest_fit(study: Study, outcomes: Sequence[Outcome]) -> tuple[Outcome, str] | None:
    """The design that needs least of those that do not fit, and a sentence about what would make it fit.

    None where a design that ran fits, and where none is known not to.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points.
    """
    short = [outcome for outcome in outcomes if not fits(outcome)]
    if not short or any(outcome.ok and fits(outcome) for outcome in outcomes):
        return None
    nearest = min(short, key=lambda outcome: outcome.metrics["memory_share"])
    need, share = (nearest.metrics[name] for name in ("memory_gb", "memory_share"))
    text = f"needs {need:,.1f} GB of {need / share:,.1f} GB"
    merged = json.dumps(study.merged(nearest.point), sort_keys=True, default=str)
    remedies = [_told(change, gb) for change, gb in _remedies(merged)]
    if remedies:
        listed = ", ".join(remedies[:-1]) + (" or " if remedies[:-1] else "") + remedies[-1]
        return nearest, f"{text}; {listed} would make it fit"
    tried = "recompute, zero, micro-batch, tp, pp or ep"
    return nearest, f"{text}; no other {tried} that was tried makes it fit, nor any two of them"


def _told(change: _Change, gb: float) -> str:
    return f"{' with '.join(f'{name} {value}' for name, value in change)} ({gb:,.1f} GB)"


@lru_cache(maxsize=64)
def _remedies(merged_text: str) -> tuple[tuple[_Change, float], ...]:
    """Changes that make a point fit, with its GB then: of each parameter the least one, else two parameters at once."""
    merged = json.loads(merged_text)
    given = {plain(key): value for key, value in merged["workload"].items()}
    if "files" in given:
        return ()
    fitting: list[tuple[_Change, float]] = []
    thriftiest: list[tuple[str, str | int]] = []
    for name, values in _options(given):
        needs = {value: need for value in values if (need := _need(merged, given, ((name, value),)))}
        fitting += [(((name, value),), need.gb) for value, need in needs.items() if need.share <= 1][:1]
        if needs:
            thriftiest.append((name, min(needs, key=lambda value: needs[value].gb)))
    if not fitting:
        for pair in combinations(thriftiest, 2):
            need = _need(merged, given, pair)
            if need is not None and need.share <= 1:
                fitting.append((pair, need.gb))
    return tuple(fitting[:_MOST_TOLD])


def _options(given: Mapping[str, object]) -> Iterator[tuple[str, list[str | int]]]:
    """Values of parameters that a design may take instead of its own, the least change first."""
    for name, values in _THRIFTIER.items():
        own = given.get(name)
        yield name, list(values[values.index(own) + 1 :] if own in values else values)
    batch = given.get("micro-batch", 1)
    if "global-batch" in given and isinstance(batch, int) and batch > 1:
        yield "micro-batch", [batch // factor for factor in _FACTORS if batch % factor == 0]
    for name in _DEGREES:
        own = given.get(name, 1)
        yield name, [own * factor for factor in _FACTORS] if isinstance(own, int) else []


def _need(merged: Mapping[str, object], given: Mapping[str, object], change: _Change) -> _Need | None:
    """What the changed point needs; None where it is not possible, or the memory is not known."""
    try:
        need = memory_of({**merged, "workload": {**given, **dict(change)}})
    except (ChakraError, ValueError, TypeError, ArithmeticError, LookupError):
        return None
    return _Need(need["memory_gb"], need["memory_share"]) if "memory_share" in need else None
