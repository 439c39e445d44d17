"""Bubbles of pipelines: how long ranks can only wait for other stages.

A pipeline is the ranks that messages between stages join, directly or through others. Messages between stages are those
between ranks whose generated traces are of one part of the workload and of two stages of it; where traces do not say
their stage, all messages are.

The bubble of a rank is the time before its end in which such messages wait for their other end, nothing computes, nothing
moves and no other communication waits, and the time from its end to that of the last rank of its pipeline. With the work,
the exposed communication that is no bubble and the idle time of a rank it adds up to the step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, Bool, components, distinct
from chakra.et.memory_need import generated_totals
from chakra.et.operators import IDEAL_BUBBLE
from chakra.io.readable import duration_text, percent_text
from chakra.replay.engines.outcome import RawRun
from chakra.replay.results.stages import part_and_stage
from chakra.replay.results.time_account import ActorTimes
from chakra.replay.workload.model import Op, Workload


@dataclass(frozen=True, slots=True)
class PipelineBubble:
    """Time that ranks of pipelines wait for other stages.

    Attributes
    ----------
    bubble_ns
        Of every NPU, shape (npus,); 0 of those that are in no pipeline.
    waiting_ns
        The part of it before each NPU's end, which is in ``waiting_ns`` of the account, shape (npus,).
    mean_ns
        Mean over the NPUs that are in one.
    share
        The mean as a share of the time up to the last NPU's finish.
    stages
        Stages of a pipeline, the most that one has; None where the traces do not say their stages, so that all messages
        count.
    ideal_share
        What this share is with the workload's schedule, equal stages and free communication, where a backward pass takes
        twice the time of a forward one, half of it for the gradients of weights; None where the workload does not say it.
    """

    bubble_ns: I64
    waiting_ns: I64
    mean_ns: float
    share: float
    stages: int | None
    ideal_share: float | None

    def document(self) -> dict[str, object]:
        """As a result's document has it."""
        return {
            "bubble_ns": self.bubble_ns.tolist(),
            "waiting_ns": self.waiting_ns.tolist(),
            "mean_ns": self.mean_ns,
            "share": self.share,
            "stages": self.stages,
            "ideal_share": self.ideal_share,
        }


def pipeline_entry(found: PipelineBubble | None) -> dict[str, object]:
    """The key ``pipeline`` of a result's document; nothing of a run without pipelines."""
    return {} if found is None else {"pipeline": found.document()}


def bubble_in_words(document: Mapping[str, object]) -> str:
    """What `PipelineBubble.document` says, in a line: share of the step, mean, and what the schedule alone has."""
    mean, share, ideal = (document.get(key) for key in ("mean_ns", "share", "ideal_share"))
    if not isinstance(mean, int | float) or not isinstance(share, int | float):
        return "unknown"
    text = f"{percent_text(share)} of the step, {duration_text(round(mean))} (mean over NPUs)"
    if document.get("stages") is None:
        return f"{text}: waiting for messages, all of them, as traces do not say their stages"
    if not isinstance(ideal, int | float):
        return text
    return f"{text}; {percent_text(ideal)} with equal stages and free communication"


def pipeline_bubble(
    workload: Workload, raw: RawRun, times: Sequence[ActorTimes], finish_ns: I64
) -> PipelineBubble | None:
    """The bubbles of a run; None where no stages exchange messages, and of a run that was ended early.

    Parameters
    ----------
    workload
        The workload.
    raw
        The run.
    times
        Of every actor.
    finish_ns
        Of every NPU, ns.
    """
    if raw.partial or not workload.has_messages:
        return None
    stages = _stages(workload)
    waits = np.zeros(len(times), np.int64)
    joined: list[I64] = []
    known: dict[tuple[int, bytes, bytes], int] = {}
    for actor, one in enumerate(times):
        slots = _peer_slots(one)
        npus = raw.partition.members[actor]
        peers = workload.peers.rows(npus, len(workload.peers.of(int(npus[0]))))
        between = _between(stages, npus[:1], peers[:1])[0]
        some = slots >= 0
        some[some] = between[slots[some]]
        key = id(one.program), one.digest, some.tobytes()
        if key not in known:
            known[key] = one.waiting_for_alone(some)
        waits[actor] = known[key]
        used = distinct(slots[some])
        joined += [np.stack([npus, peers[:, slot]]) for slot in used.tolist()]
    if not joined:
        return None
    ends = np.concatenate(joined, axis=1)
    pipeline = components(workload.npus, *ends)
    last = np.zeros(workload.npus, np.int64)
    np.maximum.at(last, pipeline, finish_ns)
    waiting = waits[raw.partition.class_of]
    bubble = waiting + last[pipeline] - finish_ns
    members = distinct(ends)
    step = int(finish_ns.max())
    mean = float(bubble[members].mean())
    ideal = generated_totals(workload.traces, workload.npus).get(IDEAL_BUBBLE)
    return PipelineBubble(
        bubble,
        waiting,
        mean,
        mean / step if step else 0.0,
        None if (stages[members, 1] < 0).any() else int(stages[members, 1].max()) + 1,
        float(ideal) if isinstance(ideal, int | float) and 0 <= ideal < 1 else None,
    )


def _stages(workload: Workload) -> I64:
    """Part and stage of every NPU, shape (npus, 2), both as numbers; -1 for a stage that its trace does not say."""
    said = [part_and_stage(trace) for trace in workload.traces]
    parts = sorted({part for part, _ in said})
    table = np.array([(parts.index(part), stage) for part, stage in said], np.int64).reshape(-1, 2)
    return np.asarray(table[workload.trace_of])


def _between(stages: I64, npus: I64, peers: I64) -> Bool:
    """Whether messages between NPUs and their peers, (npus, slots), are between stages of a pipeline."""
    here, there = stages[npus][:, None], stages[peers]
    unsaid = (here[..., 1] < 0) | (there[..., 1] < 0)
    of_one_part = here[..., 0] == there[..., 0]
    found = (peers != npus[:, None]) & (unsaid | of_one_part & (here[..., 1] != there[..., 1]))
    return np.asarray(found)


def _peer_slots(times: ActorTimes) -> I64:
    """Place of every node's peer among those of its NPU; -1 for nodes that are no messages."""
    program = times.program
    op = program.op[times.nodes]
    messages = (op == Op.SEND) | (op == Op.RECV)
    slots = np.full(len(times.nodes), -1, np.int64)
    slots[messages] = program.p2p_peer[program.call[times.nodes[messages]]]
    return slots
