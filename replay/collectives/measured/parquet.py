"""Parquet tables of measured times, for which pyarrow is needed."""

import csv
import io
import os
from typing import Any

from chakra.errors import ConversionError, UsageError


def parquet_rows(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Rows of a table as maps.

    Raises
    ------
    ConversionError
        A file that cannot be read, or is no parquet.
    UsageError
        pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(f"{path}: parquet needs pyarrow: pip install 'chakra-replay[parquet]'") from None
    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    except OSError as exc:
        raise ConversionError(f"{path}: {exc.strerror or 'cannot be read as parquet'}") from None
    except pyarrow.ArrowException:
        raise ConversionError(f"{path}: this is no parquet table") from None
    return rows


def parquet_text(rows: list[dict[str, Any]]) -> str:
    """The same table as CSV, whose rows are held against themselves."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["size", "time"])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
