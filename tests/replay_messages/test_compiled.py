"""The compiled kernel is the plain one, only faster."""

import numpy as np
import pytest
from message_worlds import one_dim, one_phase, run_collective

from chakra.replay.collectives.algorithms import Family
from chakra.replay.collectives.plan import Schedule
from chakra.replay.config.model import Topology
from chakra.replay.engines.kernels import messages_layout, phases_layout
from chakra.replay.engines.messages.engine import Algorithm, Bus, Do
from chakra.replay.workload.model import Op


@pytest.mark.slow
@pytest.mark.parametrize("topology", list(Topology))
@pytest.mark.parametrize("aware", [False, True])
def test_compiled_and_plain_runs_are_equal(topology: Topology, aware: bool) -> None:
    """Every tick, record and link figure is equal, whatever the algorithm and protocol."""
    random = np.random.default_rng(7)
    for algorithm, rendezvous, bus in (
        (Algorithm.RING, False, None),
        (Algorithm.DIRECT, True, None),
        (Algorithm.HALVING_DOUBLING, False, Bus(5, 3, 2, 0.25)),
        (Algorithm.TREE, True, None),
    ):
        model = one_dim(topology, 8, aware=aware, rendezvous=rendezvous, bus=bus, streams_per_queue=3)
        collective = one_phase(algorithm, Do.ALL_REDUCE, 7, 54_321)
        starts = random.integers(0, 9000, 8).tolist()
        plain, fast = (run_collective(model, collective, starts, jit=jit) for jit in (False, True))
        assert fast.compiled
        for name in ("finish_ns", "issue_ns", "node_finish_ns", "partner_ns", "dim_byte_hops"):
            assert getattr(plain, name).tolist() == getattr(fast, name).tolist()
        assert plain.collectives == fast.collectives
        assert plain.events == fast.events
        if plain.links is not None and fast.links is not None:
            assert plain.links.queued_ns.tolist() == fast.links.queued_ns.tolist()


def test_numbers_of_enumerations_are_those_of_the_kernels() -> None:
    """They are written down twice, because kernels hold plain numbers only."""
    for do in Do:
        assert getattr(messages_layout, do.name) == do
        assert getattr(phases_layout, f"DO_{do.name}", do) == do
    assert phases_layout.DO_ALL_TO_ALL == Do.ALL_TO_ALL
    for schedule in Schedule:
        name = "NONE" if schedule is Schedule.PLAN else schedule.name
        assert getattr(phases_layout, f"SCHEDULE_{name}") == schedule
    for family in Family:
        assert getattr(phases_layout, f"ALG_{family.name}") == family
    for op in Op:
        assert getattr(messages_layout, f"OP_{op.name}") == getattr(phases_layout, f"OP_{op.name}") == op
