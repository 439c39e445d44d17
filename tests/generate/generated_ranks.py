"""Traces of all ranks of a generated workload, and the messages that they send and receive."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from chakra.et import NodeType, Trace
from chakra.et.manifest import WorkloadManifest
from chakra.generate.write import RankTraces

#: a message: sender, receiver, tag, bytes
Messages = Counter[tuple[int, int, int, int]]


def ranks_of(workload: WorkloadManifest) -> tuple[list[Trace], dict[str, list[int]]]:
    """Plain traces of all ranks, and the groups by their numbers."""
    ranks = RankTraces(workload)
    groups = {
        str(number): members
        for name, numbers in ranks.ids.items()
        for number, members in zip(numbers.tolist(), workload.groups[name].tolist(), strict=True)
        if number
    }
    return [ranks.columns(rank).build() for rank in range(workload.npus)], groups


def messages(traces: Sequence[Trace]) -> tuple[Messages, Messages]:
    """Messages sent, and those received, with how often."""
    sent: Messages = Counter()
    received: Messages = Counter()
    for rank, trace in enumerate(traces):
        for i in np.flatnonzero(trace.types == NodeType.COMM_SEND).tolist():
            sent[rank, int(trace.comm_dst[i]), int(trace.comm_tag[i]), int(trace.comm_size[i])] += 1
        for i in np.flatnonzero(trace.types == NodeType.COMM_RECV).tolist():
            received[int(trace.comm_src[i]), rank, int(trace.comm_tag[i]), int(trace.comm_size[i])] += 1
    return sent, received
