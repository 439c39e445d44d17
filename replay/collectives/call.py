"""A collective as a program calls it."""

from dataclasses import dataclass

from chakra.arrays import I64
from chakra.replay.config.model import CollectiveKind


@dataclass(frozen=True, slots=True, eq=False)
class Uneven:
    """Unequal shares of a collective, or of one of its chunks; each is made once, so identity is equality.

    Attributes
    ----------
    sizes
        Bytes, int64: of an all-to-all (n, n), from each member to each; else (n,), each member's share.
    """

    sizes: I64


@dataclass(frozen=True, slots=True)
class Call:
    """A distinct collective of a program; `group` is an index into the bindings' groups."""

    kind: CollectiveKind
    #: bytes that a member brings in; with unequal shares the most that one does
    bytes: int
    group: int
    involved: tuple[bool, ...] | None
    #: node id, if the node has a custom algorithm of its own
    node_id: int | None = None
    #: split sizes as the node gives them, until members are brought together
    in_split: tuple[int, ...] | None = None
    out_split: tuple[int, ...] | None = None
    #: unequal shares of all members, brought together
    uneven: Uneven | None = None

    @property
    def alone(self) -> bool:
        """Whether it has split sizes that have not met those of the other members."""
        return self.in_split is not None or self.out_split is not None
