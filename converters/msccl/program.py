"""An MSCCL algorithm as a value: what every threadblock of every rank does, step by step."""

from dataclasses import dataclass

from chakra.replay.config.model import CollectiveKind

#: words of the attribute ``coll`` that have a kind of collective with custom algorithms
KINDS = {
    "allreduce": CollectiveKind.ALL_REDUCE,
    "allgather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
}

#: types of steps that receive a message, that reduce, that send one, that only move data of their own rank
RECEIVES = frozenset(("r", "rcs", "rrs", "rrc", "rrcs"))
REDUCES = frozenset(("rrs", "rrc", "rrcs", "re"))
SENDS = frozenset(("s", "rcs", "rrs", "rrcs"))
TYPES = frozenset((*RECEIVES, *REDUCES, *SENDS, "cpy", "nop"))
#: types that read chunks of their own rank, and that write some
READS = frozenset(("s", "rrs", "rrc", "rrcs", "cpy", "re"))
WRITES = frozenset(("r", "rcs", "rrc", "rrcs", "cpy", "re"))


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction; offsets and counts are in chunks.

    Attributes
    ----------
    type
        ``s``, ``r``, ``rcs``, ``rrs``, ``rrc``, ``rrcs``, ``cpy``, ``re`` or ``nop``.
    source_buffer, source
        Buffer (``i``, ``o``, ``s``) and first chunk that it reads, if it reads.
    target_buffer, target
        Buffer and first chunk that it writes, if it writes.
    count
        Chunks that it moves.
    after
        Threadblock and step of the same rank that end before it starts; None if it waits for none.
    """

    type: str
    source_buffer: str
    source: int
    target_buffer: str
    target: int
    count: int
    after: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Threadblock:
    """Steps that run one after the other, with at most one rank to send to and one to receive from.

    Attributes
    ----------
    id
        Number in the rank.
    send, receive
        Ranks at the other ends of its connections, -1 for none.
    channel
        Connections of different channels between the same ranks are different ones.
    steps
        What it does.
    """

    id: int
    send: int
    receive: int
    channel: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class MscclAlgorithm:
    """An algorithm that `load_msccl` has read and checked.

    Attributes
    ----------
    source
        Where it was read from.
    name
        Its own name.
    collective
        What it claims to be.
    npus
        Ranks.
    chunks
        Chunks of the larger of the input and the output buffer of a rank (``nchunksperloop``).
    in_place
        Whether input and output share memory.
    channels
        Channels.
    ranks
        Threadblocks of every rank, in ascending order of their ids.
    least_bytes, most_bytes
        Sizes that it is meant for, if it says so.
    """

    source: str
    name: str
    collective: CollectiveKind
    npus: int
    chunks: int
    in_place: bool
    channels: int
    ranks: tuple[tuple[Threadblock, ...], ...]
    least_bytes: int | None = None
    most_bytes: int | None = None

    @property
    def input_chunks(self) -> int:
        """Chunks of a rank's input."""
        return self.chunks // (self.npus if self.collective is CollectiveKind.ALL_GATHER else 1)

    @property
    def output_chunks(self) -> int:
        """Chunks of a rank's output."""
        return self.chunks // (self.npus if self.collective is CollectiveKind.REDUCE_SCATTER else 1)

    @property
    def steps(self) -> int:
        """Steps of all ranks."""
        return sum(len(block.steps) for rank in self.ranks for block in rank)

    @property
    def messages(self) -> int:
        """Messages of all ranks."""
        return sum(step.type in SENDS for rank in self.ranks for block in rank for step in block.steps)
