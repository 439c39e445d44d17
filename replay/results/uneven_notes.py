"""How unequal the shares of a run's all-to-alls are: who waits for a hot rank sees whom it waits for."""

from typing import Final

from chakra.replay.collectives.call import Uneven
from chakra.replay.config.model import CollectiveKind
from chakra.replay.engines.scenario import Scenario

#: shares that differ by less are as good as equal
_TOLD_FROM: Final = 1.1


def uneven_notes(scenario: Scenario) -> list[str]:
    """By how much the busiest member of any all-to-all exceeds the mean of its members; nothing below a tenth."""
    shares: dict[int, Uneven] = {}
    for program in scenario.workload.programs:
        for call in program.calls:
            if call.uneven is not None and call.kind is CollectiveKind.ALL_TO_ALL:
                shares[id(call.uneven)] = call.uneven
    most = max((_hottest(share) for share in shares.values()), default=1.0)
    if most < _TOLD_FROM:
        return []
    times = f"sends or receives {most:.1f} times the mean"
    return [
        f"shares of all-to-alls are unequal: in the most unequal one the busiest rank {times}; others wait for it"
    ]


def _hottest(share: Uneven) -> float:
    """Bytes that the busiest member sends or receives, as a multiple of the mean; 1 where nothing is sent."""
    mean = float(share.sizes.sum()) / len(share.sizes)
    if not mean:
        return 1.0
    return max(float(share.sizes.sum(axis=way).max()) for way in (0, 1)) / mean
