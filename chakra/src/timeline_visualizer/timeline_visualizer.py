"""Upstream's module path for its timeline_visualizer command."""

from chakra.upstream.commands import timeline_visualizer as main

if __name__ == "__main__":
    main()
