"""Upstream's module path for its generator command."""

from chakra.upstream.commands import generator as main

if __name__ == "__main__":
    main()
