"""Remote-memory files (replay semantics, section 1.4)."""

from chakra.arguments import checked
from chakra.replay.config.files import Source
from chakra.replay.config.keys import MEMORY_KEYS
from chakra.replay.config.model import Memory, MemoryKind
from chakra.replay.config.section import Section

_NAMES = [key.name for key in MEMORY_KEYS]
_KINDS = {kind.value: kind.value for kind in MemoryKind}


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
    section.refuse_unknown(_NAMES)
    kind = MemoryKind(section.word("memory-type", MemoryKind.NONE.value, _KINDS))
    n_nodes = npus_per_node = 0
    if kind is MemoryKind.PER_NODE:
        n_nodes = section.integer("num-nodes", None, minimum=1)
        npus_per_node = section.integer("num-npus-per-node", None, minimum=1)
    else:
        n_nodes = section.integer("num-nodes", 0)
        npus_per_node = section.integer("num-npus-per-node", 0)
    return Memory(
        kind=kind,
        latency_ns=section.integer("remote-mem-latency", 0, maximum=2**53, unit="ns"),
        bytes_per_ns=section.integer("remote-mem-bw", 0, maximum=2**53, unit="GB/s"),
        n_nodes=n_nodes,
        npus_per_node=npus_per_node,
        source=section.source,
    )
