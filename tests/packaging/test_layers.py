"""Which module may import which, and what must not be imported before it is needed (docs/architecture.md)."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "chakra": "chakra",
    "chakra.replay": "replay",
    "chakra.converters": "converters",
    "chakra.schemas": "schemas",
}

#: package prefix -> package prefixes whose modules it may import, anywhere in a file; the longest one counts.
#: `chakra` alone is the package's own file (version, conflicts).
BASE = (
    "chakra",
    "chakra.errors",
    "chakra.arguments",
    "chakra.arrays",
    "chakra.io",
    "chakra.garbage",
    "chakra.workers",
    "chakra.alignment",
    "chakra.jit",
    "chakra.jit_unit",
    "chakra.conflicts",
    "chakra.checkout",
    "chakra.lazy",
)
TRACE = (*BASE, "chakra.et", "chakra.schemas")
ALLOWED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(BASE, BASE),
    "chakra.schemas": (*BASE, "chakra.schemas"),
    "chakra.et": TRACE,
    "chakra.converters": (*TRACE, "chakra.converters", "chakra.builder", "chakra.replay.config"),
    # ours as files of MSCCL: the schedules of collectives
    "chakra.converters.msccl": (
        *TRACE,
        "chakra.converters",
        "chakra.builder",
        "chakra.replay.config",
        "chakra.replay.collectives",
    ),
    "chakra.replay": (*TRACE, "chakra.replay", "chakra.builder"),
    "chakra.generate": (
        *TRACE,
        "chakra.generate",
        "chakra.builder",
        "chakra.replay.config",
        "chakra.replay.compute",
        "chakra.platforms",
    ),
}
#: rooms of a package, lowest first: a room imports from those before it, and from itself
ROOMS: dict[str, tuple[str, ...]] = {
    "chakra.replay": (
        "options",
        "plugins",
        "networks.interface",  # what a network answers: known to configurations, too
        "engines.kernels",  # arithmetic on arrays alone
        "config",
        "networks.routes",  # which links a pair of NPUs uses: known to what places a collective library
        "networks.flow",  # the same for flows
        "compute",
        "collectives",
        "workload",
        "checks",
        "symmetry",
        "networks",
        "engines",
        "results",
        "prepare",
        "trial",
        "api",
        "backends",
        "topologies",
        "parameters",
        "what_if",
    ),
    "chakra.replay.collectives": (
        "call",
        "steps",
        "offered",
        "pipelined_tree",
        "recursive_doubling",
        "trees",
        "bruck",
        "rabenseifner",
        "scatter_gather",
        "registry",
        "algorithms",
        "in_network",
        "blocks",
        "plan",
        "uneven",
        "library.shape",  # what is called, by whom: known to measured times, which stand in for a library's cost
        "measured",
        "library",
        "select",
        "plan_table",
    ),
    "chakra.replay.compute": (
        "parameters",
        "presets",
        "frameworks",
        "measured_products",
        "product_tables",
        "in_effect",
        "host",
        "memory_bound",
        "systolic",
        "matmul",
        "attention",
        "times",
        "shares",
        "other_accelerator",
    ),
    "chakra.converters": ("astra_config", "text", "pytorch", "msccl"),
    "chakra.converters.msccl": ("program", "reader", "follow", "traces", "export"),
    "chakra.converters.astra_config": ("_common", "network", "system"),
    "chakra.converters.text": (
        "grammar",
        "policies",
        "reader",
        "passes",
        "spans",
        "encode",
        "upstream",
        "conversion_summary",
        "output",
        "convert",
    ),
    "chakra.converters.pytorch": (
        "read",
        "match",
        "time",
        "comm",
        "graph",
        "link",
        "write",
        "all_ranks",
        "deprofile",
        "job",
        "ranks",
        "collective_times",
        "folder",
    ),
    "chakra.converters.pytorch.read": (
        "first_bytes",
        "jsonarray",
        "file_kinds",
        "columns",
        "decimals",
        "times",
        "kernel_names",
        "split_sizes",
        "ascend",
        "host",
        "device",
        "repeated",
    ),
    "chakra.generate": ("parallel", "model", "schedule", "plan", "write", "request", "verify"),
    "chakra.viz": ("style", "graph", "layout", "formats", "draw"),
    "chakra.cli": ("support", "main", "commands"),
    "chakra.io": (
        "documents",
        "markup",
        "yaml_text",
        "json_value",
        "inputs",
        "leftovers",
        "limits",
        "digits",
        "nearest",
        "readable",
        "shown",
        "streams",
        "gunzip",
        "rank_files",
        "rank_lists",
        "files",
        "text",
        "yaml_rows",
        "yaml",
        "shipped",
    ),
    "chakra.et": (
        "_decode_kernel",
        "_encode_kernel",
        "_graph_kernel",
        "columns",
        "schema",
        "manifest",
        "operators",
        "memory_need",
        "families",
        "recorded_operators",
        "same_collective",
        "attributes",
        "graph",
        "networkx_view",
        "splits",
        "wire",
        "trace",
        "idle_nodes",
        "node_families",
        "trace_summary",
        "json_et",
        "decode_protobuf",
        "codec",
        "encode",
        "read",
        "write",
        "jsonize",
    ),
    "chakra.platforms": (
        "keys",
        "direct",
        "fabric",
        "preset_text",
        "compute",
        "collectives",
        "model",
        "cluster",
        "write",
        "values_in_effect",
    ),
    "chakra.calibrate": ("cost", "fit", "library_fit", "recordings", "recorded_fit", "doubts"),
    "chakra.compare": ("spans", "read", "match", "difference", "text", "page", "backends"),
    "chakra.accuracy": (
        "table",
        "words",
        "machines",
        "models",
        "cases",
        "interval",
        "ratio",
        "measured_machine",
        "replayed",
        "rates",
        "predictions",
        "ranges",
        "generation_ahead",
        "score",
        "picture",
    ),
    "chakra.rescale": ("edit", "layout", "sizes", "workload"),
    "chakra.anonymize": ("labels", "trace", "pytorch", "workload"),
    "chakra.sweep": (
        "executors",
        "expressions",
        "metrics",
        "named_files",
        "point",
        "values",
        "method",
        "keys",
        "space",
        "store",
        "study",
        "given",
        "available",
        "preflight",
        "values_in_effect",
        "outcomes",
        "pareto",
        "reasons",
        "remarks",
        "nearest_fit",
        "doubt",
        "ties",
        "work",
        "optimise",
        "run",
        "sensitivity",
        "table",
        "printed",
        "page",
    ),
    "chakra.timeline": (
        "_lanes_kernel",
        "_perfetto_kernel",
        "kinds",
        "arrows",
        "lenient",
        "model",
        "filters",
        "lanes",
        "builder",
        "document",
        "recorded_arrows",
        "kineto",
        "astrasim_log",
        "chrome",
        "perfetto",
        "write",
    ),
    "chakra.report": (
        "document",
        "npu_groups",
        "tables",
        "side_by_side",
        "charts",
        "wiring",
        "fabric",
        "fabric_picture",
        "network_picture",
        "excerpt",
        "figures",
        "terminal",
        "page",
    ),
    "chakra.upstream": ("samples", "classes", "commands"),
}
#: modules that only the command line and its entry point use
TOP = ("chakra.cli", "chakra.__main__", "chakra.upstream")

#: upstream's module paths, which hold nothing but imports
UPSTREAM = (
    *(
        "chakra.src",
        "chakra.et_converter",
        "chakra.et_generator",
        "chakra.et_jsonizer",
        "chakra.et_visualizer",
    ),
    *("chakra.timeline_visualizer", "chakra.trace_link"),
)

#: too slow to import, or not installed everywhere: only inside functions
HEAVY = {
    "numba",
    "networkx",
    "matplotlib",
    "rich",
    "torch",
    "ruamel",
    "pygraphviz",
    "graphviz",
    "typst",
    "jinja2",
    "pyarrow",
    "distributed",
    "optuna",
    "perfetto",
}


@dataclass(frozen=True)
class Import:
    """One import statement of one module."""

    module: str
    target: str
    line: int
    at_module_level: bool


def modules() -> Iterator[tuple[str, Path]]:
    """Import name and file of every module."""
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join((package, *parts))
            yield name.removesuffix(".__init__"), path


NAMES = {name for name, _ in modules()}


def imports(name: str, path: Path) -> Iterator[Import]:
    """Every import of a module; imports for type checkers only are left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nested: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            nested.update(id(child) for child in ast.walk(node))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            base = node.module or ""
            targets = [
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in NAMES else base for alias in node.names
            ]
        else:
            continue
        for target in targets:
            yield Import(name, target, node.lineno, id(node) not in nested)


