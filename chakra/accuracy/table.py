"""Tables of measured training steps: one row a measurement, in the columns that all tables share."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from chakra.errors import ConfigError
from chakra.io.files import read_bytes

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
        Everything else: recomputation, types of gradients.
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


COLUMNS = tuple(item.name for item in fields(Measured))
#: columns without which no row can be read
NEEDED = ("hardware", "workload_model", "parallelism", "metric", "value", "unit")


def read_table(path: str | Path) -> list[Measured]:
    """Rows of a CSV file in the shared columns; other columns are left out, missing ones are empty.

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


def _rows(text: str, where: str) -> Iterator[Measured]:
    reader = csv.reader(io.StringIO(text))
    header = next(reader, [])
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise ConfigError(f"{where}: no column {', '.join(missing)}; a table of measured steps has {', '.join(COLUMNS)}")
    try:
        for number, cells in enumerate(reader, start=2):
            if number > MAX_ROWS:
                raise ConfigError(f"{where}: more than {MAX_ROWS} rows")
            if not any(cells):
                continue
            if len(cells) > len(header):
                raise ConfigError(f"{where}: row {number} has {len(cells)} cells, the header has {len(header)}")
            row = dict(zip(header, cells, strict=False))
            yield Measured(**{name: row.get(name, "").strip() for name in COLUMNS})
    except csv.Error as error:
        raise ConfigError(f"{where}: {error}") from None


def table_text(rows: Iterable[Measured]) -> str:
    """Rows as the text of a CSV file."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([getattr(row, name) for name in COLUMNS] for row in rows)
    return out.getvalue()
