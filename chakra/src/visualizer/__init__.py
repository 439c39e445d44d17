"""Upstream's module path."""
