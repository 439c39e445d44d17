"""Fixtures shared by all tests."""

import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# how long an example takes says more about the machine, its other work and a compiler's first run than about the code
settings.register_profile("chakra", deadline=None)
settings.load_profile("chakra")

ROOT = Path(__file__).resolve().parent.parent


BYTECODE = "PYTHONPYCACHEPREFIX"


def pytest_configure(config: pytest.Config) -> None:
    """Where Python is told to keep no bytecode, the Pythons that tests start keep it in a folder of this run.

    Hundreds are started, and each would compile 300 modules: a third of its time.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", "") and not hasattr(config, "workerinput"):
        os.environ[BYTECODE] = tempfile.mkdtemp(prefix="chakra-bytecode-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """The controlling process removes that folder when all have ended."""
    folder = os.environ.get(BYTECODE, "")
    if Path(folder).name.startswith("chakra-bytecode-") and not hasattr(config, "workerinput"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def no_lines_of_progress() -> None:
    """Commands that a busy machine takes long for say nothing of it here: tests compare whole standard errors."""
    from chakra.cli.support import progress

    progress.FIRST_LINE_S = 3600.0


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with the reference data beside the repository; tests that need it skip where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no reference data beside the repository (../shared)")
    return folder


@pytest.fixture(scope="session")
def perfetto_trace() -> Any:
    """perfetto's own message class; its generated code asks for a newer protobuf than it needs to be read."""
    from google.protobuf import runtime_version

    checked = runtime_version.ValidateProtobufRuntimeVersion
    runtime_version.ValidateProtobufRuntimeVersion = lambda *_: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace
    finally:
        runtime_version.ValidateProtobufRuntimeVersion = checked
    return Trace
