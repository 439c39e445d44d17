"""Runs Graphviz in a process of its own: DOT on standard input, a picture to a file.

Graphviz is a C library that may take minutes or abort; in a child process it can be stopped and cannot take
the caller with it. Usage: ``python -m chakra.viz.formats.graphviz_worker FORMAT OUT``.
"""

import sys
from pathlib import Path

#: Exit code: there is neither the pygraphviz wheel nor a `dot` program.
NO_GRAPHVIZ = 69
#: What a user can do about it.
HOW_TO_GET_IT = "no Graphviz here (pip install 'chakra-replay[dot]', or any `dot` program)"


def main(picture: str, out: str) -> int:
    """Render standard input; 0 or ``NO_GRAPHVIZ``."""
    text = sys.stdin.buffer.read().decode()
    try:
        import pygraphviz
    except ImportError:
        return _with_program(text, picture, out)
    graph = pygraphviz.AGraph(string=text)
    graph.draw(out, format=picture, prog="dot")
    return 0


def _with_program(text: str, picture: str, out: str) -> int:
    import graphviz

    try:
        Path(out).write_bytes(graphviz.Source(text).pipe(format=picture))
    except graphviz.ExecutableNotFound:
        return NO_GRAPHVIZ
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
