"""A network that simulates itself: every transfer takes the same time, whatever its size and what else is under way."""

from collections import deque

import numpy as np

from chakra.replay.networks import Ended, LogicalDim, Transfers


class ConstantDelay:
    """What the replay is told before a run. It may be used for many runs, so it holds no state of any."""

    def __init__(self, npus: int, delay_ns: int, bandwidth: float) -> None:
        self.name = "constant-delay"
        self.dims = [LogicalDim(npus, bandwidth, delay_ns)]
        self.delay_ns = delay_ns

    def begin(self) -> "Run":
        """A simulation at tick 0."""
        return Run(self.delay_ns)


class Run:
    """One simulation."""

    def __init__(self, delay_ns: int) -> None:
        self.delay_ns = delay_ns
        #: end (ns) and numbers of each batch that is under way; as all take the same time, in the order of their ends
        self.under_way: deque[tuple[int, np.ndarray]] = deque()

    def submit(self, transfers: Transfers) -> None:
        """A batch starts; all of it at one tick."""
        self.under_way.append((int(transfers.start_ns[0]) + self.delay_ns, transfers.id))

    def advance(self, until_ns: int) -> Ended:
        """What ends first, if that is not after `until_ns`."""
        ended: list[np.ndarray] = [np.zeros(0, np.int64)]
        end_ns = min(until_ns, self.under_way[0][0]) if self.under_way else until_ns
        while self.under_way and self.under_way[0][0] == end_ns:
            ended.append(self.under_way.popleft()[1])
        numbers = np.concatenate(ended)
        return Ended(numbers, np.full(len(numbers), end_ns))

    def close(self) -> None:
        """Nothing is left open."""


def constant_delay(*, npus: int, delay_ns: int, bandwidth: float = 1e9) -> ConstantDelay:
    """Transfers of `delay_ns`; bandwidth in GB/s of 2^30 B/s is what results compare with."""
    if delay_ns < 0:
        raise ValueError(f"delay_ns must be 0 or more, not {delay_ns}")
    return ConstantDelay(npus, delay_ns, bandwidth)
