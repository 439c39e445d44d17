# ruff: noqa: E501 - lists
"""Nothing in the package can be made to run what a file says: no pickle, no eval, no shell, safe YAML only."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path for part in ("chakra", "replay", "converters", "schemas") for path in (ROOT / part).rglob("*.py")
)

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml"}
CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput",
    "yaml.load", "pickle.load", "pickle.loads", "numpy.load", "np.load", "torch.load", "pandas.read_pickle",
}  # fmt: skip
#: the package's own kernel sources, executed again to compile them; no file from outside
ALLOWED = {
    ("chakra/jit.py", "exec"),
    ("chakra/jit.py", "compile"),
    # what one worker process hands to another, in a folder that only this process's user can open
    ("converters/pytorch/ranks.py", "pickle"),
    ("converters/pytorch/ranks.py", "pickle.load"),
}


def faults(source: str, name: str) -> Iterator[str]:
    """Places of a module that run or unpickle what they are given."""
    for node in ast.walk(ast.parse(source)):
        imported = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported = [node.module or ""]
        for module in imported:
            if module.partition(".")[0] in MODULES and (name, module) not in ALLOWED:
                yield f"{name}: imports {module}"
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in CALLS and (name, called) not in ALLOWED:
            yield f"{name}:{node.lineno}: calls {called}"
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        shell = keywords.get("shell")
        if shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
            yield f"{name}:{node.lineno}: calls {called} with a shell"
        if called.rpartition(".")[2] == "YAML":
            kind = keywords.get("typ")
            if not (isinstance(kind, ast.Constant) and kind.value == "safe"):
                yield f"{name}:{node.lineno}: YAML that is not safe"
        if keywords.get("allow_pickle") is not None:
            yield f"{name}:{node.lineno}: allows pickle"


def test_no_module_runs_what_a_file_says() -> None:
    assert len(FILES) > 100
    found = [
        fault
        for path in FILES
        for fault in faults(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle", "from marshal import loads", "eval(x)", "exec(x)", "os.system(x)", "subprocess.run(x, shell=True)",
        "import yaml", "YAML()", "YAML(typ='unsafe')", "ruamel.yaml.YAML(typ='rt')", "np.load(x, allow_pickle=True)",
        "subprocess.run(x, shell=flag)",
    ],
)  # fmt: skip
def test_the_search_sees_them(line: str) -> None:
    assert list(faults(line, "m.py"))
