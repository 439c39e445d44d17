"""Time of a collective as a linear function of latency, endpoint delay and the inverse of bandwidth.

These are the closed forms of the contention-free model for ranks that start together (the replay computes the same):
``P`` chunks one after the other, each of ``messages`` steps,

    T = P * [ e + messages * (hops * latency + e) ] + (bytes sent one after the other) / bandwidth + reductions

so that T = delay * e + latency * L + bytes / beta + known. Only the truncation of each message's time to whole
nanoseconds is left out here; :func:`modelled_ns` has it.
"""

from dataclasses import dataclass

from chakra.arguments import check_fields, checked
from chakra.errors import UsageError
from chakra.replay.config.model import CollectiveKind, Topology

ALGORITHMS = ("ring", "halvingDoubling", "direct1")


@dataclass(frozen=True, slots=True)
class CostModel:
    """What is known before fitting.

    Attributes
    ----------
    topology, algorithm
        One dimension of this topology, and the algorithm of the measured collectives.
    splits
        Chunks per collective (``preferred-dataset-splits``).
    local_mem_bw_gbps
        Bandwidth of reductions in 10^9 B/s; 0: they cost nothing.
    """

    topology: Topology = Topology.SWITCH
    algorithm: str = "ring"
    splits: int = 1
    local_mem_bw_gbps: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.algorithm not in ALGORITHMS:
            raise UsageError(f"algorithm {self.algorithm!r} is not one of {', '.join(ALGORITHMS)}")
        if self.splits < 1:
            raise UsageError(f"splits must be at least 1, not {self.splits}")
        if not 0 <= self.local_mem_bw_gbps < float("inf"):
            raise UsageError(f"local memory bandwidth must not be negative, not {self.local_mem_bw_gbps}")
        if self.algorithm != "ring" and self.topology is Topology.RING:
            raise UsageError(
                f"{self.algorithm} on a ring has messages over many hops: calibrate with the ring algorithm"
            )


@dataclass(frozen=True, slots=True)
class Terms:
    """Coefficients of one measurement: of the endpoint delay, of the latency, and of 1/bandwidth (bytes); ns known."""

    delay: float
    latency: float
    bytes: float
    known_ns: float


def messages_of(kind: CollectiveKind, algorithm: str, ranks: int) -> list[float]:
    """Share of the buffer that each of the successive messages carries.

    Raises
    ------
    UsageError
        An algorithm that has no such collective, or needs a power of two.
    """
    rounds = 2 if kind is CollectiveKind.ALL_REDUCE else 1
    if algorithm == "halvingDoubling":
        if ranks & (ranks - 1):
            raise UsageError(f"halvingDoubling needs a power of two of ranks, not {ranks}")
        if kind is CollectiveKind.ALL_TO_ALL:
            raise UsageError("halvingDoubling has no all-to-all: calibrate it with direct1")
        steps = ranks.bit_length() - 1
        halves = [1 / 2 ** (step + 1) for step in range(steps)]
        return halves + halves[::-1] if rounds == 2 else halves
    if algorithm == "ring" and kind is CollectiveKind.ALL_TO_ALL:
        return [1 / ranks] * (ranks * (ranks - 1) // 2)
    return [1 / ranks] * (rounds * (ranks - 1))


def hops(topology: Topology) -> int:
    """Links between neighbours."""
    return 2 if topology is Topology.SWITCH else 1


def _reductions(model: CostModel, kind: CollectiveKind, ranks: int, size_bytes: float) -> float:
    """Nanoseconds of reductions per chunk of ``size_bytes``, as the credit machine charges them."""
    if not model.local_mem_bw_gbps or kind not in (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER):
        return 0.0
    if model.algorithm == "halvingDoubling":
        steps = ranks.bit_length() - 1
        halves = [size_bytes / (1 << (step + 1)) for step in range(1, steps)]
        return 3 * sum(halves) / model.local_mem_bw_gbps
    count = ranks - 1
    if model.algorithm == "direct1":
        # a window of one reduces every other packet, in an all-reduce every fourth
        messages = len(messages_of(kind, "direct1", ranks))
        count = (messages + 1) // 2 if kind is CollectiveKind.REDUCE_SCATTER else (messages + 3) // 4
    return count * 3 * (size_bytes / ranks) / model.local_mem_bw_gbps


def terms(model: CostModel, kind: CollectiveKind, ranks: int, size_bytes: int) -> Terms:
    """Coefficients of a collective of ``size_bytes`` (nccl-tests' size)."""
    shares = messages_of(kind, model.algorithm, ranks)
    splits = model.splits
    return Terms(
        delay=splits * (len(shares) + 1),
        latency=splits * len(shares) * hops(model.topology),
        bytes=sum(shares) * size_bytes,
        known_ns=splits * _reductions(model, kind, ranks, size_bytes / splits),
    )


@checked
def modelled_ns(
    model: CostModel,
    kind: CollectiveKind,
    ranks: int,
    size_bytes: int,
    *,
    latency_ns: float,
    bytes_per_ns: float,
    endpoint_delay_ns: int,
) -> int:
    """Time of a collective with every message truncated to whole nanoseconds, as the replay has it.

    Parameters
    ----------
    model
        Topology, algorithm, splits and memory bandwidth.
    kind
        Which collective.
    ranks
        Number of members.
    size_bytes
        Bytes of the collective, as nccl-tests count them.
    latency_ns
        Latency of a hop, ns.
    bytes_per_ns
        Bandwidth of a link, bytes per ns.
    endpoint_delay_ns
        Endpoint delay, ns.

    Raises
    ------
    UsageError
        A number out of its range, or an algorithm that cannot run this.
    """
    if ranks < 2:
        raise UsageError(f"ranks: a collective has at least 2, not {ranks}")
    if size_bytes < 0 or endpoint_delay_ns < 0:
        raise UsageError(
            f"size and endpoint delay must be at least 0, not {size_bytes} and {endpoint_delay_ns}"
        )
    if not 0 <= latency_ns < float("inf") or not bytes_per_ns > 0:
        raise UsageError(
            f"latency and bandwidth must be at least and above 0, not {latency_ns} and {bytes_per_ns}"
        )
    chunk = size_bytes / model.splits
    link = hops(model.topology) * latency_ns
    one = endpoint_delay_ns
    for share in messages_of(kind, model.algorithm, ranks):
        one += int(link + int(share * chunk) / bytes_per_ns) + endpoint_delay_ns
    return int(model.splits * (one + _reductions(model, kind, ranks, chunk)))
