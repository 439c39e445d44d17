"""Collectives that take a library's time in a replay: as long as the model says, folded or not; nothing else changes."""

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from library_runs import H100, MIB, groups_of, job, network, run, system

from chakra.builder import Workload
from chakra.errors import ConfigError, UsageError, WorkloadError
from chakra.platforms import cluster
from chakra.replay.collectives.library import (
    Algorithm,
    Communicator,
    Forced,
    Protocol,
    library_time,
    parameters_to,
)
from chakra.replay.config.model import CollectiveKind as Kind


@pytest.mark.parametrize(
    ("kind", "of", "scale"),
    [("all_reduce", Kind.ALL_REDUCE, 1), ("all_gather", Kind.ALL_GATHER, 8), ("reduce_scatter", Kind.REDUCE_SCATTER, 1),
     ("all_to_all", Kind.ALL_TO_ALL, 1), ("broadcast", Kind.BROADCAST, 1)],
)  # fmt: skip
def test_a_collective_takes_the_library_s_time_from_the_last_start(
    tmp_path: Path, kind: str, of: Kind, scale: int
) -> None:
    job(tmp_path, 8, kind, 3 * MIB)
    result = run(tmp_path, system(), network(8))
    expected = library_time(of, 3 * MIB * scale, Communicator(8, 8), H100).time_ns
    rows = result.to_dict()["collectives"]
    assert [row["transfer_ns"] for row in rows] == [expected, expected]
    assert {row["algorithm"] for row in rows} == {"nccl"}
    assert rows[0]["ready_ns"] == 3000
    assert set(result.finish_ns.tolist()) == {3000 + 2 * expected}


@pytest.mark.parametrize(
    ("size", "stride", "comm"),
    [
        (8, 1, Communicator(8, 8)),
        (4, 2, Communicator(4, 4)),
        (4, 8, Communicator(4, 1, 50.0)),
        (16, 1, Communicator(16, 8, 50.0)),
        (8, 4, Communicator(8, 2, 50.0)),
        (32, 1, Communicator(32, 8, 50.0)),
    ],
)
def test_groups_are_placed_on_nodes(tmp_path: Path, size: int, stride: int, comm: Communicator) -> None:
    job(tmp_path, 32, "all_reduce", 16 * MIB, groups_of(32, size, stride) if size < 32 else None)
    result = run(tmp_path, system(), network(8, 4))
    expected = library_time(Kind.ALL_REDUCE, 16 * MIB, comm, H100).time_ns
    # the rate of a port in 2^30 and 10^9 B/s: the same to seven digits
    for row in result.to_dict()["collectives"]:
        assert row["transfer_ns"] == pytest.approx(expected, abs=3)


@pytest.mark.parametrize(
    ("size", "stride"), [(2, 1), (8, 1), (16, 1), (32, 1), (2, 2), (8, 2), (16, 2), (32, 2), (2, 8), (8, 8)]
)
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all"])
def test_folded_and_one_by_one_are_the_same(tmp_path: Path, kind: str, size: int, stride: int) -> None:
    job(tmp_path, 64, kind, 2 * MIB, groups_of(64, size, stride))
    folded = run(tmp_path, system(), network(8, 8))
    single = run(tmp_path, system(), network(8, 8), fold=False)
    assert np.array_equal(folded.finish_ns, single.finish_ns)
    assert folded.to_dict()["dimensions"] == single.to_dict()["dimensions"]


def test_groups_that_lie_differently_on_nodes_take_different_times(tmp_path: Path) -> None:
    """Neighbours of equal distances, on two nodes and on four: no class may mix them."""
    groups = {"1": [0, 8, 1, 9], "2": [2, 10, 19, 27], "3": [16, 24, 17, 25], "4": [18, 26, 3, 11]}
    rest = [npu for npu in range(32) if not any(npu in ranks for ranks in groups.values())]
    groups |= {str(5 + k): rest[4 * k : 4 * k + 4] for k in range(4)}
    job(tmp_path, 32, "all_reduce", 16 * MIB, groups)
    folded = run(tmp_path, system(), network(8, 4))
    single = run(tmp_path, system(), network(8, 4), fold=False)
    assert np.array_equal(folded.finish_ns, single.finish_ns)
    assert folded.finish_ns[0] != folded.finish_ns[2]


