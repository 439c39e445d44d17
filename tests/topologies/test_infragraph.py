# ruff: noqa: E501 - tables
"""`chakra topology import`: infrastructures of InfraGraph, written by hand, as networks of links."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chakra.builder import Workload
from chakra.cli.main import run
from chakra.errors import ConfigError
from chakra.replay import simulate
from chakra.replay.config import load_network
from chakra.replay.config.model import Network
from chakra.replay.topologies import fat_tree, import_infragraph

GIB = 1 << 30


def link(name: str, **physical: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "physical": physical}


def edge(first: dict[str, str], second: dict[str, str], scheme: str, name: str) -> dict[str, Any]:
    return {"ep1": first, "ep2": second, "scheme": scheme, "link": name}


#: four hosts of two NPUs, whose cards are devices of their own; two leaves and two spines with ports
HAND: dict[str, Any] = {
    "name": "two tiers",
    "devices": [
        {
            "name": "card",
            "components": [
                {"name": "bus", "count": 1, "choice": "custom", "custom": {"type": "pcie"}},
                {"name": "port", "count": 1, "choice": "port"},
                {"name": "light", "count": 3, "choice": "custom", "custom": {"type": "led"}},
            ],
            "links": [link("serdes", bandwidth={"choice": "gigabits_per_second", "gigabits_per_second": 400}, latency={"choice": "ns", "ns": 10})],
            "edges": [
                edge({"component": "bus"}, {"component": "port"}, "one2one", "serdes"),
                edge({"component": "port"}, {"component": "light"}, "many2many", "serdes"),
            ],
        },
        {
            "name": "host",
            "components": [
                {"name": "gpu", "count": 2, "choice": "xpu"},
                {"name": "cpu", "count": 1, "choice": "cpu"},
                {"name": "nvsw", "count": 1, "choice": "switch"},
                {"name": "card", "count": 2, "choice": "device"},
            ],
            "links": [
                link("nvlink", bandwidth={"gigabytes_per_second": 450}, latency={"choice": "us", "us": 0.25}),
                link("pcie", bandwidth={"choice": "gigatransfers_per_second", "gigatransfers_per_second": 32}),
            ],
            "edges": [
                edge({"component": "gpu[0:2]"}, {"component": "nvsw[0]"}, "many2many", "nvlink"),
                edge({"component": "gpu"}, {"device": "card[0:2]", "component": "bus[0]"}, "one2one", "pcie"),
                edge({"component": "gpu"}, {"component": "cpu[0]"}, "many2many", "pcie"),
            ],
        },
        {
            "name": "box",
            "components": [{"name": "asic", "count": 1, "choice": "switch"}, {"name": "port", "count": 8, "choice": "port"}],
            "links": [link("inside", bandwidth={"gigabits_per_second": 3200}, latency={"ns": 100})],
            "edges": [edge({"component": "asic"}, {"component": "port"}, "many2many", "inside")],
        },
    ],
    "links": [link("cable", bandwidth={"gigabits_per_second": 400}, latency={"ms": 0.0005})],
    "instances": [
        {"name": "host", "device": "host", "count": 4},
        {"name": "leaf", "device": "box", "count": 2},
        {"name": "spine", "device": "box", "count": 2},
    ],
    "edges": [
        edge({"instance": "host[0:2]", "component": "card.port"}, {"instance": "leaf[0]", "component": "port[0:4]"}, "one2one", "cable"),
        edge({"instance": "host[2:4]", "component": "card.port"}, {"instance": "leaf[1]", "component": "port[:4]"}, "one2one", "cable"),
        edge({"instance": "leaf", "component": "port[4]"}, {"instance": "spine[0]", "component": "port[0:2]"}, "one2one", "cable"),
        edge({"instance": "leaf", "component": "port[5]"}, {"instance": "spine[1]", "component": "port[0:8:4]"}, "one2one", "cable"),
    ],
}  # fmt: skip
GIVEN = {"bandwidth_gibps": 40.0, "latency_ns": 200.0}


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    document = copy.deepcopy(HAND)
    change(document)
    return document


def imported(document: Any, folder: Path, **options: Any) -> Network:
    path = folder / "infra.json"
    path.write_text(json.dumps(document))
    return import_infragraph(path, **{**GIVEN, **options})


def ends(network: Network) -> dict[tuple[str, str], tuple[float, float]]:
    """Links by the names of their ends."""
    assert network.links is not None
    names = [*(str(npu) for npu in range(network.npus)), *network.links.vertices]
    return {(names[e.src], names[e.dst]): (e.bandwidth_gibps, e.latency_ns) for e in network.links.links}


def test_every_link_is_there_with_its_speed(tmp_path: Path) -> None:
    links = ends(imported(HAND, tmp_path))
    cable = pytest.approx((400e9 / 8 / GIB, 500))
    assert links["0", "host.0.nvsw.0"] == pytest.approx((450e9 / GIB, 250))
    # transfers say nothing of bits: what is given for such links counts
    assert links["3", "host.1.card.1.bus.0"] == (40.0, 200.0)
    assert links["host.1.card.1.bus.0", "host.1.card.1.port.0"] == pytest.approx((400e9 / 8 / GIB, 10))
    # two hosts with two cards each, the host's number varying slowest
    for npu in range(8):
        host, card = divmod(npu, 2)
        assert links[f"host.{host}.card.{card}.port.0", f"leaf.{host // 2}.port.{npu % 4}"] == cable
    assert links["leaf.1.port.4", "spine.0.port.1"] == cable
    assert links["leaf.1.port.5", "spine.1.port.4"] == cable
    # NPUs to switch, bus and cpu; in cards; cables; ports that are joined to anything
    assert len(links) == 2 * (3 * 8 + 8 + 8 + 4 + 12 + 4)
    assert not any("light" in a or a == "leaf.0.port.7" for a, _ in links)


def test_it_replays_on_every_backend_over_both_tiers(tmp_path: Path) -> None:
    """The way from NPU 0 to 7: card, leaf, spine, leaf, card; each link's latency, and the bytes over the narrowest."""
    network = imported(HAND, tmp_path)
    workload = Workload(8)
    workload.builder(0).send(7, size_bytes=1 << 20)
    workload.builder(7).recv(0, size_bytes=1 << 20)
    for rank in range(1, 7):
        workload.builder(rank).compute(duration_ns=1)
    took = {
        backend: int(simulate(workload, {}, network, backend=backend).finish_ns[7])
        for backend in ("unaware", "aware", "flow")
    }
    latency = 2 * (200 + 10 + 500) + 2 * 500 + 6 * 100
    narrowest = (1 << 20) / (40 * GIB / 1e9)
    assert took["unaware"] == int(latency + narrowest)
    assert took["flow"] == pytest.approx(latency + narrowest, abs=1)
    cable = (1 << 20) / 50
    asic = (1 << 20) / 400
    assert took["aware"] == pytest.approx(latency + 2 * narrowest + 2 * cable + 4 * cable + 6 * asic, abs=14)


