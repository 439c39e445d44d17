"""Constants by which the libraries choose, as published with their source.

NCCL: ``src/graph/tuning.cc`` and ``src/graph/topo.h`` of 2.28.3 (the tables of 2.27 and 2.29 agree where measured rows
show which algorithm ran). RCCL: the files of these names in ROCm 6.4 to 7. They are the libraries' own estimates: they
decide what runs, and how long it takes where nothing was measured. Latencies in us, bandwidths in GB/s of 10^9 B/s.
"""

from dataclasses import dataclass
from enum import StrEnum

from chakra.replay.collectives.library.shape import Algorithm, Protocol

_PROTOCOLS = (Protocol.LL, Protocol.LL128, Protocol.SIMPLE)


class Generation(StrEnum):
    """Generations of accelerators that the tables tell apart."""

    VOLTA = "volta"
    AMPERE = "ampere"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"
    CDNA3 = "cdna3"


def _row(ll: float, ll128: float, simple: float) -> dict[Protocol, float]:
    return dict(zip(_PROTOCOLS, (ll, ll128, simple), strict=True))


#: start of a collective
BASE_US: dict[Algorithm, dict[Protocol, float]] = {
    Algorithm.TREE: _row(6.8, 14.0, 8.4),
    Algorithm.RING: _row(6.6, 14.0, 8.4),
    Algorithm.COLLNET_DIRECT: _row(0, 0, 0),
    Algorithm.COLLNET_CHAIN: _row(0, 0, 0),
    Algorithm.NVLS: _row(0, 0, 0),
    Algorithm.NVLS_TREE: _row(0, 0, 0),
    Algorithm.PAT: _row(8.0, 8.0, 8.0),
}
#: a hop over NVLink
NVLINK_US: dict[Algorithm, dict[Protocol, float]] = {
    Algorithm.TREE: _row(0.6, 1.25, 4.0),
    Algorithm.RING: _row(0.6, 1.9, 3.4),
    Algorithm.COLLNET_DIRECT: _row(0, 0, 3.7),
    Algorithm.COLLNET_CHAIN: _row(0, 0, 2.8),
    Algorithm.NVLS: _row(0, 0, 25.0),
    Algorithm.NVLS_TREE: _row(0, 0, 25.0),
    Algorithm.PAT: _row(0, 0, 4.0),
}
#: a hop over PCIe
PCIE_US: dict[Algorithm, dict[Protocol, float]] = {
    Algorithm.TREE: _row(1.0, 1.9, 4.0),
    Algorithm.RING: _row(1.0, 2.5, 5.7),
    Algorithm.COLLNET_DIRECT: _row(0, 0, 3.7),
    Algorithm.COLLNET_CHAIN: _row(0, 0, 2.8),
    Algorithm.NVLS: _row(0, 0, 0),
    Algorithm.NVLS_TREE: _row(0, 0, 0),
    Algorithm.PAT: _row(0, 0, 4.0),
}
#: a hop over the network
NETWORK_US: dict[Algorithm, dict[Protocol, float]] = {
    Algorithm.TREE: _row(5.0, 8.5, 14.0),
    Algorithm.RING: _row(2.7, 4.0, 14.0),
    Algorithm.COLLNET_DIRECT: _row(0, 0, 31.0),
    Algorithm.COLLNET_CHAIN: _row(0, 0, 30.0),
    Algorithm.NVLS: _row(0, 0, 18.0),
    Algorithm.NVLS_TREE: _row(0, 0, 14.0),
    Algorithm.PAT: _row(0, 0, 14.0),
}
#: posting to the network, per step of a ring (AMD hosts: 2)
NETWORK_OVERHEAD_US = 1.0
#: what reducing in switches loses on Hopper and later, and per further rank of a node (us)
COLLNET_SHARE = 0.85
COLLNET_ARITY_US = 0.4
#: rings of several nodes wait longer for their steps once they move data
RING_PLATEAU = 1.4
#: PAT: the part of a network hop that is exposed, and what remains linear in the ranks (us)
PAT_HOP_SHARE = 1 / 3.5
PAT_RANK_US = 2.8
PAT_SHARE = 0.75
#: what the library's topology search leaves of a network port's rate (its speed steps: 48 of 50, 24 of 25 GB/s)
PORT_SHARE = 0.96
#: trees fall short of the model for medium sizes: by powers of two from 64 B
TREE_SHARE: dict[Protocol, tuple[float, ...]] = {
    Protocol.LL: (1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1),
    Protocol.LL128: (
        1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1,
    ),
    Protocol.SIMPLE: (
        0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Ceilings of a generation: three values are for one node, two nodes, more.

    Attributes
    ----------
    ll_gbps
        All channels of the LL protocol on one node.
    ring_ll128_gbps
        A channel of a ring with LL128.
    tree_ll128_gbps
        A channel of a tree with LL128.
    tree_gbps
        A channel of a tree.
    nvls_tree_gbps
        A channel of NVLSTree.
    nvls_share
        What reducing in NVSwitch reaches of the links.
    nvls_speeds
        Rates of a channel that the topology search tries, largest first.
    nvls_channels
        Channels of NVLS.
    """

    ll_gbps: float
    ring_ll128_gbps: float
    tree_ll128_gbps: tuple[float, float, float]
    tree_gbps: tuple[float, float, float]
    nvls_tree_gbps: tuple[float, float, float]
    nvls_share: float
    nvls_speeds: tuple[float, ...]
    nvls_channels: int


_ANY = float("inf")
CEILINGS: dict[Generation, Ceilings] = {
    Generation.VOLTA: Ceilings(39.0, 20.0, (20, 20, 20), (26.5, 18.5, 10.0), (26.5, 18.5, 10.0), 0, (), 0),
    Generation.AMPERE: Ceilings(87.7, 20.0, (20, 20, 20), (24.0, 23.6, 17.8), (24.0, 23.6, 17.8), 0, (), 0),
    Generation.HOPPER: Ceilings(
        141.0, 36.7, (36.7, 36.7, 29.0), (38.7, 41.4, 36.0), (0, 57.7, 45.5), 0.85,
        (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3), 16,
    ),
    Generation.BLACKWELL: Ceilings(
        282.0, 73.4, (55.6, 31.67, 20.0), (70.0, 42.8, 24.0), (0, 96.0, 43.1), 0.74,
        (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18), 32,
    ),
    # RCCL has no such ceilings
    Generation.CDNA3: Ceilings(_ANY, _ANY, (_ANY,) * 3, (_ANY,) * 3, (_ANY,) * 3, 0, (), 0),
}  # fmt: skip
#: all channels of the LL protocol: two nodes, more; hosts of Intel and of AMD
LL_NETWORK_GBPS: dict[str, tuple[float, float]] = {"intel": (39.0, 20.4), "amd": (22.5, 19.0)}

#: RCCL on CDNA 3: start of a collective, a hop over Infinity Fabric and over the network. For a hop of a ring with Simple
#: its table has 320 us, which keeps it from rings and is no time: two nodes take 280 us beside their bytes, not 1,300.
RCCL_BASE_US = _row(12.0, 12.0, 17.0)
FABRIC_US: dict[Algorithm, dict[Protocol, float]] = {
    Algorithm.TREE: _row(0.9, 0.9, 2.3),
    Algorithm.RING: _row(0.8, 0.8, 2.1),
}
RCCL_NETWORK_US = _row(10.5, 10.5, 25.0)
#: largest collectives that RCCL runs with LL: bytes in all, or of a rank
RCCL_LL_BYTES = {"ALL_REDUCE": 524288, "BROADCAST": 8192, "REDUCE": 4096}
RCCL_LL_RANK_BYTES = {"ALL_GATHER": 98304, "REDUCE_SCATTER": 655360}
#: from where its table prefers a ring of several nodes to a tree
RCCL_RING_BYTES = 256 << 20
