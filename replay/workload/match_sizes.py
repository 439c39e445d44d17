"""One size per collective, or the shares of all members, brought together from what each of them says.

The k-th collective of a group on one member, in the order of node ids, is the k-th on every other. Whether they are one
is decided by `chakra.et.same_collective.agree`; those that are not stay as they are, and the checks before a run say why.
"""

from dataclasses import replace

import numpy as np

from chakra.arrays import I64, Bool, distinct
from chakra.et import CommType
from chakra.et.same_collective import Agreed, Side, agree
from chakra.replay.collectives.call import Call, Uneven
from chakra.replay.config.model import CollectiveKind
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.model import Op, Program, Workload

#: bytes of a collective and, if they differ, its members' shares; None where members do not mean the same
Found = tuple[int, Uneven | None] | None

#: kinds of which a member's size alone does not say what moves
_TOGETHER = (CollectiveKind.SCATTER, CollectiveKind.GATHER, CollectiveKind.BROADCAST)


def side_of(call: Call) -> Side:
    """What a call says of its collective."""
    return Side(CommType[call.kind.name], call.bytes, call.in_split, call.out_split)


def match_sizes(workload: Workload, membership: Membership, *, astra: bool = False) -> Workload:
    """The workload with one form of each collective on all members; programs part where their partners differ.

    With `astra` unequal shares stay as they are: ASTRA-sim has none.
    """
    flagged = np.zeros((len(workload.programs), membership.comm.shape[1]), bool)
    for number, program in enumerate(workload.programs):
        for call in program.calls:
            if call.alone or call.kind in _TOGETHER:
                flagged[number, call.group] = True
    if not flagged.any():
        return workload
    return _Matching(workload, membership, flagged, astra=astra).result()


class _Matching:
    """Collectives of every communicator that has any to bring together."""

    def __init__(self, workload: Workload, membership: Membership, flagged: Bool, *, astra: bool) -> None:
        self.astra = astra
        self.workload = workload
        self.membership = membership
        self.flagged = flagged
        self._asking: dict[int, Bool] = {}
        self._nodes: dict[tuple[int, int], I64] = {}
        self._uneven: dict[tuple[bytes, tuple[int, ...]], Uneven] = {}
        self._agreed: dict[tuple[Side, ...], Found] = {}

    def nodes(self, number: int, slot: int) -> I64:
        """Collective nodes (program order) of a program's group."""
        key = (number, slot)
        if key not in self._nodes:
            program = self.workload.programs[number]
            nodes = np.flatnonzero(program.op == Op.COLLECTIVE)
            groups = np.array([call.group for call in program.calls] or [0], np.int64)
            self._nodes[key] = nodes[groups[program.call[nodes]] == slot]
        return self._nodes[key]

    def result(self) -> Workload:
        """The workload, matched."""
        comm = self.membership.comm
        of_npu = self.flagged[self.workload.program_of] & (comm >= 0)
        wanted = distinct(comm[of_npu])
        known: dict[tuple[bytes, bytes], int] = {}
        results: list[list[Found]] = []
        number_of: dict[tuple[object, ...], int] = {}
        # per NPU and slot: which result its collectives of that group get; -1: they stay
        chosen = np.full(comm.shape, -1, np.int64)
        for c in wanted.tolist():
            members = self.membership.comms[c].members
            here = comm[members] == c
            if not here.any(axis=1).all():
                continue  # a member does not run it at all: the checks say so
            slots = np.argmax(here, axis=1)
            programs = self.workload.program_of[members]
            key = (programs.tobytes(), slots.tobytes())
            if key not in known:
                found = self._together(programs.tolist(), slots.tolist())
                if found is None:
                    known[key] = -1
                else:
                    known[key] = number_of.setdefault(tuple(found), len(results))
                    if known[key] == len(results):
                        results.append(found)
            chosen[members, slots] = known[key]
        return self._with(results, chosen)

    def _together(self, programs: list[int], slots: list[int]) -> list[Found] | None:
        """Size and shares of each collective of a communicator; None for those that stay as they are, or for all."""
        pairs = list(zip(programs, slots, strict=True))
        distinct = list(dict.fromkeys(pairs))
        index = [self.workload.programs[number].call[self.nodes(number, slot)] for number, slot in distinct]
        many = len(index[0])
        if any(len(own) != many for own in index):
            return None
        asked = np.zeros(many, bool)
        for (number, _), own in zip(distinct, index, strict=True):
            asked |= self._asks(number)[own]
        out: list[Found] = [None] * many
        for k in np.flatnonzero(asked).tolist():
            calls = {
                pair: self.workload.programs[pair[0]].calls[int(own[k])]
                for pair, own in zip(distinct, index, strict=True)
            }
            if (
                any(call.alone for call in calls.values())
                or len({side_of(call) for call in calls.values()}) > 1
            ):
                out[k] = self._agree(tuple(side_of(calls[pair]) for pair in pairs))
        return out

    def _asks(self, number: int) -> Bool:
        """Which calls of a program need those of the other members."""
        if number not in self._asking:
            calls = self.workload.programs[number].calls
            self._asking[number] = np.array([call.alone or call.kind in _TOGETHER for call in calls], bool)
        return self._asking[number]

    def _agree(self, sides: tuple[Side, ...]) -> Found:
        if sides not in self._agreed:
            found = agree(sides)
            if not isinstance(found, Agreed) or (self.astra and found.sizes is not None):
                self._agreed[sides] = None
            elif found.sizes is None:
                self._agreed[sides] = (found.size_bytes, None)
            else:
                key = (found.sizes.tobytes(), found.sizes.shape)
                uneven = self._uneven.setdefault(key, Uneven(found.sizes))
                self._agreed[sides] = (found.size_bytes, uneven)
        return self._agreed[sides]

    def _with(self, results: list[list[Found]], chosen: I64) -> Workload:
        """Give every NPU the program that its results ask for."""
        rows = np.concatenate([self.workload.program_of[:, None], chosen], axis=1)
        distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
        programs: list[Program] = []
        number_of: dict[int, int] = {}
        numbers: list[int] = []
        for row in distinct.tolist():
            program = self._program(row[0], {s: results[r] for s, r in enumerate(row[1:]) if r >= 0})
            if id(program) not in number_of:
                number_of[id(program)] = len(programs)
                programs.append(program)
            numbers.append(number_of[id(program)])
        program_of = np.array(numbers, np.int64)[inverse.reshape(-1)]
        return replace(self.workload, programs=tuple(programs), program_of=program_of)

    def _program(self, number: int, found: dict[int, list[Found]]) -> Program:
        program = self.workload.programs[number]
        index = program.call.copy()
        place = {call: k for k, call in enumerate(program.calls)}
        for slot, agreed in found.items():
            for node, one in zip(self.nodes(number, slot).tolist(), agreed, strict=True):
                if one is None:
                    continue
                call = program.calls[int(program.call[node])]
                wanted = replace(call, bytes=one[0], in_split=None, out_split=None, uneven=one[1])
                index[node] = place.setdefault(wanted, len(place))
        if np.array_equal(index, program.call):
            return program
        nodes = program.op == Op.COLLECTIVE
        used, position = np.unique(index[nodes], return_inverse=True)
        index[nodes] = position.reshape(-1)
        calls = list(place)
        return replace(program, calls=tuple(calls[k] for k in used.tolist()), call=index)
