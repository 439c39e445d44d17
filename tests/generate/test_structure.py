"""Structure of generated workloads: conservation of bytes, matching of messages, one order of collectives per group."""

from typing import Any

import numpy as np
import pytest
from generated_ranks import messages, ranks_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.et import ABSENT, NodeType
from chakra.et.manifest import WorkloadManifest
from chakra.generate import TransformerRequest, build_workload, summarize
from chakra.replay.checks.run import check_workload

BASE = {"model": "", "layers": 4, "hidden": 32, "heads": 8, "vocabulary": 64, "seq": 32, "bucket-mb": 0.01}


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    size = st.sampled_from([1, 2])
    return {
        **BASE, "tp": draw(size), "cp": draw(size), "dp": draw(st.sampled_from([1, 2, 4])), "pp": draw(size),
        "sp": draw(st.booleans()), "zero": draw(st.integers(0, 3)), "overlap": draw(st.booleans()),
        "context": draw(st.sampled_from(["ring", "all-gather", "ulysses"])), "micro-batches": draw(st.integers(1, 3)),
        "schedule": draw(st.sampled_from(["gpipe", "1f1b", "zb-h1", "zb-h2"])),
        "recompute": draw(st.sampled_from(["none", "full"])),
        "order": draw(st.sampled_from(["tp-cp-ep-dp-pp", "pp-dp-tp-cp-ep"])),
    }  # fmt: skip


def generated(options: dict[str, Any]) -> WorkloadManifest:
    return build_workload(TransformerRequest.from_mapping(options).plan())


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_every_message_has_one_partner_and_every_collective_all_members(options: dict[str, Any]) -> None:
    traces, groups = ranks_of(generated(options))
    sent, received = messages(traces)
    assert sent == received
    # tags tell all messages of a pair apart
    assert all(count == 1 for count in sent.values())
    everybody = list(range(len(traces)))
    calls: dict[str, dict[int, list[tuple[int, int]]]] = {}
    for rank, trace in enumerate(traces):
        for i in np.flatnonzero(trace.types == NodeType.COMM_COLL).tolist():
            name = trace.pg_table[trace.pg_codes[i]]
            calls.setdefault(name, {}).setdefault(rank, []).append(
                (int(trace.comm_type[i]), int(trace.comm_size[i]))
            )
    for name, by_rank in calls.items():
        members = sorted(groups[name]) if name else everybody
        assert len(members) > 1
        assert sorted(by_rank) == members
        assert len({tuple(order) for order in by_rank.values()}) == 1


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_the_workload_checker_finds_nothing(options: dict[str, Any]) -> None:
    traces, groups = ranks_of(generated(options))
    assert list(check_workload(traces, groups, len(traces))) == []


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_graphs_are_acyclic_dense_and_of_one_piece(options: dict[str, Any]) -> None:
    for trace in build_workload(TransformerRequest.from_mapping(options).plan()).traces:
        assert trace.ids.tolist() == list(range(trace.n_nodes))
        offsets, parents = trace.parents()
        child = np.repeat(np.arange(trace.n_nodes), np.diff(offsets))
        # ids follow the program, so every edge points backwards: no cycles
        assert (parents < child).all()
        first = np.arange(trace.n_nodes)
        for node, parent in zip(child.tolist(), parents.tolist(), strict=True):
            roots = sorted((root(first, node), root(first, parent)))
            first[roots[1]] = roots[0]
        assert {root(first, node) for node in range(trace.n_nodes)} == {0}


def root(first: Any, node: int) -> int:
    """Representative of a node's component, with path halving."""
    while first[node] != node:
        first[node] = first[first[node]]
        node = int(first[node])
    return node


def test_node_count_is_a_polynomial() -> None:
    """nodes = a + M*(b + c*layers): linear in micro-batches, and in layers for a given number of micro-batches."""

    def nodes(micro_batches: int, layers: int) -> int:
        options = {**BASE, "bucket-mb": 1000, "tp": 2, "micro-batches": micro_batches, "layers": layers}
        (stage,) = summarize(TransformerRequest.from_mapping(options).plan())
        return stage.nodes

    a = nodes(1, 2)
    per_micro_batch = nodes(2, 2) - a
    assert nodes(7, 2) == a + 6 * per_micro_batch
    per_layer = nodes(1, 3) - a
    assert nodes(1, 9) == a + 7 * per_layer
    assert nodes(7, 9) == nodes(1, 9) + 6 * (per_micro_batch + 7 * (nodes(2, 3) - nodes(2, 2) - per_layer))


@pytest.mark.parametrize("attribute", ["num_ops", "tensor_size"])
def test_every_compute_node_has_work_and_every_other_none(attribute: str) -> None:
    for trace in build_workload(TransformerRequest.from_mapping({**BASE, "tp": 2, "pp": 2}).plan()).traces:
        values = getattr(trace, attribute)
        compute = trace.types == NodeType.COMP
        assert (values[compute] > 0).all()
        assert (values[~compute] == ABSENT).all()
