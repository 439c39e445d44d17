"""Commands in processes of their own that need not import chakra again: forks of one that has (``warm.py``).

For tests whose subject is what a command does, not how Python starts: a start takes half a second. What differs from a
new process: chakra's modules are imported already. Starts have tests of their own (tests/cli/test_forked.py names them).
"""

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ask import ask, at_start, number

HERE = Path(__file__).parent


class _Warm:
    """A warm Python that started with these variables."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="chakra-warm-"))
        shim = self.folder / "bin" / "chakra"
        shim.parent.mkdir()
        shim.write_text(f"#!{sys.executable} -IS\n{(HERE / 'ask.py').read_text('utf-8')}", "utf-8")
        shim.chmod(0o755)
        command = [sys.executable, str(HERE / "warm.py"), str(self.folder)]
        # should this process be killed, it ends as well: its standard input then does
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=variables, start_new_session=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        atexit.register(self.end)

    def end(self) -> None:
        """End it, once what it runs has ended; its folder goes with it."""
        self.process.communicate(timeout=60)


_warm: dict[frozenset[tuple[str, str]], _Warm] = {}


def _of(variables: Mapping[str, str]) -> _Warm:
    """The warm Python for an environment, started when it is first asked for."""
    key = frozenset(at_start(variables).items())
    if key not in _warm:
        _warm[key] = _Warm(variables)
    return _warm[key]


def python(
    words: Sequence[str], folder: Path, *, variables: Mapping[str, str] | None = None, timeout: float = 120
) -> "subprocess.CompletedProcess[bytes]":
    """`python WORDS` in a folder: words begin with `-m MODULE` or `-c CODE`, perhaps behind `-W ACTION`.

    Parameters
    ----------
    variables
        The whole environment; that of this process by default.
    timeout
        Seconds until it is killed; `subprocess.TimeoutExpired` says so.
    """
    environment = dict(os.environ if variables is None else variables)
    warm = _of(environment)
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        open(os.devnull, "rb") as nothing,
        ask(
            str(warm.folder / "socket"),
            words,
            [file.fileno() for file in (nothing, out, err)],
            str(folder),
            environment,
        ) as answer,
    ):
        child = number(answer)
        answer.settimeout(timeout)
        try:
            code = number(answer)
        except TimeoutError:
            os.kill(child, 9)
            raise subprocess.TimeoutExpired(list(words), timeout) from None
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return subprocess.CompletedProcess(list(words), code, *texts)


def shell_variables(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment for shells in which `chakra` is a fork."""
    environment = dict(os.environ if variables is None else variables)
    folder = _of(environment).folder
    path = f"{folder / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return {**environment, "PATH": path, "CHAKRA_WARM": str(folder)}
