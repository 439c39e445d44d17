"""A fence for commands: memory, time and file sizes are bounded."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str
    seconds: float
    peak: int


Fence = Callable[..., Ended]


@pytest.fixture(scope="session")
def _driver() -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NO_COLOR": "1"}
    driver = Path(__file__).with_name("fenced.py")
    with subprocess.Popen(
        [sys.executable, driver],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=environment,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def fence(_driver: "subprocess.Popen[str]", tmp_path: Path) -> Fence:
    """Run `chakra ARGS` in `tmp_path` with 2 GiB of address space and 20 s, unless said otherwise."""

    def run(
        *args: object, memory: int = 2 << 30, seconds: float = 20, files: int = 0, cwd: Path = tmp_path
    ) -> Ended:
        job = {
            "args": [str(arg) for arg in args],
            "cwd": str(cwd),
            "memory": memory,
            "seconds": seconds,
            "files": files,
            "env": {},
        }
        assert _driver.stdin is not None
        assert _driver.stdout is not None
        _driver.stdin.write(json.dumps(job) + "\n")
        _driver.stdin.flush()
        return Ended(**json.loads(_driver.stdout.readline()))

    return run
