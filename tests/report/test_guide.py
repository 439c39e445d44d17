"""The guide's commands and code do what they say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/guides/seeing.md").read_text(encoding="utf-8")
ENTRY = "import sys; from chakra.cli.main import entry; entry(sys.argv[1:])"


def test_the_guides_commands_run_in_order(tmp_path: Path) -> None:
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    text = GUIDE.replace("\\\n", " ")
    commands = [line.strip() for line in text.splitlines() if line.startswith("    chakra ")]
    assert len(commands) == 6
    ran = []
    for line in commands:
        command, _, target = line.partition(" > ")
        words = shlex.split(command)
        if "base.json" in words:
            for name in ("base.json", "faster.json"):
                (tmp_path / name).write_bytes((tmp_path / "run.json").read_bytes())
        done = subprocess.run(
            [sys.executable, "-c", ENTRY, *words[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        if target:
            (tmp_path / target.strip()).write_text(done.stdout)
        ran.append(words[1])
    assert set(ran) == {"visualize", "replay", "timeline", "report"}


def test_the_guides_python_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    code = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(code) == 1
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code[0]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    assert "Simulated time" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} >= {"h100.svg", "h100.pftrace", "account.pdf"}
