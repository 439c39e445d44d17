"""CONTRIBUTING's map: every row names files that exist, what is to be run, and tests that hold the rule."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ADD = (
    *("algorithm", "command", "configuration key", "output field", "network", "preset", "correction"),
    *("kernel", "attribute of nodes"),
)


def rows(text: str) -> dict[str, list[str]]:
    """Rows of the table "to add": what is added -> the other cells."""
    table = text.partition("| to add |")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {first: others for first, *others in cells}


def paths(cell: str) -> list[str]:
    """Files and folders that a cell names."""
    return [name for name in re.findall(r"`([^`]+)`", cell) if "/" in name or name.endswith(".md")]


ROWS = rows(TEXT)


def test_the_map_has_what_people_add() -> None:
    assert [word for word in ADD if not any(word in row for row in ROWS)] == []
    assert all(len(others) == 3 for others in ROWS.values())


@pytest.mark.parametrize("row", ROWS)
def test_a_row_names_files_that_exist_and_tests_that_hold_it(row: str) -> None:
    edit, run, held = ROWS[row]
    assert [path for path in paths(edit + run + held) if not (ROOT / path).exists()] == []
    assert paths(edit) or "__all__" in edit
    assert [path for path in paths(run) if not path.startswith("tools/")] == []
    assert paths(held)
    assert [path for path in paths(held) if not re.fullmatch(r"tests/\w+/test_\w+\.py", path)] == []


def test_names_in_the_map_are_in_the_files_beside_them() -> None:
    """`OURS` in `replay/collectives/registry.py`: a table that was renamed is noticed."""
    named = re.findall(r"`([A-Z_]+)` in `([^`]+)`", TEXT)
    assert len(named) >= 4
    assert [
        name for name, path in named if not re.search(rf"^{name}\b", (ROOT / path).read_text(), re.M)
    ] == []


def test_a_file_that_is_gone_is_noticed() -> None:
    """The proof that the tests above can fail."""
    head = "| to add | edit | run | held by |\n| --- | --- | --- | --- |\n"
    table = head + "| x | `a/gone.py` | | `tests/x/test_y.py` |\n\n"
    assert rows(table) == {"x": ["`a/gone.py`", "", "`tests/x/test_y.py`"]}
    assert [path for path in paths("`a/gone.py`, `X`") if not (ROOT / path).exists()] == ["a/gone.py"]


def test_everything_else_that_the_page_names_exists() -> None:
    """Commands and links outside the map, too."""
    named = re.findall(r"\b((?:tests|tools|benchmarks|docs|\.ci)/[\w./-]*\w)", TEXT)
    assert [path for path in named if not (ROOT / path).exists()] == []
