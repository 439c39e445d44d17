"""Networks that another package simulates: what they state of themselves, held to what a network file may say."""

import math
from typing import Any

import numpy as np

from chakra.arguments import shown
from chakra.errors import ConfigError
from chakra.io.limits import MAX_NPUS
from chakra.io.readable import counted, with_article
from chakra.replay.config.model import Dimension, LinkTopology, Network
from chakra.replay.networks.interface import OutsideNetwork
from chakra.replay.plugins import guarded


def simulates(made: object) -> bool:
    """Whether something is meant as an `OutsideNetwork`: it can begin a run."""
    return hasattr(made, "begin") and not isinstance(made, type)


def outside_network(made: Any) -> Network:
    """The network of an `OutsideNetwork`.

    Raises
    ------
    ConfigError
        If it has no name, or no dimensions that a network can have.
    """
    given = guarded(lambda: made.name, f"network: {with_article(type(made).__name__)} has no name")
    if not isinstance(given, str) or not given:
        raise ConfigError(
            f"network: the name of {with_article(type(made).__name__)} must be a text, not {shown(given)}"
        )
    words = f"network {given!r}"
    if not isinstance(made, OutsideNetwork) or not callable(made.begin):
        raise ConfigError(
            f"{words}: {with_article(type(made).__name__)} has not what an OutsideNetwork has: name, dims, begin()"
        )
    stated = guarded(lambda: list(made.dims), f"{words} states no dimensions")
    if not stated:
        raise ConfigError(f"{words} has no dimensions: at least one is needed")
    dims = tuple(_dimension(f"{words}: dimension {d}", dim) for d, dim in enumerate(stated))
    network = Network(dims, words, outside=made)
    if network.npus > MAX_NPUS:
        raise ConfigError(
            f"{words} has {counted(network.npus, 'NPU')} in all, more than the {MAX_NPUS} supported"
        )
    return network


def _dimension(words: str, stated: Any) -> Dimension:
    """One logical dimension."""
    values: list[float] = []
    for name, what, least in (
        ("npus", "a whole number of NPUs, at least 2", 2),
        ("bandwidth_gibps", "a number of GB/s above 0", 0),
        ("latency_ns", "a number of ns, 0 or more", 0),
    ):
        value = getattr(stated, name, None)
        kinds = (int, np.integer) if name == "npus" else (int, float, np.integer, np.floating)
        number = float(value) if isinstance(value, kinds) and not isinstance(value, bool) else math.nan
        if not least <= number < math.inf or (name == "bandwidth_gibps" and number == 0):
            raise ConfigError(f"{words}: {name} must be {what}, not {shown(value)}")
        values.append(number)
    return Dimension(LinkTopology.OUTSIDE, int(values[0]), float(values[1]), float(values[2]))
