"""Numbers that 64-bit integers cannot hold are refused before a run, whatever they are."""

from typing import Any

import pytest

from chakra.builder import TraceBuilder
from chakra.errors import ChakraError
from chakra.replay import simulate

SYSTEM = {"endpoint-delay": 10, "preferred-dataset-splits": 4, "all-reduce-implementation": ["ring"]}


def network(**changed: float) -> dict[str, Any]:
    """A ring of four with one value changed."""
    return {
        "topology": ["Ring"],
        "npus_count": [4],
        "bandwidth": [changed.get("bandwidth", 50)],
        "latency": [changed.get("latency", 500)],
    }


@pytest.mark.parametrize("backend", ["unaware", "aware"])
@pytest.mark.parametrize(
    "changed", [{"latency": 7e17}, {"latency": 6e17, "bandwidth": 1e-13}, {"bandwidth": 2.2e-14}]
)
def test_a_network_whose_messages_take_years_is_refused(backend: str, changed: dict[str, float]) -> None:
    builder = TraceBuilder()
    builder.collective("ALL_REDUCE", size_bytes=1 << 20)
    with pytest.raises(ChakraError, match="more than a year"):
        simulate([builder.build()] * 4, SYSTEM, network(**changed), backend=backend)


@pytest.mark.parametrize("size", [1 << 62, (1 << 63) - 1])
def test_bytes_whose_sums_overflow_are_refused(size: int) -> None:
    builder = TraceBuilder()
    first = builder.collective("ALL_REDUCE", size_bytes=size)
    builder.collective("ALL_REDUCE", size_bytes=size, after=[first])
    with pytest.raises(ChakraError, match="does not fit 64 bits"):
        simulate([builder.build()] * 4, SYSTEM, network())


def test_an_injection_scale_that_overflows_is_refused() -> None:
    builder = TraceBuilder()
    builder.collective("ALL_REDUCE", size_bytes=1 << 20)
    with pytest.raises(ChakraError, match="injection scale"):
        simulate([builder.build()] * 4, SYSTEM, network(), injection_scale=1e300)


def test_duration_ns_counts_alone_where_it_is_given() -> None:
    """A duration_micros beside it that would not fit 64 bits of ns does not matter."""
    builder = TraceBuilder()
    builder.compute(duration_ns=1 << 60)
    assert simulate([builder.build()] * 4, SYSTEM, network()).finish_ns.tolist() == [1 << 60] * 4
