"""A text becomes a number in one place; what Python's own readers take beyond numbers is refused there."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.types import FloatParamType, IntParamType

from chakra.cli.main import COMMANDS, cli
from chakra.cli.support.numbers import DecimalNumber, DecimalRange, WholeNumber, WholeRange
from chakra.io.digits import decimal_number, exact_number, signed_whole_number, whole_number
from chakra.io.yaml import scalar

ROOT = Path(__file__).resolve().parents[2]
READERS: tuple[Callable[[str], object], ...] = (
    whole_number, signed_whole_number, decimal_number, exact_number,
)  # fmt: skip
#: what `int` or `float` takes, and people do not mean as a number
ODD = (
    "1_0",
    " 1",
    "1 ",
    "1\n",
    "nan",
    "-inf",
    "Infinity",
    "\u0661",
    "\uff11",
    "0x1",
    "",
    "+",
    ".",
    "1e",
    "²",
)


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("read", READERS)
def test_what_is_no_number_is_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        read(text)


def test_numbers_are_read() -> None:
    assert [whole_number(text) for text in ("0", "007", "12")] == [0, 7, 12]
    assert [signed_whole_number(text) for text in ("-0", "+7", "-12")] == [0, 7, -12]
    assert [decimal_number(text) for text in ("1", "-1.5", ".5", "2.", "1e3", "2.5E-1")] == [
        1, -1.5, 0.5, 2, 1000, 0.25,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="not a whole number"):
        whole_number("-1")
    for text in ("1e400", "-1e309"):
        with pytest.raises(ValueError, match="not a number"):
            decimal_number(text)
    assert str(exact_number("1e400")) == "1E+400"


@pytest.mark.parametrize("text", ["1_0", ".nan", ".inf", "1e400", "\u0661", "0o17", "010"])
def test_yaml_leaves_them_texts(text: str) -> None:
    assert scalar(text) == text


def _options(group: click.Command, path: str) -> Iterator[tuple[str, click.Parameter]]:
    for parameter in group.params:
        yield f"{path} {parameter.name}", parameter
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            found = group.get_command(context, name)
            assert found is not None
            yield from _options(found, f"{path} {name}")


def test_every_option_that_is_a_number_is_read_there() -> None:
    options = list(_options(cli, "chakra"))
    numbers = [
        (name, parameter.type)
        for name, parameter in options
        if isinstance(parameter.type, IntParamType | FloatParamType)
    ]
    ours = (WholeNumber, WholeRange, DecimalNumber, DecimalRange)
    assert [name for name, kind in numbers if not isinstance(kind, ours)] == []
    # the walk reached all commands
    assert len(numbers) > 100
    assert {name.split()[1] for name, _ in options} >= set(COMMANDS)


def test_no_pattern_takes_digits_of_other_scripts() -> None:
    """`\\d` of a pattern over texts matches them; patterns say [0-9]."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("chakra", "replay", "converters")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\\d", node.value)
    ]
    assert found == []


def test_the_type_checker_refuses_other_readers(tmp_path: Path) -> None:
    """The plugin of pyproject.toml, over a module in the place of the packages."""
    pytest.importorskip("mypy", reason="the type checker is not installed")
    package = tmp_path / ".typing" / "chakra"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    lines = [
        "def f(text: str, some: str | None, number: float) -> None:",
        "    int(number), float('inf'), int(text, 16), str(number)",
        "    int(text)",
        "    float(some or '')",
        "    Fraction(text)",
    ]
    (package / "made.py").write_text("from fractions import Fraction\n" + "\n".join(lines) + "\n")
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nplugins = {ROOT / 'tools' / 'text_numbers.py'}\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--cache-dir", "cache", ".typing/chakra/made.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    refused = re.findall(r"made\.py:(\d+): error: a text becomes a number by chakra\.io\.digits", done.stdout)
    assert refused == ["4", "5", "6"], done.stdout + done.stderr
