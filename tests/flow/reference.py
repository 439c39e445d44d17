"""Max-min fair flows in plain Python and exact fractions, written apart from the engine that it checks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Flow:
    """A transfer: when it starts (ns), its bytes, the share of it on each link, and its latency (ns)."""

    start: int
    size: int
    links: Mapping[int, Fraction]
    latency: int


def fair_rates(
    flows: Sequence[Flow], capacity: Sequence[Fraction], cap: Fraction | None = None
) -> list[Fraction]:
    """Rates of flows that all run: raise all together, and stop those that meet a full link."""
    rates = [Fraction(0)] * len(flows)
    growing = {i for i, flow in enumerate(flows) if flow.links}
    while growing:
        step: Fraction | None = None
        for link, room in enumerate(capacity):
            slope = sum((flows[i].links.get(link, Fraction(0)) for i in growing), Fraction(0))
            if slope:
                used = sum(
                    (rates[i] * flow.links.get(link, Fraction(0)) for i, flow in enumerate(flows)),
                    Fraction(0),
                )
                step = min((room - used) / slope, step if step is not None else room / slope)
        if cap is not None:
            least = min(cap - rates[i] for i in growing)
            step = least if step is None else min(step, least)
        assert step is not None
        for i in growing:
            rates[i] += step
        full = {
            link
            for link, room in enumerate(capacity)
            if sum((rates[i] * f.links.get(link, Fraction(0)) for i, f in enumerate(flows)), Fraction(0))
            >= room
        }
        growing = {i for i in growing if not full & flows[i].links.keys() and (cap is None or rates[i] < cap)}
    return rates


def arrivals(
    flows: Sequence[Flow], capacity: Sequence[Fraction], cap: Fraction | None = None
) -> list[Fraction]:
    """When the last byte of each flow is there, ns."""
    left = [Fraction(flow.size) for flow in flows]
    there: list[Fraction | None] = [None] * len(flows)
    now = Fraction(0)
    for i, flow in enumerate(flows):
        if not flow.size or not flow.links:
            there[i] = Fraction(flow.start + flow.latency)
    while any(t is None for t in there):
        on = [i for i, t in enumerate(there) if t is None and flows[i].start <= now]
        later = [Fraction(f.start) for i, f in enumerate(flows) if there[i] is None and f.start > now]
        rates = fair_rates([flows[i] for i in on], capacity, cap)
        ends = [now + left[i] / rate for i, rate in zip(on, rates, strict=True)]
        then = min(ends + later)
        for i, rate, end in zip(on, rates, ends, strict=True):
            left[i] -= rate * (then - now)
            if end == then:
                there[i] = then + flows[i].latency
        now = then
    return [t for t in there if t is not None]
