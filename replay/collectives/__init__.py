"""Collective algorithms and how a collective is cut into chunks and phases."""
