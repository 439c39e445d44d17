"""A network that is simulated outside the kernel: messages leave in batches, and come back in batches.

`hand_over` puts a message into the mailbox, a table of the block. `run` goes back to its caller when the mailbox is
nearly full (`HAND_OVER`), and before it would pass a tick up to which the network has not yet said what ends (`AWAIT`;
`C_UNTIL` is the next tick of the engine's own, or `NEVER`). The caller hands the batch to the network, lets it run,
and leaves the messages that have ended in the same mailbox; `deliver` puts them into the tick `C_UNTIL`, in the order
in which they lie there, before what the engine has for that tick: NPUs know of what has ended when they act. `C_CLEAR`
is the tick up to which the network has answered: `NEVER` when it holds nothing, -1 when it was given something since.
"""

from chakra.replay.engines.kernels import messages_layout as L
from chakra.replay.engines.kernels.layout import State
from chakra.replay.engines.kernels.messages_events import open_bucket
from chakra.replay.engines.kernels.network_delays import book_message

#: nothing here is compiled for its own sake, only as part of `messages.run`
ENTRY_POINTS = ()
ALLOCATES = False


def hand_over(s: State, message: int, src: int) -> None:
    """Put a message into the mailbox."""
    m = s.m
    dst, size = m[message + L.M_DST], m[message + L.M_SIZE]
    m[message + L.M_AT] = dst
    m[message + L.M_HOPS] = 1
    book_message(s, message, src)
    n = m[L.C_MAIL_N]
    at = m[L.C_MAIL] + n * L.MAIL_ROW
    m[at + L.ML_MESSAGE] = message
    m[at + L.ML_SRC] = src
    m[at + L.ML_DST] = dst
    m[at + L.ML_BYTES] = size
    m[at + L.ML_START] = m[L.C_NOW]
    m[L.C_MAIL_N] = n + 1
    m[L.C_CLEAR] = -1
    if n >= m[L.C_MAIL_MARK] and m[L.C_STATUS] == L.DONE:
        m[L.C_STATUS] = L.HAND_OVER


def deliver(s: State) -> None:
    """Messages that ended at tick `C_UNTIL` lie in the mailbox, one word each: they come first in that tick."""
    m = s.m
    bucket = open_bucket(s, m[L.C_UNTIL])
    first = m[L.C_MAIL]
    last = first + m[L.C_ENDED] - 1
    for at in range(first, last):
        m[m[at] + L.NEXT] = m[at + 1]
    m[m[last] + L.NEXT] = m[bucket + L.B_HEAD]
    if m[bucket + L.B_HEAD] == L.NIL:
        m[bucket + L.B_TAIL] = m[last]
    m[bucket + L.B_HEAD] = m[first]
    m[L.C_ENDED] = 0
