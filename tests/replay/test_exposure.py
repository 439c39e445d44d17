"""Laws of communication that shows: what is exposed is part of what is communicated, and parts add up; so say the
replay, its report and `chakra compare`, each counted here from the nodes' times one instant after another.
"""

import json
from functools import partial

from exposure import EXPOSED, check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replay_strategies import KINDS, run, settings_of_systems, workloads

from chakra.builder import TraceBuilder, Workload
from chakra.compare.read import _replay
from chakra.compare.spans import WORDS, Kind, account
from chakra.errors import StallError
from chakra.replay import simulate
from chakra.report import essence
from chakra.report.document import run_of
from chakra.report.npu_groups import npu_groups

few = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@few
@given(data=st.data())
def test_what_is_exposed_is_part_of_what_is_communicated(data: st.DataObject) -> None:
    setting = data.draw(settings_of_systems())
    try:
        result = run(setting, data.draw(workloads(setting)))
    except StallError:
        return
    for npu in range(result.npus):
        check(result, npu)


@few
@given(data=st.data())
def test_report_and_comparison_say_the_same(data: st.DataObject) -> None:
    setting = data.draw(settings_of_systems())
    try:
        result = run(setting, data.draw(workloads(setting)))
    except StallError:
        return
    found = run_of(json.loads(json.dumps(result.to_dict(nodes=True))), "run")
    groups, left = npu_groups(found)
    assert left == 0
    assert sum(group.count for group in groups) == result.npus
    for group in groups:
        assert sum(group.parts.values()) == group.finish_ns
        assert sum(group.parts[name] for name in EXPOSED) == group.exposed_ns <= group.finish_ns
    assert essence(found)
    for npu, spans in _replay(found).ranks.items():
        parts = account(spans)
        assert sum(parts.values()) == spans.span_ns == result.finish_ns[npu]
        shown = sum(value for (kind, _), value in parts.items() if kind in (Kind.TRANSFER, Kind.PEERS))
        assert shown == result.exposed_comm_ns[npu], {
            WORDS[kind]: value for (kind, _), value in parts.items()
        }


def test_the_host_hides_communication_where_it_is_what_computes() -> None:
    """30 us of the host beside an all-reduce of 32 us: 2 us show; beside the accelerator's work it hides nothing."""

    def program(b: TraceBuilder, *, accelerator: bool) -> None:
        b.compute("host", duration_micros=30, cpu=True)
        if accelerator:
            b.compute("kernel", duration_micros=1)
        b.collective("all-reduce", size_bytes=1 << 20)

    system = {f"{kind}-implementation": ["ring"] for kind in KINDS}
    network = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}
    for accelerator, hidden_ns in ((False, 30_000), (True, 1_000)):
        work = Workload(4)
        work.run(partial(program, accelerator=accelerator))
        result = simulate(work, system, network)
        finish = int(result.finish_ns[0])
        assert finish > 31_000
        check(result, 0)
        spans = _replay(run_of(json.loads(json.dumps(result.to_dict(nodes=True))), "run")).ranks[0]
        parts = account(spans)
        assert parts[Kind.TRANSFER, "all-reduce"] == result.exposed_comm_ns[0] == finish - hidden_ns
        assert sum(parts.values()) == finish