ALL = [found for name, path in modules() for found in imports(name, path)]


def prefix_of(module: str, prefixes: tuple[str, ...]) -> str | None:
    """The longest of the prefixes that a module is, or lies below (`chakra` is only itself)."""
    fitting = [p for p in prefixes if module == p or (p != "chakra" and module.startswith(p + "."))]
    return max(fitting, key=len, default=None)


def test_the_tree_is_seen() -> None:
    assert {"chakra.et", "chakra.replay.config", "chakra.schemas.et_def_pb2", "chakra.cli.main"} <= NAMES
    assert len(ALL) > 200


def test_imports_point_downwards() -> None:
    """Base <- traces <- converters, replay, generate, viz ... <- command line."""
    wrong = []
    for found in ALL:
        if found.target.split(".")[0] != "chakra":
            continue
        layer = prefix_of(found.module, tuple(ALLOWED))
        if layer is not None and prefix_of(found.target, ALLOWED[layer]) is None:
            wrong.append(f"{found.module}:{found.line} imports {found.target}")
    assert wrong == []


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_import_from_those_below_them(package: str) -> None:
    """One direction within a package, too; and every module lies in a room."""
    rooms = tuple(f"{package}.{room}" for room in ROOMS[package])
    wrong = []
    for found in ALL:
        if not found.module.startswith(package + "."):
            continue
        here = prefix_of(found.module, rooms)
        if here is None:
            wrong.append(f"{found.module} lies in no room")
            continue
        there = prefix_of(found.target, rooms)
        if there is not None and rooms.index(there) > rooms.index(here):
            wrong.append(f"{found.module}:{found.line} imports {found.target}")
    assert sorted(set(wrong)) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    """In every room, however deep: what a module needs can be read first. Imports inside functions count, too."""
    graph = nx.DiGraph((found.module, found.target) for found in ALL if found.target in NAMES)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    assert [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1] == []


