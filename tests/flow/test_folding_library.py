"""A collective library's collectives on flows: folded runs give what unfolded runs give, to the nanosecond."""

from typing import Any

import numpy as np
import pytest
from flow_worlds import both
from hypothesis import given, settings
from hypothesis import strategies as st
from library_worlds import SYSTEM, job, machines, strided

from chakra.platforms.fabric import Shape
from chakra.replay.collectives.library.messages import Lane, pair_roles
from chakra.replay.config import load_network
from chakra.replay.symmetry import library_talk

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "barrier")


@pytest.mark.parametrize(
    ("shape", "count", "ports", "over"),
    [(Shape.FAT_TREE, 8, 16, 2.0), (Shape.RAILS, 4, 8, 1.0), (Shape.RAIL_ONLY, 4, 8, 1.0)],
)
@pytest.mark.parametrize("at_once", [3, None])
def test_a_step_of_neighbours_and_replicas_is_one_class(
    shape: Shape, count: int, ports: int, over: float, at_once: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if at_once is not None:  # links are listed for few communicators at a time
        monkeypatch.setattr(library_talk, "PAIRS_AT_ONCE", at_once)
    network = machines(count, ports, shape, over=over)
    n = network.npus
    inner, outer = strided(n, 8, 1), strided(n, count, 8)
    calls = [
        ("reduce_scatter", 1 << 22, inner),
        ("all_gather", 1 << 24, outer),
        ("all_reduce", 1 << 22, inner),
    ]
    folded, plain = both(job(n, calls), SYSTEM, network)
    assert folded.raw.partition.n_classes == 1
    assert folded.raw.events * n // 4 < plain.raw.events


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from([None, "Ring", "Tree"]), st.booleans())
def test_random_calls_on_random_groups(data: st.DataObject, algorithm: str | None, overlap: bool) -> None:
    count = data.draw(st.sampled_from([2, 3]))
    shape = data.draw(st.sampled_from(list(Shape)))
    network = machines(
        count, 16, shape, over=2.0, spray=data.draw(st.booleans()), spread=data.draw(st.booleans())
    )
    n = network.npus
    tables: list[list[list[int]] | None] = [
        strided(n, s, d) for s, d in ((8, 1), (2, 1), (4, 2), (n // 2, 2))
    ]
    tables += [None, [data.draw(st.permutations(range(n)))[: n // 2]]]
    call = st.tuples(
        st.sampled_from(KINDS), st.sampled_from([8, 3000, 1 << 17, 300_001]), st.sampled_from(tables)
    )
    calls = [(kind, size, groups) for kind, size, groups in data.draw(st.lists(call, min_size=1, max_size=3))]
    system = dict(SYSTEM)
    if algorithm is not None and all(kind == "all_reduce" for kind, _, _ in calls):
        system["collective-algorithm"] = algorithm
    if overlap:
        system |= {"overlap-computing-rate": 0.9, "overlap-collective-rate": 0.8}
    both(job(n, calls, overlap=overlap), system, network)


@pytest.mark.parametrize(
    ("algorithm", "groups"),
    [
        ("Ring", None),
        ("Tree", None),
        ("Tree", strided(32, 4, 8)),
        ("NVLSTree", None),
        ("NVLS", strided(32, 8, 1)),
    ],
)
def test_algorithms(algorithm: str, groups: list[list[int]] | None) -> None:
    network = machines(4, 16, Shape.FAT_TREE, over=2.0)
    calls = [("all_reduce", size, groups) for size in (1 << 16, 1 << 20)]
    both(job(32, calls), {**SYSTEM, "collective-algorithm": algorithm}, network)


def test_groups_that_differ_only_alone_are_apart() -> None:
    """Each trunk carries two equal flows: both of group A on one, a flow of B and one of C on each of the others.

    All under way together are alike, but alone A's flows meet and those of B and C do not, so that their delays differ.
    """
    rate = 46.566129
    links: list[dict[str, Any]] = [{"from": npu, "to": "all", "bandwidth": rate} for npu in range(16)]
    routes: list[list[Any]] = []
    trunks = {(0, 8): 1, (8, 0): 1, (1, 9): 2, (2, 10): 2, (9, 1): 3, (10, 2): 3}
    links += [{"from": f"in{k}", "to": f"out{k}", "bandwidth": rate, "directed": True} for k in (1, 2, 3)]
    for (a, b), trunk in trunks.items():
        links.append({"from": a, "to": f"in{trunk}", "bandwidth": rate, "directed": True})
        links.append({"from": f"out{trunk}", "to": b, "bandwidth": rate, "directed": True})
        routes.append([a, f"in{trunk}", f"out{trunk}", b])
    network = load_network(
        {
            "npus_count": [16],
            "links": links,
            "routes": routes,
            "latency": 1000.0,
            "npus_forward": False,
            "ecmp": "first",
        }
    )
    calls = [("all_gather", 1 << 24, [[0, 8], [1, 9], [2, 10]])]
    folded, _ = both(job(16, calls), SYSTEM, network)
    assert folded.finish_ns[0] < folded.finish_ns[1]
    assert folded.finish_ns[1] == folded.finish_ns[2]
    assert folded.raw.partition.n_classes == 3


def test_roles_name_one_partner_each() -> None:
    """A member sends to one other in each role, and hears from one in each; turned around a ring, roles stay."""
    n, size = 6, np.array([7, 7, 7, 7, 7])
    found = [Lane(i, (i + 1 + np.arange(n - 1)) % n, size) for i in range(n)]
    made = pair_roles(found, n)
    for ends in (made.source, made.target):
        assert len({(int(end), role) for end, role in zip(ends, made.role, strict=True)}) == n * (n - 1)
    assert len(set(made.role)) == n - 1


def test_so_few_bytes_that_nobody_sends() -> None:
    """8 bytes are not one for each of twelve members: the collective has no messages."""
    workload = job(24, [("all_to_all", 8, [list(range(12)), list(range(12, 24))])])
    folded, unfolded = both(workload, SYSTEM, machines(3, 16, Shape.FAT_TREE))
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()
