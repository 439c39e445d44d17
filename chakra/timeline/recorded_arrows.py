"""Arrows between the ranks of a recording: what the profiler says of a communication kernel tells its group and peer."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from chakra.converters.pytorch.comm.operations import COLLECTIVES, POINT_TO_POINT, normalise
from chakra.converters.pytorch.read.columns import to_integer
from chakra.converters.pytorch.read.device import CommArgs
from chakra.timeline.arrows import Matcher


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel that communicates: number of its slice, when it began (ns), what it does, and its peer (-1: none)."""

    number: int
    start_ns: int
    what: str
    peer: int


@dataclass(slots=True)
class RecordedMatcher:
    """Collects communication kernels of all ranks.

    Recordings may begin and end within a step. So the collectives of a group are matched by their turn where all of its
    ranks that are there have as many of the same kinds in one order, and messages where as many were sent as received.
    """

    _kernels: dict[tuple[str, int], list[_Kernel]] = field(default_factory=lambda: defaultdict(list))

    def add(self, args: CommArgs, number: int, rank: int, start_ns: int) -> None:
        """Note a kernel; nothing where the profiler does not say what it does.

        Parameters
        ----------
        args
            What the profiler says of it.
        number
            Its slice.
        rank
            Its rank.
        start_ns
            When it began, ns.
        """
        what = normalise(str(args.collective or ""))
        if what in COLLECTIVES:
            peer = -1
        elif what in POINT_TO_POINT:
            peer = to_integer(args.dst if what == "send" else args.src, -1)
            if peer < 0:
                return
        else:
            return
        group = f"{args.group} {args.group_ranks}"
        self._kernels[group, rank].append(_Kernel(number, start_ns, what, peer))

    def flows(self) -> list[tuple[int, int]]:
        """Pairs of slices (from, to)."""
        matcher = Matcher()
        groups: defaultdict[str, dict[int, list[_Kernel]]] = defaultdict(dict)
        for (group, rank), kernels in self._kernels.items():
            groups[group][rank] = sorted(kernels, key=lambda kernel: kernel.start_ns)
        for turn, (group, ranks) in enumerate(groups.items()):
            _add_collectives(matcher, group, ranks)
            _add_messages(matcher, turn, ranks)
        return matcher.flows()


def _add_collectives(matcher: Matcher, group: str, ranks: dict[int, list[_Kernel]]) -> None:
    together = {rank: [k for k in kernels if k.what in COLLECTIVES] for rank, kernels in ranks.items()}
    if len({tuple(kernel.what for kernel in kernels) for kernels in together.values()}) != 1:
        return
    for rank, kernels in together.items():
        for kernel in kernels:
            matcher.collective(kernel.number, rank, group, kernel.start_ns)


def _add_messages(matcher: Matcher, tag: int, ranks: dict[int, list[_Kernel]]) -> None:
    messages = list(_messages(ranks))
    count = Counter(message[:3] for message in messages)
    for what, source, target, number in messages:
        if count["send", source, target] != count["recv", source, target]:
            continue
        if what == "send":
            matcher.send(number, source, target, tag)
        else:
            matcher.receive(number, source, target, tag)


def _messages(ranks: dict[int, list[_Kernel]]) -> Iterator[tuple[str, int, int, int]]:
    for rank, kernels in ranks.items():
        for kernel in kernels:
            if kernel.what == "send":
                yield kernel.what, rank, kernel.peer, kernel.number
            elif kernel.what == "recv":
                yield kernel.what, kernel.peer, rank, kernel.number
