"""Upstream's module path for its et_converter command."""

from chakra.upstream.commands import et_converter as main

if __name__ == "__main__":
    main()
