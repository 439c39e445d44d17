"""The result document of a replay, read defensively: what is absent is left out of the report, what is wrong
is named."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from chakra.arguments import checked
from chakra.arrays import I64, Bool
from chakra.errors import UsageError
from chakra.et.families import FAMILIES
from chakra.io import files
from chakra.io.files import PathLike
from chakra.io.rank_files import expect_run
from chakra.io.readable import counted
from chakra.replay.results.formatting import WAITS_INSIDE
from chakra.timeline.document import stages_told
from chakra.timeline.lenient import number

SCHEMA: Final = "chakra.replay.result/1"

#: Parts of the time account in drawing order: key, legend.
ACCOUNT_PARTS: Final = (
    ("compute_ns", "compute"),
    ("cpu_ns", "CPU"),
    ("transfer_ns", "transfer"),
    ("waiting_ns", "waiting for peers"),
    ("memory_ns", "memory"),
    ("idle_ns", "idle"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run to report on.

    Attributes
    ----------
    name
        What the run is called in headings and tables.
    document
        The result document.
    finish_ns, exposed_ns
        (npus,) int64.
    account
        Part -> (npus,) int64, the parts of ``ACCOUNT_PARTS`` that the document has.
    """

    name: str
    document: Mapping[str, object]
    finish_ns: I64
    exposed_ns: I64
    account: dict[str, I64] = field(default_factory=dict)

    @property
    def npus(self) -> int:
        """Number of NPUs."""
        return len(self.finish_ns)

    @property
    def end_ns(self) -> int:
        """Finish of the last NPU."""
        return int(self.finish_ns.max(initial=0))

    @property
    def finished(self) -> Bool:
        """(npus,) whether an NPU has finished; not all have in runs that were ended early."""
        stated = self.document.get("finish_ns")
        ends = stated if isinstance(stated, list) else []
        return np.array([type(end) is int and end >= 0 for end in ends], np.bool_)

    @property
    def waits_in_transfer(self) -> bool:
        """Whether the transfer of the account holds waits for peers, which recorded times do not tell apart."""
        return self.document.get("waits_in_transfer") is True

    @property
    def interval_ns(self) -> tuple[int, int] | None:
        """Ends of the interval in which the step would be measured; None where the document states none, or no times."""
        stated = self.document.get("interval")
        if not isinstance(stated, Mapping):
            return None
        low, high = (int(number(stated.get(end), -1)) for end in ("low_ns", "high_ns"))
        return (low, high) if 0 <= low <= high else None

    @property
    def stages(self) -> list[str | None]:
        """Pipeline stage of each NPU, None where it is not told; empty where the document tells none."""
        return stages_told(self.document, self.npus)

    @property
    def npus_with_nodes(self) -> int:
        """NPUs whose nodes the document holds, or that are like one of these."""
        return min(sum(map(stood_for, self.table("nodes"))), self.npus)

    @checked
    def table(self, key: str) -> list[Mapping[str, object]]:
        """A list of objects of the document; empty if it has none."""
        value = self.document.get(key)
        return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def part_words(runs: Sequence[Run]) -> dict[str, str]:
    """What the parts of the account are called for some runs: where one does not tell transfer from waits, both."""
    inside = any(run.waits_in_transfer for run in runs)
    return dict(ACCOUNT_PARTS) | ({"transfer_ns": WAITS_INSIDE} if inside else {})


def designs(runs: Sequence[Run]) -> list[str]:
    """Names of runs of a study by the parameters in which they differ; none where these do not tell all runs apart."""
    stated = [run.document.get("design") for run in runs]
    known = [
        {str(key): text for key, text in one.items() if isinstance(text, str)}
        for one in stated
        if isinstance(one, Mapping)
    ]
    if len(known) < len(runs):
        return []
    keys = list(dict.fromkeys(key for one in known for key in one))
    differ = [key for key in keys if len({one.get(key) for one in known}) > 1] or keys
    names = [", ".join(f"{key} {one.get(key, 'none')}" for key in differ) for one in known]
    return names if all(names) and len(set(names)) == len(names) else []


def stood_for(entry: Mapping[str, object]) -> int:
    """How many NPUs that did the same at the same times an entry of nodes stands for, itself included."""
    return max(int(number(entry.get("alike"), 1)), 1)


