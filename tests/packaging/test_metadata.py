"""What gets into the wheel, and that the metadata, README and CI say the same thing."""

import ast
import re
import runpy
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import setuptools

import chakra

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def arguments() -> dict[str, Any]:
    """What setup.py hands to setuptools."""
    seen: dict[str, Any] = {}
    patch = pytest.MonkeyPatch()
    patch.setattr(setuptools, "setup", lambda **options: seen.update(options))
    patch.chdir(ROOT)
    runpy.run_path(str(ROOT / "setup.py"))
    patch.undo()
    return seen


def tracked(folder: str) -> list[Path]:
    """Files of the repository below a folder, relative to it; build leftovers do not count."""
    return [
        path.relative_to(ROOT / folder)
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".pyc", ".nbi", ".nbc")
    ]


def test_every_package_on_disk_is_in_the_wheel(arguments: dict[str, Any]) -> None:
    """Folders of modules and folders of data; those of modules say that they are packages."""
    on_disk = set()
    for package, folder in arguments["package_dir"].items():
        for path in tracked(folder):
            on_disk.add(".".join((package, *path.parent.parts)))
            if path.suffix == ".py":
                assert (ROOT / folder / path.parent / "__init__.py").is_file(), path
    assert on_disk == set(arguments["packages"])


def test_every_data_file_is_in_the_wheel(arguments: dict[str, Any]) -> None:
    missing = []
    for package, folder in arguments["package_dir"].items():
        patterns = arguments["package_data"].get(package, [])
        for path in tracked(folder):
            name = path.as_posix()
            if path.suffix != ".py" and not any(
                fnmatch(f"/{name}", pattern.replace("**", "*")) for pattern in patterns
            ):
                missing.append(f"{folder}/{name}")
    assert missing == []


def test_versions_agree() -> None:
    assert PROJECT["version"] == chakra.__version__


def test_the_wheel_is_pure_python(arguments: dict[str, Any]) -> None:
    assert "ext_modules" not in arguments
    assert PROJECT["requires-python"] == ">=3.11"


def test_every_requirement_has_a_lower_bound() -> None:
    """CI installs the lower bounds in an environment of their own (tools/check_wheel.py)."""
    for line in PROJECT["dependencies"]:
        assert re.match(r"[A-Za-z0-9._-]+>=[0-9]", line), line


def test_the_generated_protobuf_module_runs_on_the_oldest_runtime() -> None:
    """A runtime refuses modules that a newer protoc wrote; the floor is that of pyproject.toml."""
    tree = ast.parse((ROOT / "schemas" / "et_def_pb2.py").read_text())
    stated = [
        tuple(part.value for part in node.args[1:3] if isinstance(part, ast.Constant))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and "ValidateProtobufRuntimeVersion" in ast.unparse(node.func)
    ]
    assert all(version <= (5, 29) for version in stated)  # older compilers state none
    assert "protobuf>=5.29,<8" in PROJECT["dependencies"]


def commands(text: str) -> list[str]:
    """Shell lines of the fenced blocks of a Markdown text."""
    blocks = re.findall(r"^```(?:sh|console|bash)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def test_readme_and_ci_run_the_same_test_command() -> None:
    """.ci/run names its commands INSTALL and TEST; README's second command is both, joined."""
    script = (ROOT / ".ci" / "run").read_text()
    install = re.search(r"^INSTALL='(.*)'$", script, re.MULTILINE)
    test = re.search(r"^TEST='(.*)'$", script, re.MULTILINE)
    assert install
    assert test
    spelled = [
        line.replace('"', "'") for line in commands((ROOT / "README.md").read_text()) if "pytest" in line
    ]
    wanted = f"{install[1]} && {test[1]}".replace('"', "'")
    assert any(line.endswith(wanted) for line in spelled), (wanted, spelled)


def test_ci_names_no_host() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert not re.search(r"https?://|index-url|[a-z0-9-]+\.(org|com|io|net)\b", script)


def test_python_dash_m_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "chakra", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"chakra, version {chakra.__version__}\n"
