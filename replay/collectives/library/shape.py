"""What a library is asked: the communicator, and the algorithm, protocol and channels it may be held to."""

from dataclasses import dataclass
from enum import StrEnum

from chakra.arguments import check_fields
from chakra.errors import UsageError
from chakra.io.readable import counted


class Algorithm(StrEnum):
    """Algorithms of the libraries, by the names that ``NCCL_ALGO`` takes."""

    TREE = "Tree"
    RING = "Ring"
    COLLNET_DIRECT = "CollNetDirect"
    COLLNET_CHAIN = "CollNetChain"
    NVLS = "NVLS"
    NVLS_TREE = "NVLSTree"
    PAT = "PAT"
    #: grouped sends and receives: what an all-to-all is made of; ``NCCL_ALGO`` does not reach it
    SEND_RECV = "SendRecv"


#: switches of a node reduce and copy
BY_NODE_SWITCHES = (Algorithm.NVLS, Algorithm.NVLS_TREE)
#: switches of the network between nodes reduce and copy
BY_NETWORK_SWITCHES = (Algorithm.COLLNET_CHAIN, Algorithm.COLLNET_DIRECT)


class Protocol(StrEnum):
    """Protocols of the libraries, by the names that ``NCCL_PROTO`` takes."""

    LL = "LL"
    LL128 = "LL128"
    SIMPLE = "Simple"


@dataclass(frozen=True, slots=True)
class Communicator:
    """The ranks of a collective and how they lie on nodes.

    A *node* is one domain of the inner network: a server, or a rack joined by NVLink. All nodes hold equally many ranks.

    Attributes
    ----------
    ranks
        Members.
    node_ranks
        Members on each node.
    nic_gbps
        Rate of a network port, 10^9 B/s per direction; 0 where all ranks are on one node.
    nics
        Ports of a node that the members of a communicator use; 0: one for each of its ranks.
    network_us
        Latency that the network's plugin reports to the library, us: 0 for InfiniBand, 35 for EFA on p5en and p6 (75 on
        p5; aws-ofi-nccl). It comes on top of the library's own.
    in_network
        Whether switches of the network reduce (SHARP), which CollNet needs.
    """

    ranks: int
    node_ranks: int
    nic_gbps: float = 0.0
    nics: int = 0
    network_us: float = 0.0
    in_network: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.ranks < 1 or self.node_ranks < 1 or self.ranks % self.node_ranks:
            raise UsageError(
                f"a communicator has nodes of equally many ranks, not {counted(self.ranks, 'rank')} on nodes of "
                f"{self.node_ranks}"
            )
        if self.nics < 0 or not (0 <= self.nic_gbps < float("inf") and 0 <= self.network_us < float("inf")):
            raise UsageError(
                "ports, their rate and their latency must be finite and not negative, not "
                f"{self.nics}, {self.nic_gbps} and {self.network_us}"
            )
        if self.nodes > 1 and not self.nic_gbps:
            raise UsageError("a communicator of several nodes needs the rate of a network port")

    @property
    def nodes(self) -> int:
        """Nodes."""
        return self.ranks // self.node_ranks

    @property
    def ports(self) -> int:
        """Network ports of a node: never more than there are ranks on it would use."""
        return min(self.nics, self.node_ranks) if self.nics else self.node_ranks


@dataclass(frozen=True, slots=True)
class Forced:
    """What ``NCCL_ALGO``, ``NCCL_PROTO`` and the numbers of channels hold the library to; None: it chooses.

    Attributes
    ----------
    algorithm
        ``NCCL_ALGO``.
    protocol
        ``NCCL_PROTO``.
    channels
        ``NCCL_MAX_NCHANNELS``: at most so many.
    """

    algorithm: Algorithm | None = None
    protocol: Protocol | None = None
    channels: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.channels is not None and self.channels < 1:
            raise UsageError(f"channels must be at least 1, not {self.channels}")


@dataclass(frozen=True, slots=True)
class Choice:
    """What the library runs.

    Attributes
    ----------
    algorithm
        Its algorithm.
    protocol
        Its protocol.
    channels
        Channels (thread blocks) that move the data.
    """

    algorithm: Algorithm
    protocol: Protocol
    channels: int

    def __str__(self) -> str:
        return f"{self.algorithm}/{self.protocol}"
