"""Packets by ns-3: its wheel, found and loaded when a run asks for it, and glue in C++ that talks to it in batches.

ns-3 is under the GPL, version 2; nothing of it is part of this package, which imports it only where it is installed.
"""
