"""Our collective algorithms as MSCCL programs, and those as XML.

A rank has one threadblock per rank that it exchanges messages with. The rounds of the algorithm are kept: what a rank
does in a round waits for what it did in the round before. Where the blocks of a message do not lie side by side, they are
copied to scratch memory and sent from there, so that a message stays one message.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from xml.etree import ElementTree

from chakra.converters.msccl.follow import follow
from chakra.converters.msccl.program import (
    KINDS,
    READS,
    RECEIVES,
    SENDS,
    WRITES,
    MscclAlgorithm,
    Step,
    Threadblock,
)
from chakra.errors import ConfigError
from chakra.replay.collectives import registry
from chakra.replay.collectives.algorithms import Family, parse
from chakra.replay.collectives.blocks import Block, Message, Schedule, native, table
from chakra.replay.collectives.steps import Do
from chakra.replay.config.model import CollectiveKind

_DO = {
    CollectiveKind.ALL_REDUCE: Do.ALL_REDUCE,
    CollectiveKind.ALL_GATHER: Do.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER: Do.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL: Do.ALL_TO_ALL,
}
#: algorithms whose blocks have names for a power of two of members only
_POWERS_OF_TWO = ("halvingDoubling", "rabenseifner", "recursiveDoubling")
#: tables of steps whose blocks have names
_TABLES = ("rabenseifner", "recursiveDoubling", "bruck", "binomialTree")
#: ranks of an exported algorithm: the file grows with their square, for some algorithms with their third power
MAX_EXPORTED_RANKS = 512

#: a place in the memory of a rank: buffer, chunk
Place = tuple[str, int]
#: threadblock, by the rank at its other end, and step
At = tuple[int, int]


@dataclass(slots=True)
class _Rank:
    """What a rank does, threadblock by threadblock, and its memory."""

    schedule: Schedule
    number: int
    #: block -> where it lies, where all blocks have one place
    index: dict[Block, int]
    steps: dict[int, list[Step]] = field(default_factory=lambda: defaultdict(list))
    scratch: int = 0
    #: what the next round waits for
    tails: list[At] = field(default_factory=list)
    passing: dict[Block, int] = field(default_factory=dict)
    stages: dict[tuple[int, str], Place] = field(default_factory=dict)

    def place(self, block: Block) -> Place:
        """Where a block lies."""
        if self.schedule.do is Do.ALL_GATHER:
            return "o", self.index[block]
        if self.schedule.do is not Do.ALL_TO_ALL:
            return "i", self.index[block]
        source, target = block
        if source == self.number:
            return "i", target
        if target == self.number:
            return "o", source
        if block not in self.passing:
            self.passing[block] = self.scratch
            self.scratch += 1
        return "s", self.passing[block]

    def stage(self, peer: int, way: str, count: int) -> Place:
        """Scratch memory for messages with a peer."""
        if (peer, way) not in self.stages:
            self.stages[peer, way] = ("s", self.scratch)
            self.scratch += len(self.schedule.blocks)
        return self.stages[peer, way]

    def add(self, peer: int, type: str, source: Place, target: Place, count: int, after: list[At]) -> At:
        """Append a step that starts after others; a step waits for one, so that `nop` waits for the rest."""
        others = [at for at in after if at[0] != peer]
        for at in others[:-1]:
            self.steps[peer].append(Step("nop", "", -1, "", -1, 0, at))
        self.steps[peer].append(Step(type, *source, *target, count, others[-1] if others else None))
        return peer, len(self.steps[peer]) - 1

    def send(self, message: Message, blocks: list[Block], away: Place, after: list[At]) -> At:
        """Send blocks to a place of the receiver."""
        runs = _runs([self.place(block) for block in blocks])
        if len(runs) == 1:
            return self.add(message.dst, "s", runs[0][0], away, len(blocks), after)
        buffer, first = self.stage(message.dst, "send", len(blocks))
        at = first
        for place, count in runs:
            self.add(message.dst, "cpy", place, (buffer, at), count, after)
            at, after = at + count, []
        return self.add(message.dst, "s", (buffer, first), away, len(blocks), [])

    def landing(self, message: Message, blocks: list[Block]) -> Place:
        """Where a message is received."""
        runs = _runs([self.place(block) for block in blocks])
        return runs[0][0] if len(runs) == 1 else self.stage(message.src, "receive", len(blocks))

    def receive(self, message: Message, blocks: list[Block], away: Place, after: list[At]) -> At:
        """Receive blocks from a place of the sender."""
        runs = _runs([self.place(block) for block in blocks])
        buffer, first = self.landing(message, blocks)
        if len(runs) == 1:
            kind = "rrc" if message.reduces else "r"
            source = (buffer, first) if message.reduces else away
            return self.add(message.src, kind, source, (buffer, first), len(blocks), after)
        last = self.add(message.src, "r", away, (buffer, first), len(blocks), after)
        for place, count in runs:
            kind = "re" if message.reduces else "cpy"
            last = self.add(message.src, kind, (buffer, first), place, count, [])
            first += count
        return last


def _runs(places: list[Place]) -> list[tuple[Place, int]]:
    """Places side by side, as (first one, how many)."""
    out: list[tuple[Place, int]] = []
    for buffer, index in places:
        if out and out[-1][0][0] == buffer and out[-1][0][1] + out[-1][1] == index:
            out[-1] = (out[-1][0], out[-1][1] + 1)
        else:
            out.append(((buffer, index), 1))
    return out


def _schedule(name: str, kind: CollectiveKind, npus: int) -> Schedule:
    """The algorithm's schedule with the blocks of every message."""
    algorithm = parse(name, "--algorithm")
    base = name if algorithm.family is Family.STEPS else algorithm.name
    if algorithm.family is Family.SWITCH:
        raise ConfigError(
            f"algorithm {name!r} cannot be written as an MSCCL file: switches reduce, and a file has ranks only"
        )
    if algorithm.flat:
        raise ConfigError(f"algorithm {name!r}: a file has ranks and no dimensions; leave out the one")
    if algorithm.family is Family.TREE or (algorithm.family is Family.STEPS and base not in _TABLES):
        raise ConfigError(
            f"algorithm {name!r} cannot be written as an MSCCL file: its steps depend on size and network"
            if base in registry.OURS or algorithm.family is Family.TREE
            else f"algorithm {name!r} of a package cannot be written: which blocks a message carries is not known"
        )
    if base in _POWERS_OF_TWO and npus & (npus - 1):
        raise ConfigError(f"algorithm {name!r} is written for a power of two of ranks, not for {npus}")
    do = _DO[kind]
    if 1 < algorithm.window_in(npus) < npus - 1:
        raise ConfigError(
            f"algorithm {name!r} cannot be written as an MSCCL file: threadblocks run step by step and have no window "
            "of messages"
        )
    if algorithm.family is Family.STEPS:
        return table(base, do, npus)
    if algorithm.family is Family.HALVING_DOUBLING and do is Do.ALL_TO_ALL:
        raise ConfigError(f"algorithm {name!r} cannot run {do.name}")
    return native(algorithm, do, npus)


