"""How big the house is and which files an input passes, of the working tree and of other commits beside it.

    python tools/house.py [COMMIT ...] [--walks]

Prints a column for each commit and one for the working tree: modules on top of `replay/`, lines of source, lines of
kernels that import, uses of `Any`, places that call `make_plan`, files that mention `preferred-dataset-splits`, and the
files of which code runs for a collective (traces and configuration to result) and for the kernels of a PyTorch profile
(link, convert). Files count where a function of theirs runs; the command line's own are left out, and so is what runs
on import. With --walks these files are listed by folder.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import gate  # noqa: E402

FOLDERS = ("chakra", "replay", "converters", "schemas")
RING = ROOT / "traces" / "allreduce_ring8"
PROFILE = ROOT / "tests" / "data" / "pytorch" / "ddp"

#: the commands of a walk; OUT is a folder to write to
WALKS = {
    "a collective": [
        f"replay -w {RING}/workload -s {RING}/system.json -n {RING}/network.yml -m {RING}/memory.json -o OUT/result.json"
    ],
    "a Kineto kernel": [
        f"link --host {PROFILE}/ddp.rank0.et.json.gz --device {PROFILE}/ddp.rank0.kineto.json.gz -o OUT/linked.json",
        "convert pytorch -i OUT/linked.json -o OUT/job.0.et",
    ],
}

#: run by a Python of its own, which sees the commit's code alone: prints the files entered, in their order
FOLLOW = """
import contextlib, io, json, sys
from chakra.cli.main import run
code, commands = sys.argv[1], json.loads(sys.argv[2])
seen = {}
def enter(frame, event, _):
    if event == "call":
        seen.setdefault(frame.f_code.co_filename)
silent = io.StringIO()
with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
    for follow in None, enter:  # the first time imports all that is needed
        for command in commands:
            sys.setprofile(follow)
            status = run(command)
            sys.setprofile(None)
            assert status == 0, (command, status)
ours = [name[len(code) + 1:] for name in seen if name.startswith(code + "/")]
print(json.dumps([name for name in ours if not name.startswith("chakra/cli/")]))
"""


def sources(code: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of a commit's modules."""
    for folder in FOLDERS:
        for path in sorted((code / folder).rglob("*.py")):
            yield path.relative_to(code).as_posix(), path.read_text(encoding="utf-8")


def walk(commit: gate.Commit, commands: list[str]) -> list[str]:
    """Files of a commit that are entered by commands."""
    said = json.dumps([[word.replace("OUT", str(commit.out)) for word in line.split()] for line in commands])
    line = [sys.executable, "-c", FOLLOW, str(commit.code), said]
    done = subprocess.run(line, env=commit.environment(), cwd=commit.out, check=True, stdout=subprocess.PIPE)
    entered: list[str] = json.loads(done.stdout)
    return entered


def by_room(names: list[str]) -> str:
    """Files of each folder together; folders, and files in them, in the order in which they are first entered."""
    rooms: dict[str, list[str]] = {}
    for name in names:
        room, _, file = name.rpartition("/")
        rooms.setdefault(room, []).append(file.removesuffix(".py"))
    return "; ".join(f"{room}: {' '.join(files)}" for room, files in rooms.items())


def numbers(commit: gate.Commit) -> dict[str, int]:
    """What can be counted in the text of a commit."""
    texts = dict(sources(commit.code))
    kernels = [text for name, text in texts.items() if re.search(r"/kernels/|kernels?\.py$", name)]
    on_top = [name for name in texts if re.fullmatch(r"replay/(?!__init__)\w+\.py", name)]
    mentions = [text for text in texts.values() if "preferred-dataset-splits" in text]
    return {
        "modules on top of `replay/`": len(on_top),
        "modules": len(texts),
        "lines of source": sum(text.count("\n") for text in texts.values()),
        "lines of kernels that import": sum(import_lines(text) for text in kernels),
        "lines of kernels": sum(text.count("\n") for text in kernels),
        "uses of `Any`": sum(uses(text, "Any") for text in texts.values()),
        "calls of `make_plan`": sum(uses(text, "make_plan", called=True) for text in texts.values()),
        "files that mention `preferred-dataset-splits`": len(mentions),
    }


def uses(text: str, name: str, called: bool = False) -> int:
    """How often code reads a name; with `called`, how often it calls it."""
    nodes = list(ast.walk(ast.parse(text)))
    found = [node.func for node in nodes if isinstance(node, ast.Call)] if called else nodes
    return sum(isinstance(node, ast.Name) and node.id == name for node in found)


def import_lines(text: str) -> int:
    """Lines of import statements, those in brackets included."""
    return sum(
        found.group().count("\n") + 1
        for found in re.finditer(r"^(?:import|from) [^(\n]*(?:\([^)]*\))?", text, re.MULTILINE)
    )


def main() -> None:
    """Print the table, and the walks if they are asked for."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("commits", nargs="*", metavar="COMMIT")
    options.add_argument("--walks", action="store_true")
    given = options.parse_args()
    names = [*given.commits, None]
    with tempfile.TemporaryDirectory() as place:
        columns: list[dict[str, int]] = []
        for number, name in enumerate(names):
            folder = Path(place).resolve() / str(number)
            folder.mkdir()
            (folder / "site").mkdir()
            (folder / "site" / "sitecustomize.py").write_text(gate.CUSTOMIZE, encoding="utf-8")
            (folder / "out").mkdir()
            code = gate.check_out(name, folder / "code")
            commit = gate.Commit(name or "now", code, folder / "cache", folder, folder / "out")
            column = numbers(commit)
            for what, commands in WALKS.items():
                entered = walk(commit, commands)
                column[f"files that {what} passes"] = len(entered)
                if given.walks:
                    print(f"{commit.name}, {what}: {by_room(entered)}\n")
            columns.append(column)
    print("| | " + " | ".join(name or "now" for name in names) + " |")
    print("| --- |" + " --- |" * len(names))
    for row in columns[0]:
        print(f"| {row} | " + " | ".join(f"{column[row]:,}" for column in columns) + " |")


if __name__ == "__main__":
    main()
