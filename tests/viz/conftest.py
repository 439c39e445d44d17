"""Small traces for drawing; makes this folder's helper modules importable."""

import pytest
from viz_traces import make_trace

from chakra.et import Trace


@pytest.fixture
def diamond() -> Trace:
    """0 -> 1 -> 2 -> 3 and 0 -> 3 by data, 1 -> 2 also by control; the way over 1 and 2 is the longest."""
    return make_trace(
        ["a", "b", "c", "d"], [[], [0], [1], [2, 0]], [[], [], [1], []], [4, 7, 4, 5], [1, 5, 5, 1]
    )