def _indices(schedule: Schedule) -> dict[Block, int]:
    """The place of every block in the buffer; a reduce-scatter's blocks lie where their owners expect them."""
    if schedule.do is not Do.REDUCE_SCATTER:
        return {block: k for k, block in enumerate(schedule.blocks)}
    held = [dict.fromkeys(schedule.blocks, 1 << i) for i in range(schedule.n)]
    for step in schedule.steps:
        before = [dict(state) for state in held]
        for message in step:
            for block in message.blocks:
                held[message.dst][block] |= before[message.src][block]
    everybody = (1 << schedule.n) - 1
    return {block: i for i, state in enumerate(held) for block in state if state[block] == everybody}


def export_algorithm(name: str, kind: CollectiveKind, npus: int) -> MscclAlgorithm:
    """One of our algorithms as an MSCCL program, followed to the end.

    Raises
    ------
    ConfigError
        If there is no such algorithm, or none for so many ranks.
    """
    if kind not in _DO:
        raise ConfigError(f"{kind} is not written as an MSCCL file; {', '.join(_DO)} are")
    if not 2 <= npus <= MAX_EXPORTED_RANKS:
        raise ConfigError(f"an MSCCL file is written for 2 to {MAX_EXPORTED_RANKS} ranks, not for {npus}")
    schedule = _schedule(name, kind, npus)
    index = _indices(schedule)
    ranks = [_Rank(schedule, i, index) for i in range(npus)]
    if schedule.do is Do.ALL_TO_ALL:
        for rank in ranks:
            rank.add(-1, "cpy", ("i", rank.number), ("o", rank.number), 1, [])
    for step in schedule.steps:
        _round(ranks, step)
    chunks = npus if schedule.do in (Do.ALL_TO_ALL, Do.ALL_GATHER) else len(schedule.blocks)
    algorithm = MscclAlgorithm(
        name,
        f"{name} {kind.lower()} {npus}",
        kind,
        npus,
        chunks,
        schedule.do is not Do.ALL_TO_ALL,
        1,
        tuple(_blocks(rank) for rank in ranks),
    )
    follow(algorithm)
    return algorithm


