"""The engine's side of a network outside: batches, checks of every answer, and errors that name the network."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np

from chakra.arrays import I64
from chakra.errors import ChakraError, ConfigError
from chakra.io.readable import counted, with_article
from chakra.replay.networks.interface import (
    NEVER_NS,
    CountsLinks,
    CountsUse,
    Expects,
    LinkUse,
    OutsideNetwork,
    Pauses,
    Tells,
    Transfers,
    UseOverTime,
)
from chakra.replay.plugins import guarded

_T = TypeVar("_T")
#: intervals of a run for which a network says when its links were busy
MOST_INTERVALS = 4096
#: transfers that are named in an error
SHOWN = 3
_FLYING, _ENDED = 0, 1
_LARGEST = int(np.iinfo(np.int64).max)


class Exchange:
    """One run of an outside network.

    Parameters
    ----------
    network
        The network.

    Raises
    ------
    ConfigError
        From every method: whatever goes wrong in the network, in one line.
    """

    def __init__(self, network: OutsideNetwork) -> None:
        self._words = f"network {network.name!r}"
        self._run = self._call("begin", network.begin)
        for name in ("submit", "advance", "close"):
            if not callable(getattr(self._run, name, None)):
                raise ConfigError(
                    f"{self._words}: begin() returned {with_article(type(self._run).__name__)} without {name}()"
                )
        self._count = 0
        #: per transfer: the engine's handle, source, destination, bytes, start, and whether it has ended
        self._sent = np.zeros((6, 1024), np.int64)
        self._clock = 0
        self.flying = 0

    def _call(self, what: str, function: Callable[[], _T]) -> _T:
        return guarded(function, f"{self._words} failed in {what}()")

    @property
    def clock_ns(self) -> int:
        """The tick up to which the network has answered, ns."""
        return self._clock

    def submit(self, rows: I64) -> None:
        """Hand transfers over.

        Parameters
        ----------
        rows
            Handle, source, destination, bytes and start (ns) of each, shape (n, 5).
        """
        n, first = len(rows), self._count
        while first + n > self._sent.shape[1]:
            self._sent = np.concatenate([self._sent, np.zeros_like(self._sent)], axis=1)
        self._sent[:5, first : first + n] = rows.T
        self._count += n
        self.flying += n
        batch = Transfers(
            np.arange(first, first + n, dtype=np.int64), *(rows[:, k].copy() for k in range(1, 5))
        )
        self._call("submit", lambda: self._run.submit(batch))

    def advance(self, until_ns: int) -> tuple[I64, int]:
        """Let the network run.

        Returns
        -------
        tuple
            Handles of what ended, in its order, and the tick up to which the network has answered: theirs, or
            `until_ns`, or where it has paused.
        """
        answer = self._call("advance", lambda: self._run.advance(until_ns))
        ids, ends = self._arrays(answer)
        if not len(ids):
            paused = self._paused(until_ns)
            if paused is not None:
                self._clock = paused
                return ids, paused
            if until_ns >= NEVER_NS:
                raise ConfigError(
                    f"{self._words} has lost transfers: nothing will end any more, but {self.flying} "
                    f"{'is' if self.flying == 1 else 'are'} under way: {self._named(self._under_way())}"
                )
            self._clock = until_ns
            return ids, until_ns
        self._check_numbers(ids)
        tick = int(ends[0])
        self._check_ticks(ids, ends, until_ns)
        self._sent[5, ids] = _ENDED
        self.flying -= len(ids)
        self._clock = tick
        return self._sent[0, ids], tick

    def _paused(self, until_ns: int) -> int | None:
        """The tick at which a run has paused before it was asked to stop; None if it has not."""
        if not isinstance(self._run, Pauses):
            return None
        paused = self._run.paused_ns
        if paused is None or not self._clock <= paused < until_ns:
            return None
        return int(paused)

    def _arrays(self, answer: Any) -> tuple[I64, I64]:
        """Both columns of an answer."""
        try:
            ids, ends = (np.asarray(column) for column in answer)
        except (TypeError, ValueError):
            raise ConfigError(
                f"{self._words}: advance() returned {with_article(type(answer).__name__)}, not numbers and ends "
                "of transfers"
            ) from None
        for column in (ids, ends):
            if column.ndim != 1 or (column.dtype.kind not in "iu" and len(column)):
                raise ConfigError(
                    f"{self._words}: advance() must return one-dimensional arrays of whole numbers, not "
                    f"{column.dtype} of shape {column.shape}"
                )
            if len(column) and int(column.max()) > _LARGEST:
                raise ConfigError(
                    f"{self._words}: advance() answered {int(column.max())}, more than 2^63 - 1"
                )
        if len(ids) != len(ends):
            raise ConfigError(
                f"{self._words}: advance() returned {counted(len(ids), 'number')} and {len(ends)} ends"
            )
        return ids.astype(np.int64), ends.astype(np.int64)

    def _check_numbers(self, ids: I64) -> None:
        unknown = ids[(ids < 0) | (ids >= self._count)]
        if len(unknown):
            raise ConfigError(
                f"{self._words} ended transfer {int(unknown[0])}, which it was never given: there are {self._count}"
            )
        again = ids[self._sent[5, ids] == _ENDED]
        if not len(again) and len(ids) > 1:
            ordered = np.sort(ids)
            again = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(again):
            raise ConfigError(f"{self._words} ended a transfer twice: {self._named(again)}")

    def _check_ticks(self, ids: I64, ends: I64, until_ns: int) -> None:
        first = int(ends.min())
        worst = ids[ends == first]
        if first != int(ends.max()):
            raise ConfigError(
                f"{self._words}: advance() answered ends at {first} ns and at {int(ends.max())} ns; it must stop at the "
                "first"
            )
        early = ids[self._sent[4, ids] > ends]
        if len(early):
            raise ConfigError(
                f"{self._words}: a transfer ended at {first} ns, before its start: {self._named(early)}"
            )
        if first < self._clock:
            raise ConfigError(
                f"{self._words} went back in time: at {self._clock} ns it says what ended at {first} ns: "
                f"{self._named(worst)}"
            )
        if first > until_ns or first >= NEVER_NS:
            raise ConfigError(
                f"{self._words} went too far: asked to run to {until_ns} ns, it answers what ended at {first} ns: "
                f"{self._named(worst)}"
            )

    def _under_way(self) -> I64:
        return np.flatnonzero(self._sent[5, : self._count] == _FLYING)

    def _named(self, ids: I64) -> str:
        """The first few of some transfers, in words."""
        texts = []
        for number in ids[:SHOWN].tolist():
            _, src, dst, size, start, _ = self._sent[:, number].tolist()
            texts.append(f"{number} (NPU {src} to {dst}, {size:,} bytes, started at {start} ns)")
        return ", ".join(texts) + (", ..." if len(ids) > SHOWN else "")

    def links(self) -> tuple[LinkUse, ...]:
        """What the network says of its links; nothing if it counts none."""
        run = self._run
        if not isinstance(run, CountsLinks):
            return ()

        def read() -> tuple[LinkUse, ...]:
            return tuple(
                LinkUse(
                    use.source if isinstance(use.source, str) else int(use.source),
                    use.target if isinstance(use.target, str) else int(use.target),
                    int(use.bytes),
                    int(use.busy_ns),
                    int(use.queued_ns),
                )
                for use in run.links()
            )

        return self._call("links", read)

    def use_over_time(self, end_ns: int) -> UseOverTime | None:
        """What the network says of when its links were busy in a run that ended then; None if it does not."""
        run = self._run
        if not isinstance(run, CountsUse):
            return None
        said = self._call("use_over_time", run.use_over_time)
        if said is None:
            return None

        def read() -> UseOverTime:
            links = [
                (a if isinstance(a, str) else int(a), b if isinstance(b, str) else int(b), float(rate))
                for a, b, rate in said.links
            ]
            return UseOverTime(int(said.interval_ns), links, np.asarray(said.busy_ns, np.float64))

        found = self._call("use_over_time", read)
        if found.interval_ns < 1:
            raise ConfigError(f"{self._words}: use_over_time() answered intervals of {found.interval_ns} ns")
        if -(-end_ns // found.interval_ns) > MOST_INTERVALS:
            raise ConfigError(
                f"{self._words}: use_over_time() answered intervals of {found.interval_ns} ns for a run of {end_ns} ns; "
                f"at most {MOST_INTERVALS} intervals are kept"
            )
        busy = found.busy_ns
        if busy.ndim != 2 or len(busy) != len(found.links):
            raise ConfigError(
                f"{self._words}: use_over_time() must answer a row of intervals for each of "
                f"{counted(len(found.links), 'link')}, "
                f"not an array of shape {busy.shape}"
            )
        if not (np.isfinite(busy) & (busy >= 0)).all():
            raise ConfigError(
                f"{self._words}: use_over_time() answered busy times that are no numbers from 0 on"
            )
        return found

    def notes(self) -> tuple[str, ...]:
        """What the network says of the run; nothing if it says nothing."""
        run = self._run
        if not isinstance(run, Tells):
            return ()
        return self._call("notes", lambda: tuple(str(line) for line in run.notes()))

    def close(self) -> None:
        """End the simulation."""
        self._call("close", self._run.close)


def tell(network: OutsideNetwork, carried: Callable[[], tuple[I64, int]]) -> None:
    """Tell a network what a run will carry, if it wants to know (`Expects`).

    Parameters
    ----------
    network
        The network.
    carried
        Gives pairs of NPUs, shape (pairs, 2), and the bytes of all, about.

    Raises
    ------
    ChakraError
        What the network refuses the run with; anything else that it raises becomes one line.
    """
    if not isinstance(network, Expects):
        return
    pairs, total_bytes = carried()
    refused: list[ChakraError] = []

    def call() -> None:
        try:
            network.expect(pairs, total_bytes)
        except ChakraError as error:
            refused.append(error)

    guarded(call, f"network {network.name!r} failed in expect()")
    if refused:
        raise refused[0]


@contextmanager
def outside_run(network: OutsideNetwork) -> Iterator[Exchange]:
    """A run of an outside network, which is closed whatever happens; the first fault is the one that is told."""
    exchange = Exchange(network)
    try:
        yield exchange
    except BaseException:
        with suppress(ConfigError):
            exchange.close()
        raise
    exchange.close()