def test_many_equal_npus_fold_into_one_class(tmp_path: Path) -> None:
    job(tmp_path, 4096, "all_reduce", MIB, groups_of(4096, 512, 8), apart=1)
    result = run(tmp_path, system(), network(8, 512))
    assert result.raw.partition.n_classes == 1


def test_without_the_key_nothing_changes(tmp_path: Path) -> None:
    job(tmp_path, 32, "all_reduce", 3 * MIB, groups_of(32, 8, 1))
    bare = {key: value for key, value in system().items() if not key.startswith("collective-")}
    plain = run(tmp_path, bare, network(8, 4))
    assert {row["algorithm"] for row in plain.to_dict()["collectives"]} == {"oneRing"}
    assert not any("collective" in note for note in plain.notes)


@pytest.mark.parametrize(
    ("options", "changes", "why"),
    [
        ({"compat": "astra-sim"}, {}, "compat 'astra-sim' has the algorithms of ASTRA-sim"),
        ({}, {"model_shared_bus": 1, "L": 1, "o": 1, "g": 1, "G": 0.1}, "the shared memory bus"),
    ],
)
def test_where_it_has_no_effect_a_note_says_why_and_times_are_those_without_it(
    tmp_path: Path, options: dict[str, Any], changes: dict[str, Any], why: str
) -> None:
    job(tmp_path, 8, "all_reduce", 3 * MIB)
    with_key = run(tmp_path, system(**changes), network(8), **options)
    bare = {key: value for key, value in system(**changes).items() if not key.startswith("collective-")}
    without = run(tmp_path, bare, network(8), **options)
    assert np.array_equal(with_key.finish_ns, without.finish_ns)
    assert any("collective-library 'nccl' has no effect" in note and why in note for note in with_key.notes)


def test_the_note_names_library_machine_and_error(tmp_path: Path) -> None:
    job(tmp_path, 8, "all_reduce", 3 * MIB)
    assert (
        run(tmp_path, system(), network(8))
        .notes[-1]
        .startswith("collectives take the times of nccl on hgx-h100, fitted")
    )


