"""Upstream's module path for its TextConverter."""

from chakra.upstream.classes import TextConverter as TextConverter
