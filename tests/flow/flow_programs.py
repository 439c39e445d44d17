"""Programs of messages and computing, their times in exact fractions by the words of docs/guides/networks.md.

Nothing of the engine is used: flows, their max-min shares, what each NPU does next.
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from chakra.builder import TraceBuilder
from chakra.et import Trace

Link = tuple[Any, Any]
#: ways from one NPU to another, which share a message equally, and their latency in whole ns
Ways = Callable[[int, int], tuple[list[list[Link]], int]]


@dataclass(frozen=True)
class Compute:
    """So many ns."""

    ns: int


@dataclass(frozen=True)
class Message:
    """Sent, or received: `peer` is the other end. Whether what follows waits for its end."""

    send: bool
    peer: int
    size: int
    tag: int
    wait: bool


Program = Sequence[Compute | Message]


def traces(programs: Sequence[Program]) -> list[Trace]:
    """The programs as traces, one a rank."""
    out = []
    for rank, program in enumerate(programs):
        builder = TraceBuilder(rank=rank)
        after = [builder.compute("start", duration_ns=0)]
        for step in program:
            if isinstance(step, Compute):
                after = [builder.compute("compute", duration_ns=step.ns, after=after)]
                continue
            make = builder.send if step.send else builder.recv
            made = make(step.peer, size_bytes=step.size, tag=step.tag, after=after)
            if step.wait:
                after = [made]
        out.append(builder.build())
    return out


def max_min(
    flows: Mapping[int, Mapping[Link, Fraction]], capacity: Mapping[Link, Fraction], bound: Fraction
) -> dict[int, Fraction]:
    """Rates of flows, which use so much of links: all grow together, until a link is full or the bound reached."""
    rates: dict[int, Fraction] = {}
    left, active, level = dict(capacity), dict(flows), Fraction(0)
    while active:
        use: dict[Link, Fraction] = {}
        for shares in active.values():
            for link, share in shares.items():
                use[link] = use.get(link, Fraction(0)) + share
        step = min([bound - level, *(left[link] / share for link, share in use.items())])
        level += step
        for link, share in use.items():
            left[link] -= step * share
        ended = [
            k for k, shares in active.items() if level == bound or any(left[link] == 0 for link in shares)
        ]
        for k in ended:
            rates[k] = level
            del active[k]
    return rates


@dataclass
class Fluid:
    """A network and a run on it: when each NPU finishes, ns, and what each link carries, bytes."""

    capacity: Mapping[Link, Fraction]
    ways: Ways
    bound: Fraction
    carried: dict[Link, Fraction] = field(default_factory=dict)

    def run(self, programs: Sequence[Program]) -> list[int]:
        """Finish times; rates change when a flow starts or ends, and a flow ends at a whole ns."""
        finish, place = [0] * len(programs), [0] * len(programs)
        events: list[tuple[int, int, int, int]] = [(0, npu, npu, -1) for npu in range(len(programs))]
        shares: dict[int, dict[Link, Fraction]] = {}
        left: dict[int, Fraction] = {}
        ends: dict[int, tuple[int, bool, int]] = {}
        there: set[int] = set()
        awaited: dict[int, tuple[int, bool]] = {}
        count, now = len(programs), 0

        def go(npu: int) -> None:
            nonlocal count
            while place[npu] < len(programs[npu]):
                step = programs[npu][place[npu]]
                place[npu] += 1
                if isinstance(step, Compute):
                    finish[npu] = max(finish[npu], now + step.ns)
                    count += 1
                    heapq.heappush(events, (now + step.ns, count, npu, -1))
                    return
                if step.send:
                    ways, latency = self.ways(npu, step.peer)
                    own: dict[Link, Fraction] = {}
                    for link in (link for way in ways for link in way):
                        own[link] = own.get(link, Fraction(0)) + Fraction(1, len(ways))
                    for link, share in own.items():
                        self.carried[link] = self.carried.get(link, Fraction(0)) + share * step.size
                    shares[step.tag], left[step.tag] = own, Fraction(step.size)
                    ends[step.tag] = (npu, step.wait, latency)
                elif step.tag in there:
                    finish[npu] = max(finish[npu], now)
                    continue
                else:
                    awaited[step.tag] = (npu, step.wait)
                if step.wait:
                    return

        rates: dict[int, Fraction] = {}
        while events or shares:
            ticks = [events[0][0]] if events else []
            ticks += [now + math.ceil(left[tag] / rates[tag]) for tag in shares]
            then = min(ticks)
            for tag in shares:
                left[tag] -= rates[tag] * (then - now)
            now = then
            for tag in [tag for tag in shares if left[tag] <= 0]:
                del shares[tag]
                count += 1
                heapq.heappush(events, (now + ends[tag][2], count, -1, tag))
            while events and events[0][0] == now:
                _, _, npu, tag = heapq.heappop(events)
                if tag < 0:
                    go(npu)
                    continue
                there.add(tag)
                for who, wait in (ends[tag][:2], awaited.pop(tag, (-1, False))):
                    if who >= 0:
                        finish[who] = max(finish[who], now)
                        if wait:
                            go(who)
            rates = max_min(shares, self.capacity, self.bound)
        return finish
