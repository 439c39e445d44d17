"""Schedules of a collective as a picture shows them: blocks of every message, and what the members hold after each step.

Which blocks a message carries is said in `chakra.replay.collectives.blocks`, one rule per algorithm. `held` carries the
rule out: every block is followed, a contribution that would be counted twice is an error, and so is a block that its
sender has not got.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction

from chakra.replay.collectives.blocks import Block, Message, Schedule, by_switch, native, table
from chakra.replay.collectives.steps import Do
from chakra.replay.engines.phases.durations import tree_tables
from chakra.replay.workload.custom import CustomProgram
from chakra.replay.workload.model import Op

__all__ = [
    "Block",
    "Held",
    "Message",
    "Schedule",
    "by_switch",
    "custom",
    "double_binary_tree",
    "finished",
    "held",
    "native",
    "table",
]


def double_binary_tree(n: int) -> Schedule:
    """Two chunks, one on each of the engine's two trees; a message leaves as soon as what it needs is there."""
    tables = tree_tables(n)
    steps: dict[int, list[Message]] = {}
    for tree in range(2):
        base = 2 * n * tree
        parents, order = tables[base : base + n].tolist(), tables[base + n : base + 2 * n].tolist()
        ready = [0] * n
        for i in order:
            if parents[i] >= 0:
                steps.setdefault(ready[i], []).append(Message(i, parents[i], (tree,), True, Fraction(1)))
                ready[parents[i]] = max(ready[parents[i]], ready[i] + 1)
        for i in reversed(order):
            if parents[i] >= 0:
                at = ready[parents[i]]
                steps.setdefault(at, []).append(Message(parents[i], i, (tree,), False, Fraction(1)))
                ready[i] = at + 1
    return Schedule(
        "doubleBinaryTree", Do.ALL_REDUCE, n, (0, 1), tuple(tuple(steps[k]) for k in sorted(steps))
    )


def custom(name: str, programs: list[CustomProgram], reduces: Callable[[int, int], bool]) -> Schedule:
    """All-reduce of a custom algorithm's traces: a send goes out when its parents are done, a step after each other."""
    n = len(programs)
    messages: dict[int, list[Message]] = {}
    arrived: dict[
        tuple[int, int, int], int
    ] = {}  # (source, destination, tag) -> step after which it is there
    waiting = [_in_order(program) for program in programs]
    done: list[dict[int, int]] = [{} for _ in programs]
    moved = True
    while moved:
        moved = False
        for i, (program, todo) in enumerate(zip(programs, waiting, strict=True)):
            for node, parents, peer in list(todo):
                if any(parent not in done[i] for parent in parents):
                    continue
                at = max((done[i][parent] for parent in parents), default=0)
                if program.op[node] == Op.RECV:
                    key = (int(program.partner[peer]), i, int(program.p2p_tag[peer]))
                    if key not in arrived:
                        continue
                    at = max(at, arrived[key])
                elif program.op[node] == Op.SEND:
                    to = int(program.partner[peer])
                    messages.setdefault(at, []).append(Message(i, to, (0,), reduces(i, to), Fraction(1)))
                    at += 1
                    arrived[i, to, int(program.p2p_tag[peer])] = at
                done[i][node] = at
                todo.remove((node, parents, peer))
                moved = True
    return Schedule(name, Do.ALL_REDUCE, n, (0,), tuple(tuple(messages[k]) for k in sorted(messages)))


def _in_order(program: CustomProgram) -> list[tuple[int, list[int], int]]:
    """(node, parents, index among the point-to-point nodes) of every node."""
    parents: list[list[int]] = [[] for _ in program.op]
    for node in range(len(program.op)):
        for child in program.child[program.child_start[node] : program.child_start[node + 1]].tolist():
            parents[child].append(node)
    out, peer = [], 0
    for node, op in enumerate(program.op.tolist()):
        out.append((node, parents[node], peer))
        peer += op in (Op.SEND, Op.RECV)
    return out


# --------------------------------------------------------------------------------------------------------------
# Carrying it out


Held = list[dict[Block, frozenset[int]]]


def held(schedule: Schedule) -> list[Held]:
    """What every member holds before the first step and after each: block -> members whose data are in it.

    Raises
    ------
    ValueError
        When a member sends what it has not got, or a contribution is reduced twice.
    """
    now: Held = [dict(_at_first(schedule, i)) for i in range(schedule.n)]
    if schedule.switch:
        now.append({})
    out = [[dict(state) for state in now]]
    for k, step in enumerate(schedule.steps):
        before = [dict(state) for state in now]
        for message in step:
            for block in message.blocks:
                where = f"{schedule.name}, step {k + 1}, {message.src} to {message.dst}, block {block}"
                if block not in before[message.src]:
                    raise ValueError(f"{where}: the sender has not got it")
                came, has = before[message.src][block], now[message.dst].get(block, frozenset())
                if message.reduces:
                    if came & has:
                        raise ValueError(f"{where}: {sorted(came & has)} would be reduced twice")
                    now[message.dst][block] = came | has
                elif came >= has:
                    now[message.dst][block] = came
                else:
                    raise ValueError(f"{where}: what comes is less than what is there")
        out.append([dict(state) for state in now])
    return out


def _at_first(schedule: Schedule, i: int) -> Iterable[tuple[Block, frozenset[int]]]:
    """Blocks that member i begins with."""
    own = frozenset([i])
    if schedule.do is Do.ALL_TO_ALL:
        return [(block, own) for block in schedule.blocks if block[0] == i]
    if schedule.do is Do.ALL_GATHER:
        return [(i, own)]
    if schedule.do is Do.BROADCAST:
        return [(block, own) for block in schedule.blocks if i == 0]
    return [(block, own) for block in schedule.blocks]


def finished(schedule: Schedule, state: Held) -> bool:
    """Whether the members hold what the collective promises."""
    every = frozenset(range(schedule.n))
    if schedule.do is Do.ALL_TO_ALL:
        return all(state[j].get((i, j)) == frozenset([i]) for i, j in schedule.blocks)
    if schedule.do in (Do.ALL_GATHER, Do.BROADCAST):
        return all(block in has for has in state for block in schedule.blocks)
    if schedule.do is Do.REDUCE:
        return all(state[0].get(block) == every for block in schedule.blocks)
    if schedule.do is Do.REDUCE_SCATTER:
        whole = [{block for block, who in has.items() if who == every} for has in state]
        return all(whole) and set().union(*whole) == set(schedule.blocks)
    return all(has.get(block) == every for has in state for block in schedule.blocks)
