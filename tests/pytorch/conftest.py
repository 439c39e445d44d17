"""Small traces made by hand, so that every expected number can be counted on paper."""

import pytest
from mini_job import MiniJob


@pytest.fixture
def job() -> MiniJob:
    """An empty job."""
    return MiniJob()
