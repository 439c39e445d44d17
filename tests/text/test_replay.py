"""Converted workloads through the replay engine: the tutorials' figures."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chakra.converters.astra_config import convert_config
from chakra.converters.text import Converted, convert_text, write_converted
from chakra.et import NodeType, read_traces
from chakra.replay import simulate

Load = Callable[..., Converted]

RING_OF_8 = {"topology": ["Ring"], "npus_count": [8], "bandwidth": [50], "latency": [500]}


def system(*algorithms: str) -> dict[str, Any]:
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    lists = {f"{kind}-implementation": list(algorithms) for kind in kinds}
    return {
        "preferred-dataset-splits": 4,
        "endpoint-delay": 10,
        "collective-optimization": "localBWAware",
        "local-mem-bw": 50,
        **lists,
    }


def old_system(algorithm: str) -> str:
    kinds = ("all-reduce", "all-gather", "reduce-scatter")
    lists = "".join(f"{kind}-implementation: {algorithm}\n" for kind in kinds)
    return (
        "scheduling-policy: LIFO\nendpoint-delay: 10\nactive-chunks-per-dimension: "
        "1\npreferred-dataset-splits: 4\n"
        f"boost-mode: 1\n{lists}all-to-all-implementation: direct\ncollective-optimization: localBWAware\n"
    )


@pytest.mark.parametrize(
    ("topology", "links", "algorithm", "finish_ns"),
    [
        ("Ring", 2, "ring", 45681),
        ("FullyConnected", 7, "direct", 9001),
        ("Switch", 1, "halvingDoubling", 58449),
    ],
)
@pytest.mark.parametrize("compat", [None, "astra-sim-1.0"])
def test_micro_benchmarks_of_the_2022_and_2023_tutorials(
    load: Load, tmp_path: Path, topology: str, links: int, algorithm: str, finish_ns: int, compat: str | None
) -> None:
    """1 MiB all-reduce on 8 NPUs from the old text, network and system file (replay semantics, section
    7.1)."""
    old = {
        "dimensions-count": 1,
        "topologies-per-dim": [topology],
        "units-count": [8],
        "links-count": [links],
        "link-latency": [500],
        "link-bandwidth": [50],
    }
    (tmp_path / "net.json").write_text(json.dumps(old))
    (tmp_path / "sys.txt").write_text(old_system(algorithm))
    network = convert_config(tmp_path / "net.json").content
    text = "MICRO\n1\nallreduce -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 1048576 1\n"
    write_converted(load(text, npus=8, time_unit="ns", update_time=True), tmp_path / "w")
    result = simulate(
        str(tmp_path / "w"), convert_config(tmp_path / "sys.txt").content, network, compat=compat
    )
    assert result.finish_ns.tolist() == [finish_ns] * 8


@pytest.mark.shared
def test_the_tutorials_mlp_computes_195206_us_on_every_npu(shared: Path, tmp_path: Path) -> None:
    source = shared / "data" / "text" / "MLP_ModelParallel.txt"
    assert convert_text(source, tmp_path / "mlp", npus=8).compute_ns == 195_206_000
    traces = read_traces([tmp_path / f"mlp.{rank}.et" for rank in range(8)])
    for trace in traces:
        assert trace.durations_ns()[trace.types == NodeType.COMP].sum() == 195_206_000
    result = simulate(traces, system("ring"), RING_OF_8)
    assert (result.finish_ns > 195_206_000).all()
    assert (result.finish_ns - result.exposed_comm_ns == 195_206_000).all()


@pytest.mark.shared
def test_compat_files_give_astra_sims_totals(shared: Path, tmp_path: Path) -> None:
    """Every congestion-unaware case of family h, converted here and replayed with ASTRA-sim's rules."""
    cases = 0
    for case in sorted((shared / "oracle" / "corpus").glob("h*")):
        description = json.loads((case / "case.json").read_text())
        if description["backend"] != "unaware":
            continue
        convert_text(
            case / "workload.txt",
            tmp_path / case.name,
            npus=description["npus"],
            passes=description["params"]["num_passes"],
            compat="chakra",
        )
        result = simulate(
            str(tmp_path / case.name), case / "system.json", case / "network.yml", compat="astra-sim"
        )
        expected = json.loads((case / "expected.json").read_text())
        assert result.finish_ns.tolist() == expected["finish"], case.name
        assert result.exposed_comm_ns.tolist() == expected["exposed_comm"], case.name
        cases += 1
    print(f"{cases} of {cases} cases equal")
    assert cases


@pytest.mark.shared
def test_every_text_converts_and_replays(shared: Path, tmp_path: Path) -> None:
    """On [4, 2] by dimensions, and on a ring of 8 by groups; the compute is that of the file in both."""
    network = {
        "topology": ["Ring", "Switch"],
        "npus_count": [4, 2],
        "bandwidth": [50, 25],
        "latency": [500, 700],
    }
    texts = sorted((shared / "data" / "text").glob("*.txt"))
    assert texts
    for source in texts:
        by_dims = convert_text(source, tmp_path / f"{source.stem}_d", network_dims=[4, 2], passes=2)
        by_groups = convert_text(source, tmp_path / f"{source.stem}_g", npus=8, model_parallel=4, passes=2)
        first = simulate(by_dims.prefix, system("ring", "ring"), network)
        second = simulate(by_groups.prefix, system("ring"), RING_OF_8, comm_groups=by_groups.groups_file)
        for summary, result in ((by_dims, first), (by_groups, second)):
            assert not result.partial
            assert (result.finish_ns >= summary.compute_ns).all()
            assert np.ptp(result.finish_ns) == 0, "all NPUs do the same"
        assert (by_dims.nodes, by_dims.compute_ns) == (by_groups.nodes, by_groups.compute_ns)
