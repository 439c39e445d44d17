"""Drawings as files, one module a format."""
