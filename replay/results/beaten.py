"""Collectives that are faster than the bandwidth of their links allows, and why that can be."""

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