def test_nothing_below_imports_the_command_line() -> None:
    wrong = [
        f"{found.module}:{found.line} imports {found.target}"
        for found in ALL
        if prefix_of(found.target, TOP) and not prefix_of(found.module, (*TOP, *UPSTREAM))
    ]
    assert wrong == []


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    wrong = [
        f"{found.module}:{found.line} imports {found.target}"
        for found in ALL
        if found.at_module_level and found.target.split(".")[0] in HEAVY
    ]
    assert wrong == []


def kernel_modules() -> set[str]:
    """Modules that are compiled: the words that `compiled("...")` is called with, anywhere in the tree."""
    found = set()
    for _, path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).rsplit(".")[-1] == "compiled"
                and node.args
                and isinstance(node.args[0], ast.Constant)
                and isinstance(node.args[0].value, str)
            ):
                found.add(node.args[0].value)
    return found


def test_kernels_import_arrays_only() -> None:
    """A compiled module stands alone: NumPy, a few small standard modules, kernels of its own package."""
    waiting = [*kernel_modules(), *(name for name in NAMES if name.endswith("_kernel"))]
    assert set(waiting) <= NAMES
    allowed = {"numpy", "numba", "math", "typing", "collections.abc", "chakra.arrays"}
    seen: set[str] = set()
    wrong = []
    while waiting:
        module = waiting.pop()
        seen.add(module)
        for found in ALL:
            if found.module == module and found.target not in allowed | seen:
                if found.target.startswith(module.rpartition(".")[0] + "."):
                    waiting.append(found.target)
                else:
                    wrong.append(f"{found.module}:{found.line} imports {found.target}")
    assert wrong == []


@pytest.mark.parametrize(
    "code",
    [
        "import chakra.cli.main, chakra.cli.commands.replay, chakra.cli.commands.check_config, chakra.replay.config",
        "import chakra.replay, chakra.schemas.et_def_pb2, chakra.et",
        "from chakra.cli.main import run; assert run(['--help']) == 0",
        "from chakra.replay.config import load_system; load_system({'preferred-dataset-splits': 4})",
    ],
)
def test_light_work_imports_nothing_heavy(code: str) -> None:
    """`chakra --help` and messages about configurations do not wait for a compiler or a graph library."""
    names = sorted(HEAVY - {"rich"})  # the help pages are written by rich
    check = f"{code}; import sys; bad = [m for m in {names} if m in sys.modules]; assert not bad, bad"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_digits_are_asked_for_in_one_place() -> None:
    """`str.isdigit` takes characters that `int` refuses: a superscript two ended commands in an internal error."""
    asking = {
        path.relative_to(ROOT).as_posix()
        for name, path in modules()
        if re.search(r"\.is(digit|decimal|numeric)\(", path.read_text(encoding="utf-8"))
    }
    assert asking == {"chakra/io/digits.py"}
