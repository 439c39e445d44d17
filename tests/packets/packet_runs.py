"""Small workloads and networks for packets."""

from collections.abc import Sequence
from typing import Any

from chakra.builder import TraceBuilder, Workload

#: bytes of headers in and around a packet of TCP with time stamps, and of the lossless transport
TCP_HEADERS, TCP_FRAME = 52, 2
LOSSLESS_HEADERS, LOSSLESS_FRAME = 44, 18
GIBPS = (1 << 30) / 1e9


def system(**changes: Any) -> dict[str, Any]:
    """A system file: rings, no delay at the ends, reductions for nothing."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    return {**{f"{kind}-implementation": ["ring"] for kind in kinds}, "endpoint-delay": 0, **changes}


def pair(
    packets: dict[str, Any] | None = None, *, bandwidth: float = 1, latency: float = 5000
) -> dict[str, Any]:
    """Two NPUs and a link."""
    return star(2, packets, bandwidth=bandwidth, latency=latency) | {"links": [[0, 1]]}


def star(
    npus: int, packets: dict[str, Any] | None = None, *, bandwidth: float = 1, latency: float = 1000
) -> dict[str, Any]:
    """NPUs around a switch."""
    links = [[npu, "hub"] for npu in range(npus)]
    given = {} if packets is None else {"packets": packets}
    return {"npus_count": [npus], "links": links, "bandwidth": bandwidth, "latency": latency, **given}


def sends(npus: int, transfers: Sequence[tuple[int, int, int]], *, wait_ns: int = 0) -> Workload:
    """Single messages (source, destination, bytes): all at once, or an NPU's each `wait_ns` after the one before."""
    workload = Workload(npus)

    def program(b: TraceBuilder) -> None:
        after = [b.compute("start", duration_ns=0)]
        sent = False
        for tag, (src, dst, size) in enumerate(transfers):
            if b.rank == src:
                if sent:
                    after = [b.compute("wait", duration_ns=wait_ns, after=after)]
                sent = True
                b.send(dst, size_bytes=size, tag=tag, after=after)
            elif b.rank == dst:
                b.recv(src, size_bytes=size, tag=tag)

    workload.run(program)
    return workload
