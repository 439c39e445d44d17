"""Pages as plain Markdown: tables whose rows fit their heads, a page for every command and public module."""

import importlib.util
import re
from pathlib import Path

import pytest

from chakra.cli.main import COMMANDS
from chakra.output_schemas import load, names

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def cells(row: str) -> int:
    """Cells of a row of a table; a pipe inside of code counts too, unless it is escaped."""
    return len(re.findall(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))) + 1


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_rows_of_tables_have_as_many_cells_as_their_head(page: Path) -> None:
    wide, fenced, wrong = 0, False, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if fenced or not line.lstrip().startswith("|"):
            wide = 0
            continue
        wide = wide or cells(line)
        if cells(line) != wide:
            wrong.append(f"line {number}: {cells(line)} cells, the head has {wide}")
    assert wrong == []


def test_cells_are_counted_as_readers_count_them() -> None:
    assert cells("| a | b |") == 2
    assert cells(r"| `x\|y` | b |") == 2
    assert cells("| `x|y` | b |") == 3


def test_every_command_has_a_page() -> None:
    pages = {path.stem for path in (DOCS / "cli").glob("*.md")} - {"index"}
    assert pages == set(COMMANDS)
    listed = (DOCS / "cli" / "index.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"[{name}]({name}.md)" not in listed] == []
    for name in COMMANDS:
        assert f"```{{chakra-command}} {name}\n" in (DOCS / "cli" / f"{name}.md").read_text(encoding="utf-8")


def test_every_public_module_has_a_page() -> None:
    spec = importlib.util.spec_from_file_location("public_names", DOCS / "_ext" / "public_names.py")
    assert spec is not None
    assert spec.loader is not None
    names = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(names)
    text = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    assert [module for module in names.MODULES if f"chakra-module:: {module}\n" not in text] == []
    listed = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    assert [module for module in names.MODULES if f"[{module}](" not in listed] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_name_files_of_the_repository_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = re.findall(r"(?<![\w./])((?:tests|tools|benchmarks)/[\w./-]*[\w/])", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_architecture_names_every_module_and_none_that_is_gone() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(
        r"`((?:chakra|replay|converters|schemas|tools|tests|benchmarks|docs)/[\w./*-]*)`", text
    )
    assert [path for path in named if not list(ROOT.glob(path.rstrip("/")))] == []
    modules = {
        path.relative_to(ROOT).as_posix()
        for package in ("chakra", "replay", "converters", "schemas")
        for path in (ROOT / package).rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    for path in named:
        if path.rstrip("/") in ("chakra", "replay", "converters", "schemas"):
            continue  # a whole package says nothing of a module
        if path.endswith("/"):
            modules -= {module for module in modules if module.startswith(path)}
        else:
            modules -= {found.relative_to(ROOT).as_posix() for found in ROOT.glob(path)}
    assert modules == set()


def test_every_json_document_and_its_keys_are_in_the_page_of_formats() -> None:
    text = (DOCS / "formats.md").read_text(encoding="utf-8")
    assert [name for name in names() if f"`{name}`" not in text] == []
    properties = load("chakra.replay.result/1")["properties"]
    assert [key for key in properties if f"`{key}`" not in text] == []
    for key in ("collectives", "dimensions", "links", "critical_path", "nodes"):
        assert [inner for inner in properties[key]["items"]["properties"] if f"`{inner}`" not in text] == []
