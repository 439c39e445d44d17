"""Published figures of ASTRA-sim: 8 NPUs, 50 GB/s, 500 ns, endpoint delay 10, 1 MiB in 4 chunks (semantics 4.7)."""

import pytest
from message_worlds import KINDS, run_collective

#: per topology and algorithm, unaware and aware figures of the four kinds
GOLDEN = {
    ("Ring", "ring"): ((117780, 86420, 151016, 125480), (117780, 86420, 151016, 125480)),
    ("Ring", "direct"): ((24860, 18380, 27608, 10520), (57900, 36340, 199360, 28480)),
    ("Ring", "direct1"): ((130200, 80840, 169016, 49400), (174120, 102800, 344768, 71360)),
    ("Ring", "halvingDoubling"): ((86028, 54824, 150872), (110428, 67024, 248516)),
    ("Switch", "ring"): ((145780, 100420, 165016, 181480), (179940, 117500, 301712, 249800)),
    ("Switch", "direct"): ((20860, 14380, 23608, 6520), (47700, 31460, 160304, 23600)),
    ("Switch", "direct1"): ((122200, 76840, 165016, 45400), (156360, 93920, 301712, 62480)),
    ("Switch", "halvingDoubling"): ((82028, 52824, 148872), (116196, 69908, 285584)),
    ("FullyConnected", "ring"): ((117780, 86420, 151016, 125480), (117780, 86420, 151016, 125480)),
    ("FullyConnected", "direct"): ((16860, 12380, 21608, 4520), (16860, 12380, 21608, 4520)),
    ("FullyConnected", "direct1"): ((94200, 62840, 151016, 31400), (94200, 62840, 151016, 31400)),
    ("FullyConnected", "halvingDoubling"): ((70028, 46824, 142872), (70028, 46824, 142872)),
}
#: first and last NPU of the double binary tree's all-reduce
TREE = {
    "Ring": ((394164, 443792), (545476, 614632)),
    "Switch": ((389164, 438292), (530712, 604250)),
    "FullyConnected": ((380164, 427792), (394780, 442408)),
}
BACKENDS = ("unaware", "aware")


@pytest.mark.parametrize(("topology", "algorithm"), GOLDEN)
@pytest.mark.parametrize("backend", BACKENDS)
def test_native_algorithms_take_the_published_time(topology: str, algorithm: str, backend: str) -> None:
    """Every NPU ends at the published tick."""
    wanted = GOLDEN[topology, algorithm][BACKENDS.index(backend)]
    for kind, expected in zip(KINDS, wanted, strict=False):
        result = run_collective(topology, algorithm, kind, 1 << 20, [0] * 8, 4, backend=backend)
        assert set(result.finish_ns.tolist()) == {expected}, kind


@pytest.mark.parametrize("topology", TREE)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_tree_ends_role_by_role(topology: str, backend: str) -> None:
    """The first and the last NPU end at the published ticks."""
    result = run_collective(topology, "doubleBinaryTree", "ALL_REDUCE", 1 << 20, [0] * 8, 4, backend=backend)
    finish = result.finish_ns
    assert (int(finish.min()), int(finish.max())) == TREE[topology][BACKENDS.index(backend)]
