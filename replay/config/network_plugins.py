"""Networks that other packages make: the key `plugin` of a network file.

A package offers a function as an entry point of the group ``chakra.networks``. It takes the keyword arguments of the
file's `arguments`, and returns what `load_network` reads: a dict with the keys of a network file, a NetworkX graph, a
`Network`, or an `OutsideNetwork` that simulates the transfers itself.
"""

from collections.abc import Mapping
from typing import Any

from chakra.errors import ConfigError
from chakra.io.nearest import nearest
from chakra.io.readable import with_article
from chakra.io.shown import describe
from chakra.replay import plugins
from chakra.replay.config.keys import ARGUMENTS, PLUGIN, PLUGIN_KEYS
from chakra.replay.config.model import Network
from chakra.replay.config.outside import simulates
from chakra.replay.config.section import Section


def plugin_network(section: Section) -> tuple[Any, str]:
    """What the plugin of a file or dict returned, and words that name it in messages.

    Raises
    ------
    ConfigError
        For an unknown plugin, wrong arguments, or whatever goes wrong in the package.
    """
    section.refuse_unknown(PLUGIN_KEYS)
    name = section.read(PLUGIN)
    known = plugins.offered(plugins.NETWORKS)
    if name not in known:
        there = ", ".join(known) or "none is installed"
        raise section.error(
            PLUGIN.name, f"has {describe(name)}{nearest(name, list(known)) or f'; there are: {there}'}"
        )
    arguments = section.read(ARGUMENTS) or {}
    make, words = plugins.load(plugins.NETWORKS, name, "network")
    if not callable(make):
        raise ConfigError(f"{words} is {with_article(type(make).__name__)}, not a function")
    made = plugins.guarded(lambda: make(**arguments), f"{section.source}: {words} failed")
    graph = hasattr(made, "is_directed") and hasattr(made, "edges")
    if not (isinstance(made, Mapping | Network) or graph or simulates(made)):
        raise ConfigError(
            f"{section.source}: {words} returned {with_article(type(made).__name__)}: a dict with the keys of a "
            "network file, a NetworkX graph, a Network or an OutsideNetwork is needed"
        )
    if isinstance(made, Mapping) and "plugin" in made:
        raise ConfigError(f"{section.source}: {words} returned the name of a plugin, not a network")
    return made, f"{section.source} (plugin {name!r})"
