"""Unequal shares of collectives as records say them, in bytes.

PyTorch records split sizes in rows of the tensor's first dimension (``all_to_all_single``) or in elements (lists of
tensors), next to the number of elements of the whole buffer; so a row's bytes are the buffer's over the sum of the rows.
Of other collectives each rank knows its own share only; `all_ranks.agreement` puts them together.
"""

import re
from dataclasses import dataclass

#: split sizes as recorded; none is empty
Rows = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shares:
    """What a rank says of the shares of one of its collectives, in bytes."""

    in_split: tuple[int, ...] | None = None
    out_split: tuple[int, ...] | None = None
    #: bytes of the whole output, -1 if unknown
    out_size: int = -1


#: nothing is said of shares: all are equal
EQUAL = Shares()


def rows_of(value: object) -> Rows:
    """Split sizes as recorded, a list or its text; empty if there are none, or if the text is cut (``...``)."""
    if isinstance(value, str):
        if "..." in value:
            return ()
        value = [int(number) for number in re.findall(r"[0-9]+", value)]
    if not isinstance(value, list) or any(isinstance(n, bool) or not isinstance(n, int) for n in value):
        return ()
    return tuple(value) if all(0 <= n < 1 << 62 for n in value) else ()


def split_bytes(rows: Rows, total_bytes: int) -> tuple[int, ...] | None:
    """Bytes per member; None if all have the same share, or the rows do not make up the buffer."""
    together = sum(rows)
    if len(set(rows)) < 2 or total_bytes < 0 or total_bytes % together:
        return None
    return tuple(n * (total_bytes // together) for n in rows)
