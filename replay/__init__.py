"""Replay of execution traces on an analytical network and collective model."""
