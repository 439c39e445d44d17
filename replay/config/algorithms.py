"""Names of collective algorithms, as system files write them; what they do: `chakra.replay.collectives`.

They stand below both: a configuration is checked without importing the algorithms, which know the configuration.
"""

import re

from chakra.arguments import checked
from chakra.errors import ConfigError
from chakra.io.digits import whole_number
from chakra.replay import plugins

#: ASTRA-sim's algorithms; a window of up to five digits may follow the two direct ones
NATIVE_ALGORITHMS = (
    "ring",
    "direct",
    "halvingDoubling",
    "doubleBinaryTree",
    "oneRing",
    "oneDirect",
    "oneHalvingDoubling",
)
#: ours beyond ASTRA-sim's, tables of steps each; `chakra.replay.collectives.registry` has one for each
STEP_ALGORITHMS = (
    "rabenseifner",
    "recursiveDoubling",
    "bruck",
    "binomialTree",
    "chain",
    "pipelinedTree",
    "scatterAllGather",
)
#: reduction and multicast by the switches of a network; has no form on one flat ring of all NPUs
IN_NETWORK = "inNetwork"
#: what `register_algorithm` was given
REGISTERED: dict[str, object] = {}

_WINDOWED = re.compile(r"(direct|oneDirect)([0-9]{1,5})")
#: the same as a JSON Schema says it; windows of 0 are refused
WINDOW_PATTERN = r"^(direct|oneDirect)(?=[0-9]*[1-9])[0-9]{1,5}$(?!\n)"
#: what C++'s stoi reads of the five characters after "direct"
_HEAD_WINDOW = re.compile(r"(direct|oneDirect)\s*\+?([0-9]+)")


def flat_name(name: str) -> str:
    """The name of an algorithm's form on one flat ring of all NPUs."""
    return "one" + name[:1].upper() + name[1:]


@checked
def register_algorithm(name: str, algorithm: object) -> None:
    """Offer a collective algorithm in this process: system files may name it, and every network runs it.

    An algorithm for other processes, too, is an entry point of a package (`chakra.replay.collectives.registry`).

    Parameters
    ----------
    name
        The name that system files use.
    algorithm
        A `chakra.replay.collectives.steps.StepAlgorithm` of that name; checked when it is first used.

    Raises
    ------
    ConfigError
        If another algorithm has the name.
    """
    taken = name in NATIVE_ALGORITHMS or name in STEP_ALGORITHMS or name == IN_NETWORK
    if taken or REGISTERED.get(name, algorithm) is not algorithm:
        raise ConfigError(f"there is another collective algorithm {name!r}")
    REGISTERED[name] = algorithm


def algorithm_names(*, as_head: bool) -> tuple[str, ...]:
    """Every name without its window: ASTRA-sim's own, then what it does not have, sorted."""
    if as_head:
        return NATIVE_ALGORITHMS
    named = (*STEP_ALGORITHMS, *REGISTERED, *plugins.offered(plugins.COLLECTIVES))
    more = {form for name in named for form in (name, flat_name(name))} | {IN_NETWORK}
    return (*NATIVE_ALGORITHMS, *sorted(more))


def canonical(name: str, *, as_head: bool) -> str | None:
    """A name with its window free of leading zeros; None if it names nothing.

    Raises
    ------
    ValueError
        For a window of 0 messages, which never sends anything.
    """
    # packages are looked for only where a name is none of ASTRA-sim's: that takes milliseconds
    if name in NATIVE_ALGORITHMS or name in algorithm_names(as_head=as_head):
        return name
    match = _WINDOWED.fullmatch(name)
    if match is None and as_head:
        match = _HEAD_WINDOW.match(name[: len("oneDirect" if name.startswith("one") else "direct") + 5])
    if match is None:
        return None
    if whole_number(match[2]) == 0:
        raise ValueError("a window of 0 messages never sends anything")
    return f"{match[1]}{whole_number(match[2])}"
