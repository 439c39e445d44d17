"""Remote-memory files (replay semantics, section 1.4)."""

from chakra.arguments import checked
from chakra.replay.config.files import Source
from chakra.replay.config.keys import MEMORY_KEYS, N_NODES, NPUS_PER_NODE
from chakra.replay.config.model import Memory, MemoryKind
from chakra.replay.config.readers import MAX_INT
from chakra.replay.config.section import Section


@checked
def load_memory(src: Source | Memory | None, *, compat: str | None = None) -> Memory:
    """Read a remote-memory description; None means that there is no remote memory.

    Parameters
    ----------
    src
        path of a JSON file, a dict with the same keys, a Memory, or None
    compat
        "astra-sim": unknown keys are ignored (C14)

    Raises
    ------
    ConfigError
        naming file and key
    """
    if isinstance(src, Memory):
        return src
    if src is None:
        return Memory()
    section = Section.of(src, kind="memory", compat=compat)
    section.refuse_unknown(MEMORY_KEYS)
    given = {name: value for name, value in section.fields(MEMORY_KEYS).items() if value is not None}
    memory = Memory(**given, source=section.source)
    _check_servers(section, memory)
    return memory


def _check_servers(section: Section, memory: Memory) -> None:
    """Memory per node needs to know the nodes."""
    if memory.kind is not MemoryKind.PER_NODE:
        return
    for key in (N_NODES, NPUS_PER_NODE):
        number = section.read(key)
        if number is None:
            raise section.error(key.name, "is missing")
        if number < 1:
            raise section.error(key.name, f"must be a whole number from 1 to {MAX_INT}, found {number}")
