"""Speed factors per NPU: stragglers and mixed machines (run option `npu_scale`)."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chakra.arrays import F64
from chakra.errors import ConfigError
from chakra.io.digits import decimal_number, whole_number
from chakra.io.files import unusable_json
from chakra.io.readable import counted
from chakra.io.shown import describe
from chakra.io.text import read_text
from chakra.replay.config.files import read_json
from chakra.replay.config.key import UnfitError
from chakra.replay.config.readers import Number

#: what a compute time is multiplied by
FACTOR = Number(above_zero=True, rule="must be a number above 0")

_LINE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?\s*[\s,:=]\s*(\S+)")


def load_npu_scale(src: str | os.PathLike[str] | Mapping[Any, Any] | Sequence[float] | F64, npus: int) -> F64:
    """Read the factor by which each NPU's compute times are multiplied (2 = half as fast); 1 where not given.

    Parameters
    ----------
    src
        a path, a mapping NPU -> factor, or a sequence with one factor per NPU. A file holds a JSON object
        ``{"3": 2.0}``, a JSON list, or lines ``3 2.0`` and ``4-7 1.5`` (# begins a comment)
    npus
        number of NPUs

    Returns
    -------
    F64
        shape (npus,)

    Raises
    ------
    ConfigError
        naming file, line and NPU

    Examples
    --------
    >>> load_npu_scale({"1": 2}, 3)
    array([1., 2., 1.])
    """
    name = "<npu scale>"
    pairs: list[tuple[object, object, str]]
    if isinstance(src, (str, os.PathLike)):
        name = os.fspath(src)
        text = read_text(name)
        if text.lstrip().startswith("{"):
            pairs = [(key, entry.value, name) for key, entry in read_json(name).items()]
        elif text.lstrip().startswith("["):
            pairs = _from_sequence(_json_list(name, text), npus, name)
        else:
            pairs = _from_lines(text, npus, name)
    elif isinstance(src, Mapping):
        pairs = [(key, value, name) for key, value in src.items()]
    else:
        pairs = _from_sequence(list(src), npus, name)
    return _filled(pairs, npus)


def _json_list(name: str, text: str) -> list[Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not valid JSON: {unusable_json(error)}") from None
    return list(values)


def _from_sequence(values: list[Any], npus: int, name: str) -> list[tuple[object, object, str]]:
    if len(values) != npus:
        raise ConfigError(
            f"{name}: has {counted(len(values), 'factor')}, but the network has {counted(npus, 'NPU')}"
        )
    return [(i, value, name) for i, value in enumerate(values)]


def _from_lines(text: str, npus: int, name: str) -> list[tuple[object, object, str]]:
    pairs: list[tuple[object, object, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        body = line.split("#", 1)[0].strip()
        if not body:
            continue
        match = _LINE.fullmatch(body)
        if match is None:
            raise ConfigError(
                f"{name}:{number}: expected `NPU factor` or `FIRST-LAST factor`, found {describe(body)}"
            )
        first, last = whole_number(match[1]), whole_number(match[2] or match[1])
        if last < first:
            raise ConfigError(f"{name}:{number}: {first}-{last} is not a range of NPUs")
        if last >= npus:
            raise ConfigError(
                f"{name}:{number}: NPU {last}: the network has {counted(npus, 'NPU')} (0 to {npus - 1})"
            )
        try:
            factor: object = decimal_number(match[3])
        except ValueError:
            factor = match[3]
        pairs.extend((npu, factor, f"{name}:{number}") for npu in range(first, last + 1))
    return pairs


def _filled(pairs: list[tuple[object, object, str]], npus: int) -> F64:
    scale = np.ones(npus)
    seen: set[int] = set()
    for key, value, place in pairs:
        if isinstance(key, bool) or not re.fullmatch(r"[0-9]{1,18}", str(key)):
            raise ConfigError(f"{place}: key '{key}' must be the number of an NPU")
        npu = whole_number(str(key))
        if npu >= npus:
            raise ConfigError(f"{place}: NPU {npu}: the network has {counted(npus, 'NPU')} (0 to {npus - 1})")
        if npu in seen:
            raise ConfigError(f"{place}: NPU {npu} is given twice")
        seen.add(npu)
        try:
            scale[npu] = FACTOR.read(value)
        except UnfitError as unfit:
            raise ConfigError(f"{place}: NPU {npu}: the factor {unfit.told(value)}") from None
    return scale