def computed_of(run: Run, entry: Mapping[str, object]) -> list[str]:
    """What each node of an NPU's entry computes, empty where it does not say; an empty list where none does."""
    texts, places = run.document.get("operators"), entry.get("operators")
    if not isinstance(texts, list) or not isinstance(places, list):
        return []
    return [str(texts[place]) if type(place) is int and 0 <= place < len(texts) else "" for place in places]


def _shares(told: object) -> dict[str, float]:
    """Shares by family, adding up to 1; empty where they are none."""
    if not isinstance(told, Mapping):
        return {}
    found = {str(family): number(share) for family, share in told.items()}
    if not set(found) <= set(FAMILIES) or not all(0 <= share <= 1 for share in found.values()):
        return {}
    whole = sum(found.values())
    return {family: share / whole for family, share in found.items() if share} if whole else {}


def shares_of(run: Run, entry: Mapping[str, object]) -> list[Mapping[str, float]]:
    """Per node of an NPU's entry the share of its time by family of kernels, where it computes several; empty else.

    An empty list where no node does, or the document does not tell shares.
    """
    told, places = run.document.get("operator_shares"), entry.get("operators")
    if not isinstance(told, list) or not isinstance(places, list):
        return []
    shares = [_shares(one) for one in told]
    return [shares[place] if type(place) is int and 0 <= place < len(shares) else {} for place in places]


@checked
def read_run(path: PathLike, name: str | None = None) -> Run:
    """Read a result document.

    Parameters
    ----------
    path
        Result document, ``chakra.replay.result/1``.
    name
        What the run is called; by default the file's name.

    Raises
    ------
    UsageError
        If the file is none, or its lists do not fit together.
    """
    expect_run(path)
    if os.path.isdir(path):
        if os.path.exists(os.path.join(path, "study.html")):
            raise UsageError(
                f"{path}: is the folder of a study; its page is {os.path.join(path, 'study.html')}, and best.json the "
                "result of its best design"
            )
        raise UsageError(
            f"{path}: is a folder; a report is made from what `chakra replay --format json` prints"
        )
    kind = files.sniff_kind(path, error=UsageError)
    if kind not in (files.RESULT, files.JSON):
        article = "an" if kind[0] in "aeiou" else "a"
        raise UsageError(
            f"{path}: this is {article} {kind}; a report is made from what `chakra replay --format json` prints"
        )
    document = files.read_json(path, error=UsageError)
    return replace(run_of(document, str(path)), name=name or str(path))


@checked
def run_of(document: object, name: str) -> Run:
    """Check a result document.

    Parameters
    ----------
    document
        What ``ReplayResult.to_dict`` gives.
    name
        What the run is called.

    Raises
    ------
    UsageError
        If it is none, or its lists do not fit together.
    """
    if not isinstance(document, Mapping) or "finish_ns" not in document:
        raise UsageError(f"{name}: no result of a replay; `chakra replay --format json` prints one")
    schema = document.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise UsageError(f"{name}: schema {schema!r} is not one this version reads ({SCHEMA})")
    finish = _integers(document["finish_ns"], name, "finish_ns", None)
    if not len(finish):
        raise UsageError(f"{name}: finish_ns is empty")
    n = len(finish)
    exposed = _integers(document.get("exposed_comm_ns", [0] * n), name, "exposed_comm_ns", n)
    given = document.get("account")
    account = {}
    if isinstance(given, Mapping):
        for key, _ in ACCOUNT_PARTS:
            if key in given:
                account[key] = _integers(given[key], name, f"account.{key}", n)
    return Run(name, document, finish, exposed, account)


def _integers(value: object, name: str, key: str, length: int | None) -> I64:
    if not isinstance(value, list) or not all(type(item) is int or item is None for item in value):
        raise UsageError(f"{name}: {key} is no list of integers")
    if length is not None and len(value) != length:
        raise UsageError(f"{name}: {key} has {counted(len(value), 'entry')}, finish_ns has {length}")
    if any(item is not None and abs(item) >= 2**63 for item in value):
        raise UsageError(f"{name}: {key} holds a number of more than 64 bits")
    # NPUs that never finished have null (or -1): shown as no time at all.
    return np.array([max(item, 0) if item is not None else 0 for item in value], np.int64)
