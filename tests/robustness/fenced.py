"""One `chakra` command line after another, each in a process of its own behind a bound on memory and time.

Run as a program. It reads lines of JSON ``{"args", "cwd", "memory", "seconds", "files", "env"}`` from standard input,
forks for each and writes a line ``{"code", "out", "err", "seconds", "peak"}``. The modules are imported once, so that
an attack costs tens of milliseconds; the bounds hold for the child alone.
"""

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from typing import Any


def _child(job: dict[str, Any], out: int, err: int) -> None:
    """Become the command."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(job["cwd"])
    os.environ.update(job["env"])
    resource.setrlimit(resource.RLIMIT_AS, (job["memory"], job["memory"]))
    # where files may not grow, Python cuts the bytecode of what it imports short, and every later process reads that
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    if job["files"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["files"], job["files"]))
    sys.stdin, sys.stdout = open(0), open(1, "w", closefd=False)  # noqa: SIM115 - for the life of the process
    sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    code = 1
    try:
        from chakra.cli.main import entry

        entry(job["args"])
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1
    except BaseException as error:  # what the command line itself would have shown as a traceback
        os.write(2, f"Traceback: {type(error).__name__}: {error}\n".encode())
        code = 70
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _run(job: dict[str, Any]) -> dict[str, Any]:
    """Fork, wait within the time bound, report."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.monotonic()
        pid = os.fork()
        if pid == 0:
            _child(job, out.fileno(), err.fileno())
        while True:
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() - begin > job["seconds"]:
                os.killpg(pid, signal.SIGKILL)
                _, _, usage = os.wait4(pid, 0)
                code = -1000
                break
            time.sleep(0.002)
        taken = time.monotonic() - begin
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(1 << 20).decode("utf-8", "replace"))
        return {
            "code": code,
            "out": texts[0],
            "err": texts[1],
            "seconds": taken,
            "peak": usage.ru_maxrss << 10,
        }


def main() -> None:
    """Answer jobs until standard input ends."""
    import chakra.cli.commands.replay
    import chakra.cli.main
    import chakra.et
    import chakra.replay.api
    import chakra.replay.config.network  # noqa: F401

    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
