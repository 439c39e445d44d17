"""How many bytes a run will send, about: for networks whose cost grows with them."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.algorithms import Family
from chakra.replay.engines.messages.tables import Custom
from chakra.replay.engines.plan_tables import Planned
from chakra.replay.engines.scenario import Scenario
from chakra.replay.engines.traffic import phase_messages
from chakra.replay.workload.model import Op


def bytes_sent(
    scenario: Scenario, planned: Sequence[Planned], customs: Mapping[int, Custom], plan_of_call: I64
) -> int:
    """Bytes that all NPUs together send in collectives and single messages.

    Parameters
    ----------
    scenario
        What is run, on every NPU.
    planned
        Plans of its collectives.
    customs
        Programs of the members, for plans whose messages are listed.
    plan_of_call
        Plan of every call of every NPU, one NPU after the other.
    """
    each = np.array([_of_member(scenario, planned, customs, k) for k in range(len(planned))] or [0.0])
    total, at = 0.0, 0
    for number in scenario.workload.program_of.tolist():
        program = scenario.workload.programs[number]
        total += float(program.p2p_bytes[program.p2p_is_send.astype(bool)].sum())
        calls = len(program.calls)
        if calls:
            uses = np.bincount(program.call[program.op == Op.COLLECTIVE], minlength=calls)
            total += float((each[plan_of_call[at : at + calls]] * uses).sum())
            at += calls
    return int(total)


def _of_member(
    scenario: Scenario, planned: Sequence[Planned], customs: Mapping[int, Custom], number: int
) -> float:
    """Bytes that a member sends in a collective, on average."""
    if number in customs:
        programs = customs[number].programs
        sent = [int(p.p2p_bytes[p.op[p.op != Op.TIMER] == Op.SEND].sum()) for p in programs]
        return sum(sent) / max(len(programs), 1)
    item = planned[number]
    total = 0.0
    for phase, chunks in Counter(p for v in item.plan.chunks for p in item.plan.variants[v]).items():
        steps = None
        if phase.algorithm.family is Family.STEPS:
            steps = scenario.plans.steps(phase, whole=item.whole)
        sent_by_all = sum(messages.total_bytes for messages in phase_messages(phase, steps))
        total += chunks * sent_by_all / phase.size
    return total
