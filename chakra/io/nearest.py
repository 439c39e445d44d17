"""The known word that an unknown one was probably meant for, as the end of a message."""

from collections.abc import Iterable, Sequence

#: longer words are no keys, and slow to compare
MAX_WORD = 100


def nearest(word: str, choices: Iterable[str], most: int = 1) -> str:
    """``; did you mean 'x'?``, or nothing where no choice is near.

    Parameters
    ----------
    word
        What was found; capitals do not count.
    choices
        What is known.
    most
        Choices that are named at most, the nearest first.

    Examples
    --------
    >>> nearest("latencies", ["latency", "bandwidth"])
    "; did you mean 'latency'?"
    >>> nearest("lama3", ["llama2", "llama3", "gpt3"], most=2)
    "; did you mean one of 'llama3', 'llama2'?"
    """
    import difflib

    if len(word) > MAX_WORD:
        return ""
    folded = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), list(folded), n=most, cutoff=0.6)
    return meant([folded[name] for name in close])


def meant(choices: Sequence[str]) -> str:
    """The question whether one of some words was meant; nothing without any."""
    if not choices:
        return ""
    return f"; did you mean {'one of ' if len(choices) > 1 else ''}{', '.join(map(repr, choices))}?"
