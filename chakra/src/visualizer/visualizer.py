"""Upstream's module path for its visualizer command."""

from chakra.upstream.commands import visualizer as main

if __name__ == "__main__":
    main()
