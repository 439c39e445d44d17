"""Tables of measured training steps: one row a measurement, in the columns that all tables share."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path

from chakra.arguments import checked
from chakra.errors import ConfigError
from chakra.io.files import read_bytes

#: a column that is the same in all rows
_SHARED = re.compile(r"^# (\w+): (.*)\n", re.MULTILINE)
#: no table that a person wrote has more
MAX_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Measured:
    """One row as it stands in a table: texts, empty where the source prints nothing.

    Attributes
    ----------
    source, source_path_or_id
        Who measured it, and where it is printed.
    hardware, nodes, gpus_per_node, network
        The machine.
    workload_model
        Name of the model, perhaps with its sizes in parentheses: ``GPT (layers 24, hidden 1024, heads 16)``.
    parallelism
        Degrees and switches: ``tp8 pp4 dp2 vp2 sp``.
    sequence, micro_batch, global_batch
        Tokens a sequence; sequences a micro-batch and replica, and a step.
    precision
        Element type of the matrix products.
    metric, value, unit
        What was measured.
    notes
        Everything else: recomputation, types of gradients, ``framework=NAME``.
    tuned
        ``1`` for rows that constants were tuned on.
    """

    source: str = ""
    source_path_or_id: str = ""
    hardware: str = ""
    nodes: str = ""
    gpus_per_node: str = ""
    network: str = ""
    workload_model: str = ""
    parallelism: str = ""
    sequence: str = ""
    micro_batch: str = ""
    global_batch: str = ""
    precision: str = ""
    metric: str = ""
    value: str = ""
    unit: str = ""
    notes: str = ""
    tuned: str = ""


COLUMNS = tuple(item.name for item in fields(Measured))
#: columns without which no row can be read
NEEDED = ("hardware", "workload_model", "parallelism", "metric", "value", "unit")


@checked
def read_table(path: str | Path) -> list[Measured]:
    """Rows of a CSV file in the shared columns; other columns are left out, missing ones are empty.

    Lines ``# COLUMN: VALUE`` before the header give a column the same value in all rows.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    ConfigError
        A file that cannot be read, or one without the columns that every row needs.
    """
    text = read_bytes(Path(path), error=ConfigError).decode("utf-8-sig", "replace")
    return list(_rows(text, str(path)))


def measured_rows() -> list[Measured]:
    """Rows that ship with the package, table by table."""
    folder = resources.files("chakra").joinpath("accuracy/measured")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".csv"))
    return [row for name in names for row in _rows(folder.joinpath(name).read_text(encoding="utf-8"), name)]


def _rows(text: str, where: str) -> Iterator[Measured]:
    shared = dict(_SHARED.findall(text))
    text = _SHARED.sub("", text)
    reader = csv.reader(io.StringIO(text))
    header = next(reader, [])
    missing = [name for name in NEEDED if name not in header and name not in shared]
    if missing:
        raise ConfigError(
            f"{where}: no column {', '.join(missing)}; a table of measured steps has {', '.join(COLUMNS)}"
        )
    try:
        for number, cells in enumerate(reader, start=2):
            if number > MAX_ROWS:
                raise ConfigError(f"{where}: more than {MAX_ROWS} rows")
            if not any(cells):
                continue
            if len(cells) > len(header):
                raise ConfigError(
                    f"{where}: row {number} has {len(cells)} cells, the header has {len(header)}"
                )
            row = {**shared, **dict(zip(header, cells, strict=False))}
            yield Measured(**{name: row.get(name, "").strip() for name in COLUMNS})
    except csv.Error as error:
        raise ConfigError(f"{where}: {error}") from None
