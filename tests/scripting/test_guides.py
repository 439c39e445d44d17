"""The blocks of the guides on sharing and scripting run; their tables name what there is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chakra.anonymize.trace import KEPT_ATTRIBUTES
from chakra.output_schemas import names

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"


def blocks(page: str, language: str) -> list[str]:
    text = (GUIDES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["sharing.md", "scripting.md"])
def test_blocks_run(page: str, tmp_path: Path) -> None:
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    commands = [["bash", "-euo", "pipefail", "-c", block] for block in blocks(page, "sh")]
    commands += [[sys.executable, "-W", "error", "-c", block] for block in blocks(page, "python")]
    assert commands
    for command in commands:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)


def test_tables_are_whole() -> None:
    scripting = (GUIDES / "scripting.md").read_text()
    assert all(f"`{name}`" in scripting for name in names())
    sharing = (GUIDES / "sharing.md").read_text()
    assert all(f"`{name}`" in sharing for name in KEPT_ATTRIBUTES)
