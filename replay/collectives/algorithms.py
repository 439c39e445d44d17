"""Names and parameters of collective algorithms: ASTRA-sim's own (replay semantics, section 4.2) and tables of steps."""

from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum

from chakra.errors import ConfigError
from chakra.io.digits import is_whole, whole_number
from chakra.replay.collectives import registry
from chakra.replay.config.algorithms import IN_NETWORK, NATIVE_ALGORITHMS, flat_name
from chakra.replay.engines.kernels import codes

UNLIMITED = 0


class Family(IntEnum):
    """Families of algorithms."""

    #: a barrier
    NONE = codes.ALG_NONE
    RING = codes.ALG_RING
    DIRECT = codes.ALG_DIRECT
    HALVING_DOUBLING = codes.ALG_HALVING_DOUBLING
    TREE = codes.ALG_TREE
    #: a table of rounds of messages
    STEPS = codes.ALG_STEPS
    #: a program of sends and receives on each member
    CUSTOM = codes.ALG_CUSTOM
    #: a collective library's own, as long as the library takes; a barrier with a duration to the kernels
    LIBRARY = codes.ALG_LIBRARY
    #: reduced and multicast by the switch of a dimension
    SWITCH = codes.ALG_SWITCH


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm as a system file names it."""

    family: Family
    #: runs on one flat ring of all NPUs and ends the list of implementations
    flat: bool = False
    #: messages in flight of `direct`; `UNLIMITED` = group size - 1
    window: int = UNLIMITED
    #: name in the registry, of an algorithm that is a table of steps
    steps: str = ""
    #: name of the collective library, and of the kind of collective that it runs
    library: str = ""
    kind: str = ""

    @property
    def name(self) -> str:
        """The name in system files; ``none`` of what moves nothing, a group of one or no bytes."""
        base = {
            Family.NONE: "none",
            Family.RING: "ring",
            Family.DIRECT: "direct",
            Family.HALVING_DOUBLING: "halvingDoubling",
            Family.TREE: "doubleBinaryTree",
            Family.STEPS: self.steps,
            Family.CUSTOM: "custom",
            Family.LIBRARY: self.library,
            Family.SWITCH: IN_NETWORK,
        }[self.family]
        if self.flat and self.family not in (Family.NONE, Family.LIBRARY, Family.SWITCH):
            base = flat_name(base)
        return base + (str(self.window) if self.window else "")

    def window_in(self, size: int) -> int:
        """Messages in flight in a group of `size` members."""
        if self.family is not Family.DIRECT:
            return 1
        return size - 1 if self.window == UNLIMITED else min(self.window, size - 1)

    def cycle_in(self, size: int, *, sub_cluster: bool) -> int:
        """Z of the credit machine: packets between two groups of plain ones."""
        if self.family is Family.DIRECT:
            window = self.window_in(size)
            return (size - 1) * window if sub_cluster else window
        if self.family is Family.HALVING_DOUBLING:
            return size.bit_length() - 2
        return size - 1


def parse(name: str, where: str) -> Algorithm:
    """Read an algorithm's name.

    Raises
    ------
    ConfigError
        For an unknown name or a window that is not a positive number; `where` names file and key.
    """
    flat = name.startswith("one")
    base = name[3:4].lower() + name[4:] if flat else name
    if base == "ring":
        return Algorithm(Family.RING, flat)
    if base == "halvingDoubling":
        return Algorithm(Family.HALVING_DOUBLING, flat)
    if base == "doubleBinaryTree" and not flat:
        return Algorithm(Family.TREE)
    if base.startswith("direct"):
        text = base[len("direct") :]
        if text == "":
            return Algorithm(Family.DIRECT, flat)
        if is_whole(text, 18) and whole_number(text) > 0:
            return Algorithm(Family.DIRECT, flat, whole_number(text))
        raise ConfigError(
            f"{where}: window of {name!r} is not a positive number; use direct or direct<w>, w >= 1"
        )
    if name == IN_NETWORK:
        return Algorithm(Family.SWITCH)
    for known in registry.names():
        if name == known or name == flat_name(known):
            return Algorithm(Family.STEPS, name != known, steps=known)
    every = (*NATIVE_ALGORITHMS, IN_NETWORK, *registry.names())
    near = get_close_matches(name, every, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"{where}: unknown collective algorithm {name!r}{hint} (known: {', '.join(every)})")
