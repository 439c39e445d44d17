"""MSCCL's XML algorithms: read, checked for being the collective that they claim, replayed; and ours written as such.

An algorithm becomes a *custom algorithm*, one trace of sends, receives and waits a rank. That keeps what a table of
steps has no place for: channels, threadblocks that run side by side, and dependences between them.
"""

import os

from chakra.arguments import checked
from chakra.converters.msccl.export import export_algorithm, xml_text
from chakra.converters.msccl.follow import follow
from chakra.converters.msccl.program import MscclAlgorithm, Step, Threadblock
from chakra.converters.msccl.reader import read_xml
from chakra.converters.msccl.traces import KEYS, workload_of
from chakra.errors import UsageError
from chakra.replay.config import System, load_system
from chakra.replay.config.files import Source
from chakra.replay.config.model import CollectiveKind

__all__ = [
    "MscclAlgorithm",
    "Step",
    "Threadblock",
    "export_msccl",
    "load_msccl",
    "system_key",
    "write_msccl",
]

#: largest collective: messages are int64 bytes, and a program may repeat them
MAX_BYTES = 1 << 50


@checked
def load_msccl(path: str | os.PathLike[str]) -> MscclAlgorithm:
    """Read an algorithm and carry it out on names of data.

    Parameters
    ----------
    path
        File of MSCCL (XML): ``algo``, ``gpu``, ``tb`` and ``step`` elements.

    Raises
    ------
    ConfigError
        If the file is no such algorithm, or the algorithm cannot end, is not the collective that it claims to be, or
        depends on which threadblock is faster. The message names rank, threadblock and step.
    """
    algorithm = read_xml(path)
    follow(algorithm)
    return algorithm


@checked
def write_msccl(
    algorithm: MscclAlgorithm,
    prefix: str | os.PathLike[str],
    *,
    size_bytes: int,
    system: Source | System | None = None,
) -> list[str]:
    """Write an algorithm as traces that a system file can name, ``PREFIX.<rank>.et``.

    Parameters
    ----------
    algorithm
        What `load_msccl` has read.
    prefix
        Where the traces go.
    size_bytes
        ``comm_size`` of the collective: the whole buffer of a rank, for an all-gather the part that it contributes.
    system
        System file, or its content: ``endpoint-delay`` and ``local-mem-bw`` are what a message and a reduction take
        beside the network. Without one, the defaults of a system file.

    Returns
    -------
    list[str]
        The files.

    Raises
    ------
    ConfigError
        If the system file is wrong.
    UsageError
        If a file cannot be written, or the size is not 1 byte to 2^50.
    """
    if not 1 <= size_bytes <= MAX_BYTES:
        raise UsageError(f"size_bytes must be 1 to 2^50, not {size_bytes}")
    times = load_system({} if system is None else system)
    return workload_of(algorithm, follow(algorithm), size_bytes, times).write(prefix)


@checked
def export_msccl(algorithm: str, collective: str, npus: int) -> str:
    """One of our algorithms as MSCCL's XML.

    Parameters
    ----------
    algorithm
        Name in system files: ``ring``, ``direct``, ``direct1``, ``halvingDoubling``, ``rabenseifner``,
        ``recursiveDoubling``, ``bruck`` or ``binomialTree``.
    collective
        ``all_reduce``, ``reduce_scatter``, ``all_gather`` or ``all_to_all``.
    npus
        Ranks, 2 to 512.

    Raises
    ------
    ConfigError
        If the algorithm does not do that, or which blocks its messages carry depends on size and network.
    UsageError
        If there is no such collective.
    """
    kinds = {kind.lower(): kind for kind in KEYS}
    if collective not in kinds:
        raise UsageError(f"collective must be one of {', '.join(kinds)}, not {collective!r}")
    return xml_text(export_algorithm(algorithm, kinds[collective], npus))


@checked
def system_key(collective: CollectiveKind) -> str:
    """Key of a system file that names the traces of a collective.

    Parameters
    ----------
    collective
        One of the four kinds that algorithms are converted of.
    """
    return KEYS[collective]
