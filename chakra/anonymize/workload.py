"""Whole jobs: which files belong together, under which names they are written, all of them or none."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chakra.anonymize.labels import Labels
from chakra.anonymize.trace import anonymous_trace
from chakra.arguments import checked
from chakra.errors import ConfigError, UsageError, WorkloadError
from chakra.et import read_trace
from chakra.et.manifest import FORMAT, SUFFIX, manifest_from_dict, manifest_of, manifest_to_dict
from chakra.io import files, leftovers
from chakra.io.documents import document_text
from chakra.io.rank_files import neighbour, rank_files

#: suffix of the groups file that the generator writes beside traces
GROUPS_SUFFIX = ".comm_groups.json"
#: suffixes of files named by options
NAMED_GROUPS_SUFFIX, MEMORY_SUFFIX = ".json", ".memory.json"

#: writes one file's anonymous bytes
Job = Callable[[Path], None]


@dataclass(slots=True)
class Summary:
    """What was written.

    Attributes
    ----------
    written
        (source, target) of every file, in the order in which classes were given.
    classes
        Number of distinct texts replaced, by kind.
    nodes
        Nodes of all distinct execution traces.
    """

    written: list[tuple[str, str]] = field(default_factory=list)
    classes: dict[str, int] = field(default_factory=dict)
    nodes: int = 0


@checked
def anonymize(
    source: str,
    target: str,
    *,
    labels: Labels | None = None,
    groups: str | None = None,
    memory: str | None = None,
    in_place: bool = False,
) -> Summary:
    """Write an anonymous copy of a trace, or of all files of a job.

    Parameters
    ----------
    source, target
        A file and a file, or a prefix and a prefix: of ``PREFIX.<rank>.et`` (with ``PREFIX.comm_groups.json``, if
        it is there) or of ``PREFIX.workload.json`` and the traces that it names. A file is an execution trace,
        a JSON-encoded one (written as ``.et``), a host trace or a Kineto trace of PyTorch. A folder of recordings
        (or ``FOLDER/JOB`` for one job of it) becomes a folder of ``trace.rank<k>.host.json.gz`` and
        ``trace.rank<k>.kineto.json.gz``.
    labels
        Gives the classes; one object for several calls gives one numbering.
    groups, memory
        Files of process groups and of the remote memory, written as ``TARGET.json`` and ``TARGET.memory.json``.
    in_place
        Allow a target that is a source.

    Raises
    ------
    ChakraError
        In one line; then no file of the job is written, and no folder made.
    """
    if not target:
        raise UsageError("an empty name cannot be written: name what to write, as in chakra anonymize IN OUT")
    labels = labels or Labels()
    summary = Summary()
    jobs = _jobs(source, target, labels, summary)
    if groups is not None:
        jobs.append((groups, target + NAMED_GROUPS_SUFFIX, lambda out: _groups(groups, out, labels)))
    if memory is not None:
        jobs.append((memory, target + MEMORY_SUFFIX, lambda out: _memory(memory, out)))
    sources = {_real(path) for path, _, _ in jobs}
    for _, out, _ in jobs:
        if not in_place and _real(out) in sources:
            raise UsageError(f"{out}: input and output are the same file; --in-place allows that")
    with _all_or_none(in_place=in_place) as place:
        for path, out, job in jobs:
            placed = place(out)
            try:
                job(placed)
            except files.WriteError as error:
                # files wait for each other under other names
                raise files.WriteError(out, error.why) from error
            summary.written.append((path, out))
    summary.classes = labels.counts()
    return summary


def _real(path: str) -> str:
    """The file that a path stands for."""
    try:
        return os.path.realpath(path)
    except ValueError as error:
        raise UsageError(f"{path}: no path of a file: {error}") from None


def _jobs(source: str, target: str, labels: Labels, summary: Summary) -> list[tuple[str, str, Job]]:
    """(source, target, how) of every file of a job."""
    from chakra.converters.pytorch.folder import names_recordings

    manifest = manifest_of(source)
    if manifest is not None:
        return _manifest_jobs(manifest, target.removesuffix(SUFFIX), labels, summary)
    if os.path.isdir(source) or (not rank_files(source) and names_recordings(Path(source))):
        return _recordings(source, target, labels)
    if os.path.isfile(source):
        kind = files.sniff_kind(source)
        if kind in (files.KINETO, files.HOST_TRACE, files.LINKED):
            from chakra.anonymize.pytorch import Recordings

            copies = Recordings(labels)
            return [(source, target, lambda out: copies.copy(source, out, compress=out.name.endswith(".gz")))]
        if kind == files.JSON:
            from chakra.converters.pytorch.read.file_kinds import kind_of

            kind_of(source)  # refuses what is cut off before it says what it is
        return [(source, target, lambda out: _trace(source, out, labels, summary, {}))]
    ranks = rank_files(source)
    if not ranks:
        raise UsageError(f"{source}: neither a trace file nor a prefix of trace files{neighbour(source)}")
    files.expect_prefix(target)
    made: dict[bytes, Path] = {}
    jobs: list[tuple[str, str, Job]] = [
        (path, target + path[len(source) :], lambda out, path=path: _trace(path, out, labels, summary, made))  # type: ignore[misc]
        for path in ranks
    ]
    beside = source + GROUPS_SUFFIX
    if os.path.isfile(beside):
        jobs.append((beside, target + GROUPS_SUFFIX, lambda out: _groups(beside, out, labels)))
    return jobs


def _recordings(source: str, target: str, labels: Labels) -> list[tuple[str, str, Job]]:
    """Host and Kineto traces of all ranks in a folder, under names that say the rank only."""
    from chakra.anonymize.pytorch import Recordings
    from chakra.converters.pytorch.folder import find_inputs

    copies = Recordings(labels)
    jobs: list[tuple[str, str, Job]] = []
    for inputs in find_inputs(Path(source)):
        if inputs.linked is not None:
            raise UsageError(
                f"{inputs.linked}: a linked trace; anonymize the execution trace that it converts to"
            )
        for path, kind in ((inputs.host, "host"), (inputs.device, "kineto")):
            if path is not None:
                out = os.path.join(target, f"trace.rank{inputs.rank or 0}.{kind}.json.gz")
                jobs.append(
                    (str(path), out, lambda at, path=str(path): copies.copy(path, at, compress=True))  # type: ignore[misc]
                )
    return jobs


def _manifest_jobs(
    manifest: str, target: str, labels: Labels, summary: Summary
) -> list[tuple[str, str, Job]]:
    """A workload in few traces; the manifest last, so that it never names a trace that is not there."""
    files.expect_prefix(target)
    document = files.read_json(manifest, error=WorkloadError)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise WorkloadError(f"{manifest}: not a workload manifest: 'format' must be {FORMAT!r}")
    names = document.get("traces")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WorkloadError(f"{manifest}: 'traces' must be a non-empty list of file names")
    folder = os.path.dirname(manifest)
    paths = [os.path.join(folder, name) for name in names]
    outs = [
        f"{os.path.basename(target)}.class{i}.et{'.gz' * name.endswith('.gz')}"
        for i, name in enumerate(names)
    ]
    made: dict[bytes, Path] = {}
    jobs: list[tuple[str, str, Job]] = [
        (
            path,
            os.path.join(os.path.dirname(target), name),
            lambda out, path=path: _trace(path, out, labels, summary, made),  # type: ignore[misc]
        )
        for path, name in zip(paths, outs, strict=True)
    ]

    def write(out: Path) -> None:
        checked = manifest_from_dict(document, [None] * len(paths), manifest)  # type: ignore[list-item]
        kept = manifest_to_dict(checked, outs)
        kept["groups"] = {labels.group(name): table for name, table in kept["groups"].items()}
        kept["about"] = {}
        _write_json(out, kept)

    return [*jobs, (manifest, target + SUFFIX, write)]


def _trace(path: str, out: Path, labels: Labels, summary: Summary, made: dict[bytes, Path]) -> None:
    """One execution trace; of files of equal content just the first is worked on."""
    digest = hashlib.blake2b(files.read_bytes(path), digest_size=16).digest()
    compress = out.name.endswith(".gz")
    known = made.get(digest)
    if known is not None and known.name.endswith(".gz") == compress:
        with open(known, "rb") as written, files.atomic_bytes(out, compress=False) as file:
            shutil.copyfileobj(written, file)
        return
    trace = read_trace(path)
    summary.nodes += trace.n_nodes
    with files.atomic_bytes(out, compress=compress) as file:
        file.write(anonymous_trace(trace, labels))
    made[digest] = out


def _groups(path: str, out: Path, labels: Labels) -> None:
    data = files.read_json(path)
    if not isinstance(data, dict) or not all(
        isinstance(ranks, list) and all(type(rank) is int and abs(rank) < 1 << 31 for rank in ranks)
        for ranks in data.values()
    ):
        raise WorkloadError(f"{path}: a groups file is an object of lists of ranks")
    _write_json(out, {labels.group(name): ranks for name, ranks in data.items()})


def _memory(path: str, out: Path) -> None:
    """The keys of a remote memory: a word of a closed list, and numbers."""
    from chakra.replay.config import load_memory
    from chakra.replay.config.keys import MEMORY_KEYS

    load_memory(path)  # refuses what is not a memory file
    data: Any = files.read_json(path, error=ConfigError)
    _write_json(out, {key.name: data[key.name] for key in MEMORY_KEYS if key.name in data})


def _write_json(out: Path, document: object) -> None:
    with files.atomic_text(out) as file:
        file.write(document_text(document) + "\n")


@contextmanager
def _all_or_none(*, in_place: bool) -> Iterator[Callable[[str], Path]]:
    """Gives a place for each target; all take their targets' places when the block ends without an error."""
    staged: list[tuple[Path, str]] = []
    folders: dict[str, tuple[int, Path]] = {}
    made = ExitStack()

    def place(target: str) -> Path:
        if os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target):
            return Path(target)  # a pipe or device is written in place
        parent = os.path.dirname(os.path.realpath(target))
        if parent not in folders:
            made.enter_context(files.made_folder(parent, target))
            try:
                leftovers.remove(Path(parent))
                folders[parent] = leftovers.new_folder(Path(parent), leftovers.prefix("anonymize"))
            except OSError as error:
                raise UsageError(f"{target}: cannot be written: {error.strerror}") from error
        if os.path.isdir(target) or target.endswith(("/", os.sep)):
            raise UsageError(f"{target}: cannot be written: it is a folder")
        staged.append((folders[parent][1] / f"{len(staged)}{_ending(target)}", target))
        return staged[-1][0]

    try:
        yield place
        for _, target in () if in_place else staged:
            files.expect_unread(target)
        for path, target in staged:
            try:
                os.replace(path, os.path.realpath(target))
            except OSError as error:
                raise UsageError(f"{target}: cannot be written: {error.strerror}") from error
    finally:
        for handle, folder in folders.values():
            leftovers.drop(handle, folder)
        made.close()


def _ending(target: str) -> str:
    return ".gz" if target.endswith(".gz") else ".part"
