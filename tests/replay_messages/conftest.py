"""Lets the tests of this folder import the example package of the guide."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "examples" / "plugin"))
