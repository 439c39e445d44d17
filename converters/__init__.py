"""Converters from other formats into execution traces: `text` workloads, `pytorch` profiles, `astra_config` files."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakra.converters import astra_config, pytorch, text

__all__ = ["astra_config", "pytorch", "text"]
