"""Small inputs for tests of the message-level engine."""

from collections.abc import Sequence
from typing import Any

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.replay import ReplayResult, simulate

#: 50 GB/s of 2**30 bytes, in bytes per ns
FIFTY = 50 * (1 << 30) / 1_000_000_000
KINDS = ("ALL_REDUCE", "REDUCE_SCATTER", "ALL_GATHER", "ALL_TO_ALL")


def network(topology: str, npus: int, *, gibps: float = 50.0, latency: float = 500.0) -> dict[str, Any]:
    """One dimension."""
    return {"topology": [topology], "npus_count": [npus], "bandwidth": [gibps], "latency": [latency]}


def system(algorithm: str | list[str], splits: int = 1, **more: Any) -> dict[str, Any]:
    """Endpoint delay 10 ns, local memory of 50 GB/s; the algorithms run every kind."""
    names = [algorithm] if isinstance(algorithm, str) else algorithm
    keys = [f"{kind.lower().replace('_', '-')}-implementation" for kind in KINDS]
    return {
        "endpoint-delay": 10,
        "local-mem-bw": 50,
        "preferred-dataset-splits": splits,
        **dict.fromkeys(keys, names),
        **{key.replace("_", "-"): value for key, value in more.items()},
    }


def late_collective(kind: str, size: int, start: int) -> Trace:
    """One collective after a compute of `start` ns (none if 0)."""
    builder = TraceBuilder()
    after = [builder.compute(duration_ns=start)] if start else []
    builder.collective(kind, size_bytes=size, after=after)
    return builder.build()


def run_collective(
    topology: str,
    algorithm: str,
    kind: str,
    size: int,
    starts: Sequence[int],
    splits: int = 1,
    **options: Any,
) -> ReplayResult:
    """Run one collective of all NPUs, each starting at its own tick, message by message."""
    made = system(algorithm, splits, **options.pop("keys", {}))
    traces = [late_collective(kind, size, start) for start in starts]
    return simulate(traces, made, network(topology, len(starts)), engine="messages", **options)
