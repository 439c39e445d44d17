"""`python -m chakra`: the command line."""

from chakra.cli.main import entry

if __name__ == "__main__":
    entry()
