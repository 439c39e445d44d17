"""Every bad input gives its exit code and exactly one line that says what is wrong; nothing else happens.

``expected.txt`` holds ``name <tab> exit code <tab> line``. After a message was changed on purpose:
``python tests/bad_inputs/test_bad_inputs.py`` writes it anew; read the difference before keeping it.
"""

import contextlib
import io
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from cases import Case, all_cases

from chakra.cli.main import run

HERE = Path(__file__).resolve().parent
CASES = all_cases()
TABLE = HERE / "expected.txt"


def expected() -> dict[str, tuple[int, str]]:
    """Name -> exit code and line."""
    rows = [line.split("\t", 2) for line in TABLE.read_text(encoding="utf-8").splitlines()]
    return {name: (int(code), text) for name, code, text in rows}


class Outcome(NamedTuple):
    """Exit code, standard error, standard output, and what changed in the folder."""

    code: int
    err: str
    out: str
    changed: list[str]


def outcome(case: Case, folder: Path) -> Outcome:
    """Run a case."""
    for name, content in case.files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    out, err = io.StringIO(), io.StringIO()
    home = os.getcwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(case.args.split())
    finally:
        os.chdir(home)
    after = {path.name: path.read_bytes() if path.is_file() else b"" for path in folder.iterdir()}
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return Outcome(code, err.getvalue(), out.getvalue(), changed)


def test_the_table_and_the_cases_are_the_same() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert set(names) == set(expected())
    assert len(names) >= 150


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input(tmp_path: Path, case: Case) -> None:
    code, err, out, changed = outcome(case, tmp_path)
    wanted_code, wanted = expected()[case.name]
    assert (code, err) == (wanted_code, wanted + "\n")
    assert code in (2, 3, 4)
    assert out == ""
    assert changed == []
    assert wanted.isprintable()
    assert len(wanted) <= 2000


def _write() -> int:
    """Write the table, unless a case breaks the rules that hold for all."""
    rows, wrong = [], 0
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            code, err, out, changed = outcome(case, Path(folder))
        rows.append(f"{case.name}\t{code}\t{err.rstrip()}")
        if err.count("\n") != 1 or out or changed or code not in (2, 3, 4):
            wrong += 1
            print(f"{case.name}: code {code}, out {out[:80]!r}, changed {changed}, err {err[:300]!r}")
    if not wrong:
        TABLE.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return wrong


if __name__ == "__main__":
    sys.exit(_write() > 0)
