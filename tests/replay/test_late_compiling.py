"""A run in plain Python that takes longer than was estimated goes on in compiled code, in the middle."""

import numpy as np
import pytest

from chakra import jit
from chakra.builder import TraceBuilder, Workload
from chakra.replay import ReplayResult, simulate
from chakra.replay.engines.messages import engine as message_engine
from chakra.replay.engines.phases import engine as phase_engine

NPUS = 6
NETWORK = {"topology": ["Switch"], "npus_count": [NPUS], "bandwidth": [50], "latency": [500]}
SYSTEM = {"all-reduce-implementation": ["ring"], "all-to-all-implementation": ["direct"]}


def step(builder: TraceBuilder) -> None:
    """An all-to-all of unequal shares, then a sum."""
    sizes = np.random.default_rng(5).integers(10_000, 2_000_000, (NPUS, NPUS))
    shares, taken = sizes[builder.rank].tolist(), sizes[:, builder.rank].tolist()
    swap = builder.collective(
        "all_to_all", size_bytes=sum(shares), in_split_bytes=shares, out_split_bytes=taken
    )
    builder.collective("all_reduce", size_bytes=1 << 20, after=builder.compute(duration_micros=5, after=swap))


def ticks(result: ReplayResult) -> list[list[list[int]]]:
    """Ids, issue and finish of every node of every NPU."""
    return [[column.tolist() for column in result.node_ticks(npu)] for npu in range(NPUS)]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "engine"), [("flow", "messages"), ("unaware", "phases")])
def test_the_rest_of_a_long_run_is_compiled(
    backend: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Workload(NPUS)
    workload.run(step)
    module = message_engine if engine == "messages" else phase_engine
    for name in ("PLAIN_STEP", "PLAIN_BUDGET"):
        monkeypatch.setattr(module, name, 3, raising=False)
    monkeypatch.setattr(module, "COMPILE_FROM", (1 << 62,) * 3)
    compiled: list[str] = []

    def watched(name: str) -> object:
        compiled.append(name)
        return jit.compiled(name)

    monkeypatch.setattr(module, "compiled", watched)
    found = []
    for patience in (float("inf"), 0.0):
        monkeypatch.setattr(jit, "CHANGE_FROM_S", (patience, patience))
        found.append(simulate(workload.traces(), SYSTEM, NETWORK, backend=backend, engine=engine))
    plain, changed = found
    assert compiled == [module.KERNEL]
    assert ticks(plain) == ticks(changed)
    assert plain.to_dict()["links"] == changed.to_dict()["links"]
    assert plain.raw.events == changed.raw.events


def test_plain_code_is_left_once_it_took_as_long_as_the_other_takes_to_get(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jit, "is_cached", lambda _: True)
    assert [jit.worth_changing("nowhere", s) for s in (0.49, 0.5)] == [False, True]
    monkeypatch.setattr(jit, "is_cached", lambda _: False)
    assert [jit.worth_changing("nowhere", s) for s in (0.5, 7.9, 8.0)] == [False, False, True]
