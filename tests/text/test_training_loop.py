"""The graphs against a training loop: the program that each policy runs, with blocking waits, as a slow and
obvious reference.

The loop computes when every compute starts if collectives take a given time and never delay each other. The
graph, replayed as soon as dependencies allow, must give the same times for every compute.
"""

from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chakra.converters.text.grammar import Layer, Phase, Step, TextWorkload
from chakra.converters.text.passes import COLLECTIVE, COMPUTE, PHASES, Graph, build_graph
from chakra.converters.text.policies import POLICIES

WORDS = ["NONE", "ALLREDUCE", "ALLTOALL"]

steps = st.builds(Step, st.integers(0, 9), st.sampled_from(WORDS), st.integers(0, 30))
layer_lists = st.lists(st.builds(Layer, st.just("L"), steps, steps, steps), min_size=1, max_size=6)


class Loop:
    """One NPU: a clock of its compute engine and the time at which each collective is done."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.now = 0
        self.starts: list[tuple[Phase, int, int]] = []
        #: by (kind, layer): when the collective last issued is done
        self.done: dict[tuple[str, int], int] = {}

    def compute(self, phase: Phase, index: int) -> None:
        step = self.step(phase, index)
        self.starts.append((phase, index, self.now))
        self.now += step.time

    def issue(self, kind: str, index: int) -> None:
        phases = {"F": Phase.FORWARD, "I": Phase.INPUT_GRADIENT, "W": Phase.WEIGHT_GRADIENT}
        step = self.step(phases[kind], index)
        if step.word != "NONE":
            self.done[kind, index] = self.now + step.size_bytes

    def wait(self, kind: str, index: int) -> None:
        self.now = max(self.now, self.done.get((kind, index), 0))

    def step(self, phase: Phase, index: int) -> Step:
        layer = self.layers[index]
        if phase is Phase.WEIGHT_GRADIENT:
            return layer.weight_gradient
        return layer.input_gradient if phase is Phase.INPUT_GRADIENT else layer.forward


def data_pass(loop: Loop) -> None:
    n = len(loop.layers)
    for i in range(n):
        loop.wait("W", i)
        loop.compute(Phase.FORWARD, i)
    for i in reversed(range(n)):
        loop.compute(Phase.WEIGHT_GRADIENT, i)
        loop.issue("W", i)
        if i:
            loop.compute(Phase.INPUT_GRADIENT, i)


def reorder_pass(loop: Loop) -> None:
    n = len(loop.layers)
    for i in range(n):
        loop.wait("W", i)
        loop.compute(Phase.FORWARD, i)
    for i in reversed(range(n)):
        if i:
            loop.compute(Phase.INPUT_GRADIENT, i)
        loop.compute(Phase.WEIGHT_GRADIENT, i)
        loop.issue("W", i)


def blocking_pass(loop: Loop, *, weights: bool, first_input: bool, recompute: dict[int, int]) -> None:
    n = len(loop.layers)
    for i in range(n):
        loop.wait("W", i)
        loop.compute(Phase.FORWARD, i)
        loop.issue("F", i)
        loop.wait("F", i)
    for i in reversed(range(n)):
        for k in range(recompute.get(i, i), i):
            loop.compute(Phase.RECOMPUTE, k)
            loop.issue("F", k)
            loop.wait("F", k)
        loop.compute(Phase.INPUT_GRADIENT, i)
        if i or first_input:
            loop.issue("I", i)
        loop.compute(Phase.WEIGHT_GRADIENT, i)
        if weights:
            loop.issue("W", i)
        loop.wait("I", i)


def dlrm_pass(loop: Loop, bottom: int, *, enhanced: bool) -> None:
    n = len(loop.layers)
    for i in range(n):
        loop.wait("W", i)
        loop.compute(Phase.FORWARD, i)
        if loop.layers[i].forward.word == "ALLTOALL":
            loop.issue("F", i)
        if i == bottom and loop.layers[0].forward.word == "ALLTOALL":
            loop.wait("F", 0)
    for i in reversed(range(n)):
        if i == 0 and not enhanced:
            loop.wait("I", 0)
        loop.compute(Phase.WEIGHT_GRADIENT, i)
        loop.issue("W", i)
        if i:
            loop.compute(Phase.INPUT_GRADIENT, i)
        if i and i == bottom + 1:
            loop.issue("I", 0)


def inference_pass(loop: Loop) -> None:
    for i in range(len(loop.layers)):
        loop.compute(Phase.FORWARD, i)
        loop.issue("F", i)
        loop.wait("F", i)


def graph_starts(graph: Graph) -> list[tuple[Phase, int, int]]:
    """Start of every compute if each node starts as soon as what it waits for is done."""
    end = np.zeros(graph.n_nodes, np.int64)
    starts = []
    for node in range(graph.n_nodes):
        parents = graph.parents[graph.offsets[node] : graph.offsets[node + 1]]
        assert all(parent < node for parent in parents)
        start = int(end[parents].max(initial=0))
        collective = graph.kind[node] == COLLECTIVE
        end[node] = start + int(graph.size_bytes[node] if collective else graph.time[node])
        if graph.kind[node] == COMPUTE:
            starts.append((PHASES[graph.phase[node]], int(graph.layer[node]), start))
    return starts


def check(
    policy: str, layers: list[Layer], passes: int, one_pass: Callable[[Loop], None], **header: object
) -> None:
    workload = TextWorkload("<test>", policy, tuple(layers), len(layers), **header)  # type: ignore[arg-type]
    graph = build_graph(workload, POLICIES[policy], passes)
    loop = Loop(layers)
    for _ in range(passes):
        one_pass(loop)
    assert graph_starts(graph) == loop.starts


@given(layer_lists, st.integers(1, 4))
def test_data_parallel_loops(layers: list[Layer], passes: int) -> None:
    check("DATA", layers, passes, data_pass)
    check("DATA_REORDER", layers, passes, reorder_pass)


@given(layer_lists, st.integers(1, 4))
def test_blocking_loops(layers: list[Layer], passes: int) -> None:
    def loop_of(weights: bool, first_input: bool) -> Callable[[Loop], None]:
        return lambda loop: blocking_pass(loop, weights=weights, first_input=first_input, recompute={})

    check("MODEL", layers, passes, loop_of(False, False))
    for policy in ("HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA"):
        check(policy, layers, passes, loop_of(True, False))
    check("HYBRID_TRANSFORMER", layers, passes, loop_of(True, True), model_parallel=2)


@given(layer_lists, st.integers(1, 3), st.data())
def test_recomputing_loop(layers: list[Layer], passes: int, data: st.DataObject) -> None:
    indices = st.integers(0, len(layers) - 1)
    checkpoints = data.draw(st.frozensets(indices))
    allowed = [i for i in range(len(layers)) if any(c <= i for c in checkpoints)]
    initiators = data.draw(st.frozensets(st.sampled_from(allowed))) if allowed else frozenset()
    recompute = {i: max(c for c in checkpoints if c <= i) for i in initiators}
    check(
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
        layers,
        passes,
        lambda loop: blocking_pass(loop, weights=True, first_input=True, recompute=recompute),
        model_parallel=2,
        checkpoints=checkpoints,
        initiators=initiators,
    )


@given(layer_lists, st.integers(1, 4), st.data())
def test_dlrm_loops(layers: list[Layer], passes: int, data: st.DataObject) -> None:
    bottom = data.draw(st.integers(0, len(layers) - 1))
    for policy, enhanced in (("HYBRID_DLRM", False), ("HYBRID_DLRM_ENHANCED", True)):
        check(
            policy,
            layers,
            passes,
            lambda loop, enhanced=enhanced: dlrm_pass(loop, bottom, enhanced=enhanced),  # type: ignore[misc]
            last_bottom_layer=bottom,
        )


@given(layer_lists, st.integers(1, 4))
def test_inference_loop(layers: list[Layer], passes: int) -> None:
    check("DISTRIBUTED_INFERENCE", layers, passes, inference_pass)