def test_what_is_written_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "infra.yml").write_text(json.dumps({"infrastructure": HAND, "annotations": {}}))
    line = f"topology import -i {tmp_path}/infra.yml --bandwidth 40 --latency 200 --npus-count 2,4 -o {tmp_path}/n.yml"
    assert run(line.split()) == 0
    said = capsys.readouterr().err
    assert (
        said
        == f"{tmp_path}/n.yml: 8 NPUs, 44 switches of up to 6 ports, 60 cables, 120 links (one per direction)\n"
    )
    read = load_network(tmp_path / "n.yml")
    assert [dim.npus for dim in read.dims] == [2, 4]
    assert ends(read) == ends(imported(HAND, tmp_path))


def test_components_that_no_message_passes(tmp_path: Path) -> None:
    """By type and by name; what hangs on them alone goes, too."""
    links = ends(imported(HAND, tmp_path, leave_out=["cpu", "nvsw"], routing="latency"))
    assert len(links) == 120 - 2 * 2 * 8
    assert not any("cpu" in a or "nvsw" in a for a, _ in links)
    with pytest.raises(
        ConfigError,
        match="leave out 'cpus': no component beside NPUs has this type or name; did you mean 'cpu'",
    ):
        imported(HAND, tmp_path, leave_out=["cpus"])
    with pytest.raises(ConfigError, match="leave out 'gpu'"):
        imported(HAND, tmp_path, leave_out=["gpu"])
    for routing in ("hops", "latency", "inside"):
        made = imported(HAND, tmp_path, routing=routing, npus_count=[2, 4])
        assert made.links is not None
        assert made.links.routing == routing
    with pytest.raises(ConfigError, match="key 'routing'"):
        imported(HAND, tmp_path, routing="speed")
    with pytest.raises(ConfigError, match="'inside', which needs machines"):
        imported(HAND, tmp_path, routing="inside")


