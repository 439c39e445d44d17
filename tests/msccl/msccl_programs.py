"""Algorithms written down by hand in MSCCL's XML, as their authors describe them, and an interpreter of such programs."""

import random
from collections import defaultdict, deque
from collections.abc import Iterable

from chakra.converters.msccl import MscclAlgorithm, Step

#: a step: type, source buffer and chunk, target buffer and chunk, count, (threadblock, step) that it waits for
Line = tuple[str, str, int, str, int, int, tuple[int, int] | None]
#: a threadblock: ranks to send to and to receive from, channel, steps
Block = tuple[int, int, int, list[Line]]


def xml(
    coll: str, chunks: int, ranks: list[list[Block]], *, in_place: bool, scratch: int = 0, channels: int = 1
) -> str:
    """A file of MSCCL."""
    n = len(ranks)
    small = chunks // n
    sizes = (small if coll == "allgather" else chunks, small if coll == "reduce_scatter" else chunks)
    head = (
        f'<algo name="by hand" proto="Simple" nchannels="{channels}" nchunksperloop="{chunks}" ngpus="{n}" '
        f'coll="{coll}" inplace="{int(in_place)}" outofplace="{int(not in_place)}">'
    )
    out = [head]
    for rank, blocks in enumerate(ranks):
        out.append(f'<gpu id="{rank}" i_chunks="{sizes[0]}" o_chunks="{sizes[1]}" s_chunks="{scratch}">')
        awaited = {line[6] for block in blocks for line in block[3]}
        for number, (send, receive, channel, lines) in enumerate(blocks):
            out.append(f'<tb id="{number}" send="{send}" recv="{receive}" chan="{channel}">')
            for k, (kind, source_buffer, source, target_buffer, target, count, after) in enumerate(lines):
                depid, deps = after or (-1, -1)
                out.append(
                    f'<step s="{k}" type="{kind}" srcbuf="{source_buffer}" srcoff="{source}" dstbuf="{target_buffer}" '
                    f'dstoff="{target}" cnt="{count}" depid="{depid}" deps="{deps}" '
                    f'hasdep="{int((number, k) in awaited)}"/>'
                )
            out.append("</tb>")
        out.append("</gpu>")
    return "\n".join([*out, "</algo>"]) + "\n"


def ring_all_reduce(n: int, channels: int = 1) -> str:
    """A ring with fused steps: a chunk starts at its rank, is summed on its way round, and passed round once more."""
    ranks: list[list[Block]] = []
    for rank in range(n):
        blocks: list[Block] = []
        for channel in range(channels):
            lines: list[Line] = []
            for k in range(2 * n - 1):
                chunk = (rank - k) % n * channels + channel
                kind = "s" if k == 0 else "rrcs" if k < n else "rcs" if k < 2 * n - 2 else "r"
                lines.append((kind, "i", chunk, "i", chunk, 1, None))
            blocks.append(((rank + 1) % n, (rank - 1) % n, channel, lines))
        ranks.append(blocks)
    return xml("allreduce", n * channels, ranks, in_place=True, channels=channels)


def doubling_all_gather(n: int) -> str:
    """Recursive doubling: whoever is 1, 2, 4, ... away exchanges all that has been gathered so far."""
    ranks: list[list[Block]] = []
    for rank in range(n):
        blocks: list[Block] = []
        distance = 1
        while distance < n:
            peer = rank ^ distance
            mine, theirs = rank // distance * distance, peer // distance * distance
            after = (len(blocks) - 1, 1) if blocks else None
            blocks.append(
                (peer, peer, 0, [
                    ("s", "o", mine, "o", mine, distance, after),
                    ("r", "o", theirs, "o", theirs, distance, None),
                ])
            )  # fmt: skip
            distance *= 2
        ranks.append(blocks)
    return xml("allgather", n, ranks, in_place=True)


def pairs_all_gather(n: int) -> str:
    """All pairs: a threadblock for each other rank sends the own chunk there and receives that rank's."""
    ranks: list[list[Block]] = []
    for rank in range(n):
        peers = [(rank + k) % n for k in range(1, n)]
        blocks: list[Block] = [
            (peer, peer, 0, [("s", "o", rank, "o", rank, 1, None), ("r", "o", peer, "o", peer, 1, None)])
            for peer in peers
        ]
        ranks.append(blocks)
    return xml("allgather", n, ranks, in_place=True)


def pairs_all_reduce(n: int) -> str:
    """All pairs over scratch memory: everybody gets its chunk of everybody, sums, and hands the sum round."""
    ranks: list[list[Block]] = []
    for rank in range(n):
        peers = [(rank + k) % n for k in range(1, n)]
        # threadblock 0 sums what the others receive; each sum waits for one of them
        sums: list[Line] = [("re", "s", k, "i", rank, 1, (k + 1, 1)) for k in range(n - 1)]
        blocks: list[Block] = [(-1, -1, -1, sums)]
        for k, peer in enumerate(peers):
            blocks.append(
                (peer, peer, 0, [
                    ("s", "i", peer, "s", 0, 1, None),
                    ("r", "i", 0, "s", k, 1, None),
                    ("s", "i", rank, "i", rank, 1, (0, n - 2)),
                    ("r", "i", peer, "i", peer, 1, None),
                ])
            )  # fmt: skip
        ranks.append(blocks)
    return xml("allreduce", n, ranks, in_place=True, scratch=n - 1)


