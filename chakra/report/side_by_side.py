"""Several runs beside each other: the inputs that differ, and the times of collectives and the use of dimensions."""

from collections.abc import Sequence
from dataclasses import dataclass

from chakra.io.readable import count_text, duration_text, percent_text, printable, signed_duration_text
from chakra.replay.results.formatting import takes_recorded_times
from chakra.report.document import Run
from chakra.report.tables import Table, inputs, taken_by, text_of
from chakra.timeline.lenient import number


@dataclass(frozen=True, slots=True)
class Dimension:
    """A network dimension of a run: what it is, the bytes that an NPU sends on it, and the share of its bandwidth; None
    where recorded times do not tell them."""

    topology: str
    bytes_per_npu: int | None
    share: float | None


def differing_inputs(runs: Sequence[Run]) -> list[tuple[str, tuple[str, ...]]]:
    """Inputs that are not the same in all runs, by dotted key; an empty text where a run has none.

    Parameters
    ----------
    runs
        The runs.
    """
    flat = [dict(inputs(run)) for run in runs]
    keys = dict.fromkeys(key for known in flat for key in known)
    rows = [(key, tuple(known.get(key, "") for known in flat)) for key in keys]
    return [row for row in rows if len({*row[1]}) > 1]


def collective_times(runs: Sequence[Run]) -> list[tuple[str, tuple[int | None, ...]]]:
    """Time of all collectives of a kind in every run, ns, each from its first member's start.

    0 where a run has none of them, None where it does not tell: its communication took recorded times.

    Parameters
    ----------
    runs
        The runs.
    """
    totals: list[dict[str, int] | None] = []
    for run in runs:
        if takes_recorded_times(run.document):
            totals.append(None)
            continue
        sums: dict[str, int] = {}
        for row in run.table("collectives"):
            kind = text_of(row.get("kind"))
            sums[kind] = sums.get(kind, 0) + taken_by(row).total_ns
        totals.append(sums)
    kinds = sorted({kind for sums in totals for kind in sums or ()})
    return [(kind, tuple(None if sums is None else sums.get(kind, 0) for sums in totals)) for kind in kinds]


def dimension_use(runs: Sequence[Run]) -> list[tuple[str, tuple[Dimension | None, ...]]]:
    """Network dimensions by number, what each run has there; None where it has no such dimension.

    Parameters
    ----------
    runs
        The runs.
    """
    known = []
    for run in runs:
        recorded = takes_recorded_times(run.document)
        known.append(
            {
                text_of(row.get("dim")): Dimension(
                    text_of(row.get("topology")),
                    None if recorded else int(number(row.get("bytes_per_npu"))),
                    None if recorded else number(row.get("utilisation")),
                )
                for row in run.table("dimensions")
            }
        )
    dims = dict.fromkeys(dim for found in known for dim in found)
    return [(dim, tuple(found.get(dim) for found in known)) for dim in dims]


def inputs_table(runs: Sequence[Run], names: Sequence[str]) -> Table:
    """`differing_inputs` as a table, a column a run.

    Parameters
    ----------
    runs
        The runs.
    names
        What each is called.
    """
    rows = [(key, *values) for key, values in differing_inputs(runs)]
    return Table(("input", *map(printable, names)), rows, 0, len(runs) + 1)


def collectives_table(runs: Sequence[Run], names: Sequence[str]) -> Table:
    """`collective_times` as a table: a column a run, and one a run for what it takes longer than the first.

    Parameters
    ----------
    runs
        The runs.
    names
        What each is called.
    """
    first, *others = map(printable, names)
    rows = [
        (
            kind,
            *("-" if time is None else duration_text(time) for time in times),
            *(
                "-" if time is None or times[0] is None else signed_duration_text(time - times[0])
                for time in times[1:]
            ),
        )
        for kind, times in collective_times(runs)
    ]
    columns = ("collective, sum over groups", first, *others, *(f"{other} - {first}" for other in others))
    return Table(columns, rows)


def dimensions_table(runs: Sequence[Run], names: Sequence[str]) -> Table:
    """`dimension_use` as a table: of each run the topology, the bytes that an NPU sends, and the share of the bandwidth.

    Parameters
    ----------
    runs
        The runs.
    names
        What each is called.
    """
    rows = [
        (
            dim,
            *("" if use is None else _busy(use) for use in uses),
            *("" if use is None else _carried(use) for use in uses),
            *("" if use is None else use.topology for use in uses),
        )
        for dim, uses in dimension_use(runs)
    ]
    called = [printable(name) for name in names]
    columns = (
        "dim",
        *(f"{name}: busy" for name in called),
        *(f"{name}: bytes per NPU" for name in called),
        *(f"{name}: topology" for name in called),
    )
    return Table(columns, rows, 0, 1, 2 * len(called))


def _busy(use: Dimension) -> str:
    return "-" if use.share is None else percent_text(use.share)


def _carried(use: Dimension) -> str:
    return "-" if use.bytes_per_npu is None else count_text(use.bytes_per_npu)
