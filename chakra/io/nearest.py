"""The known word that an unknown one was probably meant for, as the end of a message."""

from collections.abc import Iterable

#: longer words are no keys, and slow to compare
MAX_WORD = 100


def nearest(word: str, choices: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing where no choice is near.

    Parameters
    ----------
    word
        What was found; capitals do not count.
    choices
        What is known.

    Examples
    --------
    >>> nearest("latencies", ["latency", "bandwidth"])
    "; did you mean 'latency'?"
    """
    import difflib

    if len(word) > MAX_WORD:
        return ""
    folded = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return f"; did you mean '{folded[close[0]]}'?" if close else ""
