"""Files of all ranks of a workload, by their prefix; what a name that is no file may have meant."""

import itertools
import os
import re
from collections.abc import Iterable

from chakra.errors import UsageError
from chakra.io.digits import whole_number
from chakra.io.readable import counted, verb

PathLike = str | os.PathLike[str]

#: how a workload whose ranks share traces is named
MANIFEST_SUFFIX = ".workload.json"
#: a name is compared with, and sought among, at most so many names of a folder
_MOST_NEIGHBOURS = 1000
_OF_RANK = r"\.(0|[1-9][0-9]{0,17})\.et(\.gz)?"


def ranks_found(prefix: PathLike) -> dict[int, str]:
    """The file ``PREFIX.<rank>.et``, else ``.et.gz``, of every rank that has one.

    The folder is listed once: names are not asked for one by one, however many ranks a machine has.

    Raises
    ------
    UsageError
        Ranks have both: a result with ``--gzip`` over one without, or the other way round, of which one is old.
    """
    found: dict[int, str] = {}
    for rank, path in _files_of_ranks(prefix):
        other = found.setdefault(rank, path)
        if other != path:
            raise UsageError(
                f"{other}: {os.path.basename(path)} is there, too, and a rank has one trace: move the older one away"
            )
    return dict(sorted(found.items()))


def _files_of_ranks(prefix: PathLike) -> list[tuple[int, str]]:
    """Rank and path of all files ``PREFIX.<rank>.et`` and ``.et.gz``."""
    folder, stem = os.path.split(os.fspath(prefix))
    pattern = re.compile(re.escape(stem) + _OF_RANK)
    try:
        names = sorted(os.listdir(folder or "."))
    except (OSError, ValueError):
        return []
    matches = [match for match in map(pattern.fullmatch, names) if match]
    return [(whole_number(match[1]), os.path.join(folder, match[0])) for match in matches]


def left_behind(prefix: PathLike, written: Iterable[PathLike]) -> str:
    """What to say of an earlier result of the same prefix that is still there beside the files that were written.

    Empty if nothing is: a replay of the prefix would take such files for traces of this result, or be refused.
    """
    mine = {os.path.basename(os.fspath(path)) for path in written}
    old = [path for _, path in sorted(_files_of_ranks(prefix)) if os.path.basename(path) not in mine]
    manifest = os.fspath(prefix) + MANIFEST_SUFFIX
    if os.path.isfile(manifest) and os.path.basename(manifest) not in mine:
        old.insert(0, manifest)
    if not old:
        return ""
    more = f" and {counted(len(old) - 1, 'more file')} of this name" if len(old) > 1 else ""
    are, were = verb(len(old), "is", "are"), verb(len(old), "was", "were")
    return f"{old[0]}{more} {are} from an earlier result and {were} left alone"


def expect_one_workload(prefix: str) -> None:
    """Refuse a prefix that a workload manifest and traces of ranks have: they are two workloads, one of them older.

    Raises
    ------
    UsageError
        There are both.
    """
    if os.path.isfile(prefix + MANIFEST_SUFFIX) and (found := ranks_found(prefix)):
        raise UsageError(
            f"{prefix}: two workloads have this name, {os.path.basename(prefix)}{MANIFEST_SUFFIX} and "
            f"{os.path.basename(next(iter(found.values())))}: move the older one away, or give the manifest's whole name"
        )


def rank_files(prefix: PathLike) -> list[str]:
    """Files ``PREFIX.<rank>.et`` or ``.et.gz`` that exist, by rank."""
    return list(ranks_found(prefix).values())


def missing_ranks(found: dict[int, str], npus: int) -> tuple[int, str]:
    """How many of the ranks 0 to ``npus`` - 1 have no file, and the first dozen of them as text."""
    missing = npus - sum(rank < npus for rank in found)
    shown: list[int] = []
    rank = 0
    while len(shown) < min(missing, 12):
        if rank not in found:
            shown.append(rank)
        rank += 1
    return missing, ", ".join(map(str, shown)) + (", ..." if missing > 12 else "")


def expect_run(name: PathLike) -> None:
    """Refuse the prefix of a workload where a run is wanted, and say how to make one.

    Raises
    ------
    UsageError
        The name is such a prefix.
    """
    if traces := traces_named(name):
        raise UsageError(
            f"{os.fspath(name)}: {traces}: a workload, not a run; replay it and give the result (chakra replay -w "
            f"{os.fspath(name)} ... --format json --nodes -o RUN.json)"
        )


