"""An MSCCL algorithm as a custom algorithm's traces: sends, receives and waits, one trace a rank.

Every step becomes the nodes that take time in it, and its dependences theirs. The times that are no network's are those
of the engine for tables of steps: before its first message a rank takes the endpoint delay, and so does a receiver, with
the reduction, before it goes on.

A message is handed to the network, which queues it or shares its links; a rank does not wait until it has arrived. Only
sends that nothing received or computed comes between go out one after the other: otherwise a backend on which messages
share no ports would carry any number of them at one time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from chakra.builder import Handle, TraceBuilder, Workload
from chakra.converters.msccl.follow import Followed
from chakra.converters.msccl.program import RECEIVES, REDUCES, SENDS, MscclAlgorithm, Step
from chakra.replay.config.model import CollectiveKind, System


@dataclass(frozen=True, slots=True)
class _Ends:
    """Nodes after which what comes after a step may go on, and those that a send waits for, too: the last sends."""

    data: tuple[Handle, ...] = ()
    sent: tuple[Handle, ...] = ()


@dataclass(slots=True)
class _Block:
    """A threadblock while its nodes are made."""

    last: _Ends
    received: tuple[Handle, ...] = ()


@dataclass(slots=True)
class _Costs:
    """What a step takes beside its message, ns."""

    system: System

    @property
    def endpoint(self) -> int:
        return self.system.endpoint_delay_ns

    def reduction(self, size: int) -> int:
        """Three accesses to local memory, as everywhere in the replay."""
        bandwidth = self.system.local_mem_bw_gbps * 1e9
        return 3 * int(size / bandwidth * 1e9) if bandwidth > 0 else 0


@dataclass(slots=True)
class _Writer:
    """Nodes of all ranks."""

    algorithm: MscclAlgorithm
    followed: Followed
    size_bytes: int
    costs: _Costs
    workload: Workload
    blocks: dict[int, _Block] = field(default_factory=dict)
    #: ends of steps that others wait for
    ends: dict[int, _Ends] = field(default_factory=dict)
    tags: dict[int, int] = field(default_factory=dict)
    next_tag: dict[tuple[int, int], int] = field(default_factory=dict)

    def run(self) -> None:
        algorithm = self.algorithm
        first_of: dict[tuple[int, int], int] = {}
        block_of: list[tuple[int, int, int]] = []  # rank, place in the rank, step
        number = 0
        for rank, blocks in enumerate(algorithm.ranks):
            for k, block in enumerate(blocks):
                first_of[rank, block.id] = number
                block_of += [(rank, k, at) for at in range(len(block.steps))]
                number += len(block.steps)
        awaited = {
            first_of[rank, step.after[0]] + step.after[1]
            for rank, blocks in enumerate(algorithm.ranks)
            for block in blocks
            for step in block.steps
            if step.after is not None
        }
        starts = [self.start(rank) for rank in range(algorithm.npus)]
        for number in self.followed.order:
            rank, k, at = block_of[number]
            block = algorithm.ranks[rank][k]
            step = block.steps[at]
            state = self.blocks.setdefault(
                first_of[rank, block.id], _Block(_Ends(starts[rank]), starts[rank])
            )
            before = state.last
            if step.after is not None:
                other = self.ends[first_of[rank, step.after[0]] + step.after[1]]
                # what has come since stands for the sends before it
                sent = _joined(before.sent, other.sent) if other.sent else ()
                before = _Ends(_joined(before.data, other.data), sent)
            b = self.workload.builder(rank)
            state.last = self.step(number, step, block.send, block.receive, b, state, before)
            if number in awaited:
                self.ends[number] = state.last
        for rank in range(algorithm.npus):
            b = self.workload.builder(rank)
            if not len(b):
                b.compute("nothing to do", duration_ns=0)

    def start(self, rank: int) -> tuple[Handle, ...]:
        if not self.costs.endpoint:
            return ()
        return (self.workload.builder(rank).compute("endpoint", duration_ns=self.costs.endpoint),)

    def step(
        self, number: int, step: Step, to: int, source: int, b: TraceBuilder, state: _Block, before: _Ends
    ) -> _Ends:
        """Nodes of one step."""
        size = self.bytes_of(step.count)
        data, sent = before.data, before.sent
        if step.type in RECEIVES:
            tag = self.tags.pop(self.followed.sender[number])
            came = b.recv(source, size_bytes=size, tag=tag, after=state.received)
            wait = self.costs.endpoint + (self.costs.reduction(size) if step.type in REDUCES else 0)
            data = _joined((came,), (h for h in data if h not in state.received))
            state.received = (came,)
            if wait or len(data) > 1:
                data = (b.compute("endpoint", duration_ns=wait, after=data),)
            sent = ()
        elif step.type == "re":
            wait = self.costs.reduction(size)
            data = (b.compute("reduce", duration_ns=wait, after=data),) if wait else self.together(b, data)
            sent = ()
        elif step.type not in SENDS:
            data, sent = self.together(b, data), self.together(b, sent)
        if step.type in SENDS:
            rank = b.rank
            tag = self.next_tag.get((rank, to), 0)
            self.next_tag[rank, to] = tag + 1
            self.tags[number] = tag
            left = (b.send(to, size_bytes=size, tag=tag, after=_joined(data, sent)),)
            rest = self.costs.endpoint
            sent = (b.compute("endpoint", duration_ns=rest, after=left),) if rest else left
            data = self.together(b, data)
        return _Ends(data, sent)

    def together(self, b: TraceBuilder, nodes: tuple[Handle, ...]) -> tuple[Handle, ...]:
        """One node for several, so that steps that take no time do not pile them up."""
        return (b.compute("join", duration_ns=0, after=nodes),) if len(nodes) > 1 else nodes

    def bytes_of(self, count: int) -> int:
        """Bytes of so many chunks, rounded up as messages of tables of steps are."""
        algorithm = self.algorithm
        whole = algorithm.input_chunks
        return max(-(-self.size_bytes * count // whole), 1) if self.size_bytes else 0


def _joined(a: Iterable[Handle], b: Iterable[Handle]) -> tuple[Handle, ...]:
    return tuple({handle.id: handle for handle in (*a, *b)}.values())


def workload_of(algorithm: MscclAlgorithm, followed: Followed, size_bytes: int, system: System) -> Workload:
    """Traces of an algorithm for a collective of `size_bytes`.

    Parameters
    ----------
    algorithm, followed
        The algorithm, and the order that following it has found.
    size_bytes
        ``comm_size`` of the collective: the whole buffer of a rank, for an all-gather the part that it contributes.
    system
        Its endpoint delay and bandwidth of the local memory are the times beside the messages.
    """
    workload = Workload(algorithm.npus)
    _Writer(algorithm, followed, size_bytes, _Costs(system), workload).run()
    return workload


#: key of a system file that names the traces, by collective
KEYS = {
    CollectiveKind.ALL_REDUCE: "all-reduce-implementation-custom",
    CollectiveKind.ALL_GATHER: "all-gather-implementation-custom",
    CollectiveKind.REDUCE_SCATTER: "reduce-scatter-implementation-custom",
    CollectiveKind.ALL_TO_ALL: "all-to-all-implementation-custom",
}
