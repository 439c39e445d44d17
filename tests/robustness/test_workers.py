"""Pools of worker processes at an interruption: no task is waited for."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from multiprocessing import connection
from pathlib import Path

import pytest
from mini_job import MiniJob

from chakra.sweep.executors import runner
from chakra.workers import workers

#: longer than any test waits
LONG_S = 300.0


@pytest.fixture
def soon() -> Iterator[None]:
    """Ends far before a long task does."""
    start = time.monotonic()
    yield
    assert time.monotonic() - start < LONG_S / 5


def begun(future: Future[None]) -> None:
    while not future.running():
        time.sleep(0.01)


def fails_beside(seconds: float, failure: BaseException, tasks: list[Future[None]]) -> None:
    """Fail once a task has begun that takes so long."""
    with workers(2) as pool:
        tasks.append(pool.submit(time.sleep, seconds))
        begun(tasks[0])
        raise failure


@pytest.mark.usefixtures("soon")
def test_an_interrupted_block_ends_its_tasks() -> None:
    with pytest.raises(KeyboardInterrupt):
        fails_beside(LONG_S, KeyboardInterrupt(), [])


def test_a_failure_waits_for_tasks_that_run() -> None:
    tasks: list[Future[None]] = []
    with pytest.raises(ZeroDivisionError):
        fails_beside(0.5, ZeroDivisionError(), tasks)
    assert tasks[0].done()
    assert tasks[0].exception() is None


def interrupted_after_one(tasks: list[dict[str, object]], found: list[object]) -> None:
    with runner(workers=2) as run:
        for one in run(connection.wait, tasks):
            found.append(one)
            raise KeyboardInterrupt


@pytest.mark.usefixtures("soon")
def test_an_interrupted_study_ends_its_points() -> None:
    found: list[object] = []
    waits = [{"object_list": (), "timeout": seconds} for seconds in (0.0, LONG_S, LONG_S)]
    with pytest.raises(KeyboardInterrupt):
        interrupted_after_one(waits, found)
    assert found == [(0, [])]


def test_ctrl_c_ends_warmup(tmp_path: Path) -> None:
    """All processes at the terminal hear it, while they compile for the first time: a minute on two slow cores."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chakra", "warmup"],
        env=os.environ | {"CHAKRA_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    time.sleep(5)
    start = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.splitlines()[-1]) == (130, "chakra: interrupted")
    assert time.monotonic() - start < 5
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}


SCRIPTS = {
    "a study": """
from multiprocessing import connection
from chakra.sweep.executors import runner

with runner(workers=2) as run:
    print([result for _, result in run(connection.wait, [{"object_list": (), "timeout": 0.0}] * 2)])
""",
    "a job": """
import sys
from pathlib import Path
from chakra.converters.pytorch import Inputs, Settings, convert_job

folder = Path(sys.argv[1])
inputs = [Inputs(folder / f"job.rank{k}.et.json", folder / f"job.rank{k}.kineto.json", rank=k) for k in range(2)]
print(len(convert_job(inputs, folder / "made", Settings(), jobs=2).outcomes))
""",
    "a function of the script": """
from chakra.errors import UsageError
from chakra.workers import workers

def own():
    return 1

try:
    with workers(2) as pool:
        pool.submit(own)
except UsageError as error:
    print(error)
""",
}


def script(name: str, folder: Path) -> str:
    """What a script prints that does not ask whether it is the program."""
    path = folder / "script.py"
    path.write_text(SCRIPTS[name])
    ran = subprocess.run(
        [sys.executable, str(path), str(folder)], capture_output=True, text=True, timeout=LONG_S, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_scripts_need_no_guard(tmp_path: Path) -> None:
    """Worker processes do not run the script again, which would start workers of its own."""
    for rank in range(2):
        job = MiniJob()
        job.header["distributedInfo"] = {"rank": rank, "world_size": 2}
        job.op("first", 100, 50)
        job.write(tmp_path, f"job.rank{rank}")
    assert script("a job", tmp_path) == "2\n"
    assert script("a study", tmp_path) == "[[], []]\n"


def test_functions_of_the_script_are_refused(tmp_path: Path) -> None:
    assert "own is a function of the script that runs" in script("a function of the script", tmp_path)


def started() -> None:
    with workers(2) as pool:
        for future in [pool.submit(time.sleep, 0.0) for _ in range(2)]:
            future.result()


def test_the_program_is_itself_again_after_pools_in_threads() -> None:
    program = sys.modules["__main__"]
    threads = [threading.Thread(target=started) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.modules["__main__"] is program
