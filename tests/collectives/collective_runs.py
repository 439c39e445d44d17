"""Small systems with one collective, for the tests of this folder."""

from collections.abc import Sequence
from typing import Any

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.replay import simulate

KEYS = {
    "ALL_REDUCE": "all-reduce-implementation",
    "ALL_GATHER": "all-gather-implementation",
    "REDUCE_SCATTER": "reduce-scatter-implementation",
    "ALL_TO_ALL": "all-to-all-implementation",
}
ENDPOINT = 10
LATENCY = 500
GIBPS = 50


def network(
    topologies: list[str],
    npus: list[int],
    gibps: Sequence[float] | None = None,
    latency: Sequence[float] | None = None,
) -> dict[str, Any]:
    """A network as a dict."""
    return {
        "topology": topologies,
        "npus_count": npus,
        "bandwidth": gibps or [GIBPS] * len(npus),
        "latency": latency or [LATENCY] * len(npus),
    }


def system(algorithms: list[str], splits: int = 1, **more: Any) -> dict[str, Any]:
    """A system whose four kinds use the same algorithms."""
    return {
        "endpoint-delay": ENDPOINT,
        "preferred-dataset-splits": splits,
        **dict.fromkeys(KEYS.values(), algorithms),
        **{key.replace("_", "-"): value for key, value in more.items()},
    }


def one(kind: str, size: int, **more: Any) -> Trace:
    """A trace with one collective."""
    builder = TraceBuilder(rank=0)
    builder.collective(kind, size_bytes=size, **more)
    return builder.build()


def run(kind: str, algorithm: str, n: int, size: int, topology: str = "FullyConnected", **more: Any) -> Any:
    """Replay one collective on one dimension."""
    keys = {
        key: more.pop(key) for key in ("splits", "local_mem_bw", "collective_optimization") if key in more
    }
    return simulate([one(kind, size)] * n, system([algorithm], **keys), network([topology], [n]), **more)


def message_ns(size: int, hops: int = 1) -> int:
    """Delay of a message on one dimension of the default network (replay semantics, section 5.3)."""
    return int(hops * LATENCY + size / (GIBPS * (1 << 30) / 1e9))
