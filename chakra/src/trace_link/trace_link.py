"""Upstream's module path for its trace_link command."""

from chakra.upstream.commands import trace_link as main

if __name__ == "__main__":
    main()
