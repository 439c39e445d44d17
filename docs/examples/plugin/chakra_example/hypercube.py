"""A hypercube: NPUs whose numbers differ in one bit are neighbours."""

from typing import Any


def hypercube(*, dimensions: int, bandwidth: float, latency: float = 500) -> dict[str, Any]:
    """Links of 2^dimensions NPUs; bandwidth in GB/s of 2^30 B/s per direction, latency in ns per link."""
    if not 1 <= dimensions <= 12:
        raise ValueError(f"dimensions must be 1 to 12, not {dimensions}")
    links = [
        [npu, npu | 1 << bit]
        for npu in range(1 << dimensions)
        for bit in range(dimensions)
        if not npu & 1 << bit
    ]
    return {"npus_count": [1 << dimensions], "bandwidth": bandwidth, "latency": latency, "links": links}
