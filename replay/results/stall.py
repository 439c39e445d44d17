"""Why a replay stopped before all NPUs had finished: who waits for whom.

Works on what an engine hands back (`RawRun`), NPU by NPU: an NPU waits in a communication node that it has issued, for
those partners who have not issued theirs. Following one such partner after the other ends at a partner who never comes,
or goes round in a cycle.
"""

from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, distinct
from chakra.errors import StallError
from chakra.io.readable import counted, verb
from chakra.replay.checks.partners import call_text, group_text, node_name, some, tags_of
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.scenario import Scenario
from chakra.replay.workload.model import Op, Program

#: blocked NPUs that are described one by one
SHOWN = 5
#: NPUs of a cycle that are listed
CYCLE_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Wait:
    """What one NPU waits for: a text, and the NPUs that it needs."""

    text: str
    #: NPUs that have yet to come; empty if all are there and only the engine's queues hold them up
    needs: tuple[int, ...]


def raise_if_stalled(raw: RawRun, scenario: Scenario) -> None:
    """Raise if the run is over but some NPU has not finished.

    Raises
    ------
    StallError
        One line: how many NPUs are blocked, what the first of them wait for, and the cycle of waiting if there is one.
    """
    if raw.partial or (raw.done_ns >= 0).all():
        return
    raise StallError(Stall(raw, scenario).text())


