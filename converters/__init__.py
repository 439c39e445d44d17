"""Converters from other formats into execution traces: `text` workloads, `pytorch` profiles, `astra_config` files."""

__all__ = ["astra_config", "pytorch", "text"]