# ------------------------------------------------------------------------------------- what a name may have meant


def traces_named(prefix: PathLike) -> str:
    """What a prefix that is no file names, as `chakra replay -w` takes it: traces of ranks, or a workload manifest.

    Empty if it names neither, or is the name of something that is there.
    """
    text = os.fspath(prefix)
    if not text or os.path.lexists(text):
        return ""
    if os.path.isfile(text + MANIFEST_SUFFIX):
        return f"the workload {os.path.basename(text)}{MANIFEST_SUFFIX} begins with this name"
    found = [os.path.basename(name) for name in ranks_found(text).values()]
    if not found:
        return ""
    more = f" and {counted(len(found) - 1, 'more execution trace')} begin" if len(found) > 1 else " begins"
    return f"{found[0]}{more} with this name"


def traces_beside(manifest: PathLike) -> list[str]:
    """Traces beside a manifest that begin with its prefix, as `chakra generate` names those that ranks share."""
    folder, name = os.path.split(os.fspath(manifest).removesuffix(MANIFEST_SUFFIX))
    return [
        os.path.join(folder, other)
        for other in _names_in(folder)
        if other.startswith(f"{name}.") and other.endswith((".et", ".et.gz"))
    ]


def neighbour(path: PathLike) -> str:
    """What a name that is no trace's may mean: traces that begin with it, or lie in the folder of that name, or a file of
    nearly that name beside it; for the end of a message.
    """
    import difflib

    text = os.fspath(path)
    if traces := traces_named(path):
        beside = traces_beside(text) if os.path.isfile(text + MANIFEST_SUFFIX) else []
        return f"; {traces}{f', and its trace {beside[0]}' if beside else ''}"
    if os.path.isdir(path):
        held = [name for name in _names_in(text) if name.endswith((".et", ".et.gz"))]
        return f"; the folder holds {os.path.join(text, held[0])}" if held else ""
    folder, name = os.path.split(text)
    if os.path.lexists(path) or not name or len(name) > 100:
        return ""
    close = difflib.get_close_matches(name, _names_in(folder), n=1, cutoff=0.85)
    return f"; did you mean {os.path.join(folder, close[0])}?" if close else ""


def meant_prefix(name: PathLike) -> str:
    """What a name below which no rank has a trace may mean, where a prefix is wanted; for the end of a message."""
    text = os.fspath(name)
    if os.path.isdir(text):
        held = _prefixes_in(text)
        more = f", one of {counted(len(held), 'workload')}" if len(held) > 1 else ""
        return f"; the folder holds {held[0]}{more}: give that prefix" if held else ""
    if not os.path.isfile(text):
        return neighbour(text)
    prefix = _prefix_of(text)
    if prefix:
        return f"; the prefix of this file is {prefix}"
    return "; there is a file of this name, and the prefix of traces PREFIX.<rank>.et is needed"


def ranks_alike(first: PathLike, second: PathLike) -> bool:
    """Whether two files that are there have the names of two ranks of one job: but for a number they are the same."""
    one, other = os.fspath(first), os.fspath(second)
    if one == other or not (os.path.isfile(one) and os.path.isfile(other)):
        return False
    return re.sub("[0-9]+", "#", one) == re.sub("[0-9]+", "#", other)


def _prefix_of(file: str) -> str:
    """The prefix of a workload that a trace belongs to: of its rank's, or of the manifest that it lies beside."""
    match = re.fullmatch(r"(.+)" + _OF_RANK, file)
    if match is not None:
        return match[1]
    stem = file.removesuffix(".gz").removesuffix(".et")
    while stem != file and "." in os.path.basename(stem):
        stem = stem.rpartition(".")[0]
        if os.path.isfile(stem + MANIFEST_SUFFIX):
            return stem
    return ""


def _prefixes_in(folder: str) -> list[str]:
    """Prefixes of the workloads that a folder holds."""
    pattern = re.compile(rf"(.+?)({_OF_RANK}|{re.escape(MANIFEST_SUFFIX)})")
    matches = map(pattern.fullmatch, _names_in(folder))
    return sorted({os.path.join(folder, match[1]) for match in matches if match})


def _names_in(folder: str) -> list[str]:
    """The first names in a folder, in order; none where it cannot be read."""
    try:
        with os.scandir(folder or ".") as entries:
            return sorted(entry.name for entry in itertools.islice(entries, _MOST_NEIGHBOURS))
    except (OSError, ValueError):
        return []
