"""NPUs that spent their time alike, drawn and listed once: a report of 100,000 NPUs stays a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from chakra.arrays import I64, distinct
from chakra.io.readable import count_text, duration_text, nouns, range_words, shortened
from chakra.report.document import ACCOUNT_PARTS, Run

#: Bars drawn at most.
MOST_BARS: Final = 24
#: characters that the ranges of NPUs and their number in a label may have
_LABEL: Final = 20


@dataclass(frozen=True, slots=True)
class NpuGroup:
    """NPUs with equal figures: their label, how many they are, and the time of each part in ns; of a pipeline
    the stages that they are in, as words."""

    label: str
    count: int
    finish_ns: int
    exposed_ns: int
    parts: dict[str, int]
    stage: str = ""
    finished: bool = True

    @property
    def finish(self) -> str:
        """When they finished, in words."""
        return duration_text(self.finish_ns) if self.finished else "not finished"

    def row_label(self, most: int) -> str:
        """What stands beside the group's bar, of `most` characters at most: its stage, NPUs and their number.

        Parameters
        ----------
        most
            Characters.
        """
        ending = f" ({count_text(self.count)})" if self.count > 1 else ""
        before = f"{self.stage}: " if self.stage else ""
        return shortened(f"{before}{self.label}{ending}", most)


def npu_groups(run: Run, most: int = MOST_BARS) -> tuple[list[NpuGroup], int]:
    """Groups of NPUs with equal finish, exposed time and account, by first member; and how many NPUs are left
    out.

    If there are more than ``most`` groups, the slowest, the fastest and evenly spaced ones between them stay.
    """
    columns = [run.finish_ns, run.finished.astype(np.int64), run.exposed_ns, *run.account.values()]
    _, first, inverse, counts = np.unique(
        np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    inverse = inverse.reshape(-1)
    chosen = np.arange(len(first))
    if len(first) > most:
        by_finish = np.argsort(run.finish_ns[first], kind="stable")
        chosen = by_finish[distinct(np.linspace(0, len(first) - 1, most).round().astype(int))]
    chosen = chosen[np.argsort(first[chosen], kind="stable")]
    members = np.argsort(inverse, kind="stable")
    begins = np.cumsum(counts) - counts
    stages = run.stages
    groups = []
    for group in chosen.tolist():
        who = members[begins[group] : begins[group] + counts[group]]
        at = int(first[group])
        parts = {key: int(run.account[key][at]) for key, _ in ACCOUNT_PARTS if key in run.account}
        groups.append(
            NpuGroup(
                _label(who),
                int(counts[group]),
                int(run.finish_ns[at]),
                int(run.exposed_ns[at]),
                parts,
                _stage([stages[npu] for npu in who.tolist()] if stages else []),
                bool(run.finished[at]),
            )
        )
    return groups, run.npus - sum(group.count for group in groups)


def _label(members: I64) -> str:
    """``0-3, 8``; of many ranges the first, as many as stand beside a bar.

    >>> _label(np.array([0, 1, 2, 3, 8]))
    'NPU 0-3, 8'
    """
    ranges = range_words(members.tolist())
    words = ranges[:3]
    room = _LABEL - len(f" ({count_text(len(members))})")
    if len(ranges) == len(words) and len(", ".join(words)) <= room:
        return "NPU " + ", ".join(words)
    while len(words) > 1 and len(", ".join(words)) > room - len(", …"):
        words.pop()
    return "NPU " + ", ".join([*words, "…"])


def _stage(stages: Sequence[str | None]) -> str:
    """The stages of a group in words, the first two of many; empty where any is not told.

    >>> _stage(["0", "1", "0"]), _stage(["0", "1", "2"]), _stage(["0", None])
    ('stages 0, 1', 'stages 0, 1, …', '')
    """
    told = list(dict.fromkeys(stages))
    if not told or None in told:
        return ""
    more = ["…"] if len(told) > 2 else []
    return f"{nouns(len(told), 'stage')} " + ", ".join([*map(str, told[:2]), *more])
