"""Readers of the keys that name collective algorithms."""

from dataclasses import dataclass

from chakra.io.nearest import nearest
from chakra.io.shown import describe
from chakra.replay.config.algorithms import WINDOW_PATTERN, algorithm_names, canonical
from chakra.replay.config.key import Schema, UnfitError
from chakra.replay.config.readers import reads_as_head

_ALL_NAMES = (
    "ring, direct, direct<w>, halvingDoubling, doubleBinaryTree, rabenseifner, recursiveDoubling, bruck, binomialTree, "
    "chain, scatterAllGather, pipelinedTree, what packages offer; one<Name>: on one flat ring of all NPUs; inNetwork: "
    "by the switches, where the network file says that they can"
)


@dataclass(frozen=True, slots=True)
class AlgorithmList:
    """Algorithms of one collective, one per network dimension; in ASTRA-sim 1.0 also one text joined by ``_``."""

    names_all: bool = False
    missing: str = ""

    @property
    def allowed(self) -> str:
        """What a list may hold."""
        return "list of names, one per network dimension or fewer" + (
            f": {_ALL_NAMES}" if self.names_all else ""
        )

    def read(self, value: object, compat: str | None = None) -> tuple[str, ...] | None:
        """Names in their canonical form; None for an empty list, which ASTRA-sim misses only when it is needed."""
        if isinstance(value, str):
            if compat != "astra-sim-1.0":
                shown = ", ".join(f'"{part}"' for part in value.split("_"))
                raise UnfitError(
                    f"must be a list of algorithms, one per dimension, such as [{shown}]", "a text"
                )
            value = value.split("_")
        if not isinstance(value, (list, tuple)):
            raise UnfitError("must be a list of algorithms, one per dimension, such as [ ... ]")
        if not value and not reads_as_head(compat):
            raise UnfitError("is an empty list: name an algorithm per dimension, or leave the key out", "")
        return tuple(_algorithm(name, as_head=reads_as_head(compat)) for name in value) or None

    def schema(self) -> Schema:
        """Every name that is known here, those of installed packages too."""
        names = {"enum": list(algorithm_names(as_head=False))}
        item = {"anyOf": [names, {"type": "string", "pattern": WINDOW_PATTERN}]}
        return {"type": "array", "items": item, "minItems": 1}


def _algorithm(name: object, *, as_head: bool) -> str:
    hint = ""
    if isinstance(name, str):
        try:
            found = canonical(name, as_head=as_head)
        except ValueError as error:
            raise UnfitError(f"has {describe(name)}: {error}", "") from None
        if found is not None:
            return found
        hint = nearest(name, algorithm_names(as_head=as_head))
    known = ", ".join(algorithm_names(as_head=as_head))
    raise UnfitError(
        f"has {describe(name)}, which is not an algorithm{hint or '; known are ' + known}"
        " (direct and oneDirect may end in a window, such as direct4)",
        "",
    )


@dataclass(frozen=True, slots=True)
class PathPrefix:
    """A list with the path prefix of a custom algorithm's traces."""

    missing: str = ""

    @property
    def allowed(self) -> str:
        """What a list may hold."""
        return "list of one path prefix"

    def read(self, value: object, compat: str | None = None) -> str:
        """The prefix."""
        if isinstance(value, (list, tuple)):
            if len(value) == 1 and isinstance(value[0], str) and value[0]:
                return value[0]
            found = f"a list of {len(value)}"
        else:
            found = describe(value)
        raise UnfitError("must be a list with exactly one path prefix, which serves all dimensions", found)

    def schema(self) -> Schema:
        """A list of one text."""
        return {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 1}
