"""Where each NPU's time went: the account that adds up to its finish, and ASTRA-sim's own statistics.

Sources: `differences.md` (time account, C9) and replay semantics, section 2.4.
"""

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np

from chakra.arrays import F64, I64, AnyArray, Bool, distinct
from chakra.replay.config.model import System
from chakra.replay.engines.outcome import RawRun
from chakra.replay.workload.model import Engine, Op, Program

#: rows of the account
ACCOUNT = ("compute_ns", "cpu_ns", "transfer_ns", "waiting_ns", "memory_ns", "idle_ns")
#: An instant goes to the first of these rows that applies. What the host does hides nothing: the accelerator waits as
#: long. Where a trace gives the accelerator no work, the host is what computes.
_FIRST_OF_ACCELERATOR = (0, 2, 3, 4, 1, 5)
_FIRST_OF_HOST = (0, 1, 2, 3, 4, 5)


@dataclass(frozen=True)
class ActorTimes:
    """Nodes of one actor with their times; nodes that were never issued are left out, unfinished ones end at `end`.

    ``nodes`` are their numbers in the program.
    """

    program: Program
    nodes: I64
    issue: I64
    finish: I64
    ready: I64
    engine: I64
    end: int

    @cached_property
    def digest(self) -> bytes:
        """Equal for actors of one program whose nodes ran at the same times."""
        found = blake2b(self.end.to_bytes(8, "little", signed=True), digest_size=16)
        for column in (self.issue, self.finish, self.ready, self.engine):
            found.update(np.ascontiguousarray(column).data)
        return found.digest()

    @cached_property
    def _coverage(self) -> tuple[I64, AnyArray]:
        """Instants at which something changes, and per category whether it is busy from each to the next."""
        transfer = np.clip(self.ready, self.issue, self.finish)
        comm = self.engine == Engine.COMM
        spans = [
            (self.issue[self.engine == Engine.GPU], self.finish[self.engine == Engine.GPU]),
            (self.issue[self.engine == Engine.CPU], self.finish[self.engine == Engine.CPU]),
            (transfer[comm], self.finish[comm]),
            (self.issue[comm], transfer[comm]),
            (self.issue[self.engine == Engine.MEMORY], self.finish[self.engine == Engine.MEMORY]),
        ]
        edges = distinct(np.concatenate([np.array([0, self.end]), *(a for pair in spans for a in pair)]))
        return edges, np.stack([_covered(edges, first, last) for first, last in spans])

    def account(self) -> I64:
        """ns per row of `ACCOUNT`; they add up to `end`."""
        edges, busy = self._coverage
        length = np.append(np.diff(edges), 0)
        length[edges >= self.end] = 0
        everything = np.vstack([busy, np.ones((1, len(edges)), bool)])
        computes = bool((self.program.engine == Engine.GPU).any())
        order = np.array(_FIRST_OF_ACCELERATOR if computes else _FIRST_OF_HOST)
        first = order[np.argmax(everything[order], axis=0)]
        return np.bincount(first, weights=length, minlength=len(ACCOUNT)).astype(np.int64)

    def waiting_for_alone(self, some: Bool) -> int:
        """ns in which some of the nodes, communication, wait for their peers and nothing else happens.

        That is a part of ``waiting_ns``: nothing computes, the host included, nothing moves, and no other communication
        waits.
        """
        if not some.any():
            return 0
        edges, busy = self._coverage
        ready = np.clip(self.ready, self.issue, self.finish)
        others = ~some & (self.engine == Engine.COMM)
        mine, theirs = (_covered(edges, self.issue[which], ready[which]) for which in (some, others))
        alone = mine & ~(theirs | busy[[0, 1, 2, 4]].any(axis=0))
        return int(np.diff(edges)[alone[:-1]].sum())

    def measures(self) -> dict[str, int]:
        """ASTRA-sim's figures: measure of the union of each type's intervals, and compute-communication overlap."""
        edges, busy = self._coverage
        length = np.append(np.diff(edges), 0)
        comm = busy[2] | busy[3]
        rows = {
            "gpu_ns": busy[0],
            "cpu_ns": busy[1],
            "comm_ns": comm,
            "remote_mem_ns": busy[4],
            "overlap_ns": busy[0] & comm,
        }
        figures = {name: int(length[row].sum()) for name, row in rows.items()}
        figures["wall_ns"] = int(self.finish.max()) if len(self.finish) else 0
        return figures


