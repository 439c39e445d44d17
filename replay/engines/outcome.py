"""What an engine hands back: times per actor (class of NPUs), before they are turned into a result."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.plan import Plan
from chakra.replay.symmetry.classes import Partition


@dataclass(frozen=True, slots=True)
class RawRun:
    """Times in ns, -1 where something never happened. Nodes are in program order (ascending id) per actor."""

    partition: Partition
    program_of: I64  # per actor
    done_ns: I64  # finish per actor
    node_start: I64  # (actors + 1,) first node cell of each actor
    issue_ns: I64
    finish_ns: I64
    order: I64  # nodes in issue order, per actor from node_start
    order_n: I64  # how many were issued
    comm_start: I64
    #: per communication node: when its data could move (the sender had issued); -1 for collectives
    comm_ready_ns: I64
    comm_instance: I64  # collective instance, -1 for messages
    instance_ready_ns: I64  # when the last member had issued
    instance_plan: I64
    instance_comm: I64
    plans: tuple[Plan, ...]
    comms: tuple[tuple[str, int, tuple[int, ...]], ...]  # name, members, actors
    comm_of: I64  # which of them stands for each group of NPUs; -1 for one that no NPU has
    dim_bytes: I64  # (actors, dims) bytes sent by collectives
    #: comm_size of each plan
    plan_bytes: I64
    partial: bool
    events: int
    engine: str
    #: per link of a congested network (rows of the result document)
    links: tuple[dict[str, Any], ...] = ()
    #: how much of the most used of them is used when (the result document's)
    link_use: dict[str, object] = field(default_factory=dict)
    #: whether `dim_bytes` holds point-to-point messages, too
    messages_counted: bool = False
    #: what the user of the result should know, beside how it was made
    remarks: tuple[str, ...] = ()
    #: times that streams blocked each other in full queues, and each queue started one more (C13)
    relieved: int = 0
    #: times that phases of an NPU ended together in an order that only their messages tell
    ties: int = 0
    #: how parts of the run were computed
    notes: tuple[str, ...] = ()

    def nodes(self, actor: int) -> slice:
        """Cells of an actor's nodes."""
        return slice(int(self.node_start[actor]), int(self.node_start[actor + 1]))

    def actor_of(self, npu: int) -> int:
        """The actor that stands for an NPU."""
        return int(self.partition.class_of[npu])

    def finish_per_npu(self) -> I64:
        """Finish of every NPU."""
        return np.asarray(self.done_ns[self.partition.class_of])


def order_notes(relieved: int, ties: int = 0) -> tuple[str, ...]:
    """What a result says of queues that blocked each other, and of phases that ended together."""
    notes = []
    if relieved:
        notes.append(
            f"streams blocked each other in full queues {relieved} times; each queue started one more (C13)"
        )
    if ties:
        notes.append(
            f"phases of an NPU ended together {ties} times in an order that messages decide; they are taken in the "
            "order in which they began"
        )
    return tuple(notes)
