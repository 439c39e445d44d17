"""An all-reduce over NPU 0: everybody sends it all data in turn, and gets the result in turn."""

from chakra.replay.collectives.steps import Do, Link, StepAlgorithm, Steps, from_rounds


def star(do: Do, n: int, size_bytes: int, link: Link) -> Steps:
    """Rounds of (source, destination, share of the data, whether the destination reduces it)."""
    up = [[(i, 0, 1, True)] for i in range(1, n)]
    down = [[(0, i, 1, False)] for i in range(1, n)]
    return from_rounds(n, up + down, 1)  # a share of 1 is all of the data, whose parts are 1


STAR = StepAlgorithm(
    name="star",
    kinds=frozenset({Do.ALL_REDUCE}),
    schedule=star,
    summary="all data over NPU 0",
    formula="about e + 2(n - 1)(l(d) + e)",
    source="an example",
)
