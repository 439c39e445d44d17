"""Upstream's module path for its jsonizer command."""

from chakra.upstream.commands import jsonizer as main

if __name__ == "__main__":
    main()
