"""Collective algorithms that are tables of steps, by name: ours, and those that other packages bring.

A package adds one with an entry point of the group ``chakra.collectives`` whose name is the algorithm's and whose
object is a `chakra.replay.collectives.steps.StepAlgorithm`.
"""

from functools import cache, lru_cache
from importlib import metadata

from chakra.errors import ConfigError
from chakra.replay.collectives import (
    bruck,
    pipelined_tree,
    rabenseifner,
    recursive_doubling,
    scatter_gather,
    trees,
)
from chakra.replay.collectives.steps import Do, Link, StepAlgorithm, Steps

GROUP = "chakra.collectives"

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


@cache
def _others() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=GROUP) if point.name not in OURS}


@cache
def names() -> tuple[str, ...]:
    """Names of all algorithms that are tables of steps."""
    return (*OURS, *sorted(_others()))


@cache
def find(name: str) -> StepAlgorithm:
    """The algorithm of a name.

    Raises
    ------
    ConfigError
        If no package offers it, or its entry point is not a `StepAlgorithm`.
    """
    if name in OURS:
        return OURS[name]
    if name not in _others():
        raise ConfigError(f"unknown collective algorithm {name!r} (known: {', '.join(names())})")
    point = _others()[name]
    try:
        found = point.load()
    except Exception as error:  # the package's own fault, whatever it is
        raise ConfigError(
            f"collective algorithm {name!r}: {point.value} cannot be loaded: {error}"
        ) from error
    if not isinstance(found, StepAlgorithm):
        raise ConfigError(f"collective algorithm {name!r}: {point.value} is not a StepAlgorithm")
    return found


@lru_cache(maxsize=256)
def steps(name: str, do: Do, n: int, size_bytes: int, link: Link) -> Steps:
    """Schedule of one phase.

    Raises
    ------
    ConfigError
        If the algorithm does not do that, or its schedule is for another number of members.
    """
    algorithm = find(name)
    if do not in algorithm.kinds:
        able = ", ".join(kind.name for kind in sorted(algorithm.kinds))
        raise ConfigError(f"algorithm {name!r} cannot run {do.name} (it runs {able})")
    made = algorithm.schedule(do, n, size_bytes, link)
    if made.n != n:
        raise ConfigError(f"algorithm {name!r} made a schedule for {made.n} members instead of {n}")
    return made
