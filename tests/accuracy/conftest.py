"""Predictions of measured rows are made once: tests of tables, stored predictions and commands share many."""

from collections.abc import Iterator
from functools import cache

import pytest

from chakra.accuracy import predictions


@pytest.fixture(scope="session", autouse=True)
def _each_row_once() -> Iterator[None]:
    """A prediction is a function of the row alone (test_ahead.py holds two of the same to be equal)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictions, "predict_case", cache(predictions.predict_case))
        yield