def _covered(edges: I64, first: I64, last: I64) -> Bool:
    """Whether a span covers the time from each of the edges to the next; spans begin and end at edges only."""
    step = np.bincount(np.searchsorted(edges, first), minlength=len(edges)).astype(np.int64)
    step -= np.bincount(np.searchsorted(edges, last), minlength=len(edges))
    return np.asarray(np.cumsum(step) > 0)


def come_ns(raw: RawRun, program: Program, actor: int, met_ns: I64 | None = None) -> I64:
    """When the last member of each of an actor's collectives, or the sender of each of its messages, had come, ns.

    By node in program order; -1 where that did not happen, where it is not known, and of other nodes.

    Parameters
    ----------
    raw, program, actor
        The run, the actor's program and its number.
    met_ns
        The same of recorded collectives.
    """
    out = np.full(program.n_nodes, -1, np.int64) if met_ns is None else met_ns.copy()
    comm = np.flatnonzero(program.comm >= 0)
    if len(comm):
        cells = slice(int(raw.comm_start[actor]), int(raw.comm_start[actor + 1]))
        instance = raw.comm_instance[cells]
        known = raw.comm_ready_ns[cells].copy()
        coll = instance >= 0
        known[coll] = raw.instance_ready_ns[instance[coll]]
        out[comm] = np.where(out[comm] >= 0, out[comm], known)
    return out


def actor_times(raw: RawRun, program: Program, actor: int, met_ns: I64 | None = None) -> ActorTimes:
    """Times of one actor's issued nodes.

    Parameters
    ----------
    raw, program, actor
        The run, the actor's program and its number.
    met_ns
        Of recorded collectives by node: when the last member had come, ns; -1 of other nodes.
    """
    where = raw.nodes(actor)
    issue, finish = raw.issue_ns[where], raw.finish_ns[where]
    done = int(raw.done_ns[actor])
    end = done if done >= 0 else int(max(issue.max(initial=0), finish.max(initial=0)))
    come = come_ns(raw, program, actor, met_ns)
    # what nobody has come to waits until the end
    ready = np.where(come >= 0, come, np.where(program.comm >= 0, end, issue))
    issued = issue >= 0
    finish = np.where(finish >= 0, finish, end)
    return ActorTimes(
        program,
        np.flatnonzero(issued),
        issue[issued],
        finish[issued],
        ready[issued],
        program.engine[issued],
        end,
    )


def roofline_averages(program: Program, system: System, issue: I64) -> dict[str, float] | None:
    """ASTRA-sim's four averages, weighted by node duration over (CPU + GPU time + 1); None without the roofline."""
    if not system.roofline or system.replay_only:
        return None
    peak = (system.peak_perf_tflops or 0.0) * 1e12
    bandwidth = system.local_mem_bw_gbps * 1e9
    counted = (program.engine == Engine.GPU) | (program.engine == Engine.CPU)
    total = float(program.duration_ns[counted & (issue >= 0)].sum()) + 1.0
    trace, order = program.trace, program.order
    nodes = np.flatnonzero((program.engine == Engine.GPU) & (program.op == Op.TIMER) & (issue >= 0))
    ops = trace.num_ops[order][nodes].astype(np.float64)
    size = trace.tensor_size[order][nodes].astype(np.float64)
    weight: F64 = program.duration_ns[nodes] / total
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        intensity = np.where(size > 0, ops / size, 0.0)
        reached = np.where(intensity > 0, bandwidth * intensity, 0.0)
        perf = np.minimum(reached, peak)
        compute = perf / peak if peak else np.zeros_like(perf)
        memory = np.where((intensity > 0) & (bandwidth > 0), perf / intensity / bandwidth, 0.0)
    bound = reached >= peak
    return {
        "compute_bound_pct": float(100 * weight[bound].sum()),
        "avg_compute_util_pct": float(100 * (weight * compute).sum()),
        "avg_memory_util_pct": float(100 * (weight * memory).sum()),
        "avg_op_intensity": float((weight * intensity).sum()),
    }


def exposed_as_astra(program: Program, raw: RawRun, actor: int, *, replay_only: bool) -> int:
    """ASTRA-sim's exposed communication: finish minus the durations of GPU compute nodes issued (it can be negative)."""
    counted = np.isin(program.engine, (Engine.GPU, Engine.IDLE))
    if replay_only:
        counted = program.engine != Engine.CPU
    issue, finish = raw.issue_ns[raw.nodes(actor)], raw.finish_ns[raw.nodes(actor)]
    # a timer that collectives beside it have slowed down takes longer than its duration
    ended = (program.op == Op.TIMER) & (finish >= 0)
    taken = np.where(ended, finish - issue, program.duration_ns)
    return int(raw.done_ns[actor]) - int(taken[counted & (issue >= 0)].sum())
