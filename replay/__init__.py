"""Replay of execution traces on an analytical network and collective model."""

from typing import TYPE_CHECKING

from chakra.lazy import lazy_names

if TYPE_CHECKING:
    from chakra.replay.api import simulate
    from chakra.replay.backends import BackendDifference, CollectiveDifference, compare_backends
    from chakra.replay.results.result import ReplayResult

__all__ = ["BackendDifference", "CollectiveDifference", "ReplayResult", "compare_backends", "simulate"]

# importing the package stays cheap: configurations are read without the engines
_BACKENDS = "chakra.replay.backends"
lazy_names(
    __name__,
    {
        "BackendDifference": _BACKENDS,
        "CollectiveDifference": _BACKENDS,
        "ReplayResult": "chakra.replay.results.result",
        "compare_backends": _BACKENDS,
        "simulate": "chakra.replay.api",
    },
)
