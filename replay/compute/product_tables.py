"""Tables of measured matrix products: those of aiconfigurator-core, and files of the same columns.

Columns are m, n and k, an element type and a time: ``gemm_dtype`` and ``latency`` in ms, as that package has them, or
``type`` (bf16 where it is left out) and ``time_us``.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from chakra.arrays import F64, I64
from chakra.errors import ChakraError, ConfigError, ConversionError, UsageError
from chakra.io.digits import decimal_number, whole_number
from chakra.io.nearest import nearest
from chakra.io.text import cells_by_line
from chakra.replay.compute.measured_products import Grid, MeasuredProducts, grid_of
from chakra.replay.config import silicon
from chakra.replay.config.parquet import parquet_columns, parquet_names

SIZES = ("m", "n", "k")
#: columns of type and time, and what makes us of its times: the package's, and a file's own
_THEIRS, _OURS = ("gemm_dtype", "latency", 1e3), ("type", "time_us", 1.0)
#: the package's name of an element type that has another one here
_THEIR_WORDS = {"bf16": "bfloat16", "fp16": "float16"}
_DEFAULT = "bf16"
#: back ends whose products count where none is asked for, first one first
PREFERRED = ("trtllm", "vllm", "sglang")
_BACKENDS = {"trtllm": "TensorRT-LLM", "vllm": "vLLM", "sglang": "SGLang"}
_CSV, _PARQUET = ".csv", ".parquet"
#: sizes of a table are below
_MOST_SIZE = 1 << 53


@dataclass(frozen=True, slots=True)
class FileOfProducts:
    """A table in a file, of which a type is read when it is first asked for.

    Attributes
    ----------
    name
        What results call it.
    path
        The file.
    asked
        Who asks for it, for messages.
    """

    name: str
    path: str
    asked: str

    def grid(self, element: str) -> Grid | None:
        """Products of an element type; None: it has none.

        Raises
        ------
        ConfigError
            A file that cannot be read, or a row that is no product.
        """
        stat = Path(self.path).stat()
        try:
            return _grid(self.path, element, (stat.st_mtime_ns, stat.st_size))
        except ChakraError as exc:
            raise ConfigError(f"{self.asked}: {exc}") from None


def has_products(name: str) -> bool:
    """Whether a name of measured times means matrix products: the package, or a file that has their columns.

    Raises
    ------
    ConversionError, UsageError
        A parquet file that cannot be read.
    """
    return silicon.named(name) or set(SIZES) <= _columns(name)


def read_products(names: tuple[str, ...], machine: str, asked: str) -> MeasuredProducts:
    """Measured products that a system file or an option names.

    Parameters
    ----------
    names
        Files, and ``aiconfigurator``, the tables of that package for the machine, ``aiconfigurator:SYSTEM``, or either
        with ``/BACKEND`` behind it.
    machine
        Name of the machine, which says which of the package's systems it is.
    asked
        Who asks, for messages.

    Raises
    ------
    ConfigError
        A file that cannot be read or has no products, or a package that is not installed or lacks the machine.
    """
    tables = []
    for name in names:
        try:
            tables.append(_table(name, machine, asked))
        except ChakraError as exc:
            raise ConfigError(f"{asked}: {exc}") from None
    return MeasuredProducts(tuple(tables))


def _table(name: str, machine: str, asked: str) -> FileOfProducts:
    if not silicon.named(name):
        if not Path(name).is_file():
            raise ConversionError(f"{name}: there is no such file")
        if not has_products(name):
            raise ConversionError(f"{name}: no matrix products: columns {', '.join(SIZES)} are needed")
        _layout(_columns(name), name)
        if name.endswith(_CSV) and not cells_by_line(name)[1:]:
            raise ConversionError(f"{name}: no products below the names of columns")
        return FileOfProducts(Path(name).name, name, asked)
    wanted = silicon.asked(name, machine)
    found = silicon.newest("gemm", "gemm_perf.parquet", "table of matrix products", wanted)
    backend = wanted.backend or next((one for one in PREFERRED if one in found), next(iter(found)))
    if backend not in found:
        raise UsageError(
            f"{silicon.NAME}: no matrix products of {backend!r} on {wanted.system}{nearest(backend, sorted(found))}; "
            f"there are those of {', '.join(sorted(found))}"
        )
    path = found[backend]
    who = f"{_BACKENDS.get(backend, backend)} {path.parts[-2]}"
    return FileOfProducts(silicon.called(f"{wanted.system}, {who}"), str(path), asked)


def _columns(name: str) -> frozenset[str]:
    """Names of a file's columns; none for what is no table."""
    if name.endswith(_PARQUET):
        return parquet_names(name)
    if name.endswith(_CSV) and Path(name).is_file():
        return frozenset(next(iter(cells_by_line(name)), (0, []))[1])
    return frozenset()


