"""Fixtures shared by all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

# how long an example takes says more about the machine, its other work and a compiler's first run than about the code
settings.register_profile("chakra", deadline=None)
settings.load_profile("chakra")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with the reference data beside the repository; tests that need it skip where it is absent."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("no reference data beside the repository (../shared)")
    return folder
