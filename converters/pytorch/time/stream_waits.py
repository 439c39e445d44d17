"""Streams that wait for streams, where the trace does not say for what (R-SYNC 2).

Communication libraries make their stream wait for the caller's stream right before the launch, and the caller's stream
wait for theirs later. So a communication operation behind a wait depends on the last operation that the thread launched
on another stream. Any other operation behind a wait depends, in this order,

1. on the communication that PyTorch's record of the wait names;
2. on the communication whose end-of-work record stands right before the wait: a blocking call;
3. on the operation of another stream that ended last before it started, if it ended after this one could
   have started (the wait was felt);
4. on what the nearest unused event record of the thread stands behind;
5. on the oldest communication that nobody has waited for yet.

Waits that a communication library makes for itself, behind its launch, are not the caller's and count for nothing.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from chakra.converters.pytorch.time.library_calls import LibraryCalls, Works

if TYPE_CHECKING:
    from chakra.converters.pytorch.time.sync import WaitState

#: How close behind an operation of another stream an operation must start to be taken for waiting for it.
CLOSE_NS = 20_000


def stream_waits(state: "WaitState", rows: list[int], library: LibraryCalls, works: Works) -> None:
    """Find what each stream wait without a usable record waits for; ``rows`` are calls, in order of time."""
    search = _Search(state, library, works)
    for row in rows:
        if not library.inner[row]:
            search.wait(row)


class _Search:
    """Goes through the waits in order of time."""

    def __init__(self, state: "WaitState", library: LibraryCalls, works: Works) -> None:
        self.state, self.library, self.works = state, library, works
        kept = set(state.by_end)
        rows = sorted(kept, key=lambda row: (state.launch_list[row], row))
        self.pending = [row for row in rows if state.is_comm[row]]
        self.oldest = 0
        #: stream -> launch of its latest communication that was waited for; all before it are over then, too
        self.awaited: dict[int, int] = {}
        self.previous = _previous_on_stream(state)
        self.seen: set[int] = set()

    def wait(self, row: int) -> None:
        """Find what one wait waits for."""
        state = self.state
        thread, begin = int(state.device.calls.thread[row]), int(state.device.calls.start[row])
        work, how = self._named(row, thread, begin)
        if work >= 0:
            target = self._target(row, thread, begin, not_stream=state.key_list[work])
            state.add_stream(work, target, how)
            self._await(work)
            return
        target = self._target(row, thread, begin)
        if target < 0:
            return
        record = state.unused_record(thread, begin)
        marked = state.last_by_thread(thread, int(state.device.calls.start[record])) if record >= 0 else -1
        if state.is_comm[target]:
            source = state.last_by_thread(thread, begin, state.key_list[target])
            state.add_stream(source, target, "stream waits (before communication)")
            return
        first = target not in self.seen
        self.seen.add(target)
        if first and self._felt(target):
            return
        if marked >= 0 and not state.is_comm[marked]:
            if first and state.key_list[marked] != state.key_list[target]:
                state.add_stream(marked, target, "stream waits (nearest record)")
                return
            if not first:
                return
        if first or marked >= 0:
            self._oldest(target, begin)

    def _named(self, row: int, thread: int, begin: int) -> tuple[int, str]:
        """The communication that a wait names by itself, or by the record right before it; -1 where neither does."""
        state, library = self.state, self.library
        work = self.works.of(row, begin)
        if work >= 0:
            return work, "stream waits (named)"
        record = state.last_record(thread, begin)
        if record not in library.ends or record in state.used_records:
            return -1, ""
        work = library.ends[record]
        between = state.last_by_thread(thread, begin)
        if between != work or self._is_over(work) or self._older_than(work):
            return -1, ""
        state.used_records.add(record)
        return work, "stream waits (end of work)"

    def _target(self, row: int, thread: int, begin: int, not_stream: int = -1) -> int:
        """The operation that a wait holds: the next of the stream that it names, else the thread's next launch."""
        state = self.state
        if row in state.waiting:
            return state.next_on_stream(state.waiting[row], begin)
        launched, times = state.threads.get(thread, ([], []))
        at = bisect_left(times, begin)
        if not_stream >= 0:
            # The caller's stream waits: not those of communication.
            while at < len(launched) and (
                state.is_comm[launched[at]] or state.key_list[launched[at]] == not_stream
            ):
                at += 1
        return launched[at] if at < len(launched) else -1

    def _felt(self, target: int) -> bool:
        state = self.state
        before = self.previous[target]
        ready = max(state.launch_list[target], state.end[before] if before >= 0 else 0)
        felt = felt_wait(state, target, ready)
        if felt < 0:
            return False
        state.add_stream(felt, target, "stream waits (by time)")
        if state.is_comm[felt]:
            self._await(felt)
        return True

    def _oldest(self, target: int, begin: int) -> None:
        state, pending = self.state, self.pending
        while self.oldest < len(pending) and self._is_over(pending[self.oldest]):
            self.oldest += 1
        if self.oldest < len(pending):
            source = pending[self.oldest]
            if state.launch_list[source] < begin and state.end[source] <= state.start[target]:
                state.add_stream(source, target, "stream waits (oldest communication)")
                self._await(source)

    def _await(self, work: int) -> None:
        key = self.state.key_list[work]
        self.awaited[key] = max(self.awaited.get(key, -1), self.state.launch_list[work])

    def _is_over(self, work: int) -> bool:
        return bool(self.state.launch_list[work] <= self.awaited.get(self.state.key_list[work], -1))

    def _older_than(self, work: int) -> bool:
        """Whether a communication that was launched before is still to be waited for."""
        while self.oldest < len(self.pending) and self._is_over(self.pending[self.oldest]):
            self.oldest += 1
        return self.oldest < len(self.pending) and self.pending[self.oldest] != work


