"""Whatever is given to a public function: it takes it, or says in one line which argument is wrong."""

import contextlib
import inspect
import io
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chakra.arguments import checked
from chakra.errors import ChakraError

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "docs" / "_ext"), str(Path(__file__).parent)]

from good_calls import Call, all_calls  # noqa: E402 - of this folder
from public_names import publics  # noqa: E402

HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 70, -(1 << 70), 10**5000, 1.5, float("nan"), float("inf"), -float("inf"), 1j),
    *("", "x", "\0", "a\nb", "x" * 5000, b"x", Path("nope"), Path(), "."),
    *([], [None], ["a"], [float("nan")], [1 << 70], [[1]], (), {}, {"a": 1}, {1: 2}, {"x": float("nan")}, set()),
    *(np.array([1.0]), np.array([], np.int64), np.zeros((2, 2)), np.array(["a"]), np.array([None])),
    *(np.int64(3), np.float32(2.5), np.bool_(True), object(), range(3), iter([1])),
)  # fmt: skip

#: called for every slice, row or node, by code that knows what it gives
BARE = {
    *(
        "NodeView.__init__",
        "ETFeederNode.__init__",
        "FoldTree.visible",
        "Timeline.process_name",
        "MachineParameters.level",
    ),
    *(f"Graph.{name}" for name in ("detail", "count_text", "cost_text", "tooltip")),
    *(f"TimelineBuilder.{name}" for name in ("__init__", "row", "slice", "slices", "flow")),
    # what plugins give is checked where it is used, with the name of the plugin
    *("from_rounds", "from_arrays", "best_segments"),
    # what a package writes, and the engine calls
    *("NetworkRun.submit", "NetworkRun.advance", "Expects.expect"),
    # they say more of a node than the decorator could
    *(f"TraceBuilder.{n}" for n in ("compute", "collective", "send", "recv", "load", "store", "metadata")),
}


def is_clear(error: Exception) -> bool:
    """Whether an error was raised on purpose, in one line."""
    if isinstance(error, ChakraError):
        return "\n" not in str(error) and len(str(error)) > 5
    # Python's own errors, where they say what is wrong
    last = traceback.extract_tb(error.__traceback__)[-1]
    return isinstance(error, IndexError | ValueError | TypeError) and (last.line or "").startswith("raise ")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The good calls, in a folder that has the files they name."""
    monkeypatch.chdir(tmp_path)
    return all_calls()


def attacks(call: Call) -> list[str]:
    """What a call answers to each hostile value in each place that is not in order."""
    name, function, good = call
    wrong = []
    for argument in good:
        for value in HOSTILE:
            try:
                with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function(**{**good, argument: value})
            except Exception as error:
                if not is_clear(error):
                    wrong.append(
                        f"{name}({argument}={type(value).__name__}): {type(error).__name__}: {error}"
                    )
    return wrong


def test_every_function_refuses_what_it_cannot_use(calls: list[Call]) -> None:
    assert [line for call in calls for line in attacks(call)] == []


def functions() -> list[Callable[..., Any]]:
    """Public functions and methods that take arguments."""
    found: dict[str, Any] = {}
    for _, _, value in publics():
        members = [value]
        if inspect.isclass(value):
            made = not hasattr(value, "__dataclass_fields__")
            members = [
                getattr(member, "__func__", member)
                for name, member in vars(value).items()
                if not name.startswith("_") or (name == "__init__" and made)
            ]
        for member in members:
            if inspect.isfunction(member) and member.__code__.co_filename.startswith(str(ROOT)):
                named = [p for p in inspect.signature(member).parameters.values() if p.kind.value in (1, 3)]
                if [p for p in named if p.name not in ("self", "cls")]:
                    found[member.__qualname__] = member
    return list(found.values())


_WRAPPER = checked(is_clear).__code__


def is_checked(function: Any) -> bool:
    """Whether `checked` stands somewhere around the function."""
    while function is not None:
        if function.__code__ is _WRAPPER:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def test_every_public_function_is_checked() -> None:
    bare = {function.__qualname__ for function in functions() if not is_checked(function)}
    assert bare == BARE


def test_the_calls_are_good(calls: list[Call]) -> None:
    """Else the attacks would tell nothing: each call works, or fails for the files that it names."""
    files = {"load_per_node_custom", "read_manifest", "convert_config", "is_old_network", "read_old_network",
             "find_inputs", "Inputs", "convert_rank", "convert_job", "calibrate.read_log", "calibrate.read_whole_log",
             "read_kineto", "read_recordings",
             "timeline.read_log"}  # fmt: skip
    for name, function, good in calls:
        with contextlib.redirect_stdout(io.StringIO()):
            if name in files:
                with contextlib.suppress(ChakraError):
                    function(**good)
            else:
                function(**good)
