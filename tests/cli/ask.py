"""Asks the warm Python (``warm.py``) for a fork: for tests as a module, for command lines of a shell as a program.

``forked.py`` writes this file as the program `chakra` into a folder of its own; it imports nothing that takes long.
"""

import marshal
import os
import socket
import sys
from collections.abc import Mapping, Sequence

#: variables that Python, chakra and what they import do not look at when they start; shells change half of them
FREE = frozenset(
    ("PATH", "PWD", "OLDPWD", "SHLVL", "PS1", "_", "PYTEST_CURRENT_TEST", "CHAKRA_WARM", "CHAKRA_CACHE_DIR")
)
#: bytes of a number in messages
NUMBER = 8


def at_start(variables: Mapping[str, str]) -> dict[str, str]:
    """Of an environment what decides how Python and chakra start."""
    return {name: value for name, value in variables.items() if name not in FREE}


def ask(
    path: str, words: Sequence[str], streams: Sequence[int], folder: str, variables: Mapping[str, str]
) -> socket.socket:
    """Have `python WORDS` run on three streams in a folder; the connection gives its number, then its exit status."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    body = marshal.dumps({"words": list(words), "folder": folder, "variables": dict(variables)})
    socket.send_fds(connection, [len(body).to_bytes(NUMBER, "little")], list(streams))
    connection.sendall(body)
    return connection


def number(connection: socket.socket) -> int:
    """The next number of an answer."""
    got = connection.recv(NUMBER, socket.MSG_WAITALL)
    if len(got) < NUMBER:
        raise EOFError("the warm Python has ended")
    return int.from_bytes(got, "little", signed=True)


def main() -> int:
    """Be `chakra`: in a fork, or by a start of its own where the environment is another one."""
    import signal

    warm = os.environ["CHAKRA_WARM"]
    words = ["-m", "chakra", *sys.argv[1:]]
    with open(os.path.join(warm, "start"), "rb") as file:
        start = marshal.load(file)
    if at_start(os.environ) != start:
        os.execv(sys.executable, [sys.executable, *words])
    connection = ask(os.path.join(warm, "socket"), words, (0, 1, 2), os.getcwd(), os.environ)
    number(connection)
    code = number(connection)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
