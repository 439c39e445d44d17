"""Python started in a checkout's root imports the whole package from there, installed or not."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import chakra

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


#: what setuptools is told; run in the root
TOLD = """
import json, sys
from distutils.core import run_setup
found = run_setup("setup.py", script_args=[sys.argv[1]], stop_after="init")
print(json.dumps([found.package_dir, found.packages]))
"""


def told(command: str) -> tuple[dict[str, str], list[str]]:
    pytest.importorskip("setuptools")
    text = f"import setuptools\n{TOLD}"
    done = subprocess.run(
        [sys.executable, "-c", text, command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    folders, packages = json.loads(done.stdout.splitlines()[-1])
    return folders, packages


def test_an_editable_installation_puts_the_root_on_the_path() -> None:
    """One folder for all packages: setuptools then writes its path, and no finder that Python asks last."""
    folders, packages = told("editable_wheel")
    assert folders == {"": "."}
    assert "chakra.cli.commands" in packages
    assert all((ROOT / name.replace(".", "/")).is_dir() for name in packages)
    folders, packages = told("bdist_wheel")
    assert folders["chakra.replay"] == "replay"
    assert {"chakra", "chakra.cli.commands", "chakra.replay.config", "chakra.schemas"} <= {*packages}


def test_a_script_beside_a_clone_that_is_called_chakra(tmp_path: Path) -> None:
    """Its folder comes first on `sys.path`, and without the root there the clone's folder was an empty package."""
    (tmp_path / "chakra").symlink_to(ROOT)
    (tmp_path / "script.py").write_text(
        f"import sys; sys.path += [{str(ROOT)!r}, {str(Path(numpy.__file__).parents[1])!r}]\n"
        "import chakra; from chakra.replay import simulate; print(chakra.__version__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == chakra.__version__, done.stderr
