"""What makes a fit doubtful: a rate of ports that measurements contradict, and errors that are large in sample."""

from collections.abc import Sequence

from chakra.io.readable import counted, whole_percent_text
from chakra.replay.collectives.library import Communicator
from chakra.replay.collectives.library.parameters import RING_KINDS
from chakra.replay.collectives.measured.log_rows import factor
from chakra.replay.collectives.measured.nccl_log import Measurement

#: mean error in sample from which a fit is not to be trusted; presets from benchmarks have 1 to 10 %
LARGE_ERROR = 0.15
#: from this size a collective is expected to fill the ports
_FULL_BYTES = 64 << 20
#: shares of a port's rate that no right rate explains: a tree between two nodes reaches nearly twice its ports'
_LEAST_SHARE, _MOST_SHARE = 0.25, 2.5


def rate_doubt(measurements: Sequence[Measurement], nodes: Communicator | None) -> str | None:
    """That the rate of a port cannot be the one that was given, or None.

    The bus bandwidth of a collective of several nodes is what the ports of a node carry together, in GB/s of 10^9 B/s
    (nccl-tests, doc/PERFORMANCE.md).

    Parameters
    ----------
    measurements
        What was measured.
    nodes
        How nodes are said to be joined.
    """
    if nodes is None or not nodes.nic_gbps:
        return None
    several = [m for m in measurements if m.ranks > nodes.node_ranks and m.kind in RING_KINDS]
    ports = nodes.nics or nodes.node_ranks
    reached = [
        (factor(m.kind, m.ranks) * m.size_bytes / m.time_us / 1e3 / ports, m.size_bytes) for m in several
    ]
    if not reached:
        return None
    best, size = max(reached)
    share = best / nodes.nic_gbps
    if _LEAST_SHARE <= share <= _MOST_SHARE or (share < 1 and max(size for _, size in reached) < _FULL_BYTES):
        return None
    return (
        f"--nic-gbps {nodes.nic_gbps:g} is contradicted: at most {best:.3g} GB/s went through each of "
        f"{counted(ports, 'port')} of a node "
        f"({whole_percent_text(share)} of it, at {size} bytes). It is in GB/s of 10^9 bytes: a port of 400 Gb/s has 50"
    )


def error_doubt(error: float) -> str | None:
    """That a fit does not describe what it was made from, or None.

    Parameters
    ----------
    error
        Mean error in sample, a share.
    """
    if not error > LARGE_ERROR:
        return None
    return (
        f"the fit is {whole_percent_text(error)} off the measurements that it was made from (mean; a good fit: below "
        f"{whole_percent_text(LARGE_ERROR)}): replays with it are no better. See which rows are off"
    )
