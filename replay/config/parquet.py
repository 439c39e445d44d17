"""Parquet tables of measured times, for which pyarrow is needed."""

import csv
import io
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from chakra.arrays import AnyArray
from chakra.errors import ConversionError, UsageError

_T = TypeVar("_T")
_Path = str | os.PathLike[str]


def parquet_rows(path: _Path) -> list[dict[str, Any]]:
    """Rows of a table as maps.

    Raises
    ------
    ConversionError
        A file that cannot be read, or is no parquet.
    UsageError
        pyarrow is not installed.
    """
    return _read(path, lambda parquet: parquet.ParquetFile(path).read(use_threads=False).to_pylist())


def parquet_names(path: _Path) -> frozenset[str]:
    """Names of a table's columns; no row is read.

    Raises
    ------
    ConversionError, UsageError
        As :func:`parquet_rows`.
    """
    return _read(path, lambda parquet: frozenset(parquet.read_schema(path).names))


def parquet_columns(
    path: _Path, columns: Sequence[str], only: tuple[str, str] | None = None
) -> dict[str, AnyArray]:
    """Some columns of numbers as arrays, of the rows whose column ``only[0]`` holds the text ``only[1]``.

    Columns and masks go by way of buffers: pyarrow's own filters and conversions import pandas wherever it is installed,
    which takes longer than all of the reading.

    Raises
    ------
    ConversionError, UsageError
        As :func:`parquet_rows`; also a column of another type, or a row that lacks a number.
    """
    text = None if only is None else only[0]

    def read(parquet: ModuleType) -> dict[str, AnyArray]:
        file = parquet.ParquetFile(path, read_dictionary=None if text is None else [text])
        table = file.read(columns=[*columns, *([] if text is None else [text])], use_threads=False)
        found = {name: _numbers(table[name], f"{path}: {name}") for name in columns}
        if only is None:
            return found
        told = table[only[0]].combine_chunks()
        if told.null_count or not hasattr(told, "dictionary"):
            raise ConversionError(f"{path}: {only[0]} must be a column of texts, with one in every row")
        words = told.dictionary.to_pylist()
        if only[1] not in words:
            return {name: values[:0] for name, values in found.items()}
        rows = np.from_dlpack(told.indices) == words.index(only[1])
        return {name: values[rows] for name, values in found.items()}

    return _read(path, read)


def _numbers(column: Any, where: str) -> AnyArray:
    """A column of numbers without gaps."""
    if column.null_count or not any(word in str(column.type) for word in ("int", "float", "double")):
        raise ConversionError(f"{where} must be a column of numbers, with one in every row")
    values: AnyArray = np.from_dlpack(column.combine_chunks())
    return values


def _read(path: _Path, read: Callable[[ModuleType], _T]) -> _T:
    """What `read` makes of a file with pyarrow's module for parquet."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(f"{path}: parquet needs pyarrow: pip install 'chakra-replay[parquet]'") from None
    try:
        return read(pyarrow.parquet)
    except OSError as exc:
        raise ConversionError(f"{path}: {exc.strerror or 'cannot be read as parquet'}") from None
    except pyarrow.ArrowException:
        raise ConversionError(f"{path}: this is no parquet table") from None


def parquet_text(rows: list[dict[str, Any]]) -> str:
    """The same table as CSV, whose rows are held against themselves."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["size", "time"])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
