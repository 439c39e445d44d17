"""Replay of execution traces on an analytical network and collective model."""

from typing import TYPE_CHECKING

from chakra.lazy import lazy_names

if TYPE_CHECKING:
    from chakra.replay.api import simulate
    from chakra.replay.results.result import ReplayResult

__all__ = ["ReplayResult", "simulate"]

# importing the package stays cheap: configurations are read without the engines
lazy_names(__name__, {"ReplayResult": "chakra.replay.results.result", "simulate": "chakra.replay.api"})
