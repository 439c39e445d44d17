"""NPUs that spent their time alike, drawn and listed once: a report of 100,000 NPUs stays a page."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from chakra.arrays import I64
from chakra.report.document import ACCOUNT_PARTS, Run

#: Bars drawn at most.
MOST_BARS: Final = 24


@dataclass(frozen=True, slots=True)
class NpuGroup:
    """NPUs with equal figures: their label, how many they are, and the time of each part in ns."""

    label: str
    count: int
    finish_ns: int
    exposed_ns: int
    parts: dict[str, int]


def npu_groups(run: Run, most: int = MOST_BARS) -> tuple[list[NpuGroup], int]:
    """Groups of NPUs with equal finish, exposed time and account, by first member; and how many NPUs are left
    out.

    If there are more than ``most`` groups, the slowest, the fastest and evenly spaced ones between them stay.
    """
    columns = [run.finish_ns, run.exposed_ns, *run.account.values()]
    _, first, inverse, counts = np.unique(
        np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    inverse = inverse.reshape(-1)
    chosen = np.arange(len(first))
    if len(first) > most:
        by_finish = np.argsort(run.finish_ns[first], kind="stable")
        chosen = by_finish[np.unique(np.linspace(0, len(first) - 1, most).round().astype(int))]
    chosen = chosen[np.argsort(first[chosen], kind="stable")]
    members = np.argsort(inverse, kind="stable")
    begins = np.cumsum(counts) - counts
    groups = []
    for group in chosen.tolist():
        who = members[begins[group] : begins[group] + counts[group]]
        at = int(first[group])
        parts = {key: int(run.account[key][at]) for key, _ in ACCOUNT_PARTS if key in run.account}
        groups.append(
            NpuGroup(_label(who), int(counts[group]), int(run.finish_ns[at]), int(run.exposed_ns[at]), parts)
        )
    return groups, run.npus - sum(group.count for group in groups)


def _label(members: I64) -> str:
    """``0-3, 8``; the first few ranges, then how many NPUs they are.

    >>> _label(np.array([0, 1, 2, 3, 8]))
    'NPU 0-3, 8'
    """
    cuts = np.flatnonzero(np.diff(members) > 1)
    starts, ends = members[np.r_[0, cuts + 1]], members[np.r_[cuts, len(members) - 1]]
    words = [
        f"{a}-{b}" if b > a else f"{a}" for a, b in zip(starts[:3].tolist(), ends[:3].tolist(), strict=True)
    ]
    more = f", … ({len(members)})" if len(starts) > 3 else ""
    return "NPU " + ", ".join(words) + more
