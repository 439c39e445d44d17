"""Measured times of NCCL that the package aiconfigurator-core carries (`chakra.replay.config.silicon`).

Its tables have a row for each operation, number of GPUs, element type and number of elements, with a latency in ms; sizes
are nccl-tests' (what an all-gather ends with).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from chakra.errors import ConversionError
from chakra.replay.collectives.measured.log_rows import kind_of
from chakra.replay.collectives.measured.nccl_log import Measurement
from chakra.replay.config import silicon
from chakra.replay.config.parquet import parquet_rows

COLUMNS = frozenset(("op_name", "num_gpus", "message_size", "latency", "nccl_dtype"))
_BYTES = {"int8": 1, "half": 2, "bfloat16": 2, "float": 4}


def tables(name: str, machine: str) -> tuple[list[Measurement], str]:
    """Measurements of the newest NCCL that the package has for a machine, and how results call them.

    Raises
    ------
    UsageError
        The package is not installed, or has no such machine.
    """
    wanted = silicon.asked(name, machine)
    path = silicon.newest("comm", "nccl_perf.parquet", "NCCL table", wanted)["nccl"]
    rows = measurements(parquet_rows(path), f"{wanted.system}/{path.name}")
    return rows, silicon.called(f"{wanted.system}, NCCL {path.parts[-2]}")


def measurements(rows: Iterable[Mapping[str, Any]], where: str) -> list[Measurement]:
    """Measurements of the rows of a table: of 16-bit elements, where it has them.

    Raises
    ------
    ConversionError
        Rows that are none of these tables.
    """
    made: dict[str, list[Measurement]] = {}
    for number, row in enumerate(rows, start=1):
        known, kind = kind_of(str(row.get("op_name")))
        width = _BYTES.get(str(row.get("nccl_dtype")))
        try:
            ranks, size, time = int(row["num_gpus"]), int(row["message_size"]), 1e3 * float(row["latency"])
        except (KeyError, TypeError, ValueError):
            raise ConversionError(
                f"{where}: row {number} lacks a number of GPUs, a size or a latency"
            ) from None
        if not known or kind is None or width is None or ranks < 2:
            continue
        one = Measurement(kind, ranks, size * width, time, f"{where}: row {number}")
        made.setdefault(str(row["nccl_dtype"]), []).append(one)
    if not made:
        raise ConversionError(f"{where}: no times of collectives")
    return made.get("half") or next(iter(made.values()))
