"""Measured times of NCCL that the package aiconfigurator-core carries (the extra ``silicon``), read where it lies.

Its tables have a row for each operation, number of GPUs, element type and number of elements, with a latency in ms; sizes
are nccl-tests' (what an all-gather ends with).
"""

import importlib.util
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from chakra.errors import ConversionError, UsageError
from chakra.io.nearest import nearest
from chakra.replay.collectives.measured.log_rows import kind_of
from chakra.replay.collectives.measured.nccl_log import Measurement
from chakra.replay.collectives.measured.parquet import parquet_rows

NAME = "aiconfigurator"
COLUMNS = frozenset(("op_name", "num_gpus", "message_size", "latency", "nccl_dtype"))
_PACKAGE, _DISTRIBUTION = "aiconfigurator_core", "aiconfigurator-core"
_BYTES = {"int8": 1, "half": 2, "bfloat16": 2, "float": 4}
#: presets and the package's names of the same machines
_SYSTEMS = {
    "dgx-a100": "a100_sxm", "hgx-h100": "h100_sxm", "hgx-h200": "h200_sxm", "hgx-b200": "b200_sxm",
    "hgx-b300": "b300_sxm", "gb200-nvl72": "gb200", "gb300-nvl72": "gb300", "l40s": "l40s",
    "rtx-pro-6000": "rtx_pro_6000_server",
}  # fmt: skip


def named(name: str) -> bool:
    """Whether a name means the package's tables, not a file."""
    return name.partition(":")[0] == NAME


def tables(name: str, machine: str) -> tuple[list[Measurement], str]:
    """Measurements of the newest NCCL that the package has for a machine, and how results call them.

    Raises
    ------
    UsageError
        The package is not installed, or has no such machine.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"{NAME}: {_DISTRIBUTION} is not installed: pip install 'chakra-replay[silicon]'")
    data = Path(next(iter(spec.submodule_search_locations))) / "systems" / "data"
    system = name.partition(":")[2] or _SYSTEMS.get(machine, "")
    found = {
        path.parts[-5]: path for path in sorted(data.glob("*/comm/nccl/*/nccl_perf.parquet"), key=_version)
    }
    if system not in found:
        called = system or machine
        raise UsageError(
            f"{NAME}: no NCCL table for {called!r}{nearest(called, sorted(found))}; say which with {NAME}:SYSTEM, one of "
            f"{', '.join(sorted(found)) or 'none'}"
        )
    path = found[system]
    try:
        release = f" {metadata.version(_DISTRIBUTION)}"
    except metadata.PackageNotFoundError:
        release = ""
    rows = measurements(parquet_rows(path), f"{system}/{path.name}")
    return rows, f"{_DISTRIBUTION}{release} ({system}, NCCL {path.parts[-2]})"


def _version(path: Path) -> tuple[int, ...]:
    """Of the folder that a table lies in."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", path.parts[-2]))


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
