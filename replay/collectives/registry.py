"""Collective algorithms that are tables of steps, by name: ours, and those that other packages bring.

A package adds one with an entry point of the group ``chakra.collectives`` whose name is the algorithm's and whose
object is a `chakra.replay.collectives.steps.StepAlgorithm`.
"""

from functools import cache, lru_cache

from chakra.errors import ConfigError
from chakra.io.readable import counted
from chakra.replay import plugins
from chakra.replay.collectives import (
    bruck,
    pipelined_tree,
    rabenseifner,
    recursive_doubling,
    scatter_gather,
    trees,
)
from chakra.replay.collectives.offered import checked_algorithm, checked_steps
from chakra.replay.collectives.steps import Do, Link, StepAlgorithm, Steps
from chakra.replay.config.algorithms import REGISTERED

GROUP = plugins.COLLECTIVES

OURS: dict[str, StepAlgorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        rabenseifner.ALGORITHM,
        recursive_doubling.ALGORITHM,
        bruck.ALGORITHM,
        trees.BINOMIAL,
        trees.CHAIN,
        pipelined_tree.ALGORITHM,
        scatter_gather.ALGORITHM,
    )
}


def names() -> tuple[str, ...]:
    """Names of all algorithms that are tables of steps."""
    return tuple(dict.fromkeys((*OURS, *REGISTERED, *plugins.offered(GROUP))))


@cache
def find(name: str) -> StepAlgorithm:
    """The algorithm of a name.

    Raises
    ------
    ConfigError
        If no package offers it, two do, or its entry point is not a right `StepAlgorithm`.
    """
    if name in OURS:
        return OURS[name]
    if name in REGISTERED:
        return checked_algorithm(REGISTERED[name], name, f"registered collective algorithm {name!r}")
    if name not in plugins.offered(GROUP):
        raise ConfigError(f"unknown collective algorithm {name!r} (known: {', '.join(names())})")
    found, words = plugins.load(GROUP, name, "collective algorithm")
    return checked_algorithm(found, name, words)


@lru_cache(maxsize=256)
def steps(name: str, do: Do, n: int, size_bytes: int, link: Link) -> Steps:
    """Schedule of one phase.

    Raises
    ------
    ConfigError
        If the algorithm does not do that, or what another package's algorithm returns is no schedule of n members.
    """
    algorithm = find(name)
    if do not in algorithm.kinds:
        able = ", ".join(kind.name for kind in sorted(algorithm.kinds))
        raise ConfigError(f"algorithm {name!r} cannot run {do.name} (it runs {able})")
    if name in OURS:
        return algorithm.schedule(do, n, size_bytes, link)
    words = f"collective algorithm {name!r}: schedule of {do.name} for {counted(n, 'member')}"
    made = plugins.guarded(lambda: algorithm.schedule(do, n, size_bytes, link), f"{words} failed")
    return checked_steps(made, n, words)
