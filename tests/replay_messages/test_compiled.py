"""The compiled kernel is the plain one, only faster."""

import numpy as np
import pytest
from message_worlds import one_dim, one_phase, run_collective

from chakra.replay.config.model import Topology
from chakra.replay.message_engine import Algorithm, Bus, Do


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
