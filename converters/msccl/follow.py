"""Carrying an algorithm out on names of data instead of data: every chunk is followed to where it ends.

A chunk's value is which part of the data it is and whose contributions are in it, so that a sum that lacks a rank, or
has one twice, shows at the step that makes it. Steps run as soon as they can; a send never waits for its receiver.
That what is found holds for every order in which the threadblocks may run is tested at the end: two steps of different
threadblocks that touch a chunk, one of them writing, must be ordered by dependences and messages.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from chakra.converters.msccl.program import (
    READS,
    RECEIVES,
    REDUCES,
    SENDS,
    WRITES,
    MscclAlgorithm,
    Step,
    Threadblock,
)
from chakra.errors import ConfigError
from chakra.io.readable import counted
from chakra.replay.config.model import CollectiveKind

#: (which part of the data, set of ranks that have contributed, as bits)
Value = tuple[int, int]
#: a chunk of memory: rank, buffer, index
Cell = tuple[int, str, int]

#: steps whose followers are looked for at a time: more take more memory, fewer more passes
_AT_A_TIME = 4096


@dataclass(frozen=True, slots=True)
class Followed:
    """What following an algorithm finds out.

    Attributes
    ----------
    order
        Steps (numbered through all ranks and threadblocks) in an order in which they can run.
    sender
        Per step that receives: the step that has sent the message.
    """

    order: list[int]
    sender: dict[int, int]


@dataclass(slots=True)
class _Cell:
    """What a chunk of memory holds, which step wrote it, and who has read it since, by threadblock."""

    value: Value
    writer: int
    readers: dict[int, int] = field(default_factory=dict)


class _Machine:
    """All ranks, while the algorithm runs."""

    def __init__(self, algorithm: MscclAlgorithm) -> None:
        self.algorithm = algorithm
        #: per threadblock: rank, first step's number, the threadblock
        self.blocks: list[tuple[int, int, Threadblock]] = []
        self.number_of: dict[tuple[int, int], int] = {}
        self.block_of: list[int] = []
        self.steps: list[Step] = []
        for rank, blocks in enumerate(algorithm.ranks):
            for block in blocks:
                self.number_of[rank, block.id] = len(self.blocks)
                self.block_of += [len(self.blocks)] * len(block.steps)
                self.blocks.append((rank, len(self.steps), block))
                self.steps += block.steps
        self.done = [0] * len(self.blocks)
        self.memory: dict[Cell, _Cell] = {}
        self.flight: dict[tuple[int, int, int], deque[tuple[int, list[Value]]]] = {}
        #: threadblocks that wait for a step to end, and for a message
        self.for_step: dict[int, list[int]] = {}
        self.for_message: dict[tuple[int, int, int], int] = {}
        self.order: list[int] = []
        self.sender: dict[int, int] = {}
        #: pairs of steps that need an order, the later one second
        self.pairs: dict[tuple[int, int], Cell] = {}
        #: per threadblock: last step of each other one that it has waited for
        self.waited: list[dict[int, int]] = [{} for _ in self.blocks]

    # ------------------------------------------------------------------------------------------------- words

    def where(self, number: int) -> str:
        rank, first, block = self.blocks[self.block_of[number]]
        return f"rank {rank}, threadblock {block.id}, step {number - first}"

    def error(self, number: int, what: str) -> ConfigError:
        kind = self.steps[number].type
        return ConfigError(f"{self.algorithm.source}: {self.where(number)} ({kind}): {what}")

    def says(self, value: Value) -> str:
        """A value in words."""
        part, ranks = value
        kind = self.algorithm.collective
        if kind is CollectiveKind.ALL_REDUCE or kind is CollectiveKind.REDUCE_SCATTER:
            count = ranks.bit_count()
            who = (
                f"rank {ranks.bit_length() - 1}"
                if count == 1
                else f"{count} of {counted(self.algorithm.npus, 'rank')}"
            )
            return f"chunk {part} of {who}"
        rank, index = divmod(part, self.algorithm.input_chunks)
        return f"chunk {index} of rank {rank}"

    # ------------------------------------------------------------------------------------------------ memory

    def cell(self, rank: int, buffer: str, index: int) -> Cell:
        """A chunk's one name: where input and output share memory, the larger of the two."""
        algorithm = self.algorithm
        if algorithm.in_place and buffer != "s":
            if algorithm.input_chunks < algorithm.output_chunks:
                return rank, "o", index + rank * algorithm.input_chunks * (buffer == "i")
            if algorithm.output_chunks < algorithm.input_chunks:
                return rank, "i", index + rank * algorithm.output_chunks * (buffer == "o")
            return rank, "i", index
        return rank, buffer, index

    def at_first(self, cell: Cell) -> Value | None:
        """What a chunk of memory holds before the first step."""
        algorithm, (rank, buffer, index) = self.algorithm, cell
        size = algorithm.input_chunks
        if algorithm.in_place and buffer == "o":  # an all-gather, whose input lies in the output
            index -= rank * size
        elif buffer != "i":
            return None
        if not 0 <= index < size:
            return None
        if algorithm.collective in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER):
            return index, 1 << rank
        return rank * size + index, 1

    def held(self, cell: Cell) -> _Cell | None:
        """What a chunk of memory holds now."""
        found = self.memory.get(cell)
        if found is None:
            value = self.at_first(cell)
            if value is None:
                return None
            found = self.memory[cell] = _Cell(value, -1)
        return found

    def read(self, number: int, rank: int, buffer: str, first: int, count: int) -> list[Value]:
        """What a step reads."""
        mine = self.block_of[number]
        out = []
        for index in range(first, first + count):
            cell = self.cell(rank, buffer, index)
            held = self.held(cell)
            if held is None:
                raise self.error(number, f"reads chunk {index} of buffer {buffer}, which nothing has written")
            self.need_order(held.writer, number, cell)
            held.readers[mine] = number
            out.append(held.value)
        return out

    def write(self, number: int, rank: int, buffer: str, first: int, values: list[Value]) -> None:
        """What a step writes."""
        for index, value in enumerate(values, first):
            cell = self.cell(rank, buffer, index)
            held = self.held(cell)
            if held is not None:
                self.need_order(held.writer, number, cell)
                for reader in held.readers.values():
                    self.need_order(reader, number, cell)
            self.memory[cell] = _Cell(value, number)

    def need_order(self, before: int, after: int, cell: Cell) -> None:
        """Note that two steps touch a chunk, unless they are ordered at a glance."""
        if before < 0:
            return
        theirs, mine = self.block_of[before], self.block_of[after]
        if theirs != mine and self.waited[mine].get(theirs, -1) < before:
            self.pairs.setdefault((before, after), cell)

    def reduced(self, number: int, mine: list[Value], came: list[Value]) -> list[Value]:
        """Sums of what a step has and what comes."""
        out = []
        for (part, ranks), (other, more) in zip(mine, came, strict=True):
            if part != other:
                raise self.error(
                    number, f"adds {self.says((other, more))} to {self.says((part, ranks))}: other data"
                )
            if ranks & more:
                twice = (ranks & more).bit_length() - 1
                gathers = self.algorithm.collective in (CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL)
                what = self.says((part, 1)) if gathers else f"chunk {part} of rank {twice}"
                raise self.error(number, f"adds {what} a second time")
            out.append((part, ranks | more))
        return out

    # --------------------------------------------------------------------------------------------------- run

    def run(self) -> None:
        ready = deque(range(len(self.blocks)))
        while ready:
            self.go_on(ready.popleft(), ready)

    def go_on(self, number: int, ready: deque[int]) -> None:
        """Let a threadblock run until it must wait."""
        rank, first, block = self.blocks[number]
        while self.done[number] < len(block.steps):
            at = self.done[number]
            step = block.steps[at]
            if step.after is not None:
                other = self.number_of[rank, step.after[0]]
                needed = self.blocks[other][1] + step.after[1]
                if self.done[other] <= step.after[1]:
                    self.for_step.setdefault(needed, []).append(number)
                    return
                self.waited[number][other] = max(self.waited[number].get(other, -1), needed)
            connection = (block.receive, rank, block.channel)
            if step.type in RECEIVES and not self.flight.get(connection):
                self.for_message[connection] = number
                return
            self.carry_out(first + at, step, number, ready)
            self.order.append(first + at)
            self.done[number] = at + 1
            ready += self.for_step.pop(first + at, ())

    def carry_out(self, number: int, step: Step, block: int, ready: deque[int]) -> None:
        """Do one step."""
        rank, _, at = self.blocks[block]
        values: list[Value] = []
        if step.type in READS:
            values = self.read(number, rank, step.source_buffer, step.source, step.count)
        if step.type in RECEIVES:
            sender, came = self.flight[at.receive, rank, at.channel].popleft()
            self.sender[number] = sender
            if len(came) != step.count:
                raise self.error(
                    number,
                    f"receives {counted(step.count, 'chunk')}, but {self.where(sender)} sends {len(came)}",
                )
            values = self.reduced(number, values, came) if step.type in REDUCES else came
        elif step.type == "re":
            values = self.reduced(
                number, self.read(number, rank, step.target_buffer, step.target, step.count), values
            )
        if step.type in WRITES:
            self.write(number, rank, step.target_buffer, step.target, values)
        if step.type in SENDS:
            connection = (rank, at.send, at.channel)
            self.flight.setdefault(connection, deque()).append((number, values))
            waiting = self.for_message.pop(connection, None)
            if waiting is not None:
                ready.append(waiting)

    # ------------------------------------------------------------------------------------------- what is wrong

    def check_ended(self) -> None:
        """Every step has run and every message was received."""
        stuck = next(
            (k for k, (_, _, block) in enumerate(self.blocks) if self.done[k] < len(block.steps)), None
        )
        if stuck is not None:
            raise self.why_stuck(stuck)
        for (_, receiver, channel), queue in self.flight.items():
            if queue:
                raise self.error(queue[0][0], f"rank {receiver} never receives this on channel {channel}")

    def why_stuck(self, block: int) -> ConfigError:
        """Go from a threadblock that waits to the one it waits for, to the end or round in a circle."""
        senders = {
            (rank, b.send, b.channel): k
            for k, (rank, _, b) in enumerate(self.blocks)
            if any(step.type in SENDS for step in b.steps)
        }
        seen: dict[int, None] = {}
        while True:
            rank, first, at = self.blocks[block]
            number = first + self.done[block]
            step = at.steps[self.done[block]]
            if block in seen:
                circle = list(seen)[list(seen).index(block) :]
                others = [self.where(self.blocks[b][1] + self.done[b]) for b in circle[1:3]]
                more = f" and {len(circle) - 3} more" if len(circle) > 3 else ""
                return self.error(number, f"waits for ever, in a circle with {'; '.join(others)}{more}")
            seen[block] = None
            if step.after is not None and self.done[self.number_of[rank, step.after[0]]] <= step.after[1]:
                block = self.number_of[rank, step.after[0]]
                continue
            other = senders.get((at.receive, rank, at.channel))
            if other is None or self.done[other] == len(self.blocks[other][2].steps):
                return self.error(
                    number,
                    f"waits for a message of rank {at.receive} on channel {at.channel} that is never sent",
                )
            block = other

    def check_result(self) -> None:
        """Every chunk of every output is what the collective promises."""
        algorithm = self.algorithm
        size, everybody = algorithm.output_chunks, (1 << algorithm.npus) - 1
        for rank in range(algorithm.npus):
            for index in range(size):
                wanted = self.wanted(rank, index, everybody)
                held = self.held(self.cell(rank, "o", index))
                if held is not None and held.value == wanted:
                    continue
                found = "holds nothing" if held is None else f"holds {self.says(held.value)}"
                promise = f"chunk {index} of its output {found} at the end, not {self.says(wanted)}"
                if held is None or held.writer < 0:
                    raise ConfigError(f"{algorithm.source}: rank {rank}: no step writes it: {promise}")
                raise self.error(held.writer, f"writes it last: {promise}")

    def wanted(self, rank: int, index: int, everybody: int) -> Value:
        """What a chunk of a rank's output must be."""
        algorithm = self.algorithm
        kind, size = algorithm.collective, algorithm.output_chunks
        if kind is CollectiveKind.ALL_REDUCE:
            return index, everybody
        if kind is CollectiveKind.REDUCE_SCATTER:
            return rank * size + index, everybody
        if kind is CollectiveKind.ALL_GATHER:
            return index, 1
        each = size // algorithm.npus
        source, part = divmod(index, each)
        return source * size + rank * each + part, 1

    def before(self, number: int) -> Iterator[int]:
        """Steps that have ended when a step starts, as the program says."""
        rank, first, block = self.blocks[self.block_of[number]]
        if number > first:
            yield number - 1
        after = block.steps[number - first].after
        if after is not None:
            yield self.blocks[self.number_of[rank, after[0]]][1] + after[1]
        if number in self.sender:
            yield self.sender[number]

    def check_order(self) -> None:
        """Steps that touch the same chunk are ordered, whatever the threadblocks' speeds."""
        place = {number: k for k, number in enumerate(self.order)}
        pairs = sorted(self.pairs, key=lambda pair: place[pair[1]])
        first = sorted({before for before, _ in pairs}, key=place.__getitem__)
        for start in range(0, len(first), _AT_A_TIME):
            bit = {number: 1 << k for k, number in enumerate(first[start : start + _AT_A_TIME])}
            reached = [0] * len(self.steps)
            for number in self.order[place[first[start]] :]:
                known = bit.get(number, 0)
                for other in self.before(number):
                    known |= reached[other]
                reached[number] = known
            for before, after in pairs:
                if before in bit and not reached[after] & bit[before]:
                    _, buffer, index = self.pairs[before, after]
                    raise self.error(
                        after,
                        f"touches chunk {index} of buffer {buffer}, as does {self.where(before)}, and nothing says which "
                        "comes first",
                    )


def follow(algorithm: MscclAlgorithm) -> Followed:
    """Carry an algorithm out on names of data.

    Raises
    ------
    ConfigError
        If it cannot end, is not the collective that it claims to be, or depends on which threadblock is faster; naming
        rank, threadblock and step.
    """
    machine = _Machine(algorithm)
    machine.run()
    machine.check_ended()
    machine.check_result()
    machine.check_order()
    return Followed(machine.order, machine.sender)
