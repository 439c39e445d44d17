"""Why designs of a study have no result."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from chakra.sweep.store import Outcome

_NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")


@dataclass(frozen=True, slots=True)
class Reason:
    """Designs that have no result for one reason, but for the numbers in it.

    Attributes
    ----------
    status
        "infeasible" or "failed".
    first
        The first of the designs; its reason stands for all.
    count
        Number of the designs.
    same
        Whether their reasons are the same to the number.
    """

    status: str
    first: Outcome
    count: int
    same: bool


def without_numbers(text: str) -> str:
    """A text with a sign in place of every number: equal for texts that differ in numbers alone."""
    return _NUMBER.sub("#", text)


def reasons(outcomes: Sequence[Outcome]) -> list[Reason]:
    """Why designs have no result, failures before what does not fit, most frequent first.

    Parameters
    ----------
    outcomes
        Outcomes of a study's points.
    """
    found: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if not outcome.ok:
            found.setdefault((outcome.status, without_numbers(outcome.reason)), []).append(outcome)
    rows = [
        Reason(status, alike[0], len(alike), len({one.reason for one in alike}) == 1)
        for (status, _), alike in found.items()
    ]
    return sorted(rows, key=lambda row: (row.status != "failed", -row.count))
