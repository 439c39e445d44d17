"""What replays of designs said of their results, once for all designs of a study."""

from collections.abc import Iterable, Sequence

from chakra.sweep.reasons import without_numbers
from chakra.sweep.store import Outcome


def remark_notes(outcomes: Sequence[Outcome]) -> list[str]:
    """Remarks of designs, each once, and of how many designs where not all have it; those alike but for numbers are one.

    Parameters
    ----------
    outcomes
        Designs with a result, of which the first one's words are told.
    """
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        for text in _once(outcome.remarks):
            found.setdefault(without_numbers(text), []).append(text)
    return [_told(texts, len(outcomes)) for texts in found.values()]


def _once(texts: Iterable[str]) -> list[str]:
    """The first of texts that are alike but for numbers."""
    return list({without_numbers(text): text for text in reversed(list(texts))}.values())[::-1]


def _told(texts: Sequence[str], designs: int) -> str:
    same = len(set(texts)) == 1
    if same and len(texts) == designs:
        return texts[0]
    return f"{'' if same else 'such as: '}{texts[0]} ({len(texts)} of {designs} designs)"
