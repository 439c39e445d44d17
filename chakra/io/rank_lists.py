"""Lists of ranks as options have them."""

from typing import Final

from chakra.errors import UsageError
from chakra.io.digits import is_whole, whole_number

#: ranks that one range may have
_MOST: Final = 10_000_000


def parse_ranks(text: str, option: str = "--ranks") -> set[int]:
    """Ranks such as ``0,3,8-15``.

    Parameters
    ----------
    text
        The list.
    option
        The option that it is the value of.

    Raises
    ------
    UsageError
        If it is no list of ranks.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        bounds = part.strip().split("-")
        if not all(is_whole(bound, 9) for bound in bounds) or len(bounds) > 2:
            raise UsageError(f"{option} {text}: expected ranks such as 0,3,8-15")
        first, last = whole_number(bounds[0]), whole_number(bounds[-1])
        if last < first or last - first > _MOST:
            raise UsageError(f"{option} {text}: {part.strip()} is no range")
        ranks.update(range(first, last + 1))
    return ranks
