"""The engine's loop with a network that is simulated outside the kernel (`chakra.replay.networks.interface`)."""

from typing import Any

import numpy as np

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.networks.exchange import Exchange


def meet(kernel: Any, state: L.State, exchange: Exchange, status: int) -> None:
    """Empty the mailbox into the network outside, and after `AWAIT` let it run and put in what has ended."""
    m: Any = state.m
    first, n = int(m[L.C_MAIL]), int(m[L.C_MAIL_N])
    if n:
        exchange.submit(np.array(m[first : first + n * L.MAIL_ROW], np.int64).reshape(n, L.MAIL_ROW))
    m[L.C_MAIL_N] = 0
    m[L.C_STATUS] = L.DONE
    if status == L.HAND_OVER:
        return
    messages, tick = exchange.advance(int(m[L.C_UNTIL]))
    m[L.C_UNTIL] = tick
    m[L.C_CLEAR] = tick if exchange.flying else L.NEVER
    room = int(m[L.C_MAIL_MARK])
    for at in reversed(range(0, len(messages), room)):  # what is delivered later comes before
        part = messages[at : at + room]
        m[first : first + len(part)] = part if isinstance(m, np.ndarray) else part.tolist()
        m[L.C_ENDED] = len(part)
        if at:  # more than the mailbox holds: the kernel takes these, and goes no further
            m[L.C_BUDGET] = 0
            kernel.run(state)
