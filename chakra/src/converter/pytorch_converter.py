"""Upstream's module path for its PyTorchConverter."""

from chakra.upstream.classes import PyTorchConverter as PyTorchConverter
