"""Small inputs for tests of the message-level engine."""

from collections.abc import Sequence

import numpy as np

from chakra.replay.config.model import Topology
from chakra.replay.engines.messages.engine import (
    Actor,
    Algorithm,
    Collective,
    Do,
    EngineModel,
    EngineResult,
    MessageEngine,
    NetworkDim,
    Phase,
    Program,
    Rule,
)

TIMER, ZERO, COLLECTIVE, SEND, RECV, SERVER = range(6)
GPU, COMM, FREE = range(3)
MANY = 1 << 40
#: 50 GB/s of 2**30 bytes, in bytes per ns
FIFTY = 50 * (1 << 30) / 1_000_000_000


def program(
    nodes: Sequence[tuple[int, int, int]],
    deps: Sequence[tuple[int, int]] = (),
    *,
    p2p: Sequence[tuple[int, int]] = (),
    streams: int = 1,
) -> Program:
    """A program of (op, ns, index) nodes; `deps` are (parent, child), `p2p` (bytes, tag) of each send and receive."""
    op = np.array([n[0] for n in nodes], np.int64)
    slot = np.array([GPU if o == TIMER else FREE if o == RECV else COMM for o in op.tolist()], np.int64)
    children: list[list[int]] = [[] for _ in nodes]
    for parent, child in deps:
        children[parent].append(child)
    return Program(
        op=op,
        slot=slot,
        duration_ns=np.array([n[1] for n in nodes], np.int64),
        child_start=np.concatenate([[0], np.cumsum([len(c) for c in children])]).astype(np.int64),
        child=np.array([c for below in children for c in sorted(below)], np.int64),
        index=np.array([n[2] for n in nodes], np.int64),
        p2p_bytes=np.array([b for b, _ in p2p], np.int64),
        p2p_tag=np.array([t for _, t in p2p], np.int64),
        slot_cap=np.array([1, streams, MANY], np.int64),
    )


def late_collective(start: int) -> Program:
    """One collective after a timer of `start` ns (none if 0)."""
    if start == 0:
        return program([(COLLECTIVE, 0, 0)])
    return program([(TIMER, start, -1), (COLLECTIVE, 0, 0)], [(0, 1)])


def no_peers() -> np.ndarray:
    """Peers of a program without point-to-point nodes."""
    return np.zeros(0, np.int64)


def one_dim(topology: Topology, npus: int, *, aware: bool, **options: object) -> EngineModel:
    """One dimension of 50 GB/s and 500 ns, local memory of 50 GB/s."""
    settings: dict[str, object] = {"reduce_bytes_per_s": 50e9, **options}
    return EngineModel(dims=(NetworkDim(topology, npus, FIFTY, 500.0),), aware=aware, **settings)  # type: ignore[arg-type]


def run_collective(
    model: EngineModel, collective: Collective, starts: Sequence[int], *, jit: bool = False
) -> EngineResult:
    """Run one collective of all NPUs, each starting at its own tick."""
    programs = [late_collective(s) for s in starts]
    actors = [Actor(i, np.array([[0, 0]]), no_peers()) for i in range(len(starts))]
    return MessageEngine(model, programs, actors, [range(len(starts))], [collective], jit=jit).run()


def chunks(count: int, size: int) -> np.ndarray:
    """`count` chunks of `size` bytes."""
    return np.full(count, size, np.int64)


def one_phase(algorithm: Algorithm, do: Do, count: int, size: int, *, window: int = 0) -> Collective:
    """A collective of one phase on dimension 0."""
    return Collective(chunks(count, size), (Phase(0, algorithm, do, Rule.ANY, window=window),), least_bytes=0)
