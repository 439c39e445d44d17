"""The message-level engine: every message of every collective on every link, in ASTRA-sim's order of events.

It is exact for both network backends. `message_model` has its inputs and results, `message_tables` turns them into the
kernel's array, `kernels/messages` runs, `message_results` reads the array.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import numpy as np

from chakra.jit import compiled, worth_compiling
from chakra.replay.engines.kernels import messages_layout as lay
from chakra.replay.engines.messages.model import (
    Actor,
    Algorithm,
    Bus,
    Collective,
    CollectiveRecord,
    Do,
    EngineModel,
    EngineResult,
    LinkGraph,
    LinkStats,
    Mismatch,
    Mode,
    NetworkDim,
    Phase,
    Program,
    Ring,
    Rule,
    Stall,
    WaitingCollective,
    WaitingMessage,
)
from chakra.replay.engines.messages.results import read_result
from chakra.replay.engines.messages.tables import Tables, with_room
from chakra.replay.networks.exchange import Exchange

__all__ = [
    "Actor",
    "Algorithm",
    "Bus",
    "Collective",
    "CollectiveRecord",
    "Do",
    "EngineModel",
    "EngineResult",
    "LinkGraph",
    "LinkStats",
    "MessageEngine",
    "Mismatch",
    "Mode",
    "NetworkDim",
    "Phase",
    "Program",
    "Ring",
    "Rule",
    "Stall",
    "WaitingCollective",
    "WaitingMessage",
]

#: seconds after which progress is shown while a network outside runs
TELL_S = 0.2
#: events after which control comes back for progress and interrupts
STEP = 4_000_000
#: estimated events from which compiled code pays when it is loaded, when it must be loaded, and when it must be compiled
#: first (half a minute); plain Python takes about 3.5 us per event
COMPILE_FROM = (20_000, 300_000, 4_000_000)
KERNEL = "chakra.replay.engines.kernels.messages"


class MessageEngine:
    """Simulates a workload message by message.

    Parameters
    ----------
    model
        Network, queues and rules.
    programs
        Distinct traces, and the programs of custom algorithms.
    actors
        One per NPU, in NPU order; as many as the network's dimensions have NPUs.
    groups
        NPUs of each communicator, in ring order. A group as large as the system lists the NPUs ascending.
    collectives
        Distinct collectives that the actors' calls refer to.
    jit
        Compile the kernel (True), run it as plain Python (False), or decide by the estimated work (None).
    """

    def __init__(
        self,
        model: EngineModel,
        programs: Sequence[Program],
        actors: Sequence[Actor],
        groups: Sequence[Sequence[int]],
        collectives: Sequence[Collective],
        *,
        jit: bool | None = None,
    ) -> None:
        self._tables = Tables(model, programs, actors, groups, collectives)
        self._jit = jit

    def estimated_events(self) -> int:
        """Rough number of events, to choose between compiled and plain kernel."""
        t = self._tables
        factor = 4 if t.model.aware else 3
        total = 0
        n = len(t.actors)
        per_plan = []
        for plan in t.collectives:
            messages = 0
            for phase in plan.phases:
                ring = t.ring_size(phase, n)
                if phase.algorithm is Algorithm.RING and phase.do is Do.ALL_TO_ALL:
                    messages += ring * (ring - 1) // 2
                else:
                    messages += 2 * ring
            messages += sum(len(t.programs[p].op) for p in plan.custom_programs[:1])
            per_plan.append(messages * max(len(plan.chunk_bytes), 1))
        known: dict[tuple[int, bytes], int] = {}
        for actor in t.actors:
            key = (actor.program, actor.calls.tobytes())
            if key not in known:
                program = t.programs[actor.program]
                nodes = np.flatnonzero(program.op == lay.OP_COLLECTIVE)
                uses = np.bincount(program.index[nodes], minlength=len(actor.calls))
                plans = actor.calls[:, 0] if len(actor.calls) else np.zeros(0, np.int64)
                work = sum(per_plan[int(p)] * int(u) for p, u in zip(plans, uses, strict=False))
                known[key] = len(program.op) * 2 + factor * work
            total += known[key]
        return total

    def run(self, progress: Callable[[int, int], object] | None = None) -> EngineResult:
        """Simulate to the end.

        Parameters
        ----------
        progress
            Called now and then with the tick reached (ns) and the number of finished NPUs; False ends the run.

        Returns
        -------
        EngineResult
            With `stall` or `mismatch` set if the workload cannot end.
        """
        t = self._tables
        outside = t.model.outside
        if outside is None:
            return self._simulate(progress, None)
        exchange = Exchange(outside)
        try:
            return self._simulate(progress, exchange)
        finally:
            exchange.close()

    def _simulate(
        self, progress: Callable[[int, int], object] | None, exchange: Exchange | None
    ) -> EngineResult:
        t = self._tables
        jit = self._jit
        if jit is None:
            jit = worth_compiling(KERNEL, *COMPILE_FROM, self.estimated_events())
        kernel: Any
        if jit:
            kernel = compiled(KERNEL)
            state = lay.State(t.m, t.floats)
        else:
            from chakra.replay.engines.kernels import messages as kernel

            state = lay.State(t.m.tolist(), t.floats.tolist())
        told = monotonic()
        while True:
            state.m[lay.C_BUDGET] = STEP if jit else STEP // 50
            status = int(kernel.run(state))
            if status == lay.BUDGET or (status == lay.AWAIT and monotonic() > told + TELL_S):
                told = monotonic()
                now, done = int(state.m[lay.C_NOW]), len(t.actors) - int(state.m[lay.C_UNFINISHED])
                if progress is not None and progress(now, done) is False:
                    break
            if status == lay.GROW:
                m = np.asarray(state.m, np.int64)
                m = with_room(m, len(m))
                state = lay.State(m if jit else m.tolist(), state.f)
            elif status in (lay.HAND_OVER, lay.AWAIT) and exchange is not None:
                meet(kernel, state, exchange, status)
            elif status != lay.BUDGET:
                break
        return read_result(
            t, np.asarray(state.m, np.int64), status, jit, () if exchange is None else exchange.links()
        )


def meet(kernel: Any, state: lay.State, exchange: Exchange, status: int) -> None:
    """Empty the mailbox into the network outside, and after `AWAIT` let it run and put in what has ended."""
    m = state.m
    first, n = int(m[lay.C_MAIL]), int(m[lay.C_MAIL_N])
    if n:
        exchange.submit(np.array(m[first : first + n * lay.MAIL_ROW], np.int64).reshape(n, lay.MAIL_ROW))
    m[lay.C_MAIL_N] = 0
    m[lay.C_STATUS] = lay.DONE
    if status == lay.HAND_OVER:
        return
    messages, tick = exchange.advance(int(m[lay.C_UNTIL]))
    m[lay.C_UNTIL] = tick
    m[lay.C_CLEAR] = tick if exchange.flying else lay.NEVER
    room = int(m[lay.C_MAIL_MARK])
    for at in range(0, len(messages), room):
        if at:  # more than the mailbox holds: the kernel takes the first ones, and goes no further
            m[lay.C_BUDGET] = 0
            kernel.run(state)
        part = messages[at : at + room]
        m[first : first + len(part)] = part if isinstance(m, np.ndarray) else part.tolist()
        m[lay.C_ENDED] = len(part)
