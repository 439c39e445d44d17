"""The compiled kernel is the plain one, only faster; numbers and rows of the state are declared once."""

import ast
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest
from message_worlds import run_collective

from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.plan import QueueOrder, Rule, Schedule
from chakra.replay.collectives.steps import Do
from chakra.replay.config.model import KIND_NUMBERS, Topology
from chakra.replay.engines.kernels import codes, layout, messages_layout
from chakra.replay.engines.tables import TOPOLOGIES
from chakra.replay.workload.model import Op

KERNELS = Path(layout.__file__).parent


@pytest.mark.slow
@pytest.mark.parametrize("topology", [t.value for t in Topology])
@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_compiled_and_plain_runs_are_equal(
    topology: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tick and link figure is equal, whatever the algorithm, the protocol and the order of chunks."""
    random = np.random.default_rng(7)
    bus = {"model_shared_bus": 1, "L": 5, "o": 3, "g": 2, "G": 0.25}
    orders = {"intra_dimension_scheduling": "smallestFirst", "active_chunks_per_dimension": 3}
    for algorithm, rendezvous, keys in (
        ("ring", False, orders),
        ("direct", True, {}),
        ("halvingDoubling", False, bus),
        ("doubleBinaryTree", True, orders),
        ("rabenseifner", False, {}),
    ):
        starts = random.integers(0, 9000, 8).tolist()
        runs = []
        for jit in (False, True):
            monkeypatch.setattr(
                "chakra.replay.engines.messages.engine.worth_compiling", lambda *_, jit=jit: jit
            )
            runs.append(
                run_collective(
                    topology,
                    algorithm,
                    "ALL_REDUCE",
                    380_247,
                    starts,
                    7,
                    backend=backend,
                    rendezvous=rendezvous,
                    keys=keys,
                )
            )
        plain, fast = (result.raw for result in runs)
        for name in ("done_ns", "issue_ns", "finish_ns", "comm_ready_ns", "instance_ready_ns", "dim_bytes"):
            assert getattr(plain, name).tolist() == getattr(fast, name).tolist()
        assert plain.events == fast.events
        assert plain.links == fast.links


@pytest.mark.parametrize(
    ("prefix", "enumeration"),
    [
        ("OP", Op),
        ("ALG", Family),
        ("DO", Do),
        ("QUEUE", Rule),
        ("SCHEDULE", Schedule),
        ("ORDER", QueueOrder),
    ],
)
def test_enumerations_have_every_number_of_the_kernels(prefix: str, enumeration: type[IntEnum]) -> None:
    """A number that is added to `codes` alone, or twice the same number, is found."""
    numbers = [value for name, value in vars(codes).items() if name.startswith(f"{prefix}_")]
    assert sorted(numbers) == sorted(int(member) for member in enumeration)
    assert len(set(numbers)) == len(numbers)


def test_every_kind_and_topology_has_a_number() -> None:
    """Counters of trees are there for every kind of collectives; every building block is known."""
    assert len(KIND_NUMBERS) == layout.KINDS
    assert set(TOPOLOGIES) == set(Topology)


def declared(module: str) -> list[str]:
    """Names that a layout declares, in order."""
    return [
        node.id
        for statement in ast.parse((KERNELS / f"{module}.py").read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        for node in ast.walk(target)
        if isinstance(node, ast.Name)
    ]


@pytest.mark.parametrize("engine", ["phases", "messages"])
def test_every_field_is_declared_once_and_used(engine: str) -> None:
    """No name stands for two fields of an engine, and no row has a field that nothing reads or writes."""
    names = declared("layout") + declared(f"{engine}_layout")
    assert len(names) == len(set(names))
    texts = [path.read_text(encoding="utf-8") for path in KERNELS.parent.rglob("*.py")]
    text = "\n".join(texts)
    unused = [name for name in names if text.count(f"L.{name}") == 0 and text.count(name) < 2]
    # the tails of a bus's lists are reached as the words behind their heads
    assert unused == (["BE_OUT_TAIL", "BE_IN_TAIL", "BE_UNIT_TAIL"] if engine == "messages" else [])


def test_rows_of_the_pool_hold_every_kind_and_keep_its_fields_apart() -> None:
    """A row of the pool is as long as its longest kind; a kind has the words behind the common ones for itself."""
    assert sorted((messages_layout.NEXT, messages_layout.KIND)) == list(range(messages_layout.POOL_HEAD))
    kinds = {"B": "BUCKET", "T": "BUNDLE", "MD": "DATA", "MC": "CONTROL", "MP": "MESSAGE", "R": "REQUEST"}
    for prefix, kind in kinds.items():
        fields = [
            getattr(messages_layout, name)
            for name in declared("messages_layout")
            if name.startswith(f"{prefix}_")
        ]
        size = getattr(messages_layout, f"{kind}_ROW")
        first = messages_layout.MESSAGE_HEAD if prefix.startswith("M") else messages_layout.POOL_HEAD
        assert fields == list(range(first, size))
        assert size <= messages_layout.ROW