def _layout(columns: frozenset[str], path: str) -> tuple[str, str, float]:
    """Columns of type and time, and the factor that makes us of the time."""
    for layout in (_THEIRS, _OURS):
        if layout[1] in columns:
            return layout
    raise ConversionError(
        f"{path}: no times of matrix products: a column time_us, or latency in ms, is needed"
    )


#: no product takes longer, us: eleven days
_MOST_US = 1e12


@lru_cache(maxsize=32)
def _grid(path: str, element: str, version: tuple[int, int]) -> Grid | None:
    """Products of one type in a file; `version` differs where the file was written anew."""
    columns = _columns(path)
    type_, time, factor = _layout(columns, path)
    word = _THEIR_WORDS.get(element, element) if type_ == _THEIRS[0] else element
    if type_ not in columns and element != _DEFAULT:
        return None
    only = (type_, word) if type_ in columns else None
    read = _parquet if path.endswith(_PARQUET) else _csv
    sizes, times = read(path, time, only)
    if not len(times):
        return None
    wrong = np.flatnonzero(~((sizes >= 1).all(axis=0) & (times > 0) & (times * factor < _MOST_US)))
    if len(wrong):
        size, time_us = sizes[:, wrong[0]].tolist(), factor * float(times[wrong[0]])
        raise ConversionError(
            f"{path}: {' x '.join(map(str, size))} in {time_us:g} us is no measured product: sizes must be at least 1 "
            f"and times above 0 and below {_MOST_US:g} us"
        )
    return grid_of(sizes, times * factor)


def _parquet(path: str, time: str, only: tuple[str, str] | None) -> tuple[I64, F64]:
    """Sizes (3, rows) and times as they stand in a parquet file."""
    found = parquet_columns(path, (*SIZES, time), only)
    sizes = np.stack([found[name].astype(np.float64) for name in SIZES])
    if not (np.abs(sizes) < _MOST_SIZE).all() or (sizes % 1 != 0).any():
        raise ConversionError(f"{path}: m, n and k must be whole numbers")
    return sizes.astype(np.int64), found[time].astype(np.float64)


def _csv(path: str, time: str, only: tuple[str, str] | None) -> tuple[I64, F64]:
    """Sizes (3, rows) and times as they stand in a CSV file."""
    (_, heading), *lines = cells_by_line(path)
    rows: list[list[int]] = []
    times: list[float] = []
    for number, cells in lines:
        row = dict(zip(heading, cells, strict=False))
        if only is not None and row.get(only[0]) != only[1]:
            continue
        try:
            rows.append([whole_number(row.get(name, "")) for name in SIZES])
            times.append(decimal_number(row.get(time, "")))
        except ValueError:
            raise ConversionError(
                f"{path}: line {number}: m, n and k must be whole numbers and {time} a number, not "
                f"{' '.join(cells)[:60]!r}"
            ) from None
    return np.array(rows, np.int64).reshape(-1, len(SIZES)).T, np.array(times, np.float64)
