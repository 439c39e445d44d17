"""Replay of execution traces on an analytical network and collective model."""

from typing import Any

__all__ = ["ReplayResult", "simulate"]


def __getattr__(name: str) -> Any:
    """Import the engine when it is asked for, so that importing the package stays cheap."""
    if name == "simulate":
        from chakra.replay.api import simulate

        globals()["simulate"] = simulate
        return simulate
    if name == "ReplayResult":
        from chakra.replay.result import ReplayResult

        return ReplayResult
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
