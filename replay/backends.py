"""One workload on two backends, and where they differ: each NPU's end, and each collective."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from chakra.arguments import checked
from chakra.arrays import I64
from chakra.errors import UsageError
from chakra.replay.api import simulate
from chakra.replay.options import FLOW, NS3
from chakra.replay.results.result import ReplayResult


@dataclass(frozen=True, slots=True)
class CollectiveDifference:
    """A collective on both backends; of more than 2,000 in a run, the longest of each group and size.

    Attributes
    ----------
    kind, group, members, bytes
        As in a result's `collectives`.
    place
        Which of those with the same kind, group, members and bytes it is, from 0, in the order in which they begin.
    ready_ns
        When its last member came to it, ns, on the one and on the other.
    time_ns
        From then to its end, ns, on the one and on the other.
    """

    kind: str
    group: str
    members: int
    bytes: int
    place: int
    ready_ns: tuple[int, int]
    time_ns: tuple[int, int]

    @property
    def difference_ns(self) -> int:
        """How much longer it takes on the second backend, ns."""
        return self.time_ns[1] - self.time_ns[0]


@dataclass(frozen=True, slots=True)
class BackendDifference:
    """Two replays of one workload.

    Attributes
    ----------
    backends
        Their names, as `chakra.replay.simulate` takes them.
    results
        The two results; `chakra.compare` shows where the difference of two result documents lies.
    finish_ns
        When each NPU finishes, ns, shape (2, NPUs).
    collectives
        Collectives of both, those that differ most first.
    """

    backends: tuple[str, str]
    results: tuple[ReplayResult, ReplayResult]
    finish_ns: I64
    collectives: tuple[CollectiveDifference, ...]

    @property
    def difference_ns(self) -> I64:
        """How much later each NPU finishes on the second backend, ns, shape (NPUs,)."""
        out: I64 = self.finish_ns[1] - self.finish_ns[0]
        return out

    @property
    def step_ns(self) -> tuple[int, int]:
        """When the last NPU finishes, ns, on the one and on the other."""
        return int(self.finish_ns[0].max(initial=0)), int(self.finish_ns[1].max(initial=0))


@checked
def compare_backends(
    workload: Any, system: Any, network: Any, *, first: str = FLOW, second: str = NS3, **options: Any
) -> BackendDifference:
    """Replay a workload on two backends, and say where they differ.

    Parameters
    ----------
    workload, system, network
        As `chakra.replay.simulate` takes them.
    first, second
        The backends.
    options
        As `simulate` takes them. Every NPU is simulated (``fold=False``), so that each of them has an end of its own.

    Raises
    ------
    UsageError
        If the two are one, ``options`` names a backend too, or a run was ended before its end.
    ChakraError
        As `simulate` raises.

    Examples
    --------
    >>> from chakra.builder import Workload
    >>> workload = Workload(4)
    >>> workload.run(lambda b: b.collective("all_gather", size_bytes=1000))
    >>> network = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [1], "latency": [100]}
    >>> found = compare_backends(
    ...     workload, {"all-gather-implementation": ["ring"]}, network, first="aware", second="flow"
    ... )
    >>> found.step_ns
    (6226, 3436)
    """
    if first == second:
        raise UsageError(f"backend: {first!r} is given twice; name two different ones")
    if "backend" in options:
        raise UsageError(f"backend: here they are first, {first!r}, and second, {second!r}; leave it out")
    given = {"fold": False, **options}
    runs = tuple(simulate(workload, system, network, backend=name, **given) for name in (first, second))
    a, b = runs
    if a.partial or b.partial:
        raise UsageError("backend: a run was ended before its end: there is nothing to compare")
    return BackendDifference(
        (first, second), (a, b), np.stack([a.finish_ns, b.finish_ns]), _collectives(a, b)
    )


def _collectives(a: ReplayResult, b: ReplayResult) -> tuple[CollectiveDifference, ...]:
    """Collectives of both runs by group, kind and size, in the order in which they begin."""
    others = _by_key(b)
    found = []
    for key, rows in _by_key(a).items():
        for place, (one, other) in enumerate(zip(rows, others[key], strict=True)):
            kind, group, members, size = key
            ready = one["ready_ns"], other["ready_ns"]
            time = one["end_ns"] - ready[0], other["end_ns"] - ready[1]
            found.append(CollectiveDifference(kind, group, members, size, place, ready, time))
    return tuple(sorted(found, key=lambda item: -abs(item.difference_ns)))


def _by_key(result: ReplayResult) -> dict[tuple[str, str, int, int], list[dict[str, Any]]]:
    rows: defaultdict[tuple[str, str, int, int], list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(result.collectives, key=lambda row: int(row["ready_ns"])):
        rows[row["kind"], row["group"], row["members"], row["bytes"]].append(row)
    return rows
