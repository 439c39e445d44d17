"""The public API: quick to import, and changed on purpose only (tests/docs_site says that it is documented)."""

import doctest
import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import chakra

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "snapshot_api.py"))
PUBLIC: tuple[str, ...] = TOOL["PUBLIC"]
FOLDERS = {
    "chakra": "chakra",
    "chakra.replay": "replay",
    "chakra.converters": "converters",
    "chakra.schemas": "schemas",
}


def test_the_api_is_the_one_on_record() -> None:
    """After a change that is meant: python tools/snapshot_api.py."""
    assert TOOL["snapshot"]() == (ROOT / "tests" / "packaging" / "api.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    listed = list(module.__all__)
    assert listed
    assert len(set(listed)) == len(listed)
    seen: dict[str, Any] = {}
    exec(f"from {name} import *", seen)
    assert set(listed) <= set(seen)


def test_the_top_lists_its_names_before_they_are_used() -> None:
    assert set(chakra.__all__) <= set(dir(chakra))
    with pytest.raises(AttributeError, match="module 'chakra' has no attribute 'simulat'"):
        chakra.simulat  # type: ignore[attr-defined]  # noqa: B018


def test_the_top_repeats_what_packages_define() -> None:
    homes = [importlib.import_module(name) for name in PUBLIC if name != "chakra"]
    for name in chakra.__all__:
        value = getattr(chakra, name)
        assert name == "__version__" or any(getattr(home, name, None) is value for home in homes), name


@pytest.mark.parametrize("package", ["chakra", "chakra.converters.pytorch"])
def test_importing_a_package_of_lazy_names_is_quick(package: str) -> None:
    """Nothing that takes long is imported until a name needs it."""
    slow = ("numpy", "google.protobuf", "msgspec", "click", "chakra.et", "chakra.replay")
    check = f"import {package}, sys; print([name for name in {slow!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def with_examples() -> list[str]:
    """Modules whose docstrings hold examples."""
    found = []
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if re.search(r"^\s*>>> (?!.*# doctest: \+SKIP)", path.read_text("utf-8"), re.MULTILINE):
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                found.append(".".join((package, *parts)).removesuffix(".__init__"))
    return found


@pytest.mark.parametrize("name", with_examples())
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
