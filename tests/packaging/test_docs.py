"""README and guides: every command block runs, every link leads somewhere, tables fit the code."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import forked
import pytest
from recorded_job import modelled_job

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if re.search(r"^```(?:sh|bash|python)$", path.read_text(encoding="utf-8"), re.MULTILINE)
)
#: (page, how the block begins) -> why it is not run here
NOT_RUN = {
    ("README.md", "python3 -m venv .venv && . .venv/bin/activate && python -m pip install -q ."):
        "makes an environment; the next test runs the command behind it",
    ("README.md", 'python3 -m venv .venv && . .venv/bin/activate && python -m pip install -q -e'):
        "makes an environment and runs these tests",
    ("docs/index.md", "python3 -m venv"): "makes an environment; README's command is the same",
    ("docs/guides/pytorch.md", "from chakra.capture import capture"):
        "needs PyTorch and a training loop; tests/pytorch/test_capture.py runs one",
    ("docs/guides/sweeps.md", "chakra sweep docs/studies/gpt3"): "takes a minute; the next test compares the study",
    ("docs/reference/fabrics.md", "chakra sweep docs/studies/fabrics"):
        "takes minutes; tests/sweep/test_fabrics.py runs the study at a smaller size",
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A fenced block of commands or Python, and the output that the page shows for it."""

    language: str
    code: str
    shown: str | None


def blocks(page: str) -> list[Block]:
    """Blocks of a page in order; a ```text block right behind one is what it prints."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(
        r"^```(sh|bash|python)\n(.*?)^```\n(?:\n*```text\n(.*?)^```)?", text, re.DOTALL | re.MULTILINE
    )
    return [Block(language, code, shown or None) for language, code, shown in found]


def reason_not_run(page: str, block: Block) -> str | None:
    """Why a block is not run."""
    for (name, start), reason in NOT_RUN.items():
        if name == page and block.code.startswith(start):
            return reason
    return None


def prepare(page: str, folder: Path) -> None:
    """Files that a page speaks of as the reader's own."""
    recorded = page == "docs/guides/pytorch.md"  # on a GPU: one step of two ranks
    (folder / "traces").symlink_to(ROOT / ("tests/data/pytorch/ddp" if recorded else "traces"))
    if page in ("docs/guides/platforms.md", "docs/guides/collective-library.md"):
        for name, factor in (("all_reduce", 2), ("all_gather", 1)):
            write_log(folder / f"{name}.log", name, factor)
        write_log(folder / "all_reduce_16.log", "all_reduce", 2, 16)
        modelled_job([1 << 12, 1 << 20]).write(folder / "recorded")
    if page == "docs/guides/seeing.md":
        paths = ("-s", "traces/h100_box/system.json", "-n", "traces/h100_box/network.yml")
        for name, scale in (("base", "1"), ("faster", "0.5")):
            options = ["--compute-scale", scale, "--format", "json", "--nodes", "-o", f"{name}.json"]
            command = ["-m", "chakra", "replay", "-w", "traces/h100_box/workload"]
            run_python([*command, *paths, *options], folder)


def write_log(path: Path, name: str, factor: int, ranks: int = 4) -> None:
    """A log as nccl-tests write it: 20 us and 100 GB/s."""
    lines = [
        f"# {name}_perf",
        *(f"# Rank {rank} Group 0 Pid 1 on host device {rank}" for rank in range(ranks)),
    ]
    for size in (1 << k for k in range(10, 29, 3)):
        time = factor * (20 + size * (ranks - 1) / ranks / 1e5)
        rate = size / time / 1e3
        values = f"{time:.2f} {rate:.2f} {factor * rate * (ranks - 1) / ranks:.2f} 0"
        lines.append(f"{size} {size // 4} float sum -1 {values} {values}")
    path.write_text("\n".join(lines) + "\n")


def run_python(words: list[str], folder: Path) -> str:
    """Standard output of `python WORDS`, which must work."""
    done = forked.python(words, folder)
    assert done.returncode == 0, (words[-1], done.stdout[-2000:].decode(), done.stderr.decode())
    return done.stdout.decode()


def run_shell(code: str, folder: Path) -> str:
    """Standard output of shell commands, which must all work; `chakra` is a fork of a process that has imported it."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env=forked.shell_variables(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (code, done.stdout[-2000:], done.stderr)
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_in_order_and_print_what_is_shown(page: str, tmp_path: Path) -> None:
    """A page's blocks work, one after another, in a folder that has the shipped traces only."""
    prepare(page, tmp_path)
    for block in blocks(page):
        if reason_not_run(page, block) is None:
            if block.language == "python":
                is_shown(block, run_python(["-W", "error", "-c", block.code], tmp_path))
            else:
                is_shown(block, run_shell(block.code, tmp_path))


def is_shown(block: Block, output: str) -> None:
    """Check that the lines that a page shows are among those that are printed, in their order."""
    printed = [line.rstrip() for line in output.splitlines()]
    at = 0
    for line in (block.shown or "").splitlines():
        if line.strip() != "...":
            assert line.rstrip() in printed[at:], (block.code, line, printed)
            at = printed.index(line.rstrip(), at) + 1


def test_blocks_that_are_not_run_exist_and_are_few() -> None:
    """Nothing is left out by an entry that no longer fits, and hardly anything at all."""
    left_out = {key: [block for block in blocks(key[0]) if block.code.startswith(key[1])] for key in NOT_RUN}
    assert [key for key, found in left_out.items() if len(found) != 1] == []
    assert all(NOT_RUN.values())
    assert len(NOT_RUN) < sum(len(blocks(page)) for page in PAGES) / 4


def test_the_guides_study_is_the_one_that_ships() -> None:
    from ruamel.yaml import YAML

    text = (ROOT / "docs/guides/sweeps.md").read_text(encoding="utf-8")
    match = re.search(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert match
    shipped = (ROOT / "docs/studies/gpt3_1024_h100.yml").read_text(encoding="utf-8")
    yaml = YAML(typ="safe")
    assert yaml.load(match[1]) == yaml.load(shipped)


def test_readme_sets_up_and_replays_in_one_command(tmp_path: Path) -> None:
    """The first block is the main job: what follows the installation prints the tutorial's figure."""
    block = Block(
        "sh", *re.findall(r"^```sh\n(.*?)^```\n.*?```text\n(.*?)^```", README, re.DOTALL | re.MULTILINE)[0]
    )
    first = block.code.strip()
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
    assert block.shown is not None
    is_shown(block, done.stdout)


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


def test_every_option_of_replay_is_in_its_guides() -> None:
    """A flag that no guide names is a flag that nobody finds."""
    from chakra.cli.commands.replay import command

    text = (ROOT / "docs/guides/replay.md").read_text() + (ROOT / "docs/guides/migrating.md").read_text()
    missing = [
        parameter.name
        for parameter in command.params
        if parameter.name != "help" and not any(f"{option}" in text for option in parameter.opts)
    ]
    assert missing == []
