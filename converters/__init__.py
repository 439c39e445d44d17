"""Converters from other formats into execution traces."""
