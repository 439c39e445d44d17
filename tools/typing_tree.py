"""Rebuild .typing/: a link tree in which type checkers find what this checkout imports under other names.

`chakra.replay`, `chakra.converters` and `chakra.schemas` are mapped to folders by setup.py, and modules that tests or
tools share are imported by their bare names; static tools see neither.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: modules that are imported by their bare names
SHARED = (
    "tests/*/*.py",
    "tools/*.py",
    "benchmarks/*.py",
    "docs/_ext/public_names.py",
    "docs/_ext/cited_places.py",
    "tests/anonymize/test_leaks.py",
)


def shared_modules() -> list[Path]:
    """Modules that scripts and tests import by their bare names, and those that they might."""
    return sorted(
        path
        for pattern in SHARED
        for path in ROOT.glob(pattern)
        if (path.name == pattern.rpartition("/")[2] or not path.name.startswith(("test_", "conftest", "__")))
        and path.name != "run.py"  # scripts; two folders have one
        and not (path.parent / "__init__.py").exists()
    )


def build() -> None:
    """Create (or refresh) the symbolic links below ROOT/.typing."""
    top = ROOT / ".typing"
    tree = top / "chakra"
    tree.mkdir(parents=True, exist_ok=True)
    for old in [*tree.iterdir(), *top.glob("*.py")]:
        old.unlink()
    for entry in sorted((ROOT / "chakra").iterdir()):
        if entry.name != "__pycache__":
            (tree / entry.name).symlink_to(entry)
    for name in ("replay", "converters", "schemas"):
        (tree / name).symlink_to(ROOT / name)
    for path in shared_modules():
        (top / path.name).symlink_to(path)


if __name__ == "__main__":
    build()