def test_a_fat_tree_described_in_infragraph_is_ours(tmp_path: Path) -> None:
    """The same links as those of our builder, so equal times of a collective, on every backend."""
    speed = {"bandwidth": {"gigabytes_per_second": 50 * GIB / 1e9}, "latency": {"ns": 500}}
    leaf = {
        "name": "leaf",
        "components": [{"name": "asic", "count": 1, "choice": "switch"}],
        "links": [],
        "edges": [],
    }
    npu = {
        "name": "npu",
        "components": [{"name": "xpu", "count": 1, "choice": "xpu"}],
        "links": [],
        "edges": [],
    }
    up = {"bandwidth": {"gigabytes_per_second": 100 * GIB / 1e9}, "latency": {"ns": 500}}
    document = {
        "devices": [leaf, npu],
        "links": [{"name": "down", "physical": speed}, {"name": "up", "physical": up}],
        "instances": [
            {"name": "npu", "device": "npu", "count": 8},
            {"name": "leaf", "device": "leaf", "count": 2},
            {"name": "spine", "device": "leaf", "count": 2},
        ],
        "edges": [
            *(
                edge({"instance": f"npu[{4 * k}:{4 * k + 4}]", "component": "xpu"}, {"instance": f"leaf[{k}]", "component": "asic"}, "many2many", "down")
                for k in range(2)
            ),
            edge({"instance": "leaf", "component": "asic"}, {"instance": "spine", "component": "asic"}, "many2many", "up"),
        ],
    }  # fmt: skip
    theirs, ours = imported(document, tmp_path), fat_tree([4, 2], [1, 2], bandwidth_gibps=50, latency_ns=500)
    assert sorted(ends(theirs).values()) == sorted(ends(ours).values())
    workload = Workload(8)
    workload.run(lambda b: b.collective("all_reduce", size_bytes=1 << 20))
    system = {"all-reduce-implementation": ["ring"]}
    for backend in ("unaware", "aware", "flow"):
        a, b = (simulate(workload, system, network, backend=backend).finish_ns for network in (theirs, ours))
        assert a.tolist() == b.tolist()


def test_ranks_number_the_npus(tmp_path: Path) -> None:
    nodes = [
        {"name": f"host.{k // 2}.gpu.{k % 2}", "attributes": [{"attribute": "rank", "value": str(7 - k)}]}
        for k in range(8)
    ]
    links = ends(imported({"infrastructure": HAND, "annotations": {"nodes": nodes}}, tmp_path))
    assert ("7", "host.0.nvsw.0") in links
    assert ("0", "host.3.card.1.bus.0") in links
    with pytest.raises(ConfigError, match="annotations: ranks must be 0 to 7, one for each xpu"):
        imported({"infrastructure": HAND, "annotations": {"nodes": nodes[1:]}}, tmp_path)


def test_one_to_one_ends_with_the_shorter_list(tmp_path: Path) -> None:
    """A port without a slice stands for all ports, of which the first ones are joined."""
    longer = changed(lambda d: d["edges"][0]["ep2"].update(component="port"))
    assert ends(imported(longer, tmp_path)) == ends(imported(HAND, tmp_path))


def test_older_words_are_understood(tmp_path: Path) -> None:
    """NPUs were of the type npu, and schemes a key that is true or false."""
    older = json.loads(json.dumps(HAND).replace('"choice": "xpu"', '"choice": "npu"'))
    for entry in (*older["edges"], *(e for device in older["devices"] for e in device["edges"])):
        entry["many2many"] = entry.pop("scheme") == "many2many"
    assert ends(imported(older, tmp_path)) == ends(imported(HAND, tmp_path))


