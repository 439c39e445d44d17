"""Traces of all ranks of a generated workload, and the messages that they send and receive."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from chakra.et import NodeType, Trace
from chakra.et.manifest import WorkloadManifest
from chakra.generate import TransformerRequest
from chakra.generate.verify.check import check_step
from chakra.generate.write import RankTraces
from chakra.replay import simulate
from chakra.replay.checks.run import check_workload

#: rings, and all-to-alls of direct messages
SYSTEM = {
    "all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"], "all-to-all-implementation": ["direct"],
}  # fmt: skip
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


def assert_forms_hold(request: TransformerRequest) -> None:
    """All closed forms of `--check` hold for a request, and there are some."""
    checks = check_step(request, request.plan())
    assert [check for check in checks if not check.passed] == []
    assert any(check.name == "parameters" for check in checks)


def assert_folding_changes_nothing(workload: WorkloadManifest) -> None:
    """The traces of all ranks are sound, each message has its partner, once, and a folded replay is that of all ranks."""
    traces, groups = ranks_of(workload)
    assert list(check_workload(traces, groups, len(traces))) == []
    sent, received = messages(traces)
    assert sent == received
    assert all(count == 1 for count in sent.values())
    network = {"topology": ["Switch"], "npus_count": [workload.npus], "bandwidth": [5.0], "latency": [100.0]}
    times = [simulate(workload, SYSTEM, network, fold=fold).finish_ns for fold in (True, False)]
    assert np.array_equal(times[0], times[1])
    assert times[0].max() > 0
