"""README and guides: every command block runs, every link leads somewhere, tables fit the code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: pages whose blocks are run; a block marked ```text is not
PAGES = ["README.md", "docs/guides/replay.md", "docs/guides/migrating.md", "docs/formats.md"]


def blocks(page: str, *languages: str) -> list[str]:
    """Fenced blocks of a page in one of the languages."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def shell_lines(page: str) -> list[str]:
    """Command lines of a page that do not set up environments (CI runs those)."""
    lines = [line for block in blocks(page, "sh", "bash") for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.strip() and "venv" not in line and not line.startswith("#")]


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_in_order(page: str, tmp_path: Path) -> None:
    """A page's commands and Python blocks work, in a folder that has only the shipped traces."""
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for line in shell_lines(page):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, (line, done.stderr)
    for block in blocks(page, "python"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", block],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, (block, done.stderr)


def test_readme_sets_up_and_replays_in_one_command(tmp_path: Path) -> None:
    """The first block is the main job: what follows the installation prints the tutorial's figure."""
    first = blocks("README.md", "sh")[0].strip()
    assert "\n" not in first
    setup, _, job = first.rpartition("&& ")
    assert "venv" in setup
    assert "pip install" in setup
    assert job.startswith("chakra replay ")
    done = subprocess.run(
        [sys.executable, "-m", "chakra", *job.split()[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("finished, 117780 cycles") == 8


MARKDOWN = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "site-packages" not in path.parts),
]


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s#]+)", text):
        if not re.match(r"[a-z]+:", target):
            assert (path.parent / target).exists(), target


def test_the_configuration_reference_is_in_step() -> None:
    done = subprocess.run(
        [sys.executable, "tools/config_reference.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_every_option_of_replay_is_in_its_guides() -> None:
    """A flag that no guide names is a flag that nobody finds."""
    from chakra.cli.replay import command

    text = (ROOT / "docs/guides/replay.md").read_text() + (ROOT / "docs/guides/migrating.md").read_text()
    missing = [
        parameter.name
        for parameter in command.params
        if parameter.name != "help" and not any(f"{option}" in text for option in parameter.opts)
    ]
    assert missing == []
