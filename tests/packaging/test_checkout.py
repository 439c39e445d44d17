"""Python started in a checkout's root imports the whole package from there, installed or not."""

import subprocess
import sys
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parents[2]
#: run without the site module (-S), which would install the finder of an editable installation
PROGRAM = """
import sys
sys.path.append({packages!r})
import chakra.builder, chakra.converters, chakra.replay, chakra.schemas
for name in ("chakra", "chakra.replay", "chakra.converters", "chakra.schemas"):
    print(sys.modules[name].__path__[0])
"""


def test_every_subpackage_is_found_from_the_root() -> None:
    packages = str(Path(numpy.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM.format(packages=packages)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [
        str(ROOT / folder) for folder in ("chakra", "replay", "converters", "schemas")
    ]
