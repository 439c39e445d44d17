"""A run that is ended before its end gives a partial result that every output accepts."""

import json

import numpy as np
import pytest

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.replay import simulate
from chakra.replay.engines.messages import engine as message_engine
from chakra.replay.engines.phases import engine as phase_engine
from chakra.replay.results.formatting import format_csv, format_text

SYSTEM = {
    "endpoint-delay": 10,
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring"],
    "local-mem-bw": 50,
}
NETWORK = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50], "latency": [500]}


def chain(length: int) -> Trace:
    """Collectives one after the other, with compute between."""
    builder = TraceBuilder()
    node = builder.compute(duration_micros=1)
    for _ in range(length):
        node = builder.collective("ALL_REDUCE", size_bytes=1 << 20, after=[node])
        node = builder.compute(duration_micros=1, after=[node])
    return builder.build()


@pytest.mark.parametrize("engine", ["phases", "messages"])
def test_a_run_that_is_asked_to_end_gives_a_partial_result(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phase_engine, "PLAIN_BUDGET", 50)
    for module in (phase_engine, message_engine):  # the plain kernels, whatever is loaded
        monkeypatch.setattr(module, "COMPILE_FROM", (1 << 60,) * 3)
    trace = chain(300)
    whole = simulate([trace] * 4, SYSTEM, NETWORK, engine=engine)
    result = simulate([trace] * 4, SYSTEM, NETWORK, engine=engine, progress=lambda done, now: False)
    assert not whole.partial
    assert result.partial
    assert (result.finish_ns < 0).any()
    ids, issue, finish = result.node_ticks(0)
    full_ids, full_issue, full_finish = whole.node_ticks(0)
    assert 0 < len(ids) < len(full_ids)
    done = finish >= 0
    assert np.array_equal(issue, full_issue[: len(issue)])
    assert np.array_equal(finish[done], full_finish[: len(finish)][done])
    document = result.to_dict(nodes=True)
    assert document["partial"] is True
    assert "partial" in format_text(document)
    assert format_csv(document)
    json.dumps(document, allow_nan=False)
