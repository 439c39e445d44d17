"""What other packages add through entry points: collective algorithms and networks.

A fault of such a package is one line that names the package. Two packages with one name are an error where the name is
used; a name of our own is never replaced.
"""

from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any, TypeVar

from chakra.errors import ConfigError, Terminated

COLLECTIVES = "chakra.collectives"
NETWORKS = "chakra.networks"

_T = TypeVar("_T")


@cache
def offered(group: str) -> dict[str, tuple[metadata.EntryPoint, ...]]:
    """Entry points of a group by name; several of one name are kept, `load` refuses them."""
    found: dict[str, list[metadata.EntryPoint]] = {}
    for point in metadata.entry_points(group=group):
        known = found.setdefault(point.name, [])
        # a package found on two places of the path is one package
        if (point.value, package(point)) not in [(other.value, package(other)) for other in known]:
            known.append(point)
    return {name: tuple(points) for name, points in sorted(found.items())}


def package(point: metadata.EntryPoint) -> str:
    """Name of the distribution that offers an entry point."""
    return point.dist.name if point.dist is not None else "an unnamed package"


def load(group: str, name: str, what: str) -> tuple[Any, str]:
    """The object of an entry point, and words that name it in messages.

    Parameters
    ----------
    group, name
        Of the entry point.
    what
        Kind of thing, for messages.

    Raises
    ------
    ConfigError
        If two packages offer the name, or the object cannot be loaded, whatever goes wrong there.
    KeyError
        If nobody offers the name.
    """
    points = offered(group)[name]
    if len(points) > 1:
        who = " and ".join(sorted(f"{package(point)} ({point.value})" for point in points))
        raise ConfigError(f"{what} {name!r} is offered by {who}: uninstall one of them")
    (point,) = points
    words = f"{what} {name!r} of {package(point)} ({point.value})"
    return guarded(point.load, f"{words} cannot be loaded"), words


def guarded(call: Callable[[], _T], failed: str) -> _T:
    """What a package's function returns; its exceptions become one line.

    Raises
    ------
    ConfigError
        `failed`, and what was raised.
    """
    try:
        return call()
    except Terminated:
        raise
    except ConfigError as error:
        raise ConfigError(f"{failed}: {error}") from error
    except (Exception, SystemExit) as error:  # the package's own fault, whatever it is
        lines = str(error).strip().splitlines()
        raise ConfigError(f"{failed}: {type(error).__name__}{': ' + lines[0] if lines else ''}") from error
