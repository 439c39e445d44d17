"""Reading MSCCL's XML: structure, numbers and ranges. What the program does is followed in `follow`.

The parser is expat, which is given no chance to read another file or to expand an entity: a document type declaration
is refused where it begins.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from chakra.converters.msccl.program import (
    KINDS,
    READS,
    RECEIVES,
    SENDS,
    TYPES,
    WRITES,
    MscclAlgorithm,
    Step,
    Threadblock,
)
from chakra.errors import ConfigError
from chakra.io.digits import signed_whole_number
from chakra.io.files import read_raw
from chakra.io.limits import MAX_CONFIG_BYTES
from chakra.io.readable import counted
from chakra.io.shown import shortened
from chakra.replay.config.model import CollectiveKind

#: chunks that all steps together may move, and that the buffers of all ranks may have: following them takes seconds
MAX_MOVED_CHUNKS = 1 << 22
MAX_RANKS = 1 << 10
MAX_CHANNELS = 1 << 10
_WHOLE = re.compile(r"-?[0-9]{1,15}", re.ASCII)
#: what stands in what
_INSIDE = {"algo": None, "gpu": "algo", "tb": "gpu", "step": "tb"}


@dataclass(slots=True)
class _Rank:
    """A rank while it is read."""

    scratch: int
    blocks: dict[int, Threadblock] = field(default_factory=dict)


@dataclass(slots=True)
class _Reading:
    """State of the parser: the elements that are open, and what has been read."""

    source: str
    parser: expat.XMLParserType
    open: list[str] = field(default_factory=list)
    head: MscclAlgorithm | None = None
    ranks: dict[int, _Rank] = field(default_factory=dict)
    rank: int = -1
    block: tuple[int, int, int, int] = (-1, -1, -1, -1)
    steps: list[Step] = field(default_factory=list)
    moved: int = 0

    # ------------------------------------------------------------------------------------------------ errors

    def error(self, what: str) -> ConfigError:
        return ConfigError(f"{self.source}: line {self.parser.CurrentLineNumber}: {what}")

    def place(self) -> str:
        """The innermost of rank, threadblock and step that is open, in words."""
        words = []
        if "gpu" in self.open and self.rank >= 0:
            words.append(f"rank {self.rank}")
        if "tb" in self.open and self.block[0] >= 0:
            words.append(f"threadblock {self.block[0]}")
        if "step" in self.open:
            words.append(f"step {len(self.steps)}")
        return ", ".join(words) + ": " if words else ""

    def text(self, values: Mapping[str, str], key: str) -> str:
        if key not in values:
            raise self.error(f"{self.place()}<{self.open[-1]}> has no attribute {key!r}")
        return values[key]

    def number(self, values: Mapping[str, str], key: str, least: int, most: int) -> int:
        text = self.text(values, key)
        if not _WHOLE.fullmatch(text) or not least <= signed_whole_number(text) <= most:
            raise self.error(
                f"{self.place()}{key} is {shortened(text)!r}, not a number from {least} to {most}"
            )
        return signed_whole_number(text)

    # ---------------------------------------------------------------------------------------------- elements

    def start(self, name: str, values: dict[str, str]) -> None:
        inside = self.open[-1] if self.open else None
        if _INSIDE.get(name, "") != inside:
            where = "at the top" if inside is None else f"in <{inside}>"
            raise self.error(
                f"{self.place()}element {shortened(name)!r} {where} is no part of an MSCCL algorithm"
            )
        self.open.append(name)
        if name == "algo":
            self.head = self.algorithm(values)
            return
        assert self.head is not None, "an algorithm is open"
        if name == "gpu":
            self.gpu(values, self.head)
        elif name == "tb":
            self.threadblock(values, self.head)
        else:
            self.steps.append(self.step(values, self.head))

    def end(self, name: str) -> None:
        self.open.pop()
        if name == "tb":
            number, send, receive, channel = self.block
            self.ranks[self.rank].blocks[number] = Threadblock(
                number, send, receive, channel, tuple(self.steps)
            )

    def algorithm(self, values: Mapping[str, str]) -> MscclAlgorithm:
        word = self.text(values, "coll")
        if word not in KINDS:
            reason = {
                "custom": "says nothing that could be checked",
                "broadcast": "does not name the root",
                "reduce": "does not name the root",
            }.get(word, "is unknown")
            raise self.error(f"coll {shortened(word)!r} {reason}; converted are {', '.join(KINDS)}")
        kind = KINDS[word]
        npus = self.number(values, "ngpus", 1, MAX_RANKS)
        chunks = self.number(values, "nchunksperloop", 1, MAX_MOVED_CHUNKS)
        if kind is not CollectiveKind.ALL_REDUCE and chunks % npus:
            raise self.error(
                f"nchunksperloop {chunks} is no multiple of {counted(npus, 'rank')}, as {word} needs"
            )
        if chunks * npus > MAX_MOVED_CHUNKS:
            raise self.error(
                f"buffers of {counted(chunks, 'chunk')} on {counted(npus, 'rank')}: at most {MAX_MOVED_CHUNKS} in all"
            )
        sizes = [
            self.number(values, key, 0, 1 << 50) if key in values else None
            for key in ("minBytes", "maxBytes")
        ]
        in_place = self.number(values, "inplace", 0, 1) == 1 if "inplace" in values else False
        channels = self.number(values, "nchannels", 1, MAX_CHANNELS)
        name = values.get("name", "")
        return MscclAlgorithm(
            self.source,
            shortened(name),
            kind,
            npus,
            chunks,
            in_place,
            channels,
            (),
            sizes[0],
            sizes[1] or None,  # 0 stands for no bound
        )

    def gpu(self, values: Mapping[str, str], head: MscclAlgorithm) -> None:
        self.rank = -1
        rank = self.number(values, "id", 0, head.npus - 1)
        if rank in self.ranks:
            raise self.error(f"rank {rank} is there twice")
        self.rank = rank
        for key, size in (("i_chunks", head.input_chunks), ("o_chunks", head.output_chunks)):
            given = self.number(values, key, 0, MAX_MOVED_CHUNKS) if key in values else 0
            if given not in (0, size):
                raise self.error(
                    f"rank {rank}: {key} is {given}, where nchunksperloop {head.chunks} makes it {size}"
                )
        scratch = self.number(values, "s_chunks", 0, MAX_MOVED_CHUNKS) if "s_chunks" in values else 0
        self.ranks[rank] = _Rank(scratch)

    def threadblock(self, values: Mapping[str, str], head: MscclAlgorithm) -> None:
        self.block, self.steps = (-1, -1, -1, -1), []
        number = self.number(values, "id", 0, MAX_MOVED_CHUNKS)
        if number in self.ranks[self.rank].blocks:
            raise self.error(f"{self.place()}threadblock {number} is there twice")
        self.block = (number, -1, -1, -1)
        peers = []
        for key in ("send", "recv"):
            peer = self.number(values, key, -1, head.npus - 1)
            if peer == self.rank:
                raise self.error(f"{self.place()}{key} is the rank itself")
            peers.append(peer)
        channel = self.number(values, "chan", -1 if peers == [-1, -1] else 0, head.channels - 1)
        self.block = (number, peers[0], peers[1], channel)

    def step(self, values: Mapping[str, str], head: MscclAlgorithm) -> Step:
        place = len(self.steps)
        if self.number(values, "s", 0, (1 << 31) - 1) != place:
            raise self.error(f"{self.place()}is numbered s={values['s']}; steps count from 0")
        kind = self.text(values, "type")
        if kind not in TYPES:
            raise self.error(
                f"{self.place()}type {shortened(kind)!r} is unknown ({', '.join(sorted(TYPES))})"
            )
        for types, peer, word in (
            (SENDS, self.block[1], "send to"),
            (RECEIVES, self.block[2], "receive from"),
        ):
            if kind in types and peer < 0:
                raise self.error(f"{self.place()}{kind} has no rank to {word}")
        count = 0 if kind == "nop" else self.number(values, "cnt", 1, MAX_MOVED_CHUNKS)
        self.moved += count
        if self.moved > MAX_MOVED_CHUNKS:
            raise self.error(f"{self.place()}steps move more than {MAX_MOVED_CHUNKS} chunks in all")
        source, target = ("", -1), ("", -1)
        if kind in READS:
            source = self.chunks(values, "src", count, head)
        if kind in WRITES:
            target = self.chunks(values, "dst", count, head)
        return Step(kind, *source, *target, count, self.dependence(values, place))

    def chunks(
        self, values: Mapping[str, str], side: str, count: int, head: MscclAlgorithm
    ) -> tuple[str, int]:
        buffer = self.text(values, f"{side}buf")
        sizes = {"i": head.input_chunks, "o": head.output_chunks, "s": self.ranks[self.rank].scratch}
        if buffer not in sizes:
            raise self.error(f"{self.place()}{side}buf is {shortened(buffer)!r}, not i, o or s")
        first = self.number(values, f"{side}off", 0, (1 << 31) - 1)
        if first + count > sizes[buffer]:
            raise self.error(
                f"{self.place()}chunks {first} to {first + count - 1} of buffer {buffer}, which has {sizes[buffer]}"
            )
        return buffer, first

    def dependence(self, values: Mapping[str, str], place: int) -> tuple[int, int] | None:
        block = self.number(values, "depid", -1, (1 << 31) - 1) if "depid" in values else -1
        step = self.number(values, "deps", -1, (1 << 31) - 1) if "deps" in values else -1
        if block < 0:
            return None
        if step < 0:
            raise self.error(f"{self.place()}depid is {block}, but deps names no step")
        if block == self.block[0]:
            if step >= place:
                raise self.error(f"{self.place()}waits for step {step} of its own threadblock")
            return None  # steps of a threadblock run one after the other
        return block, step


def read_xml(path: str | os.PathLike[str]) -> MscclAlgorithm:
    """Read an algorithm's file; what its steps do to the data is not looked at.

    Raises
    ------
    ConfigError
        Naming file and line, and rank, threadblock and step.
    """
    source = os.fspath(path)
    return parse_xml(read_raw(source, error=ConfigError, most=MAX_CONFIG_BYTES), source)


def parse_xml(data: bytes, source: str) -> MscclAlgorithm:
    """The same of a file's content."""
    parser = expat.ParserCreate()
    reading = _Reading(source, parser)

    def refuse(*_: object) -> None:
        raise reading.error("a document type declaration, which an algorithm has no use for, is refused")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = reading.start
    parser.EndElementHandler = reading.end
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ConfigError(
            f"{source}: line {error.lineno}: not XML: {expat.ErrorString(error.code)}"
        ) from None
    except (ValueError, LookupError) as error:  # an encoding that Python does not know
        raise ConfigError(f"{source}: not XML: {shortened(str(error))}") from None
    head = reading.head
    assert head is not None, "a document has a root, which is an algorithm"
    missing = next((rank for rank in range(head.npus) if rank not in reading.ranks), None)
    if missing is not None:
        raise ConfigError(f"{source}: rank {missing} of {head.npus} has no <gpu>")
    ranks = tuple(
        tuple(reading.ranks[rank].blocks[block] for block in sorted(reading.ranks[rank].blocks))
        for rank in range(head.npus)
    )
    _check_dependences(source, ranks)
    _check_connections(source, ranks)
    return MscclAlgorithm(
        source,
        head.name,
        head.collective,
        head.npus,
        head.chunks,
        head.in_place,
        head.channels,
        ranks,
        head.least_bytes,
        head.most_bytes,
    )


