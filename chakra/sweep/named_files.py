"""Every file that the result of a point depends on: what its inputs name, and what such files name in turn."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chakra.errors import ChakraError
from chakra.et.manifest import SUFFIX
from chakra.io.files import read_raw

#: endings of files of a configuration, which may name further files; a larger one than this names none but traces
_CONFIGURATIONS = (".json", ".yml", ".yaml")
_MOST_CONFIGURATION_BYTES = 1 << 20
#: texts of a configuration, which may have blanks within: in quotes, or the rest of a line behind a key or a dash
_WHOLE = [re.compile(form) for form in (r'"([^"\n]*)"', r"'([^'\n]*)'", r"[:-][ \t]+([^\s#][^\n#]*)")]


def files_named(merged: Mapping[str, Any]) -> list[Path]:
    """Files that a text of a point names, as a whole or by a word of it, and those that such files name.

    A text may also be a prefix, and then names the traces and the manifest of that prefix. What a file names is looked
    for both from the working folder and beside the file: readers differ in it, and a file too many does no harm.

    Parameters
    ----------
    merged
        The point's sections with all values in place.
    """
    found: dict[str, None] = {}
    folders = _Folders()
    waiting = [word for text in _texts(merged) for word in (text, *re.split(r"[\s,]+", text))]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if not path or path in seen:
            continue
        seen.add(path)
        if not _is_file(path):
            waiting += folders.traces_of(path)
            continue
        found[path] = None
        beside = os.path.dirname(path)
        for word in _words(Path(path)):
            waiting += [word, os.path.join(beside, word)]
    files = merged["workload"].get("files")
    if isinstance(files, str):
        # of whichever ranks there are, as one may come that was missing
        found |= dict.fromkeys(folders.traces_of(files.removesuffix(SUFFIX), ranks=False))
    return [Path(path) for path in found]


class _Folders:
    """Traces by prefix; folders are listed once, as a network file has many words, and few of them are prefixes."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str] | None] = {}

    def _in(self, folder: str) -> frozenset[str] | None:
        """Names in a folder; None: it is none, or does not tell."""
        if folder not in self._names:
            try:
                self._names[folder] = frozenset(os.listdir(folder or "."))
            except (OSError, ValueError):  # also too long for a name, or with a zero byte
                self._names[folder] = None
        return self._names[folder]

    def traces_of(self, prefix: str, *, ranks: bool = True) -> list[str]:
        """What a workload may be read from, traces and manifest ``PREFIX.*``; with `ranks` only of a prefix that has
        rank 0 or a manifest."""
        folder, stem = os.path.split(prefix)
        names = self._in(folder) or frozenset()
        if ranks and not names & {f"{stem}{ending}" for ending in (".0.et", ".0.et.gz", SUFFIX)}:
            return []
        endings = (".et", ".et.gz", SUFFIX)
        mine = sorted(name for name in names if name.startswith(f"{stem}.") and name.endswith(endings))
        return [path for name in mine if _is_file(path := os.path.join(folder, name))]


def _texts(value: object) -> Iterator[str]:
    """Every text in nested maps and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _words(path: Path) -> list[str]:
    """What a file may name: all texts and words of a configuration, the traces of a large manifest."""
    if path.suffix not in _CONFIGURATIONS:
        return []
    if path.stat().st_size > _MOST_CONFIGURATION_BYTES:
        return _traces_of(path)
    text = path.read_text(encoding="utf-8", errors="replace")
    whole = [part.strip() for form in _WHOLE for part in form.findall(text)]
    return list(dict.fromkeys([*whole, *re.split(r"[\s,:\[\]{}\"']+", text)]))


def _traces_of(path: Path) -> list[str]:
    """Traces that a manifest lists; none of any other file."""
    try:
        document = json.loads(read_raw(path))
    except (ChakraError, ValueError, RecursionError):
        return []
    traces = document.get("traces") if isinstance(document, dict) else None
    return [name for name in traces if isinstance(name, str)] if isinstance(traces, list) else []


def _is_file(path: str) -> bool:
    try:
        return os.path.isfile(path)
    except ValueError:  # with a zero byte
        return False
