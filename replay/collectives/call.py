"""A collective as a program calls it."""

from dataclasses import dataclass

from chakra.replay.config.model import CollectiveKind


@dataclass(frozen=True, slots=True)
class Call:
    """A distinct collective of a program; `group` is an index into the bindings' groups."""

    kind: CollectiveKind
    bytes: int
    group: int
    involved: tuple[bool, ...] | None
    #: node id, if the node has a custom algorithm of its own
    node_id: int | None = None
