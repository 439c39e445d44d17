"""Rebuild .typing/: a link tree in which type checkers find chakra.replay, chakra.converters, chakra.schemas.

The import packages are mapped to folders by setup.py; static tools do not see that mapping.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build() -> None:
    """Create (or refresh) the symbolic links below ROOT/.typing/chakra."""
    tree = ROOT / ".typing" / "chakra"
    tree.mkdir(parents=True, exist_ok=True)
    for old in tree.iterdir():
        old.unlink()
    for entry in sorted((ROOT / "chakra").iterdir()):
        if entry.name != "__pycache__":
            (tree / entry.name).symlink_to(entry)
    for name in ("replay", "converters", "schemas"):
        (tree / name).symlink_to(ROOT / name)


if __name__ == "__main__":
    build()
