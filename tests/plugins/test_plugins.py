"""Algorithms and networks of other packages: the example of the guide, and packages that are wrong."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plugin_site import EXAMPLE, ROOT, cycles, place

Run = Callable[..., SimpleNamespace]
RING = "topology: [Ring]\nnpus_count: [8]\nbandwidth: [50]\nlatency: [500]\n"
SELF = "plugin: constant-delay\narguments: {npus: 8, delay_ns: 700}\n"
CUBE = "plugin: hypercube\narguments: {dimensions: 3, bandwidth: 50}\n"
HEAD = """
from chakra.replay.collectives.steps import Do, Steps, StepAlgorithm, Symmetry, from_rounds
import numpy as np
def make(schedule, name="bad", kinds=frozenset({Do.ALL_REDUCE})):
    return StepAlgorithm(name, kinds, schedule, "s", "f", "t")
"""


def test_the_example_runs(replay: Run) -> None:
    done = replay("star", RING)
    assert done.code == 0, done.err
    d, rate = (1 << 20) // 4, 50 * (1 << 30) / 1e9
    each = int(d / rate) + 10
    # NPU 4's message is the last that may come 4 hops; later ones wait for the port, not for the way
    assert len(cycles(done.out)) == 8
    assert max(cycles(done.out)) > 4 * 2 * 7 * each
    assert "star" in done.out


def test_the_example_network_runs(replay: Run, command: Run) -> None:
    done = replay("ring", CUBE)
    assert done.code == 0, done.err
    assert len(cycles(done.out)) == 8
    both = replay("star", CUBE, "--backend", "aware")
    assert both.code == 0, both.err
    out = command("check-config", "n.yml").out
    assert "plugin     hypercube  [n.yml:1; default: required]" in out
    assert "8 NPUs and 0 switches; 24 links" in out


def test_the_example_that_simulates_itself_runs(replay: Run, command: Run) -> None:
    """A ring of eight in four chunks: e + 2 * 7 * (d + e) each, as on our own network without sizes."""
    done = replay("ring", SELF)
    assert done.code == 0, done.err
    assert cycles(done.out) == [4 * (10 + 14 * 710)] * 8
    assert "another package simulates every transfer" in done.out
    endless = "topology: [FullyConnected]\nnpus_count: [8]\nbandwidth: [1.0e+30]\nlatency: [700]\n"
    assert cycles(replay("ring", endless).out) == cycles(done.out)
    refused = replay("ring", SELF, "--backend", "aware")
    assert (refused.code, refused.out) == (2, "")
    assert "'constant-delay'" in refused.err
    replay("ring", SELF)
    out = command("check-config", "n.yml").out
    assert "network 'constant-delay' simulates the transfers itself" in out
    assert "Outside(8)" in out


def test_pip_installs_the_example(tmp_path: Path) -> None:
    """Really installed: the entry points are found and run."""
    version = tuple(map(int, metadata.version("setuptools").split(".")[:1]))
    if version < (77,):
        pytest.skip("setuptools 77 is needed, which the extra `test` has")
    copy = tmp_path / "plugin"
    for path in (
        "pyproject.toml",
        *(f"chakra_example/{p.name}" for p in (EXAMPLE / "chakra_example").glob("*.py")),
    ):
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_text((EXAMPLE / path).read_text())
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        "site",
    ]
    subprocess.run([*pip, str(copy)], cwd=tmp_path, check=True, timeout=300)
    (tmp_path / "s.json").write_text('{"all-reduce-implementation": ["star"]}')
    (tmp_path / "n.yml").write_text(CUBE)
    work = str(ROOT / "traces/allreduce_ring8/workload")
    done = subprocess.run(
        [sys.executable, "-m", "chakra", "replay", "-w", work, "-s", "s.json", "-n", "n.yml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert len(cycles(done.stdout)) == 8


def test_the_guide_shows_the_package_that_is_tested() -> None:
    guide = (ROOT / "docs/guides/plugins.md").read_text(encoding="utf-8")
    for path in (
        "pyproject.toml",
        "chakra_example/star.py",
        "chakra_example/hypercube.py",
        "chakra_example/constant_delay.py",
    ):
        assert (EXAMPLE / path).read_text().strip() in guide, path


BAD_ALGORITHMS = [
    ("BAD = 3", r"is an int, not a StepAlgorithm"),
    ("BAD = make(lambda *a: None, name='other')", r"calls itself 'other'"),
    ("BAD = make(None)", r"schedule must be a function"),
    ("BAD = make(lambda *a: None, kinds={'ALL_REDUCE'})", r"kinds must be a set of Do"),
    ("BAD = make(lambda *a: None, kinds=None)", r"kinds must be a set of Do"),
    ("raise RuntimeError('boom\\nsecond line')", r"cannot be loaded: RuntimeError: boom$"),
    ("import does_not_exist_anywhere", r"cannot be loaded: ModuleNotFoundError"),
    ("raise SystemExit(0)", r"cannot be loaded: SystemExit"),
    ("def broken(:", r"cannot be loaded: SyntaxError"),
    ("OTHER = 1", r"cannot be loaded: AttributeError"),
    ("BAD = make(lambda *a: None)", r"is a NoneType, not Steps"),
    ("BAD = make(lambda *a: [(0, 1, 1, True)])", r"is a list, not Steps"),
    ("BAD = make(lambda *a: 1 / 0)", r"failed: ZeroDivisionError: division by zero"),
    ("BAD = make(lambda a: None)", r"failed: TypeError"),
    ("BAD = make(lambda do, n, d, link: from_rounds(n - 1, [[(0, 1, 1, True)]], 1))", r"is for 7 members"),
    ("BAD = make(lambda do, n, d, link: from_rounds(n, [[(0, n, 1, True)]], 1))", r"members are 0 to 7"),
    ("BAD = make(lambda do, n, d, link: Steps(n, np.array([[0, 99, 1, 2]]), 1))", r"members are 0 to 7"),
    ("BAD = make(lambda do, n, d, link: Steps(n, np.array([[0, 1, 1, 0]]), 1))", r"must close its round"),
    ("BAD = make(lambda do, n, d, link: Steps(n, [[0, 1, 1, 2]], 1))", r"must be an integer array"),
    (
        "BAD = make(lambda do, n, d, link: Steps(n, np.array([[0., 1, 1, 2]]), 1))",
        r"must be an integer array",
    ),
    ("BAD = make(lambda do, n, d, link: Steps(n, np.array([[0, 1, 5, 2]]), 0))", r"shares are"),
    (
        "BAD = make(lambda do, n, d, link: from_rounds(n, [[(i, 0, 1, True)] for i in range(1, n)], 1, Symmetry.CYCLIC))",
        r"calls itself cyclic, but members differ in round 0",
    ),
    (
        "BAD = make(lambda do, n, d, link: from_rounds(n, [[(i, -~i % n, 1, True) for i in range(n)]], 1, Symmetry.XOR))",
        r"calls itself xor, but members differ in round 0",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD_ALGORITHMS)
def test_bad_algorithms_are_one_clear_line(site: Path, replay: Run, text: str, message: str) -> None:
    place(
        site,
        "bad-package",
        {"chakra.collectives": {"bad": "bad_module:BAD"}},
        {"bad_module.py": HEAD + text + "\n"},
    )
    done = replay("bad", RING)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "'bad'" in done.err
    assert re.search(message, done.err.rstrip()), done.err
    assert replay("ring", RING).code == 0  # and nobody else is harmed


BAD_NETWORKS = [
    ("BAD = 3", r"is an int, not a function"),
    ("def BAD(**k): return None", r"returned a NoneType"),
    ("def BAD(**k): return 'n.yml'", r"returned a str"),
    ("def BAD(**k): return {'plugin': 'bad'}", r"returned the name of a plugin"),
    ("def BAD(**k): raise ValueError('no such shape')", r"failed: ValueError: no such shape$"),
    ("def BAD(**k): raise SystemExit", r"failed: SystemExit$"),
    ("def BAD(width): return {}", r"failed: TypeError: .*missing 1 required"),
    ("def BAD(**k): return {'topology': ['Ring']}", r"n.yml \(plugin 'bad'\): key 'npus_count' is missing"),
    ("def BAD(**k): return {'npus_count': [8], 'links': [[0, 1, 50, 500]]}", r"NPU 2 cannot be reached"),
    ("def BAD(**k): return {3: 4}", r"is unknown"),
    ("raise ImportError('libfoo.so')", r"cannot be loaded: ImportError: libfoo.so"),
    ("class BAD:\n name, dims = 'bad', []\n def begin(self): pass", r"network 'bad' has no dimensions"),
    (
        "from chakra.replay.networks import LogicalDim as D\nclass BAD:\n name, dims, begin = 'bad', [D(8, 1, 1)], exit",
        r"network 'bad' failed in begin\(\): SystemExit",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD_NETWORKS)
def test_bad_networks_are_one_clear_line(site: Path, replay: Run, text: str, message: str) -> None:
    place(site, "bad-package", {"chakra.networks": {"bad": "bad_module:BAD"}}, {"bad_module.py": text + "\n"})
    done = replay("ring", "plugin: bad\n")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "'bad'" in done.err
    assert re.search(message, done.err.rstrip()), done.err
    assert replay("ring", RING).code == 0


def test_a_network_is_not_blamed_for_a_process_that_is_told_to_end(site: Path, replay: Run) -> None:
    """SIGTERM while a package runs: the exit code of that, no error of the package, nothing written."""
    text = (
        "import os, signal, time\nfrom chakra.replay.networks import LogicalDim as D\n"
        "class BAD:\n name, dims = 'bad', [D(8, 1, 1)]\n"
        " def begin(self):\n  os.kill(os.getpid(), signal.SIGTERM)\n  time.sleep(5)\n"
    )
    place(site, "bad-package", {"chakra.networks": {"bad": "bad_module:BAD"}}, {"bad_module.py": text})
    done = replay("ring", "plugin: bad\n")
    assert (done.code, done.out, done.err) == (143, "", "")


def test_graphs_and_networks_of_plugins(site: Path, replay: Run) -> None:
    place(
        site,
        "more",
        {"chakra.networks": {"wheel": "more_module:wheel", "built": "more_module:built"}},
        {
            "more_module.py": "import networkx as nx\nfrom chakra.replay.topologies import torus\n"
            "def wheel(n):\n"
            "    g = nx.cycle_graph(n)\n"
            "    nx.set_edge_attributes(g, 50.0, 'bandwidth')\n"
            "    nx.set_edge_attributes(g, 500.0, 'latency')\n"
            "    return g\n"
            "def built():\n"
            "    return torus([4, 2], bandwidth_gibps=50, latency_ns=500)\n"
        },
    )
    ring = replay("ring", RING, "--backend", "aware").out
    assert cycles(replay("ring", "plugin: wheel\narguments: {n: 8}\n", "--backend", "aware").out) == cycles(
        ring
    )
    assert replay("ring", "plugin: built\n").code == 0


def test_two_packages_of_one_name(site: Path, replay: Run) -> None:
    both = {"chakra.collectives": {"star": "twin:STAR"}, "chakra.networks": {"hypercube": "twin:cube"}}
    place(site, "twin-package", both, {"twin.py": "STAR = cube = None\n"})
    for done in (replay("star", RING), replay("ring", CUBE)):
        assert done.code == 2
        assert "is offered by chakra-example (" in done.err
        assert "and twin-package (twin:" in done.err
        assert "uninstall one of them" in done.err


def test_names_of_ours_are_never_replaced(site: Path, replay: Run, command: Run) -> None:
    before = cycles(replay("rabenseifner", RING).out)
    points: dict[str, Any] = {"chakra.collectives": {"rabenseifner": "thief:X", "ring": "thief:X"}}
    place(site, "thief", points, {"thief.py": "raise RuntimeError('never imported')\n"})
    assert cycles(replay("rabenseifner", RING).out) == before
    assert replay("ring", RING).code == 0


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("plugin: hypercub\n", "did you mean 'hypercube'"),
        ("plugin: 3\n", "must be a text"),
        ("plugin: hypercube\nargument: {}\n", "did you mean 'arguments'"),
        ("plugin: hypercube\narguments: [1]\n", "must be a map"),
        (
            "plugin: hypercube\narguments: {dimensions: 99, bandwidth: 50}\n",
            "dimensions must be 1 to 12, not 99",
        ),
        ("plugin: hypercube\narguments: {dimensions: 3, bandwidth: 0}\n", "above 0"),
        (
            "plugin: hypercube\narguments: {dimensions: 3, bandwith: 50}\n",
            "unexpected keyword argument 'bandwith'",
        ),
    ],
)
def test_wrong_network_files(replay: Run, network: str, message: str) -> None:
    done = replay("ring", network)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_the_doctor_looks_at_all_plugins(site: Path, command: Run) -> None:
    good = command("doctor")
    assert re.search(r"ok +collective algorithm star +from chakra-example", good.out)
    assert re.search(r"ok +network hypercube +from chakra-example", good.out)
    points: dict[str, Any] = {
        "chakra.collectives": {"ring": "thief:X", "broken": "thief:X"},
        "chakra.networks": {"hypercube": "thief:X"},
    }
    place(site, "thief", points, {"thief.py": "raise RuntimeError('no')\n"})
    bad = command("doctor")
    assert bad.code == 1
    assert re.search(r"fail +collective algorithm ring +of thief has a name of ours", bad.out)
    assert re.search(r"fail +collective algorithm broken .*cannot be loaded: RuntimeError: no", bad.out)
    assert re.search(r"fail +network hypercube .*is offered by chakra-example .* and thief", bad.out)
