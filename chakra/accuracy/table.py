"""Tables of measured training steps: one row a measurement, in the columns that all tables share."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path

from chakra.arguments import checked
from chakra.errors import ConfigError
from chakra.io.files import read_bytes
from chakra.io.nearest import nearest
from chakra.io.readable import counted

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
        Everything else: recomputation, types of gradients.
    tuned
        ``1`` for rows that constants were tuned on.
    framework
        Name of a framework's profile; where it is empty, source, parallelism and notes are looked at.
    where
        File and line that the row stands at.
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
    framework: str = ""
    where: str = field(default="", compare=False)


COLUMNS = tuple(item.name for item in fields(Measured) if item.name != "where")
#: what other tables call a column of these
OTHER_NAMES = {
    "accelerator": "hardware", "gpu": "hardware", "gpu_type": "hardware", "machine": "hardware", "platform": "hardware",
    "model": "workload_model", "num_nodes": "nodes", "gpus": "gpus_per_node", "layout": "parallelism",
    "seq": "sequence", "seq_len": "sequence", "sequence_length": "sequence", "mbs": "micro_batch",
    "micro_batch_size": "micro_batch", "gbs": "global_batch", "batch": "global_batch",
    "global_batch_size": "global_batch", "dtype": "precision", "quantity": "metric", "measured": "value",
    "units": "unit", "fabric": "network",
}  # fmt: skip
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
        A file that cannot be read, one without the columns that every row needs, or with one of them under another name.
    """
    return read_whole_table(path)[0]


def read_whole_table(path: str | Path) -> tuple[list[Measured], list[str]]:
    """Rows of a CSV file, and the columns of it that no rule reads, each with the column that it may stand for."""
    text = read_bytes(Path(path), error=ConfigError).decode("utf-8-sig", "replace")
    rows = list(_rows(text, str(path)))
    shared, header, _ = _parts(text)
    others = [name for name in (*shared, *header) if name and name not in COLUMNS]
    return rows, [f"{name!r}{nearest(name, COLUMNS)}" for name in others]


def measured_rows() -> list[Measured]:
    """Rows that ship with the package, table by table."""
    folder = resources.files("chakra").joinpath("accuracy/measured")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".csv"))
    return [row for name in names for row in _rows(folder.joinpath(name).read_text(encoding="utf-8"), name)]


def _parts(text: str) -> tuple[dict[str, str], list[str], Iterator[tuple[int, list[str]]]]:
    """Columns that are the same in all rows, the header, and the rows with the line on which each ends."""
    shared = dict(_SHARED.findall(text))
    # lines stay where they are
    reader = csv.reader(io.StringIO(_SHARED.sub("\n", text)))
    header = next((cells for cells in reader if cells), [])
    return shared, [name.strip() for name in header], ((reader.line_num, cells) for cells in reader)


def _rows(text: str, where: str) -> Iterator[Measured]:
    try:
        shared, header, cells_of_lines = _parts(text)
        for name in (*shared, *header):
            if name not in COLUMNS and (column := OTHER_NAMES.get(name.lower())):
                raise ConfigError(
                    f"{where}: column {name!r} is called {column!r} in a table of measured steps"
                )
        missing = [name for name in NEEDED if name not in header and name not in shared]
        if missing:
            raise ConfigError(
                f"{where}: no column {', '.join(missing)}; a table of measured steps has {', '.join(COLUMNS)}"
            )
        twice = sorted({name for name in header if name and (header.count(name) > 1 or name in shared)})
        if twice:
            raise ConfigError(f"{where}: column {twice[0]!r} is given twice")
        for number, (line, cells) in enumerate(cells_of_lines):
            if number >= MAX_ROWS:
                raise ConfigError(f"{where}: more than {MAX_ROWS} rows")
            if not any(cells):
                continue
            if len(cells) > len(header):
                raise ConfigError(
                    f"{where}: line {line} has {counted(len(cells), 'cell')}, the header has {len(header)}"
                )
            row = {**shared, **dict(zip(header, cells, strict=False))}
            values = {name: row.get(name, "").strip() for name in COLUMNS}
            yield Measured(**values, where=f"{where}, line {line}")
    except csv.Error as error:
        raise ConfigError(f"{where}: {error}") from None