def in_pieces(pieces: int) -> str:
    """An all-gather of two ranks, piece by piece: a threadblock sends all pieces, another one receives them."""
    ranks: list[list[Block]] = []
    for rank, peer in ((0, 1), (1, 0)):
        sends: list[Line] = [("s", "i", k, "o", rank * pieces + k, 1, None) for k in range(pieces)]
        receives: list[Line] = [("r", "i", k, "o", peer * pieces + k, 1, None) for k in range(pieces)]
        ranks.append([(peer, -1, 0, sends), (-1, peer, 0, receives)])
    return xml("allgather", 2 * pieces, ranks, in_place=True)


def two_threadblocks(steps: int) -> str:
    """An all-reduce of two ranks whose two threadblocks then copy the sum to and fro, each waiting for the other."""
    ranks: list[list[Block]] = []
    for peer in (1, 0):
        to: list[Line] = [("cpy", "i", 0, "s", 1, 1, (1, k - 3)) for k in range(3, steps)]
        fro: list[Line] = [("cpy", "s", 1, "i", 0, 1, (0, k + 2)) for k in range(1, steps - 3)]
        exchange: list[Line] = [
            ("s", "i", 0, "s", 0, 1, None),
            ("r", "i", 0, "s", 0, 1, None),
            ("re", "s", 0, "i", 0, 1, None),
        ]
        ranks.append(
            [(peer, peer, 0, exchange + to), (-1, -1, 0, [("nop", "i", -1, "o", -1, 0, (0, 2)), *fro])]
        )
    return xml("allreduce", 1, ranks, in_place=True, scratch=2)


def carried_out(algorithm: MscclAlgorithm, chance: random.Random) -> bool:
    """Whether one run in a random order of threadblocks gives the collective's result; nothing ends it too early.

    An interpreter on numbers: chunk c of rank r's input is a random number, sums are sums. What no step has written is
    a random number, too.
    """
    n, size = algorithm.npus, algorithm.input_chunks
    given = [[chance.getrandbits(40) for _ in range(size)] for _ in range(n)]
    memory: dict[tuple[int, str, int], int] = defaultdict(lambda: chance.getrandbits(40))

    def cell(rank: int, buffer: str, index: int) -> tuple[int, str, int]:
        if not algorithm.in_place or buffer == "s":
            return rank, buffer, index
        if buffer == "i" and size < algorithm.output_chunks:
            index += rank * size
        if buffer == "o" and size > algorithm.output_chunks:
            index += rank * algorithm.output_chunks
        return rank, "x", index

    for rank in range(n):
        for index in range(size):
            memory[cell(rank, "i", index)] = given[rank][index]
    flight: dict[tuple[int, int, int], deque[list[int]]] = defaultdict(deque)
    done = {(rank, block.id): 0 for rank in range(n) for block in algorithm.ranks[rank]}

    def read(rank: int, buffer: str, first: int, count: int) -> list[int]:
        return [memory[cell(rank, buffer, first + k)] for k in range(count)]

    def write(rank: int, buffer: str, first: int, values: Iterable[int]) -> None:
        for k, value in enumerate(values):
            memory[cell(rank, buffer, first + k)] = value

    def ready(rank: int, step: Step, connection: tuple[int, int, int]) -> bool:
        waits = step.after is not None and done[rank, step.after[0]] <= step.after[1]
        return not waits and (step.type[0] != "r" or step.type == "re" or bool(flight[connection]))

    while True:
        able = [
            (rank, block)
            for rank in range(n)
            for block in algorithm.ranks[rank]
            if done[rank, block.id] < len(block.steps)
            and ready(rank, block.steps[done[rank, block.id]], (block.receive, rank, block.channel))
        ]
        if not able:
            break
        rank, block = chance.choice(able)
        step = block.steps[done[rank, block.id]]
        done[rank, block.id] += 1
        if step.type == "nop":
            continue
        own = read(rank, step.source_buffer, step.source, step.count) if step.source >= 0 else []
        if step.type in ("cpy", "re"):
            if step.type == "re":
                there = read(rank, step.target_buffer, step.target, step.count)
                own = [a + b for a, b in zip(own, there, strict=True)]
            write(rank, step.target_buffer, step.target, own)
            continue
        values = own
        if step.type != "s":
            came = flight[block.receive, rank, block.channel].popleft()
            values = (
                [a + b for a, b in zip(own, came, strict=True)]
                if step.type in ("rrs", "rrc", "rrcs")
                else came
            )
            if step.type != "rrs":
                write(rank, step.target_buffer, step.target, values)
        if step.type in ("s", "rcs", "rrs", "rrcs"):
            flight[rank, block.send, block.channel].append(values)
    if any(done[rank, block.id] < len(block.steps) for rank in range(n) for block in algorithm.ranks[rank]):
        return False
    kind, each = algorithm.collective.value, algorithm.output_chunks // n
    for rank in range(n):
        for index in range(algorithm.output_chunks):
            if kind == "ALL_REDUCE":
                wanted = sum(row[index] for row in given)
            elif kind == "REDUCE_SCATTER":
                wanted = sum(row[rank * algorithm.output_chunks + index] for row in given)
            elif kind == "ALL_GATHER":
                wanted = given[index // size][index % size]
            else:
                wanted = given[index // each][rank * each + index % each]
            if memory[cell(rank, "o", index)] != wanted:
                return False
    return True