def _check_dependences(source: str, ranks: tuple[tuple[Threadblock, ...], ...]) -> None:
    """Every step that is waited for must be there."""
    for rank, blocks in enumerate(ranks):
        steps = {block.id: len(block.steps) for block in blocks}
        for block in blocks:
            for k, step in enumerate(block.steps):
                if step.after is not None and step.after[1] >= steps.get(step.after[0], 0):
                    raise ConfigError(
                        f"{source}: rank {rank}, threadblock {block.id}, step {k}: waits for step {step.after[1]} of "
                        f"threadblock {step.after[0]}, which is not there"
                    )


def _check_connections(source: str, ranks: tuple[tuple[Threadblock, ...], ...]) -> None:
    """A connection belongs to one threadblock at each end: otherwise the order of its messages would be chance."""
    for rank, blocks in enumerate(ranks):
        for types, word in ((SENDS, "send to"), (RECEIVES, "receive from")):
            known: dict[tuple[int, int], int] = {}
            for block in blocks:
                if not any(step.type in types for step in block.steps):
                    continue
                key = (block.send if types is SENDS else block.receive, block.channel)
                if key in known:
                    raise ConfigError(
                        f"{source}: rank {rank}: threadblocks {known[key]} and {block.id} both {word} rank {key[0]} on "
                        f"channel {key[1]}"
                    )
                known[key] = block.id
