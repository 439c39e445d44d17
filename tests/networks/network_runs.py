"""Networks that simulate themselves, written plainly, and small workloads to run on them."""

import heapq
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.builder import TraceBuilder, Workload
from chakra.replay.networks import Ended, LinkUse, LogicalDim, Transfers

NOTHING = Ended(np.zeros(0, np.int64), np.zeros(0, np.int64))


def ended(ids: Iterable[int], tick: int) -> Ended:
    """An answer."""
    numbers = np.array(list(ids), np.int64)
    return Ended(numbers, np.full(len(numbers), tick, np.int64))


class Switch:
    """One switch whose ports store and forward whole messages, first come, first served."""

    def __init__(self, npus: int, bandwidth: float, latency_ns: float) -> None:
        self.name = "switch"
        self.dims = [LogicalDim(npus, bandwidth, latency_ns)]
        self.runs: list[SwitchRun] = []

    def begin(self) -> "SwitchRun":
        """Start one."""
        run = SwitchRun(self.dims[0])
        self.runs.append(run)
        return run


class SwitchRun:
    """Events in order of (tick, order of scheduling); up and down are the links of an NPU."""

    def __init__(self, dim: LogicalDim) -> None:
        self.latency_ns = dim.latency_ns
        self.bytes_per_ns = dim.bandwidth_gibps * (1 << 30) / 1_000_000_000
        self.events: list[tuple[int, int, str, tuple[str, int], int]] = []
        self.scheduled = 0
        self.queue: dict[tuple[str, int], deque[int]] = {}
        self.busy: set[tuple[str, int]] = set()
        self.size: dict[int, int] = {}
        self.dst: dict[int, int] = {}
        self.use: dict[tuple[str, int], list[int]] = {}
        #: when something last came to a port down, and whether an order within a tick may have mattered: two messages
        #: came to a port at one tick, or something ended at a tick at which NPUs have events of their own
        self.came: dict[tuple[str, int], int] = {}
        self.tied = False
        self.closed = False
        self.batches: list[int] = []

    def submit(self, transfers: Transfers) -> None:
        """Each goes to its sender's port."""
        self.batches.append(len(transfers.id))
        for number, src, dst, size, start in zip(*(column.tolist() for column in transfers), strict=True):
            self.size[number], self.dst[number] = size, dst
            self.enter(("up", src), number, start)

    def enter(self, link: tuple[str, int], number: int, now: int) -> None:
        self.tied |= link[0] == "down" and self.came.get(link) == now
        self.came[link] = now
        if link in self.busy:
            self.queue.setdefault(link, deque()).append(number)
        else:
            self.start(link, number, now)

    def start(self, link: tuple[str, int], number: int, now: int) -> None:
        self.busy.add(link)
        transfer = self.size[number] / self.bytes_per_ns
        used = self.use.setdefault(link, [0, 0])
        used[0] += self.size[number]
        used[1] += int(transfer)
        self.schedule(now + int(self.latency_ns + transfer), "there", link, number)
        self.schedule(now + int(transfer), "free", link, number)

    def schedule(self, tick: int, what: str, link: tuple[str, int], number: int) -> None:
        self.scheduled += 1
        heapq.heappush(self.events, (tick, self.scheduled, what, link, number))

    def advance(self, until_ns: int) -> Ended:
        """To the first message that is at its NPU."""
        done: list[int] = []
        now = until_ns
        while self.events and self.events[0][0] <= (now if done else until_ns):
            now, _, what, link, number = heapq.heappop(self.events)
            if what == "free":
                waiting = self.queue.get(link)
                if waiting:
                    self.start(link, waiting.popleft(), now)
                else:
                    self.busy.remove(link)
            elif link[0] == "up":
                self.enter(("down", self.dst[number]), number, now)
            else:
                done.append(number)
        self.tied |= bool(done) and now == until_ns
        return ended(done, now)

    def links(self) -> Iterable[LinkUse]:
        """Ports that sent something."""
        for (way, npu), (size, busy) in sorted(self.use.items()):
            up = way == "up"
            yield LinkUse(npu if up else "switch", "switch" if up else npu, size, busy, 0)

    def close(self) -> None:
        """Remember that it was called."""
        assert not self.closed
        self.closed = True


def system(**changes: Any) -> dict[str, Any]:
    """A system file."""
    return {
        **{
            f"{kind}-implementation": ["ring"]
            for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
        },
        "preferred-dataset-splits": 2,
        "endpoint-delay": 10,
        "local-mem-bw": 100,
        **changes,
    }


def random_workload(
    npus: int, seed: int, *, nodes: int = 6, messages: int = 6, groups: bool = True
) -> Workload:
    """Computes of random lengths, collectives of all and of groups, and messages between any two."""
    random = np.random.default_rng(seed)
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    plan = [
        (kinds[k], int(size))
        for k, size in zip(random.integers(0, 4, nodes), random.integers(1, 1 << 20, nodes), strict=True)
    ]
    ends = [random.permutation(npus)[:2].tolist() for _ in range(messages)]
    sizes = random.integers(1, 1 << 20, messages).tolist()
    waits: I64 = random.integers(1, 100_000, (npus, nodes + 1))
    workload = Workload(npus)
    group = workload.add_group(sorted(random.permutation(npus)[: max(2, npus // 2)].tolist()), "g")
    members = workload.groups[group]

    def step(b: TraceBuilder) -> None:
        before = b.compute("start", duration_ns=int(waits[b.rank, nodes]))
        for k, (kind, size) in enumerate(plan):
            work = b.compute(f"work{k}", duration_ns=int(waits[b.rank, k]), after=before)
            if groups and k % 3 == 2 and b.rank in members:
                b.collective(kind, size_bytes=size, group=group, after=work)
            before = b.collective(kind, size_bytes=size, after=work)
        for k, ((src, dst), size) in enumerate(zip(ends, sizes, strict=True)):
            if b.rank == src:
                b.send(dst, size_bytes=size, tag=k)
            if b.rank == dst:
                b.recv(src, size_bytes=size, tag=k)

    workload.run(step)
    return workload
