"""What an engine asks of a network that somebody else simulates: transfers in batches, and when each has ended.

The compiled door, for networks inside the kernel, is described in `chakra.replay.engines.kernels.network`; what a
network may answer before a run in `chakra.replay.networks.answers`. Of the three, other packages see this one.

An `OutsideNetwork` describes itself and begins a `NetworkRun`. Engine and network then advance together, and the
engine leads: at a tick it lets all NPUs do what they do, hands over everything that was sent as one batch
(`submit`), and asks the network to run until its first completion, but not past the engine's own next tick
(`advance`). It never goes past a tick up to which the network has not answered, so nobody ever has to go back.

Collectives, algorithms, matching of sends and receives, rendezvous, delays of the NPUs and sizes of messages are the
engine's. A control message of the rendezvous protocol is a transfer of 8,192 bytes like any other. Headers,
packets, routes and queues are the network's. A message of an NPU to itself is never handed over.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from chakra.arrays import F64, I64

#: `until_ns` of an engine that has nothing to do before the next completion; later than every tick of a run
NEVER_NS = 1 << 62


class LogicalDim(NamedTuple):
    """A logical dimension of an outside network, and what it states of itself.

    Collectives go through logical dimensions; their product is the number of NPUs, and the first varies fastest in
    an NPU's number. Bandwidth and latency decide no time: algorithms that have a choice plan with them (number of
    segments, when an NPU's port is free for the next round of a table of steps), and results compare with them
    (bounds, utilisation).

    Attributes
    ----------
    npus
        NPUs along the dimension, at least 2.
    bandwidth_gibps
        What an NPU can send into the dimension, GB/s of 2^30 B/s, above 0.
    latency_ns
        Of a message between neighbours, ns.
    """

    npus: int
    bandwidth_gibps: float
    latency_ns: float


class Transfers(NamedTuple):
    """A batch of transfers that start: arrays of equal length, int64.

    Attributes
    ----------
    id
        Numbers of the transfers, 0, 1, 2, ... in the order in which they were sent.
    src, dst
        NPU that sends, NPU that receives; never the same.
    bytes
        Bytes of each, at least 0.
    start_ns
        When each starts, ns; the same in all of a batch, and never before the network's clock.
    """

    id: I64
    src: I64
    dst: I64
    bytes: I64
    start_ns: I64


class Ended(NamedTuple):
    """Transfers that have ended: arrays of equal length, int64.

    Attributes
    ----------
    id
        Numbers of the transfers, in the order in which they count as ended: the engine goes on with them in this
        order.
    end_ns
        When the last byte of each was at its destination, ns; the same in all of an answer.
    """

    id: I64
    end_ns: I64


class LinkUse(NamedTuple):
    """What a link carried in a run, for the result's `links`.

    Attributes
    ----------
    source, target
        Where the link begins and ends: number of an NPU, or name of a switch.
    bytes
        Bytes that crossed it.
    busy_ns
        How long it sent.
    queued_ns
        How long messages waited for it, summed over messages.
    """

    source: int | str
    target: int | str
    bytes: int
    busy_ns: int
    queued_ns: int


class UseOverTime(NamedTuple):
    """When links were busy, for the result's `link_use`.

    Attributes
    ----------
    interval_ns
        Length of an interval, ns; the first begins with the run.
    links
        Where each link begins and ends, and its bandwidth in GB/s of 2^30 B/s; those that carried something.
    busy_ns
        How long each sent in each interval, ns, shape (links, intervals).
    """

    interval_ns: int
    links: Sequence[tuple[int | str, int | str, float]]
    busy_ns: F64


class NetworkRun(Protocol):
    """One simulation, from tick 0. Its clock is 0 at first, and what `advance` answered last."""

    def submit(self, transfers: Transfers) -> None:
        """Take transfers that start now.

        The arrays belong to the network from then on. Several batches may come for one tick, in the order of
        sending; no transfer starts before the network's clock.

        Parameters
        ----------
        transfers
            What starts.
        """

    def advance(self, until_ns: int) -> Ended:
        """Run to the first tick at which transfers end, or to `until_ns` if none ends up to then.

        All transfers submitted so far that end at that tick are answered at once; the clock is then that tick, even
        if it is `until_ns`. Without any, the clock is `until_ns`. What is submitted afterwards may still end at the
        clock's tick: the next call answers it. The engine asks for no tick before the clock, and no answer may lie
        before it.

        Ties: what ends at a tick at which NPUs have events of their own comes before these, in the order of the
        answer. A network without an order of its own sorts by number. Equal calls must have equal answers: results
        are compared byte by byte.

        Parameters
        ----------
        until_ns
            Tick of the engine's next event, ns; `NEVER_NS` if it has none. Then something must end: if nothing is
            answered, the transfers in flight are lost, and the run ends with an error that names the network.

        Returns
        -------
        Ended
            Transfers that ended, perhaps none.
        """

    def close(self) -> None:
        """The run is over, or has failed; called once."""


@runtime_checkable
class CountsLinks(Protocol):
    """A run that also says what its links carried. Optional: a result without has no `links`."""

    def links(self) -> Iterable[LinkUse]:
        """Links that carried something, asked once at the end of the run, before `close`."""


@runtime_checkable
class CountsUse(Protocol):
    """A run that also says when its links were busy. Optional: a result without has no `link_use`."""

    def use_over_time(self) -> UseOverTime | None:
        """What links did when, asked once at the end of the run, before `close`; None if it was not counted."""


@runtime_checkable
class Pauses(Protocol):
    """A run whose `advance` may come back early, so that progress is shown and an interrupt ends it. Optional."""

    @property
    def paused_ns(self) -> int | None:
        """After an `advance` that answered nothing: the clock, if that is before `until_ns`, ns; else None."""


@runtime_checkable
class Tells(Protocol):
    """A run that has something to say of itself at its end. Optional."""

    def notes(self) -> Iterable[str]:
        """Lines for the result's notes, asked once at the end of the run, before `close`."""


@runtime_checkable
class Expects(Protocol):
    """A network that is told before each run what it will carry. Optional."""

    def expect(self, pairs: I64, total_bytes: int) -> None:
        """Told before `begin`; an exception refuses the run.

        Parameters
        ----------
        pairs
            Sending and receiving NPU of those that may exchange messages, shape (pairs, 2).
        total_bytes
            What all of them send together, about.
        """


@runtime_checkable
class OutsideNetwork(Protocol):
    """A network that is simulated outside the engine.

    A value that may be used for many runs: all state of a simulation lies in what `begin` returns. An exception of
    any of its methods, or an answer that cannot be, ends the run with one line that names the network (exit code
    2).
    """

    @property
    def name(self) -> str:
        """What messages and results call it."""

    @property
    def dims(self) -> Sequence[LogicalDim]:
        """Logical dimensions, at least one."""

    def begin(self) -> NetworkRun:
        """Start a simulation at tick 0 with nothing under way."""
