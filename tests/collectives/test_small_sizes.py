"""Bytes that members send, down to a byte each and below: what an algorithm needs, in every engine."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra.builder import TraceBuilder, Workload
from chakra.replay import ReplayResult, simulate

ENGINES: dict[str, dict[str, Any]] = {
    "phases": {},
    "messages": {"engine": "messages"},
    "aware": {"backend": "aware"},
    "aware messages": {"backend": "aware", "engine": "messages"},
    "flow": {"backend": "flow"},
}
#: rounds in which a member sends all but its own share
ROUNDS = {"all-reduce": 2, "reduce-scatter": 1, "all-gather": 1}
#: those that send no byte twice, of ASTRA-sim's list and of later ones
LEAST = ("ring", "direct", "direct1", "halvingDoubling", "rabenseifner", "bruck")


def played(kind: str, algorithm: str, n: int, size: int, splits: int, **options: Any) -> ReplayResult:
    def program(b: TraceBuilder) -> None:
        b.collective(kind, size_bytes=size)

    work = Workload(n)
    work.run(program, uniform=True)
    system = {f"{kind}-implementation": [algorithm], "preferred-dataset-splits": splits}
    network = {"topology": ["Switch"], "npus_count": [n], "bandwidth": [50.0], "latency": [500.0]}
    return simulate(work, system, network, **options)


def sent(kind: str, algorithm: str, n: int, size: int, splits: int, **options: Any) -> float:
    """Bytes of each member."""
    found: float = played(kind, algorithm, n, size, splits, **options).dimensions[0]["bytes_per_npu"]
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_byte_for_each_member(engine: str) -> None:
    """Chunks of 64 B among 64 NPUs: 63 B go out and 63 B come back; 8 B among 8 the same with 7."""
    assert sent("all-reduce", "halvingDoubling", 64, 1024, 16, **ENGINES[engine]) == 16 * 2 * 63
    assert sent("all-reduce", "halvingDoubling", 8, 32, 4, **ENGINES[engine]) == 4 * 2 * 7


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(sorted(ROUNDS)),
    algorithm=st.sampled_from(LEAST),
    engine=st.sampled_from(sorted(ENGINES)),
    n=st.sampled_from([2, 4, 8, 16]),
    splits=st.integers(1, 4),
    each=st.integers(1, 40),
)
def test_every_member_sends_what_the_others_lack(
    kind: str, algorithm: str, engine: str, n: int, splits: int, each: int
) -> None:
    """`each` bytes of every chunk belong to a member: it sends and gets those of n - 1 others in each round."""
    size = each * splits * (1 if kind == "all-gather" else n)
    needed = ROUNDS[kind] * (n - 1) * each * splits
    if algorithm == "bruck" and kind != "all-gather":
        assert sent(kind, algorithm, n, size, splits, **ENGINES[engine]) >= needed
    else:
        assert sent(kind, algorithm, n, size, splits, **ENGINES[engine]) == needed


@settings(max_examples=100, deadline=None)
@given(
    algorithm=st.sampled_from(["ring", "direct", "halvingDoubling"]),
    engine=st.sampled_from(sorted(ENGINES)),
    n=st.sampled_from([2, 4, 8, 16]),
    splits=st.integers(1, 4),
    size=st.integers(1, 300),
)
def test_the_rule_where_nothing_divides(algorithm: str, engine: str, n: int, splits: int, size: int) -> None:
    """Shares are rounded down to whole bytes, and no message is empty; what comes back is what went out."""
    pieces = [size // splits + (k < size % splits) for k in range(min(splits, size))]
    wanted = 0
    for d in pieces:
        if algorithm == "halvingDoubling":
            wanted += 2 * sum(max(d >> k, 1) for k in range(1, n.bit_length()))
        else:
            wanted += 2 * (n - 1) * max(d // n, 1)
    # short of what is needed by less than a byte for each message
    assert wanted > sum(2 * (n - 1) * (d / n - 1) for d in pieces)
    assert sent("all-reduce", algorithm, n, size, splits, **ENGINES[engine]) == wanted


@settings(max_examples=60, deadline=None)
@given(
    engine=st.sampled_from([name for name in ENGINES if name != "flow"]),
    n=st.sampled_from([4, 8, 16]),
    d=st.integers(1, 6),
)
def test_compat_keeps_astra_sims_sizes(engine: str, n: int, d: int) -> None:
    """2n bytes a chunk and multiples of it: the same in both modes. Between, ASTRA-sim's way back is shorter."""
    whole = sent("all-reduce", "halvingDoubling", n, 2 * n * d, 1, **ENGINES[engine])
    assert (
        sent("all-reduce", "halvingDoubling", n, 2 * n * d, 1, compat="astra-sim", **ENGINES[engine]) == whole
    )
    odd = (2 * d + 1) * n
    levels = n.bit_length() - 1
    theirs = sum(odd >> k for k in range(1, levels + 1)) + sum(2 * d << k for k in range(levels))
    assert sent("all-reduce", "halvingDoubling", n, odd, 1, compat="astra-sim", **ENGINES[engine]) == theirs