def _round(ranks: list[_Rank], step: tuple[Message, ...]) -> None:
    """What all ranks do in one round: all send, then all receive."""
    tails: dict[int, list[At]] = defaultdict(list)
    sends: dict[int, int] = defaultdict(int)
    for message in step:
        sends[message.src] += 1
    sent = []
    for message in step:
        sender, receiver = ranks[message.src], ranks[message.dst]
        blocks = sorted(message.blocks, key=sender.place)
        away = receiver.landing(message, blocks)
        at = sender.send(message, blocks, away, sender.tails)
        tails[message.src].append(at)
        sent.append(
            (message, blocks, (sender.steps[at[0]][at[1]].source_buffer, sender.steps[at[0]][at[1]].source))
        )
    for message, blocks, away in sent:
        receiver = ranks[message.dst]
        several = sends[message.dst] > 1
        # one message each way: first it is sent, then the other one is received; several go and come side by side,
        # but sums are made one after the other
        after = (
            receiver.tails if several and not message.reduces else tails[message.dst][-1:] or receiver.tails
        )
        at = receiver.receive(message, blocks, away, after)
        if not several or message.reduces:
            tails[message.dst] = tails[message.dst][: sends[message.dst]] if several else []
        tails[message.dst].append(at)
    for number, ends in tails.items():
        ranks[number].tails = ends


def _blocks(rank: _Rank) -> tuple[Threadblock, ...]:
    """Threadblocks of a rank, numbered in the order in which they begin: it is that of messages at one time, too."""
    number = {peer: k for k, peer in enumerate(rank.steps)}
    out = []
    for peer, steps in rank.steps.items():
        sends = any(step.type in SENDS for step in steps)
        receives = any(step.type in RECEIVES for step in steps)
        made = tuple(
            Step(
                step.type,
                step.source_buffer,
                step.source,
                step.target_buffer,
                step.target,
                step.count,
                None if step.after is None else (number[step.after[0]], step.after[1]),
            )
            for step in steps
        )
        out.append(Threadblock(number[peer], peer if sends else -1, peer if receives else -1, 0, made))
    return tuple(out)


def xml_text(algorithm: MscclAlgorithm) -> str:
    """An algorithm as XML."""
    word = next(word for word, kind in KINDS.items() if kind is algorithm.collective)
    root = _element(
        None,
        "algo",
        name=algorithm.name,
        proto="Simple",
        nchannels=algorithm.channels,
        nchunksperloop=algorithm.chunks,
        ngpus=algorithm.npus,
        coll=word,
        inplace=int(algorithm.in_place),
    )
    for rank, blocks in enumerate(algorithm.ranks):
        awaited = {step.after for block in blocks for step in block.steps if step.after is not None}
        scratch = max(
            (
                place + step.count
                for block in blocks
                for step in block.steps
                for buffer, place, types in (
                    (step.source_buffer, step.source, READS),
                    (step.target_buffer, step.target, WRITES),
                )
                if buffer == "s" and step.type in types
            ),
            default=0,
        )
        chunks = {
            "i_chunks": algorithm.input_chunks,
            "o_chunks": algorithm.output_chunks,
            "s_chunks": scratch,
        }
        gpu = _element(root, "gpu", id=rank, **chunks)
        for block in blocks:
            tb = _element(gpu, "tb", id=block.id, send=block.send, recv=block.receive, chan=block.channel)
            for k, step in enumerate(block.steps):
                depid, deps = step.after or (-1, -1)
                _element(
                    tb,
                    "step",
                    s=k,
                    type=step.type,
                    srcbuf=step.source_buffer or "i",
                    srcoff=step.source,
                    dstbuf=step.target_buffer or "o",
                    dstoff=step.target,
                    cnt=step.count,
                    depid=depid,
                    deps=deps,
                    hasdep=int((block.id, k) in awaited),
                )
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _element(parent: ElementTree.Element | None, tag: str, **attributes: str | int) -> ElementTree.Element:
    texts = {key: str(value) for key, value in attributes.items()}
    return ElementTree.Element(tag, texts) if parent is None else ElementTree.SubElement(parent, tag, texts)
