"""What a library predicts of a collective: latency and bandwidth of one algorithm and protocol."""

from dataclasses import dataclass

from chakra.replay.config.model import CollectiveKind

#: collectives that run as rings alone
RING_ONLY = (CollectiveKind.BROADCAST, CollectiveKind.REDUCE)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the library predicts for one algorithm and protocol.

    Attributes
    ----------
    latency_us
        Time of an empty collective, us.
    gbps
        Bytes of the collective per time, 10^9 B/s.
    """

    latency_us: float
    gbps: float

    def time_us(self, size_bytes: float) -> float:
        """Predicted time, us."""
        return self.latency_us + size_bytes / self.gbps / 1e3


def ring_steps(kind: CollectiveKind, ranks: int) -> int:
    """Steps of a ring."""
    if kind is CollectiveKind.ALL_REDUCE:
        return 2 * (ranks - 1)
    return ranks if kind in RING_ONLY else ranks - 1
