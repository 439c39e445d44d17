"""Upstream's module path for its converter command."""

from chakra.upstream.commands import converter as main

if __name__ == "__main__":
    main()
