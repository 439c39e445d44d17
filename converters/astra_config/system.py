"""System files of ASTRA-sim 1.0."""

import math
import re
from collections.abc import Callable
from typing import Any

from chakra.converters.astra_config._common import ConvertedConfig, nearest, plain
from chakra.errors import ConfigError
from chakra.io.digits import decimal_number, whole_number
from chakra.io.documents import document_text
from chakra.replay.config.algorithms import NATIVE_ALGORITHMS

#: 1.0 charges 3 ns for every full 500,000 bytes that are reduced; 2.0 charges 3 ns for every ``local-mem-bw``
#: bytes.
LOCAL_MEM_BW_OF_1_0 = 500000


def _word(*allowed: str) -> Callable[[str], Any]:
    def read(text: str) -> object:
        if text not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}, but is {text!r}{nearest(text, allowed)}")
        return text

    return read


def _alias(**names: str) -> Callable[[str], Any]:
    read_word = _word(*names)
    return lambda text: names[read_word(text)]


def _whole(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,18}", text) is None:
        raise ValueError(f"must be a whole number, but is {text!r}")
    return whole_number(text)


def _real(text: str) -> float | int:
    try:
        value = decimal_number(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"must be a number, 0 or more, but is {text!r}")
    return plain(value)


_ALGORITHM = re.compile(
    r"ring|direct[0-9]{0,5}|halvingDoubling|doubleBinaryTree|oneRing|oneDirect[0-9]{0,5}|oneHalvingDoubling"
)


def _algorithms(text: str) -> list[str]:
    names = text.split("_")
    for name in names:
        if _ALGORITHM.fullmatch(name) is None:
            raise ValueError(
                f"has {name!r}, which is not one of {', '.join(NATIVE_ALGORITHMS)}{nearest(name, NATIVE_ALGORITHMS)}"
            )
    return names


#: Every key of a system file of 1.0 and how its value is read; None: dropped with a note.
_SYSTEM_KEYS: dict[str, Callable[[str], Any] | None] = {
    "scheduling-policy": _word("LIFO", "FIFO", "EXPLICIT"),
    "endpoint-delay": _whole,
    "active-chunks-per-dimension": _whole,
    "preferred-dataset-splits": _whole,
    "all-reduce-implementation": _algorithms,
    "all-gather-implementation": _algorithms,
    "reduce-scatter-implementation": _algorithms,
    "all-to-all-implementation": _algorithms,
    "collective-optimization": _word("baseline", "localBWAware"),
    "local-reduction-delay": _whole,
    "model-shared-bus": _whole,
    "L": _real,
    "o": _real,
    "g": _real,
    "G": _real,
    "intra-dimension-scheduling": _alias(
        FIFO="FIFO",
        RG="RG",
        SCF="smallestFirst",
        smallestFirst="smallestFirst",
        lessRemainingPhaseFirst="lessRemainingPhaseFirst",
    ),
    "inter-dimension-scheduling": _alias(
        baseline="ascending",
        ascending="ascending",
        themis="offlineGreedy",
        offlineGreedy="offlineGreedy",
        themisFlex="offlineGreedyFlex",
        offlineGreedyFlex="offlineGreedyFlex",
        roundRobin="roundRobin",
    ),
    "boost-mode": None,
    "seprate-log": None,
}

_DROPPED = {
    "boost-mode": "boost-mode was dropped: equal NPUs are found without it, and the answer is exact",
    "seprate-log": "seprate-log was dropped: the command line chooses the outputs",
}


def system_file(lines: list[tuple[int, str, str]], source: str) -> ConvertedConfig:
    content: dict[str, object] = {}
    notes: list[str] = []
    for line, key, text in lines:
        where = f"{source}: line {line}: key '{key}'"
        if key not in _SYSTEM_KEYS:
            raise ConfigError(
                f"{where} is not a key of a system file of ASTRA-sim 1.0{nearest(key, _SYSTEM_KEYS)}"
            )
        read = _SYSTEM_KEYS[key]
        if read is None:
            notes.append(_DROPPED[key])
            continue
        if key in content:
            raise ConfigError(f"{where} is given twice")
        try:
            content[key] = read(text)
        except ValueError as error:
            raise ConfigError(f"{where} {error}") from None
    if not any(key.endswith("-implementation") for key in content):
        raise ConfigError(
            f"{source}: holds no algorithms (all-reduce-implementation, ...): not a system file of "
            f"ASTRA-sim 1.0"
        )
    content["local-mem-bw"] = LOCAL_MEM_BW_OF_1_0
    notes.append(
        f"local-mem-bw is {LOCAL_MEM_BW_OF_1_0} so that reductions cost what ASTRA-sim 1.0 charges: 3 ns "
        f"for every full "
        f"{LOCAL_MEM_BW_OF_1_0:,} bytes"
    )
    return ConvertedConfig("system", content, document_text(content, indent=2) + "\n", tuple(notes))