def felt_waits(state: "WaitState", rows: list[int], library: LibraryCalls) -> None:
    """Waits that show in the times only: of streams that the waiting thread does not launch on next.

    FSDP makes its copy and communication streams wait from the thread that computes, and NCCL orders the streams of one
    communicator among each other. An operation that started late, right behind one of another stream, with a stream
    wait called since the one before it was launched, waited for it.
    """
    starts = state.device.calls.start
    all_times = [int(starts[row]) for row in rows]
    own_times = [int(starts[row]) for row in rows if not library.inner[row]]
    sources: dict[int, list[int]] = {}
    for source, target in state.stream:
        sources.setdefault(target, []).append(source)
    for launched, launches in state.streams.values():
        for i in range(1, len(launched)):
            before, target = launched[i - 1], launched[i]
            ready = max(launches[i], state.end[before])
            if state.start[target] - ready <= CLOSE_NS:
                continue
            times = all_times if state.is_comm[target] else own_times
            if bisect_left(times, launches[i]) == bisect_left(times, launches[i - 1]):
                continue
            if any(state.start[target] - state.end[s] <= CLOSE_NS for s in sources.get(target, ())):
                continue
            felt = felt_wait(state, target, ready)
            if felt >= 0 and state.start[target] - state.end[felt] <= CLOSE_NS:
                state.add_stream(felt, target, "stream waits (by time)")


def _previous_on_stream(state: "WaitState") -> list[int]:
    out = [-1] * len(state.end)
    for rows, _ in state.streams.values():
        for before, after in pairwise(rows):
            out[after] = before
    return out


def felt_wait(state: "WaitState", target: int, ready: int) -> int:
    """Operation of another stream, launched earlier, that ended last between ``ready`` and the target's
    start.
    """
    at = bisect_right(state.ends, state.start[target])
    key, launched = state.key_list[target], state.launch_list[target]
    for i in range(at - 1, max(at - 257, -1), -1):
        row = state.by_end[i]
        if state.ends[i] <= ready:
            return -1
        if state.key_list[row] != key and state.launch_list[row] < launched:
            return int(row)
    return -1
