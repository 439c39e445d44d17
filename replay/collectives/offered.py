"""Checks of algorithms that other packages offer: the engine trusts our own, and these are data from outside."""

import numpy as np

from chakra.arrays import I64, distinct
from chakra.errors import ConfigError
from chakra.io.readable import counted, with_article
from chakra.replay.collectives.steps import LAST_OF_ROUND, Do, StepAlgorithm, Steps, Symmetry, from_arrays


def checked_algorithm(found: object, name: str, words: str) -> StepAlgorithm:
    """The object of an entry point as an algorithm.

    Raises
    ------
    ConfigError
        If it is not a `StepAlgorithm` of that name whose kinds are `Do` and whose schedule can be called.
    """
    if not isinstance(found, StepAlgorithm):
        raise ConfigError(f"{words} is {with_article(type(found).__name__)}, not a StepAlgorithm")
    if found.name != name:
        raise ConfigError(f"{words} calls itself {found.name!r}: entry point and algorithm need one name")
    try:
        kinds = set(found.kinds)
    except TypeError:
        kinds = set()
    if not kinds or not all(isinstance(kind, Do) for kind in kinds):
        raise ConfigError(f"{words}: kinds must be a set of Do, such as frozenset({{Do.ALL_REDUCE}})")
    if not callable(found.schedule):
        raise ConfigError(f"{words}: schedule must be a function")
    return found


def checked_steps(made: object, n: int, words: str) -> Steps:
    """What a schedule function returned, as the engine may trust it.

    Raises
    ------
    ConfigError
        If it is not `Steps` of n members: ends and shares in range, at most one message sent and received per member
        and round, rounds closed, and members alike where it says that they are.
    """
    if not isinstance(made, Steps):
        raise ConfigError(
            f"{words} is {with_article(type(made).__name__)}, not Steps: use from_rounds or from_arrays of "
            "chakra.replay.collectives.steps"
        )
    if made.n != n:
        raise ConfigError(f"{words} is for {counted(made.n, 'member')}")
    rows: object = made.messages
    whole: object = made.whole
    symmetry: object = made.symmetry
    if (
        not isinstance(rows, np.ndarray)
        or rows.ndim != 2
        or rows.shape[1] != 4
        or rows.dtype.kind not in "iu"
    ):
        raise ConfigError(
            f"{words}: messages must be an integer array of (source, destination, share, flags)"
        )
    if not isinstance(symmetry, Symmetry) or not isinstance(whole, int):
        raise ConfigError(f"{words}: whole must be a whole number, and symmetry a Symmetry")
    if len(rows) and not rows[-1, 3] & LAST_OF_ROUND:
        raise ConfigError(f"{words}: the last message must close its round")
    ends = np.flatnonzero(rows[:, 3] & LAST_OF_ROUND) + 1
    rounds = [part for part in np.split(rows, ends) if len(part)]
    for k, part in enumerate(rounds):
        if not _alike(part, n, made.symmetry):
            raise ConfigError(f"{words} calls itself {made.symmetry.value}, but members differ in round {k}")
    try:
        flagged = [np.column_stack([part[:, :3], part[:, 3] & 1]) for part in rounds]
        return from_arrays(n, flagged, made.whole, made.symmetry)
    except ConfigError as error:
        raise ConfigError(f"{words}: {error}") from error


def _alike(part: I64, n: int, symmetry: Symmetry) -> bool:
    """Whether each member of a round does what member 0 does, with partners shifted or combined as symmetry has it."""
    if symmetry is Symmetry.NONE:
        return True
    if len(part) != n or len(distinct(part[:, 0])) != n or (part[:, 2] != part[0, 2]).any():
        return False
    away = (part[:, 1] - part[:, 0]) % n if symmetry is Symmetry.CYCLIC else part[:, 1] ^ part[:, 0]
    reduces = part[:, 3] & 1
    return bool((away == away[0]).all() and (reduces == reduces[0]).all())