class Stall:
    """An unfinished run, and questions about it."""

    def __init__(self, raw: RawRun, scenario: Scenario) -> None:
        self.raw = raw
        self.workload = scenario.workload
        self.membership = scenario.membership
        self.options = scenario.options
        self.peers = scenario.workload.peers
        self._waits: dict[int, list[Wait]] = {}

    def text(self) -> str:
        """The explanation, on one line."""
        raw = self.raw
        now = max(int(raw.finish_ns.max(initial=0)), int(raw.issue_ns.max(initial=0)))
        return f"the replay stalled at {now} ns: {self.reason()}"

    def blocked(self) -> I64:
        """NPUs that cannot finish."""
        return np.flatnonzero(self.raw.finish_per_npu() < 0)

    def blocked_programs(self) -> list[int]:
        """Numbers of the programs that they run."""
        return [int(number) for number in distinct(self.workload.program_of[self.blocked()])]

    def reason(self) -> str:
        """Who cannot finish, and who waits for whom."""
        blocked = self.blocked()
        parts = [f"{len(blocked)} of {counted(self.workload.npus, 'NPU')} cannot finish"]
        for npu in blocked[:SHOWN].tolist():
            waits = self.waits(npu)
            text = " and ".join(w.text for w in waits[:2])
            if len(waits) > 2:
                text += f" and {len(waits) - 2} more"
            parts.append(f"NPU {npu} {text or self._idle_text(npu)}")
        if len(blocked) > SHOWN:
            parts.append(
                f"{counted(len(blocked) - SHOWN, 'more NPU')} {verb(len(blocked) - SHOWN, 'is', 'are')} blocked"
            )
        cycle = self.cycle(blocked)
        if cycle:
            shown = [str(npu) for npu in cycle[:CYCLE_SHOWN]]
            if len(cycle) > CYCLE_SHOWN:
                shown.append(f"... ({counted(len(cycle), 'NPU')})")
            parts.append(f"wait cycle: NPU {' -> '.join([*shown, str(cycle[0])])}")
        return "; ".join(parts)

    def program(self, npu: int) -> Program:
        """Program of an NPU."""
        return self.workload.programs[int(self.workload.program_of[npu])]

    def _ticks(self, npu: int) -> tuple[I64, I64]:
        where = self.raw.nodes(self.raw.actor_of(npu))
        return self.raw.issue_ns[where], self.raw.finish_ns[where]

    def waits(self, npu: int) -> list[Wait]:
        """What an NPU's nodes in flight wait for, in order of issue."""
        if npu not in self._waits:
            issue, finish = self._ticks(npu)
            stuck = np.flatnonzero((issue >= 0) & (finish < 0))
            program = self.program(npu)
            self._waits[npu] = [
                self._wait(npu, int(node), program)
                for node in stuck[np.argsort(issue[stuck], kind="stable")]
                if program.op[node] in (Op.COLLECTIVE, Op.SEND, Op.RECV)
            ]
        return self._waits[npu]

    def _wait(self, npu: int, node: int, program: Program) -> Wait:
        if program.op[node] == Op.COLLECTIVE:
            return self._collective_wait(npu, node, program)
        return self._message_wait(npu, node, program)

    # -- collectives -------------------------------------------------------------------------------------------

    def _issued_before(self, npu: int, slot: int) -> I64:
        """Collectives of a group that an NPU has issued, in order of issue (nodes in program order)."""
        program = self.program(npu)
        actor = self.raw.actor_of(npu)
        first = int(self.raw.node_start[actor])
        order = self.raw.order[first : first + int(self.raw.order_n[actor])]
        nodes = order[program.op[order] == Op.COLLECTIVE]
        groups = np.array([call.group for call in program.calls] or [0], np.int64)
        return np.asarray(nodes[groups[program.call[nodes]] == slot])

    def _collective_wait(self, npu: int, node: int, program: Program) -> Wait:
        call = program.calls[int(program.call[node])]
        comm_number = int(self.membership.comm[npu, call.group])
        comm = self.membership.comms[comm_number]
        ordinal = int(np.flatnonzero(self._issued_before(npu, call.group) == node)[0])
        late = []
        counts: dict[tuple[int, int], int] = {}
        for member in comm.members.tolist():
            slots = np.flatnonzero(self.membership.comm[member] == comm_number)
            slot = int(slots[0]) if len(slots) else -1
            key = (self.raw.actor_of(member), slot)
            if key not in counts:
                counts[key] = len(self._issued_before(member, slot)) if slot >= 0 else 0
            if counts[key] <= ordinal:
                late.append(member)
        text = (
            f"waits in {node_name(self.workload, npu, node)} ({call_text(call)}, collective number {ordinal} of "
            f"{group_text(comm)})"
        )
        if not late:
            return Wait(
                f"{text}, which all members have issued: its chunks block each other in the queues", ()
            )
        finished = [m for m in late if self.raw.done_ns[self.raw.actor_of(m)] >= 0]
        text += f" for NPU {some(late)}"
        if finished:
            text += f"; NPU {some(finished)} has finished without it"
        return Wait(text, tuple(late))

    # -- messages ----------------------------------------------------------------------------------------------

    def _message_wait(self, npu: int, node: int, program: Program) -> Wait:
        index = int(program.call[node])
        peer = int(self.peers.of(npu)[program.p2p_peer[index]])
        size, tag = int(program.p2p_bytes[index]), int(program.p2p_tag[index])
        sending = bool(program.p2p_is_send[index])
        what = (
            f"sends {size} bytes with tag {tag} to"
            if sending
            else f"receives {size} bytes with tag {tag} from"
        )
        text = f"{what} NPU {peer} in {node_name(self.workload, npu, node)}"
        partner = self._partner(npu, node, peer, sending)
        if partner is None:
            word = "receives" if sending else "sends"
            return Wait(f"{text}, which never {word} {'them' if sending else 'it'}", (peer,))
        issued = int(self._ticks(peer)[0][partner]) >= 0
        word = "receives" if sending else "sends"
        state = "has not been issued" if not issued else "is in flight"
        return Wait(
            f"{text}, whose {node_name(self.workload, peer, partner)} that {word} {state}",
            (peer,),
        )

    def _partner(self, npu: int, node: int, peer: int, sending: bool) -> int | None:
        """The node of the peer that a message meets: of equal ends, tag and size, the one of the same turn."""
        program, other = self.program(npu), self.program(peer)
        astra = self.options.astra
        index = int(program.call[node])
        tag, size = int(tags_of(program, astra=astra)[index]), int(program.p2p_bytes[index])
        mine = self._turn(npu, peer, tag, size, sending)
        theirs = self._turn(peer, npu, tag, size, not sending)
        turn = mine.index(node)
        del other
        return theirs[turn] if turn < len(theirs) else None

    def _turn(self, npu: int, peer: int, tag: int, size: int, sending: bool) -> list[int]:
        """Messages of one kind of an NPU: those issued, in order of issue, then the others by id."""
        program = self.program(npu)
        if not len(program.p2p_peer):
            return []
        where = self.peers.of(npu)[program.p2p_peer] == peer
        where &= tags_of(program, astra=self.options.astra) == tag
        where &= (program.p2p_bytes == size) & (program.p2p_is_send == sending)
        nodes = np.flatnonzero((program.op == Op.SEND) | (program.op == Op.RECV))[where]
        issue = self._ticks(npu)[0][nodes]
        late = np.where(issue >= 0, issue, np.iinfo(np.int64).max)
        return [int(n) for n in nodes[np.argsort(late, kind="stable")]]

    # -- the whole ---------------------------------------------------------------------------------------------

    def _idle_text(self, npu: int) -> str:
        """An NPU of which no communication node is in flight."""
        issue, _ = self._ticks(npu)
        left = np.flatnonzero(issue < 0)
        if not len(left):
            return "has issued everything"
        count = f"{counted(len(left), 'node')} {verb(len(left), 'is', 'are')} left"
        return f"cannot issue {node_name(self.workload, npu, int(left[0]))} ({count})"

    def cycle(self, blocked: I64) -> list[int]:
        """NPUs that wait for each other in a circle; empty if the waiting ends at a partner who never comes."""
        state = {}
        for start in blocked.tolist():
            path: list[int] = []
            npu = start
            while npu not in state:
                state[npu] = start
                path.append(npu)
                onward = [
                    need
                    for wait in self.waits(npu)
                    for need in wait.needs
                    if self.raw.done_ns[self.raw.actor_of(need)] < 0
                ]
                if not onward:
                    break
                fresh = [need for need in onward if state.get(need, start) == start]
                npu = fresh[0] if fresh else onward[0]
            if npu in path and state.get(npu) == start and self.waits(npu):
                ring = path[path.index(npu) :]
                last = self.waits(path[-1])
                if any(npu in wait.needs for wait in last):
                    return ring
        return []
