"""What tests run in forks of a warm Python ends, prints and reads its surroundings as in a new process.

Starts themselves: every command in tests/scripting, wheels in tools/check_wheel.py, light imports in tests/packaging.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest
from ask import at_start

PROGRAMS = {
    "words": "import sys; print(sys.argv, __name__, sys.path[0]); print('é', file=sys.stderr)",
    "code": "import sys; sys.exit(3)",
    "text": "import sys; sys.exit('no')",
    "bytes": "import sys; sys.stdout.buffer.write(bytes(range(256)) * 1000)",
    "input": "import sys; print(repr(sys.stdin.read()))",
    "folder": "import os; print(os.getcwd(), os.environ['HERE'], os.umask(0))",
    "zone": "import time; print(time.localtime(0).tm_hour, time.tzname)",
    "at exit": "import atexit; atexit.register(print, 'last'); print('first')",
    "abort": "import os; os.abort()",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "closed": "import os; os.close(1); print('x')",
    "classes": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__module__)",
    "workers": "import subprocess, sys; print(subprocess.run(['sh', '-c', 'exit 5']).returncode)",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fork_does_what_a_new_process_does(name: str, tmp_path: Path) -> None:
    words = ["-c", PROGRAMS[name], "a", "b c"]
    variables = {**os.environ, "HERE": "there", "TZ": "Asia/Kathmandu"}
    warm = forked.python(words, tmp_path, variables=variables)
    new = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=variables, stdin=subprocess.DEVNULL, capture_output=True
    )
    assert (warm.returncode, warm.stdout, warm.stderr) == (new.returncode, new.stdout, new.stderr)


def test_an_error_is_told_and_a_warning_is_one_where_asked(tmp_path: Path) -> None:
    warning = "import warnings; warnings.warn('soft')"
    assert forked.python(["-c", warning], tmp_path).returncode == 0
    done = forked.python(["-W", "error", "-c", warning], tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith(b"UserWarning: soft\n")


def test_forks_know_nothing_of_each_other(tmp_path: Path) -> None:
    forked.python(
        ["-c", "import chakra, os, sys; chakra.left = 1; os.environ['LEFT'] = '1'; import numba"], tmp_path
    )
    look = (
        "import chakra, os, sys; print(hasattr(chakra, 'left'), 'LEFT' in os.environ, 'numba' in sys.modules)"
    )
    assert forked.python(["-c", look], tmp_path).stdout == b"False False False\n"


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'began')!r}, 'w').write(str(__import__('os').getpid())); import time; time.sleep(60)"
    with pytest.raises(subprocess.TimeoutExpired):
        forked.python(["-c", code], tmp_path, timeout=1)
    number = int((tmp_path / "began").read_text())
    limit = time.monotonic() + 10
    while Path(f"/proc/{number}/exe").exists() and os.path.exists(f"/proc/{number}/fd/0"):
        assert time.monotonic() < limit
        time.sleep(0.01)


def shell(code: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", code],
        cwd=folder,
        env={**forked.shell_variables(), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_shells_commands(tmp_path: Path) -> None:
    done = shell(
        "chakra topology torus --shape 2x2 | grep -c ' ' && cd / && chakra no-such; echo $?", tmp_path
    )
    count, code = done.stdout.split()
    assert int(count) > 4
    assert code == "2"
    assert "No such command 'no-such'" in done.stderr


def test_a_shell_changes_nothing_that_a_start_looks_at(tmp_path: Path) -> None:
    """So its commands are forks; it takes its prompt away, and adds names of its own."""
    done = shell("cd / && bash -c 'env -0'", tmp_path, PS1="(venv) ")
    there = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    assert at_start(there) == at_start(os.environ)


def test_another_environment_of_a_shell_is_a_new_process(tmp_path: Path) -> None:
    """What Python reads when it starts is never taken from the warm one."""
    done = shell("PYTHONVERBOSE=1 chakra --version", tmp_path)
    assert done.stdout.startswith("chakra, version")
    assert "import 'rich_click'" in done.stderr
    assert shell("chakra --version", tmp_path).stderr == ""


def test_a_signal_ends_a_shells_command_too(tmp_path: Path) -> None:
    """As of a fork, so of the program that stands for it."""
    done = shell(
        "chakra generate collective --npus 100000 --size 1MiB -o out & sleep 1; kill -9 $!; wait $!", tmp_path
    )
    assert done.returncode == 128 + signal.SIGKILL
    assert len(list(tmp_path.iterdir())) < 100_000
