"""A Python that has imported chakra already and becomes, in a fork, the Python that a test asks for.

Run as a program: ``python warm.py FOLDER``. A connection to the socket in that folder brings three streams, a folder,
variables, and words as Python's command line has them (``ask.py``). The fork takes them on, runs ``-m MODULE`` or
``-c CODE`` as Python would, and ends as Python ends. The answer is its number, then its exit status as `subprocess`
has it. When standard input ends, so does the program, and the folder goes.

All modules of chakra are imported. numba is not: what is compiled depends on whether it is. Nothing runs before a fork,
so that each finds the state of a new process.
"""

import contextlib
import importlib
import io
import linecache
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import time
import warnings
from pkgutil import walk_packages
from types import ModuleType, TracebackType
from typing import Any

from ask import NUMBER, at_start


def receive(connection: socket.socket) -> tuple[list[int], dict[str, Any]]:
    """The streams (input, output, errors) and the message of a connection."""
    head, streams, _, _ = socket.recv_fds(connection, NUMBER, 3)
    length, body = int.from_bytes(head, "little"), b""
    while len(body) < length:
        part = connection.recv(length - len(body))
        if not part:
            raise EOFError("a message ends early")
        body += part
    return streams, marshal.loads(body)


def take_on(streams: list[int], job: dict[str, Any]) -> None:
    """Streams, folder, variables and signals of a job become those of this process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    made = []
    for number, old in enumerate((sys.__stdin__, sys.__stdout__, sys.__stderr__)):
        assert isinstance(old, io.TextIOWrapper)
        size = 0 if old.write_through else -1  # PYTHONUNBUFFERED
        raw = open(number, "wb" if number else "rb", size, closefd=False)  # noqa: SIM115 - for the life of the process
        lines = number == 2 or os.isatty(number)
        made.append(
            io.TextIOWrapper(
                raw, old.encoding, old.errors, line_buffering=lines, write_through=old.write_through
            )
        )
        file: Any = getattr(raw, "raw", raw)
        file.name = old.name  # as messages about it have it
        made[-1].mode = old.mode  # type: ignore[misc]
    sys.stdin, sys.stdout, sys.stderr = made
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = made  # type: ignore[misc]
    os.environ.clear()
    os.environ.update(job["variables"])
    time.tzset()
    os.chdir(job["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)


def tell(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    """Write an error as Python does, without the frames of this file."""
    for _ in range(3):
        frames = frames and frames.tb_next
    sys.__excepthook__(kind, error.with_traceback(frames), frames)


def become(words: list[str]) -> None:
    """Do what `python WORDS` does."""
    sys.excepthook = tell
    while words[0] == "-W":
        warnings.simplefilter(words[1])  # type: ignore[arg-type]
        words = words[2:]
    kind, what, *rest = words
    if kind == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = [what, *rest]
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *rest]
        if sys.version_info >= (3, 13):  # errors quote the code's lines
            lines = [f"{line}\n" for line in what.splitlines()]
            linecache.cache["<string>"] = (len(what), None, lines, "<string>")
        module = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), vars(module))
    else:
        raise ValueError(f"{kind} is neither -m nor -c")


def serve(listener: socket.socket) -> dict[str, Any] | None:
    """Answer connections until standard input ends; in the fork that is to run it, a job is returned."""
    while True:
        waiting: list[Any] = [listener, 0]
        ready, _, _ = select.select(waiting, [], [])
        if 0 in ready:
            return None
        connection, _ = listener.accept()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork():
            connection.close()
            continue
        listener.close()
        streams, job = receive(connection)
        child = os.fork()
        if child == 0:
            connection.close()
            take_on(streams, job)
            return job
        for stream in streams:
            os.close(stream)
        with contextlib.suppress(OSError):  # whoever asked has gone
            connection.sendall(child.to_bytes(NUMBER, "little"))
        ended = os.pidfd_open(child)
        asked: list[Any] = [ended, connection]
        if ended not in select.select(asked, [], [])[0]:  # whoever asked was killed
            os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(OSError):
            connection.sendall(code.to_bytes(NUMBER, "little", signed=True))
        os._exit(0)


def main() -> None:
    """Import, say so, serve."""
    folder = sys.argv[1]
    for package in ("chakra", "chakra.replay", "chakra.converters", "chakra.schemas"):
        for found in walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not found.name.endswith(".__main__"):
                importlib.import_module(found.name)
    for outside in ("jinja2", "ruamel.yaml", "statistics"):
        importlib.import_module(outside)
    assert not {"numba", "matplotlib", "scipy"} & set(sys.modules)
    with open(os.path.join(folder, "start"), "wb") as file:
        marshal.dump(at_start(os.environ), file)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(folder, "socket"))
        listener.listen(64)
        print("ready", flush=True)
        job = serve(listener)
    if job is not None:
        become(job["words"])
        return
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