def test_what_the_library_is_held_to(tmp_path: Path) -> None:
    job(tmp_path, 8, "all_reduce", 64 * MIB, times=1)
    free = run(tmp_path, system(), network(8)).finish_ns[0]
    ring = run(
        tmp_path, system(collective_algorithm="Ring", collective_protocol="Simple"), network(8)
    ).finish_ns[0]
    few = run(tmp_path, system(collective_channels=4), network(8)).finish_ns[0]
    assert free < ring < few


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all"])
@pytest.mark.parametrize("ranks", [[0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 8, 16, 17, 18], [3, 9, 10, 31]])
def test_nodes_that_hold_unequal_numbers_have_the_ports_of_the_emptiest(
    tmp_path: Path, ranks: list[int], kind: str
) -> None:
    """A ring or a tree goes through every node: on links that are shared it takes as long, since they are not overrun."""
    workload = Workload(32)
    group = workload.add_group(ranks)
    workload.run(
        lambda b: (
            b.collective(kind, size_bytes=4 * MIB, group=group)
            if b.rank in ranks
            else b.compute("f", duration_micros=1)
        )
    )
    workload.write(tmp_path / "w")
    free = run(tmp_path, system(), network(8, 4))
    shared = run(tmp_path, system(), network(8, 4), backend="aware")
    # pairs of different numbers in their nodes meet inside a node on their way
    longer = shared.finish_ns[ranks[0]] / free.finish_ns[ranks[0]]
    assert longer == 1 or (kind == "all_to_all" and 1 < longer < 1.06)
    most = max(sum(rank // 8 == node for rank in ranks) for node in range(4))
    nodes, n = len({rank // 8 for rank in ranks}), len(ranks)
    comm = Communicator(nodes * most, most, 50.0, 0 if kind == "all_to_all" else 1)
    size = 4 * MIB * (n if kind == "all_gather" else 1)
    if kind == "all_to_all":
        # into the port of a node with one member go the parts of all others
        size = round(4 * MIB * (n - 1) / n * nodes / (nodes - 1))
    expected = library_time(Kind[kind.upper()], size, comm, H100).time_ns
    assert free.finish_ns[ranks[0]] == pytest.approx(expected, abs=3)


def test_the_options_hold_the_library_before_the_system_file_does(tmp_path: Path) -> None:
    """What NCCL_ALGO, NCCL_PROTO and NCCL_MAX_NCHANNELS do: as options of a run, as keys, and both."""
    job(tmp_path, 8, "all_reduce", 64 * MIB, times=1)
    held = Forced(Algorithm.RING, Protocol.LL128, 8)
    expected = library_time(Kind.ALL_REDUCE, 64 * MIB, Communicator(8, 8), H100, held).time_ns
    words: dict[str, Any] = {
        "collective_algorithm": "Ring",
        "collective_protocol": "LL128",
        "collective_channels": 8,
    }
    other = {"collective_algorithm": "NVLS", "collective_protocol": "Simple", "collective_channels": 3}
    for keys, options in ((words, {}), ({}, words), (other, words)):
        result = run(tmp_path, system(**keys), network(8), **options)
        assert result.to_dict()["collectives"][0]["transfer_ns"] == expected


def test_shared_ports_and_a_slow_plugin_cost_time(tmp_path: Path) -> None:
    job(tmp_path, 32, "all_reduce", 64 * MIB, times=1)
    own = run(tmp_path, system(), network(8, 4)).finish_ns[0]
    assert run(tmp_path, system(node_ports=2), network(8, 4)).finish_ns[0] > 2 * own
    assert run(tmp_path, system(network_plugin_latency=35), network(8, 4)).finish_ns[0] > own + 100_000


@pytest.mark.parametrize("algorithm", ["CollNetDirect", "CollNetChain"])
def test_collnet_needs_switches_that_reduce(tmp_path: Path, algorithm: str) -> None:
    """SHARP: on shared links its bytes cross each port once, and alone it takes the library's time there, too."""
    job(tmp_path, 32, "all_reduce", 4 * MIB, times=1, apart=1)
    with pytest.raises(UsageError, match=f"nccl has no all_reduce with {algorithm} on 4 nodes"):
        run(tmp_path, system(), network(8, 4), collective_algorithm=algorithm)
    comm = Communicator(32, 8, 50.0, in_network=True)
    expected = library_time(Kind.ALL_REDUCE, 4 * MIB, comm, H100, Forced(Algorithm(algorithm))).time_ns
    for options in ({}, {"backend": "aware"}):
        made = run(
            tmp_path, system(network_reduces=1), network(8, 4), collective_algorithm=algorithm, **options
        )
        assert made.to_dict()["collectives"][0]["transfer_ns"] == pytest.approx(expected, abs=3)
        able = {**network(8, 4), "switches": ["plain", "reduces"]}
        assert run(
            tmp_path, system(), able, collective_algorithm=algorithm, **options
        ).finish_ns.tolist() == (made.finish_ns.tolist())
    inside = {**network(8, 4), "switches": ["reduces", "multicasts"]}
    with pytest.raises(UsageError, match=f"nccl has no all_reduce with {algorithm} on 4 nodes"):
        run(tmp_path, system(), inside, collective_algorithm=algorithm)
    free = run(tmp_path, system(network_reduces=1), network(8, 4)).finish_ns[0]
    assert free <= run(tmp_path, system(), network(8, 4)).finish_ns[0]


def test_costs_are_a_preset_a_file_or_a_map(tmp_path: Path) -> None:
    job(tmp_path, 8, "all_reduce", 3 * MIB)
    from chakra.platforms.collectives import parameters_text

    (tmp_path / "costs.yml").write_text(parameters_text(H100))
    times = {
        run(tmp_path, system(collective_costs=costs), network(8)).finish_ns[0]
        for costs in ("hgx-h100", str(tmp_path / "costs.yml"), parameters_to(H100))
    }
    assert len(times) == 1


@pytest.mark.parametrize(
    ("changes", "npus", "message"),
    [
        (
            {"collective_costs": "hgx-h1000"},
            8,
            "no costs of a collective library for 'hgx-h1000'; did you mean 'hgx-h100'",
        ),
        ({"collective_costs": {"colour": 1}}, 8, "missing"),
        ({"collective_costs": 3}, 8, "collective-costs"),
        ({"collective_library": "rccl"}, 8, "those of 'nccl'"),
        ({"collective_library": "gloo"}, 8, "collective-library"),
        ({"collective_algorithm": "Rings"}, 8, "collective-algorithm"),
        ({}, 16, "dimension 0 has 16 NPUs, and a node of hgx-h100 has 8"),
    ],
)
def test_costs_that_do_not_fit_are_refused(
    tmp_path: Path, changes: dict[str, Any], npus: int, message: str
) -> None:
    job(tmp_path, npus, "all_reduce", MIB)
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, system(**changes), network(npus))


@pytest.mark.parametrize(
    "option",
    [{"collective_algorithm": "Ring"}, {"collective_protocol": "LL"}, {"collective_channels": 2}],
)
def test_what_holds_a_library_needs_one_and_is_noted_where_it_has_no_effect(
    tmp_path: Path, option: dict[str, Any]
) -> None:
    job(tmp_path, 8, "all_reduce", MIB)
    bare = {key: value for key, value in system().items() if not key.startswith("collective-")}
    name = next(iter(option)).replace("_", "-")
    with pytest.raises(ConfigError, match=f"--{name} holds a collective library to something; name one"):
        run(tmp_path, bare, network(8), **option)
    key = {name: next(iter(option.values()))}
    idle = run(tmp_path, {**bare, **key}, network(8))
    assert idle.finish_ns.tolist() == run(tmp_path, bare, network(8)).finish_ns.tolist()
    assert any(f"{name} has no effect without collective-library" in note for note in idle.notes)
    compat = run(tmp_path, system(), network(8), compat="astra-sim", **option)
    assert compat.finish_ns.tolist() == run(tmp_path, bare, network(8), compat="astra-sim").finish_ns.tolist()
    assert any("no effect" in note and f"nor has --{name}" in note for note in compat.notes)


def test_a_file_of_costs_that_changed_is_read_again(tmp_path: Path) -> None:
    """Within one process, too: notebooks and workers of studies live long."""
    job(tmp_path, 8, "all_reduce", 64 * MIB)
    text = (files("chakra.presets") / "collectives" / "hgx-h100.yml").read_text(encoding="utf-8")
    costs, times = tmp_path / "costs.yml", []
    for gbps in (400.0, 200.0, 100.0):
        costs.write_text(re.sub(r"nvls_gbps: [\d.]+", f"nvls_gbps: {gbps}", text))
        result = run(tmp_path, system(**{"collective-costs": str(costs)}), network(8))
        times.append(int(result.finish_ns.max()))
    assert times == sorted(set(times))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("collective-costs", "hgx-h100"),
        ("node-ports", 2),
        ("network-plugin-latency", 3.0),
        ("network-reduces", True),
    ],
)
def test_keys_of_a_library_alone_are_noted(tmp_path: Path, key: str, value: Any) -> None:
    job(tmp_path, 8, "all_reduce", MIB)
    bare = {name: given for name, given in system().items() if not name.startswith("collective-")}
    idle = run(tmp_path, {**bare, key: value}, network(8))
    assert f"{key} has no effect without collective-library" in idle.notes
    assert not any("without collective-library" in note for note in run(tmp_path, bare, network(8)).notes)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"collective_algorithm": "ring"}, "collective_algorithm: 'ring' is not one of Tree, Ring"),
        ({"collective_protocol": "ll"}, "collective_protocol: 'll' is not one of LL, LL128, Simple"),
        ({"collective_channels": 0}, "collective_channels: 0 is not a whole number"),
        ({"collective_algorithm": "PAT"}, "nccl has no all_reduce with PAT on 1 node of 8 ranks"),
    ],
)
def test_what_a_library_cannot_be_held_to_is_refused(
    tmp_path: Path, option: dict[str, Any], message: str
) -> None:
    job(tmp_path, 8, "all_reduce", MIB)
    with pytest.raises(UsageError, match=message):
        run(tmp_path, system(), network(8), **option)


def test_no_dimension_at_all_is_refused(tmp_path: Path) -> None:
    workload = Workload(32)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=MIB, involved_dim=[False, False, True]))
    workload.write(tmp_path / "w")
    with pytest.raises(WorkloadError, match="involves none of the network's dimensions"):
        run(tmp_path, system(), network(8, 4))


def test_presets_use_it_and_files_say_so() -> None:
    document = cluster("8x hgx-h100").system()
    assert (document["collective-library"], document["collective-costs"]) == ("nccl", "hgx-h100")
    assert "collective-library" not in cluster("16x cs-2").system()
    assert json.loads(json.dumps(document)) == document
