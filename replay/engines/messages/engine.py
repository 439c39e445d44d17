"""The message-level engine's loop: running the kernel `chakra.replay.engines.kernels.messages` on its tables.

Every message of every collective is simulated on every link, in ASTRA-sim's order of events. `messages/run` makes the
tables' inputs from a scenario, `messages/tables` the kernel's block.
"""

from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.jit import compiled, worth_changing, worth_compiling
from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import Words
from chakra.replay.engines.messages.outside import meet
from chakra.replay.engines.messages.tables import MessageTables, with_room
from chakra.replay.networks.exchange import Exchange

#: seconds after which progress is shown while a network outside runs
TELL_S = 0.2
#: events after which control comes back for progress and interrupts, compiled and plain
STEP, PLAIN_STEP = 4_000_000, 20_000
#: estimated events from which compiled code pays when it is loaded, when it must be loaded, and when it must be compiled
#: first (eight seconds); plain Python takes about 3.5 us per event
COMPILE_FROM = (20_000, 300_000, 2_000_000)
KERNEL = "chakra.replay.engines.kernels.messages"
#: a word of 64 bits
_ALL_ONES = (1 << 64) - 1


def simulate(
    tables: MessageTables,
    work: int,
    progress: Callable[[int, int], bool] | None,
    exchange: Exchange | None,
) -> bool:
    """Run to the end; the block after it is `tables.m`.

    Parameters
    ----------
    tables
        Block at the start.
    work
        Estimated events, to choose between the compiled and the plain kernel.
    progress
        Called now and then with the number of nodes done and the tick reached (ns); False ends the run.
    exchange
        The network, if it is simulated outside.

    Returns
    -------
    bool
        Whether `progress` has ended the run.
    """
    jit = worth_compiling(KERNEL, *COMPILE_FROM, work)
    kernel: Any
    if jit:
        kernel = compiled(KERNEL)
        state = L.State(tables.m, tables.f)
    else:
        from chakra.replay.engines.kernels import messages as kernel

        state = L.State(tables.m.tolist(), tables.f.tolist())
    told = monotonic()
    plain_s = 0.0
    ended = False
    while True:
        m: Any = state.m
        m[L.C_BUDGET] = STEP if jit else PLAIN_STEP
        begun = monotonic()
        status = int(kernel.run(state))
        if not jit:
            plain_s += monotonic() - begun
            if status == L.BUDGET and worth_changing(KERNEL, plain_s):
                jit, kernel = True, compiled(KERNEL)
                state = L.State(_words(m), np.array(state.f, np.float64))
                m = state.m
        if status == L.BUDGET or (status == L.AWAIT and monotonic() > told + TELL_S):
            told = monotonic()
            done, now = int(m[L.C_NODES_DONE]), int(m[L.C_NOW])
            if exchange is not None:
                now = max(now, exchange.clock_ns)
            if progress is not None and not progress(done, now):
                ended = True
                break
        if status == L.GROW:
            grown = with_room(_words(m), len(m))
            state = L.State(grown if jit else grown.tolist(), state.f)
        elif status in (L.HAND_OVER, L.AWAIT) and exchange is not None:
            meet(kernel, state, exchange, status)
        elif status != L.BUDGET:
            break
    tables.m = _words(state.m)
    return ended


def _words(m: Words) -> I64:
    """The state as 64-bit words; what a plain run holds beyond them wraps around, as it does in compiled code.

    Sums that are differences in the end, such as times that messages wait, may be beyond on the way.
    """
    if isinstance(m, np.ndarray):
        return m
    try:
        return np.array(m, np.int64)
    except OverflowError:
        return np.array([word & _ALL_ONES for word in np.asarray(m, object)], np.uint64).view(np.int64)
