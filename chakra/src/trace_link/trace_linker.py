"""Upstream's module path for its TraceLinker."""

from chakra.upstream.classes import TraceLinker as TraceLinker
