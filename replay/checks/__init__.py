"""Checks of a run: before it, bounds of its integers, and why one stalled."""
