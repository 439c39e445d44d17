"""The interface is frozen: a new, renamed or lost option shows as a difference of options.txt."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_options_are_those_of_the_snapshot() -> None:
    """After a deliberate change: python tools/snapshot_options.py, and a line in the CHANGELOG."""
    snapshot = runpy.run_path(str(ROOT / "tools" / "snapshot_options.py"))["snapshot"]()
    assert snapshot.splitlines() == (ROOT / "tests" / "cli" / "options.txt").read_text().splitlines()
