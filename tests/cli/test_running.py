"""Ctrl-C while a replay is prepared, and while it runs."""

import signal

import pytest

from chakra.cli.support.running import Running


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_before_the_first_step_the_program_ends() -> None:
    """Traces are read and kernels compiled then, for a minute perhaps, and there is nothing to show."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Running():
        ctrl_c()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_ends_at_its_next_step_and_the_program_the_second_time() -> None:
    with Running() as progress:
        assert progress(1, 10)
        ctrl_c()
        assert not progress(2, 20)
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
