"""Results of a study on disk: one small file per point, written whole; tables when asked.

``DIR/points/<key>.json`` holds a point's inputs and outcome, ``DIR/documents/<key>.json`` the whole result of one that
took long, until the study's pages are written. Points are named by the hash of their inputs, so a study
that is started again, or whose shards run on many machines with a shared folder, finds what is already there.
"""

import csv
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chakra.accuracy.interval import Job, job_from
from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.documents import document_text
from chakra.io.files import atomic_bytes, atomic_text, reason
from chakra.sweep.metrics import METRICS
from chakra.sweep.space import Point

#: what becomes of a point
STATUSES = ("ok", "infeasible", "failed")
#: what is kept of an outcome beside its document
_KEPT = ("status", "metrics", "reason", "idle", "job", "no_job", "remarks")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A point with what became of it; ``cached`` when it was found, not run.

    Attributes
    ----------
    key
        Hash of the inputs; name of the point's file.
    point
        Values of the parameters.
    status
        "ok", "infeasible" or "failed".
    metrics
        Metrics by name, in the unit of the name.
    reason
        Why there are no metrics.
    cached
        Whether it was found.
    idle
        Why values that were given may change nothing, by parameter; only a second point shows whether they do.
    job
        What an interval of its step depends on; None where no such step was measured.
    no_job
        Why none was; empty where none was asked for.
    remarks
        What a reader of the metrics should know: warnings and notes of the replay.
    """

    key: str
    point: Point
    status: str
    metrics: Mapping[str, float]
    reason: str = ""
    cached: bool = False
    idle: Mapping[str, str] = field(default_factory=dict)
    job: Job | None = None
    no_job: str = ""
    remarks: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether the point has metrics."""
        return self.status == "ok"


def _are_metrics(value: object) -> bool:
    """Whether a stored value holds finite numbers by metric."""
    return isinstance(value, dict) and all(
        name in METRICS
        and isinstance(number, int | float)
        and not isinstance(number, bool)
        and abs(number) < math.inf
        for name, number in value.items()
    )


class Store:
    """The folder of a study's results.

    Parameters
    ----------
    folder
        Made when the first point is stored.
    """

    @checked
    def __init__(self, folder: str | Path) -> None:
        self.folder: Path = Path(folder)
        self.points: Path = self.folder / "points"
        self.documents: Path = self.folder / "documents"

    def open(self) -> None:
        """Make the folder, so that a study stops before its first run where nothing can be kept.

        Raises
        ------
        UsageError
            It cannot be made.
        """
        try:
            self.points.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.folder}: cannot be written: {reason(error)}") from error

    @checked
    def find(self, key: str, point: Point) -> Outcome | None:
        """The outcome stored under this key; None if there is none or the file does not hold one."""
        try:
            document = json.loads((self.points / f"{key}.json").read_text(encoding="utf-8"))
            outcome = document["outcome"]
            status, metrics, why = outcome["status"], outcome.get("metrics", {}), outcome.get("reason", "")
            idle = {str(name): str(text) for name, text in outcome.get("idle", {}).items()}
            job = job_from(outcome.get("job"))
            no_job = str(outcome.get("no_job", ""))
            remarks = [str(text) for text in outcome.get("remarks", ())]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        if status not in STATUSES or not isinstance(why, str) or not _are_metrics(metrics):
            return None
        return Outcome(
            key, point, status, metrics, why, cached=True, idle=idle, job=job, no_job=no_job, remarks=remarks,
        )  # fmt: skip

    @checked
    def put(self, key: str, point: Point, merged: Mapping[str, Any], outcome: Mapping[str, Any]) -> Outcome:
        """Store an outcome under its key.

        Raises
        ------
        UsageError
            If it has no status, or cannot be written.
        """
        if not isinstance(outcome.get("status"), str):
            raise UsageError("outcome: it needs a 'status', as run_point gives it")
        kept = {name: outcome[name] for name in _KEPT if name in outcome}
        # a metric that is no finite number is none: JSON has no word for it
        metrics = {name: value for name, value in kept.get("metrics", {}).items() if math.isfinite(value)}
        document = {
            "format": "chakra.sweep.point/1",
            "point": point,
            "inputs": merged,
            "outcome": kept | ({"metrics": metrics} if "metrics" in kept else {}),
        }
        if "document" in outcome:
            self.documents.mkdir(exist_ok=True)
            with atomic_text(self.documents / f"{key}.json") as file:
                # the file's name is a hash: what tells the design from others stands inside
                design = {name: str(value) for name, value in point.items()}
                file.write(document_text({**outcome["document"], "design": design}))
        with atomic_text(self.points / f"{key}.json") as file:
            file.write(document_text(document, indent=1, default=str))
        return Outcome(
            key, point, outcome["status"], metrics, outcome.get("reason", ""), idle=outcome.get("idle", {}),
            job=job_from(outcome.get("job")), no_job=outcome.get("no_job", ""), remarks=outcome.get("remarks", ()),
        )  # fmt: skip

    @checked
    def document(self, key: str) -> dict[str, Any] | None:
        """The result document that is stored under this key; None if there is none."""
        try:
            document = json.loads((self.documents / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        # as a run that is made anew gives it: `put` adds the design
        return (
            {name: document[name] for name in document if name != "design"}
            if isinstance(document, dict)
            else None
        )

    @checked
    def drop_documents(self, *, but: Collection[str] = ()) -> None:
        """Remove the stored result documents, those of these keys left out."""
        for path in self.documents.glob("*.json"):
            if path.stem not in but:
                path.unlink(missing_ok=True)


@checked
def write_table(outcomes: Sequence[Outcome], folder: str | Path) -> Path:
    """Write ``results.parquet`` (with pyarrow) or ``results.csv``; one row a point, failures included.

    Columns: every parameter, ``status``, every metric (empty where a point has none), ``reason``, ``key``.

    Parameters
    ----------
    outcomes
        Outcomes, in the order of the rows.
    folder
        Where the file goes.
    """
    folder = Path(folder)
    names = list(dict.fromkeys(name for outcome in outcomes for name in outcome.point))
    metrics = [name for name in METRICS if any(name in outcome.metrics for outcome in outcomes)]
    rows = [
        {
            **{name: outcome.point.get(name) for name in names},
            "status": outcome.status,
            **{name: outcome.metrics.get(name) for name in metrics},
            "reason": outcome.reason,
            "key": outcome.key,
        }
        for outcome in outcomes
    ]
    header = [*names, "status", *metrics, "reason", "key"]
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return _write_csv(rows, header, folder / "results.csv")
    table = pyarrow.table({name: _column([row[name] for row in rows]) for name in header})
    path = folder / "results.parquet"
    with atomic_bytes(path) as target:
        pyarrow.parquet.write_table(table, target)
    return path


def _column(values: list[Any]) -> list[Any]:
    """Values of one kind; a mixed column becomes text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or (len(kinds) <= 1 and kinds != {list}):
        return [float(value) if kinds == {int, float} and value is not None else value for value in values]
    return [None if value is None else str(value) for value in values]


def _write_csv(rows: list[dict[str, Any]], header: list[str], path: Path) -> Path:
    with atomic_text(path) as file:
        writer = csv.DictWriter(file, header)
        writer.writeheader()
        writer.writerows(rows)
    return path
