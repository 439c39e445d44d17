"""ASTRA-sim 1.0's cost model: the tutorials' published numbers, from files as those tutorials have them."""

import json
from pathlib import Path
from typing import Any

import pytest
from collective_runs import network, one, system

from chakra.builder import TraceBuilder
from chakra.converters.astra_config import convert_config
from chakra.converters.text.convert import convert_text
from chakra.errors import ConfigError
from chakra.replay import simulate

MICRO = "MICRO\n1\nconv1 -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 1048576 1\n"


def old_network(topologies: list[str], units: list[int], links: list[int], latency: float) -> dict[str, Any]:
    count = len(units)
    return {
        "topology-name": "Hierarchical",
        "dimensions-count": count,
        "topologies-per-dim": topologies,
        "dimension-type": ["N"] * count,
        "units-count": units,
        "links-count": links,
        "link-latency": [latency] * count,
        "link-bandwidth": [50] * count,
    }


def old_system(algorithms: str, splits: int, **more: str) -> str:
    values = {
        "scheduling-policy": "LIFO",
        "endpoint-delay": "10",
        "active-chunks-per-dimension": "1",
        "preferred-dataset-splits": str(splits),
        "boost-mode": "1",
        "all-reduce-implementation": algorithms,
        "all-gather-implementation": algorithms,
        "reduce-scatter-implementation": algorithms,
        "all-to-all-implementation": algorithms,
        "collective-optimization": "localBWAware",
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    return "".join(f"{key}: {value}\n" for key, value in values.items())


def replayed(folder: Path, net: dict[str, Any], sys: str, **more: Any) -> int:
    """Convert a tutorial's three files and replay them."""
    texts = {"net": json.dumps(net), "sys": sys}
    paths = {}
    for name, text in texts.items():
        (folder / name).write_text(text)
        paths[name] = folder / f"{name}.new"
        paths[name].write_text(convert_config(folder / name).text)
    (folder / "micro.txt").write_text(MICRO)
    npus = 1
    for units in net["units-count"]:
        npus *= units
    convert_text(folder / "micro.txt", folder / "ar", npus=npus, time_unit="ns", update_time=True)
    result = simulate(str(folder / "ar"), paths["sys"], paths["net"], compat="astra-sim-1.0", **more)
    assert len(set(result.finish_ns.tolist())) == 1
    return int(result.finish_ns[0])


@pytest.mark.parametrize(
    ("topology", "links", "algorithm", "published"),
    [
        ("Ring", 2, "ring", 45681),
        ("FullyConnected", 7, "direct", 9001),
        ("Switch", 1, "halvingDoubling", 58449),
    ],
)
def test_tutorial_2022(tmp_path: Path, topology: str, links: int, algorithm: str, published: int) -> None:
    """8 NPUs, 1 MiB, 4 chunks, 50 GB/s a link, 500 ns."""
    assert (
        replayed(tmp_path, old_network([topology], [8], [links], 500), old_system(algorithm, 4)) == published
    )


def test_exercise_2023(tmp_path: Path) -> None:
    """64 NPUs on a switch, direct, 1 GiB."""
    net = old_network(["Switch"], [64], [1], 500)
    assert replayed(tmp_path, net, old_system("direct", 4), comm_scale=1024.0) == 633217


@pytest.mark.parametrize(
    ("inter", "intra", "published"),
    [("baseline", "FIFO", 35008129), ("themis", "SCF", 13909354)],
)
def test_themis_2022(tmp_path: Path, inter: str, intra: str, published: int) -> None:
    """8 x 8 x 8 NPUs on switches, 1 GiB in 64 chunks. The tutorial's 13635871 is what boost mode makes of 13909354."""
    net = old_network(["Switch"] * 3, [8] * 3, [1] * 3, 1)
    made = old_system(
        "halvingDoubling_halvingDoubling_halvingDoubling",
        64,
        inter_dimension_scheduling=inter,
        intra_dimension_scheduling=intra,
    )
    assert replayed(tmp_path, net, made, comm_scale=1024.0) == published


def test_small_system_without_folding() -> None:
    """Every NPU simulated: 4 x 4 x 4 without boost mode."""
    made = system(
        ["halvingDoubling"] * 3,
        64,
        collective_optimization="localBWAware",
        inter_dimension_scheduling="themis",
        intra_dimension_scheduling="SCF",
    )
    net = network(["Switch"] * 3, [4, 4, 4], latency=[1, 1, 1])
    times = [
        simulate([one("ALL_REDUCE", 1 << 26)] * 64, made, net, compat="astra-sim-1.0", fold=fold).finish_ns
        for fold in (True, False)
    ]
    assert set(times[0].tolist()) == set(times[1].tolist()) == {int(times[0][0])}


def test_costs_of_1_0() -> None:
    """Two truncations, no minimum chunk, a shorter last chunk, 3 ns per 500 kB reduced."""
    rate = 50 * (1 << 30) / 1e9
    size, n = 8 * 1_500_001, 4
    net = network(["Switch"], [n], latency=[0.3])
    message = size // 8 // n
    way = int(int(2 * 0.3) + message / rate)
    each = 10 + (n - 1) * (way + 10 + 3 * (message // 500000))
    made = system(["ring"], 8)
    result = simulate([one("REDUCE_SCATTER", size)] * n, made, net, compat="astra-sim-1.0")
    assert result.finish_ns.max() == 8 * each
    more = simulate([one("REDUCE_SCATTER", size + 7)] * n, made, net, compat="astra-sim-1.0")
    last = 10 + (n - 1) * (int(int(2 * 0.3) + 1 / rate) + 10)
    assert more.finish_ns.max() == 8 * each + last


def test_newest_collective_first() -> None:
    """Several collectives are in flight; LIFO serves the waiting chunks of the newest first, FIFO those of the oldest."""
    builder = TraceBuilder(rank=0)
    for _ in range(3):
        builder.collective("ALL_GATHER", size_bytes=1000)
    net = network(["Switch"], [4])
    ends = {}
    for policy in ("LIFO", "FIFO"):
        made = system(["ring"], 2, scheduling_policy=policy)
        result = simulate([builder.build()] * 4, made, net, compat="astra-sim-1.0")
        ends[policy] = np_order(result.node_ticks(0))
    # the first chunk of the first collective runs already when the others are issued
    assert ends == {"LIFO": [2, 1, 0], "FIFO": [0, 1, 2]}


def np_order(ticks: Any) -> list[int]:
    ids, _, finish = ticks
    base = min(ids.tolist())
    return [int(i) - base for _, i in sorted(zip(finish.tolist(), ids.tolist(), strict=True))]


def test_compute_scale_cuts() -> None:
    builder = TraceBuilder(rank=0)
    builder.compute(duration_ns=7)
    made, net = system(["ring"]), network(["Switch"], [2])
    result = simulate([builder.build()] * 2, made, net, compat="astra-sim-1.0", compute_scale=1.5)
    assert result.finish_ns.tolist() == [10, 10]


def test_no_congested_network() -> None:
    with pytest.raises(ConfigError, match=r"astra-sim-1\.0"):
        simulate(
            [one("ALL_REDUCE", 1000)] * 2,
            system(["ring"]),
            network(["Switch"], [2]),
            compat="astra-sim-1.0",
            backend="aware",
        )
