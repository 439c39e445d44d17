"""A folder of installed packages, and what is read from a command that meets them."""

import importlib
import re
from pathlib import Path

from chakra.replay import plugins
from chakra.replay.collectives import registry

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "plugin"


def place(site: Path, name: str, points: dict[str, dict[str, str]], files: dict[str, str]) -> None:
    """What an installation of a package leaves: its modules, and a dist-info with entry points."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in given.items()) for group, given in points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)


def forget() -> None:
    """Packages may have come or gone."""
    importlib.invalidate_caches()
    for cached in (plugins.offered, registry.find, registry.steps):
        cached.cache_clear()


def cycles(out: str) -> list[int]:
    """Finish times of all NPUs."""
    return [int(n) for n in re.findall(r"finished, (\d+) cycles", out)]
