"""Collectives and dimensions that beat the bandwidth of their links, and why that can be."""

from collections.abc import Iterable
from typing import Final

from chakra.replay.options import FLOW, OUTSIDE

#: backends on which messages share links
SHARED_LINKS: Final = ("aware", FLOW)

#: why a time can be below its bound, by what gave it
_BEATEN: Final = {
    "library": (
        "* faster than the bandwidth of its links allows: the time is that of the library's costs, which are fitted to "
        "measurements, and off by their error here"
    ),
    OUTSIDE: "* faster than the bandwidth that the network states of itself allows",
    "shared": (
        "* faster than the bandwidth of its links allows: times count from the last member's start, and those that "
        "started earlier had sent bytes by then"
    ),
    "unaware": (
        "* faster than the bandwidth of its links allows: on the unaware backend messages do not share "
        "links (try --backend aware)"
    ),
}

#: beside shares of the links' time above 100 %, which no backend has that shares links
OVERBOOKED: Final = (
    "busy above 100 %: on backend unaware messages never wait for each other, and these need more of the links than they "
    "carry in this time, so that the time is too short; aware and flow share links"
)
#: shares above this one read as more than 100.0 %
_WHOLE: Final = 1.0005


def why_faster(time_ns: float, bound_ns: float, *, library: bool, backend: str, waited: bool) -> str:
    """What a star at a time below its bound means; empty where the time is not below it.

    Parameters
    ----------
    time_ns
        What collectives take from their last members' starts, ns.
    bound_ns
        What they take at least by the bandwidth of their links, ns; 0 where that is not known.
    library
        Whether the time is that of a collective library.
    backend
        The run's.
    waited
        Whether members started before the last one.
    """
    if time_ns >= bound_ns:
        return ""
    if backend in SHARED_LINKS:
        # of equal starts only rounding is below: messages take whole ns, packets have whole bytes
        return _BEATEN["shared"] if waited else ""
    return _BEATEN.get("library" if library else backend, _BEATEN["unaware"])


def busy_remark(shares: Iterable[float]) -> str:
    """Why dimensions are busy for more than all the time; empty where none is.

    Parameters
    ----------
    shares
        Bytes of each dimension over what its links carry up to the last finish.
    """
    return OVERBOOKED if any(share > _WHOLE for share in shares) else ""
