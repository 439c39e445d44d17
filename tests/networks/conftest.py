"""Lets the tests of this folder import its helper module, and the example package of the guide."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve()
for folder in (HERE.parent, HERE.parents[2] / "docs" / "examples" / "plugin"):
    sys.path.insert(0, str(folder))