def test_npus_forward_only_where_they_must(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = imported(HAND, tmp_path)
    assert network.links is not None
    assert not network.links.npus_forward
    ring = {
        "devices": [{"name": "d", "components": [{"name": "x", "count": 4, "choice": "xpu"}],
                     "links": [link("l", bandwidth={"gigabits_per_second": 8}, latency={"ns": 1})],
                     "edges": [edge({"component": "x[0:3]"}, {"component": "x[1:4]"}, "one2one", "l")]}],
        "instances": [{"name": "d", "device": "d", "count": 1}],
    }  # fmt: skip
    (tmp_path / "ring.yml").write_text(json.dumps(ring))
    assert run(["topology", "import", "-i", str(tmp_path / "ring.yml"), "-o", str(tmp_path / "n.yml")]) == 0
    assert "note: some NPUs reach others over NPUs only, so NPUs forward messages" in capsys.readouterr().err
    again = load_network(tmp_path / "n.yml")
    assert again.links is not None
    assert again.links.npus_forward


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a key": (lambda d: d["devices"][0].update(component=[]), "device 0: key 'component' is unknown; did you mean 'components'?"),
    "an older form": (lambda d: d["devices"][0].update(connections=[]), "device 0: key 'connections' is of an older form of InfraGraph, which is not read; the present one has 'edges' in its place"),
    "an older type": (lambda d: d["devices"][0]["components"][0].update(type="xpu"), "component 0: key 'type' is of an older form of InfraGraph, which is not read; the present one has 'choice' in its place"),
    "no name": (lambda d: d["devices"][1].pop("name"), "device 1: name must be a text, found null"),
    "twice": (lambda d: d["devices"].append(d["devices"][0]), "device 'card': is described twice"),
    "a count": (lambda d: d["devices"][1]["components"][0].update(count=-1), "component 'gpu': count must be a number from 0 to 2000000"),
    "a type": (lambda d: d["devices"][1]["components"][0].update(choice="gpu"), "component 'gpu': choice 'gpu' is unknown; did you mean 'xpu'?"),
    "a device": (lambda d: d["devices"].pop(0), "device 'host': component 'card': no device has this name"),
    "in itself": (lambda d: d["devices"][0]["components"].append({"name": "host", "count": 1, "choice": "device"}), "contains itself"),
    "a component": (lambda d: d["edges"][0]["ep1"].update(component="card.prot"), "edge 0: ep1: device 'card' has no component 'prot'; did you mean 'port'?"),
    "half a component": (lambda d: d["edges"][0]["ep1"].update(component="card[0]"), "'card' is a device, whose component is not named"),
    "too deep a component": (lambda d: d["edges"][0]["ep1"].update(component="gpu.port"), "'gpu' is a component and has none of its own"),
    "an instance": (lambda d: d["edges"][0]["ep1"].update(instance="hots[0]"), "no instance is called 'hots'; did you mean 'host'?"),
    "an instance's device": (lambda d: d["instances"][0].update(device="hots"), "instance 'host': no device is called 'hots'; did you mean 'host'?"),
    "beyond": (lambda d: d["edges"][0]["ep1"].update(instance="host[0:9]"), "host[0:9] chooses none, or more than the 4 that there are"),
    "no slice": (lambda d: d["edges"][0]["ep1"].update(instance="host[a]"), "[a] is not a slice such as [0:2]"),
    "a scheme": (lambda d: d["edges"][0].update(scheme="ring"), 'scheme must be one2one or many2many, found "ring"'),
    "a link": (lambda d: d["edges"][0].update(link="cabel"), "edge 0: no link 'cabel' is described beside it; did you mean 'cable'?"),
    "two links": (lambda d: (d["links"].append(link("fibre")), d["edges"].append({**d["edges"][0], "link": "fibre"})), "are joined by link 'cable' and by link 'fibre'"),
    "a bandwidth": (lambda d: d["links"][0]["physical"]["bandwidth"].update(gigabits_per_second=0), "link 'cable': bandwidth of 0 gigabits_per_second is no bandwidth"),
    "a unit": (lambda d: d["links"][0]["physical"].update(latency={"s": 1}), "latency must be a map of one of ns, us, ms"),
    "two units": (lambda d: d["links"][0]["physical"].update(latency={"ns": 1, "us": 1}), "latency must be a number in one of ns, us, ms"),
    "no NPUs": (lambda d: d["instances"][0].update(count=0), "chooses none"),
    "out of reach": (lambda d: d.update(edges=d["edges"][:2]), "cannot be reached from NPU"),
    "too many": (lambda d: d["instances"][1].update(count=300_000), "the infrastructure: has 3000"),
    "many more": (lambda d: d["devices"][2]["components"].append({"name": "x", "count": 2_000_000, "choice": "port"}), "components, more than 2000000"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_one_line(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, words = WRONG[case]
    path = tmp_path / "infra.json"
    path.write_text(json.dumps(changed(change)))
    assert run(["topology", "import", "-i", str(path), "--bandwidth", "40", "--latency", "200"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert str(path) in said.err
    assert words in said.err


def test_links_without_numbers_need_them(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="link 'pcie': its bandwidth is in gigatransfers, of how many bits is not said"
    ):
        imported(HAND, tmp_path, bandwidth_gibps=None)
    with pytest.raises(
        ConfigError, match="edge 1: link 'pcie' has no latency; give --latency for links without"
    ):
        imported(HAND, tmp_path, latency_ns=None)
    with pytest.raises(ConfigError, match="npus_count gives 6 NPUs, but there are 8"):
        imported(HAND, tmp_path, npus_count=[2, 3])


def test_bombs_cost_nothing(tmp_path: Path) -> None:
    """Devices in devices in devices that would stand for 10^60 components are counted, not made."""
    devices = [
        {"name": f"d{k}", "components": [{"name": f"d{k + 1}", "count": 1000, "choice": "device"}]}
        for k in range(19)
    ]
    devices.append({"name": "d19", "components": [{"name": "x", "count": 1000, "choice": "xpu"}]})
    document = {"devices": devices, "instances": [{"name": "i", "device": "d0", "count": 1}]}
    with pytest.raises(ConfigError, match="the infrastructure: has 1001001"):
        imported(document, tmp_path)
    deeper = [
        {"name": f"d{k}", "components": [{"name": f"d{k + 1}", "count": 1, "choice": "device"}]}
        for k in range(40)
    ]
    with pytest.raises(ConfigError, match="stands in 20 others: too deep"):
        imported({"devices": [*deeper, {"name": "d40", "components": []}]}, tmp_path)
