"""Every preset is sane in its units, loads as a network, and gives the closed-form all-reduce time."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from chakra.builder import TraceBuilder
from chakra.cli.commands.platform import command
from chakra.errors import ChakraError, ConfigError, UsageError
from chakra.et import NodeType, TraceColumns
from chakra.io.yaml import parse_document, read_document
from chakra.platforms import (
    Platform,
    Status,
    all_platforms,
    cluster,
    load_platform,
    platform_names,
    write_platform,
)
from chakra.platforms.model import platform_from
from chakra.replay import simulate
from chakra.replay.config.network import load_network
from chakra.replay.config.system import load_system

PLATFORMS = list(all_platforms())
DOCS = Path(__file__).resolve().parents[2] / "docs" / "guides" / "platforms.md"


def small(platform: Platform) -> Platform:
    """One machine, or four where a machine is one NPU."""
    return platform.sized(4) if platform.node_npus == 1 else platform.sized()


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda p: p.name)
def test_numbers_are_sane(platform: Platform) -> None:
    assert 50 <= platform.accelerator.peak_tflops <= 10_000
    assert platform.accelerator.mem_gbps >= 200
    for dim in platform.dims:
        assert 1 <= dim.bandwidth.value <= 4000
        assert 10 <= dim.latency.value <= 10_000
    for _, number in platform.numbers():
        assert len(number.source) > 5
        if number.links and number.link_gbps:
            assert number.links * number.link_gbps == pytest.approx(number.value)


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda p: p.name)
def test_files_are_those_of_the_replay(platform: Platform, tmp_path: Path) -> None:
    machine = small(platform)
    network_path, system_path = write_platform(machine, tmp_path / "m")
    network, system = load_network(network_path), load_system(system_path)
    assert network.npus == max(machine.node_npus, 4 if platform.node_npus == 1 else 0)
    assert system.roofline
    assert system.peak_perf_tflops == platform.accelerator.peak_tflops
    for dim, ours in zip(network.dims, machine.dims, strict=True):
        # 10^9 in presets, 2^30 in files: the same bytes per nanosecond
        assert dim.bytes_per_ns == pytest.approx(ours.bandwidth.value, rel=1e-6)


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda p: p.name)
def test_a_ring_all_reduce_on_the_inner_dimension_takes_its_closed_form(platform: Platform) -> None:
    """e + 2(n-1)(hops*latency + m/beta + e), reductions left out."""
    machine = small(platform)
    inner = machine.dims[0]
    n, size = int(inner.npus or 4), 1 << 26
    network = {key: values[:1] for key, values in machine.network().items()}
    system = {"endpoint-delay": 10, "preferred-dataset-splits": 1, "all-reduce-implementation": ["ring"]}
    columns = TraceColumns(1)
    columns.types[:] = NodeType.COMM_COLL
    columns.set_bool("is_cpu_op", False)
    columns.set_int("comm_type", 0)
    columns.set_int("comm_size", size)
    found = int(simulate([columns.build()] * n, system, network).finish_ns.max())
    hops = 2 if inner.topology == "Switch" else 1
    message = size / n / inner.bandwidth.value + hops * inner.latency.value
    assert found == pytest.approx(10 + 2 * (n - 1) * (int(message) + 10), abs=2 * (n - 1))


def test_every_preset_of_the_issue_is_there() -> None:
    wanted = {
        "dgx-2", "dgx-a100", "hgx-h100", "gb200-nvl72", "tpu-v3-pod", "tpu-v4", "tpu-v5p", "zionex", "dojo-tile",
        "hls-1", "wormhole-galaxy",
    }  # fmt: skip
    assert wanted <= set(platform_names())


@pytest.mark.parametrize("name", [
    "dgx-a100", "hgx-h100", "hgx-h200", "hgx-b200", "hgx-b300", "gb200-nvl72", "gb300-nvl72", "l40s", "rtx-pro-6000",
])  # fmt: skip
def test_how_right_collectives_are_is_shown(name: str) -> None:
    done = CliRunner().invoke(command, ["show", name])
    assert done.exit_code == 0, done.output
    assert "collective library: nccl, fitted to 2, 4" in done.output
    assert re.search(r"all_reduce +(63|42) +\d+\.\d +(30|20) +\d+\.\d", done.output)
    document = json.loads(CliRunner().invoke(command, ["show", name, "--format", "json"]).stdout)
    assert document["collective_library"]["all_reduce"]["error"]["mean_error"] < 0.15


def test_an_amd_machine_has_the_costs_of_rccl() -> None:
    done = CliRunner().invoke(command, ["show", "mi300x"])
    assert "collective library: rccl, fitted to 8 ranks, 512 to 8589934592 bytes" in done.output
    assert re.search(r"all_reduce +25 +8\.0 +14 +4\.5\n", done.output)
    assert "all_gather" not in done.output


def test_what_was_not_measured_is_said() -> None:
    done = CliRunner().invoke(command, ["show", "cs-2"])
    assert "no measurements of this machine" in done.output
    document = json.loads(
        CliRunner().invoke(command, ["show", "cs-2", "--npus", "16", "--format", "json"]).stdout
    )
    assert document["collective_library"] is None


@pytest.mark.parametrize(("words", "shape", "gbps"), [
    ("hgx-h100", [8], [450]),
    ("HGX H100", None, None),
    ("8x hgx-h100", [8, 8], [450, 50]),
    ("8xhgx-h100", [8, 8], [450, 50]),
    ("8 x HGX-H100 over 400G rail-optimised fat tree", [8, 8], [450, 50]),
    ("4x dgx-a100 over 100 G", None, None),
    ("4x dgx-a100 over 100Gb/s oversubscribed 2", [8, 4], [300, 6.25]),
    ("2x tpu-v4 over 200G", [4, 4, 4, 2], [50, 50, 50, 25]),
    ("16x cs-2", [16], [150]),
])  # fmt: skip
def test_clusters_in_words(words: str, shape: list[int] | None, gbps: list[float] | None) -> None:
    if shape is None:
        with pytest.raises(UsageError):
            cluster(words)
        return
    found = cluster(words)
    assert [dim.npus for dim in found.dims] == shape
    assert [dim.bandwidth.value for dim in found.dims] == gbps


@pytest.mark.parametrize(("words", "npus", "shape"), [
    ("hgx-h100", 1024, [8, 128]),
    ("hgx-h100", 4, [4]),
    ("tpu-v4", 16, [4, 4]),
    ("gb200-nvl72", 144, [72, 2]),
    ("gb200-nvl72", 1, [1]),
    ("tpu-v4", 1, [1]),
    ("cs-2", 1, [1]),
])  # fmt: skip
def test_size_in_npus(words: str, npus: int, shape: list[int]) -> None:
    assert [dim.npus for dim in cluster(words, npus).dims] == shape


@pytest.mark.parametrize(("words", "npus", "message"), [
    ("hgx-h10", None, "no machine preset 'hgx-h10'; did you mean 'hgx-h100'"),
    ("hgx-h100", 12, "12 NPUs are no whole number of machines of 8"),
    ("tpu-v4", 128, "no scale-out network"),
    ("hgx-h100", 0, "at least 1 NPU, not 0"),
    ("0x hgx-h100", None, "at least 1"),
    ("2x hgx-h100", 99, "has 16 NPUs, not 99"),
    ("2x hgx-h100 over fat tree", None, "needs a port rate"),
    ("2x hgx-h100 over 400G bananas", None, "'bananas' is not understood"),
    ("2x hgx-h100 over 400G oversubscribed", None, "needs a number"),
    ("2x hgx-h100 over 400G oversubscribed 0.5", None, "must be at least 1"),
    ("", None, "is not"),
])  # fmt: skip
def test_wrong_words_are_named(words: str, npus: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cluster(words, npus)


GOOD: dict[str, Any] = {
    "name": "x",
    "title": "X",
    "accelerator": {
        "name": "a",
        **{
            key: {"value": 1, "status": "datasheet", "source": "s"}
            for key in ("peak_tflops", "mem_gbps", "memory_gb")
        },
    },
    "dims": [
        {
            "topology": "Ring",
            "npus": 4,
            "gbps": {"value": 6, "links": 3, "link_gbps": 2, "status": "fitted", "source": "s"},
            "latency_ns": {"value": 0, "status": "assumed", "source": "s"},
        }
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    document: Any = json.loads(json.dumps(GOOD))
    place = document
    *rest, last = path.split("/")
    for key in rest:
        place = place[int(key)] if key.isdecimal() else place[key]
    place[int(last) if last.isdecimal() else last] = value
    return dict(document)


@pytest.mark.parametrize(("path", "value", "message"), [
    ("dims/0/gbps/status", "guess", "status must be one of datasheet, fitted, assumed"),
    ("dims/0/gbps/source", " ", "source must say"),
    ("dims/0/gbps/value", 7, "3 links of 2 make 6, not 7"),
    ("dims/0/gbps/value", "tbd", "value must be a number"),
    ("dims/0/gbps/unit", "x", "unknown key 'unit'"),
    ("dims/0/gbps", 5, "must be {value"),
    ("dims/0/topology", "Mesh", "topology must be one of Ring"),
    ("dims/0/npus", 1, "at least 2 or 'scale_out'"),
    ("dims", [], "non-empty list"),
    ("accelerator/peak_tflops/value", 0, "accelerator.peak_tflops: must be above 0"),
    ("accelerator", 3, "accelerator must be a map"),
    ("title", 3, "title must be a text"),
])  # fmt: skip
def test_wrong_presets_are_refused_by_key(path: str, value: Any, message: str) -> None:
    assert platform_from(GOOD, "x.yml").dims[0].latency.status is Status.ASSUMED
    with pytest.raises(ConfigError, match=message):
        platform_from(changed(path, value), "x.yml")


@pytest.mark.parametrize("text", ["a: 1\na: 2", "a: [", "\t", "a: b: c", "&a [*a]", "[" * 5000])
def test_hostile_yaml_is_one_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "m.yml"
    path.write_text(text)
    with pytest.raises(ChakraError) as caught:
        load_platform(str(path))
    assert "\n" not in str(caught.value)


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_platform(str(tmp_path / "none.yml"))
    (tmp_path / "b.yml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_document(tmp_path / "b.yml")


def test_the_preset_in_the_guide_loads() -> None:
    text = DOCS.read_text().split("```yaml\n")[1].split("```")[0]
    assert platform_from(parse_document(text, "guide"), "guide").sized(16).network()["npus_count"] == [8, 2]


def test_command_line(tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(command, list(arguments), catch_exceptions=False)

    listed = run("list").stdout
    assert all(name in listed for name in platform_names())
    assert {
        entry["name"] for entry in json.loads(run("list", "--format", "json").stdout)["platforms"]
    } == set(platform_names())
    shown = run("show", "hgx-h100").stdout
    assert "dim1 bandwidth [10^9 B/s]" in shown
    assert "fitted" in shown
    document = json.loads(run("show", "2x", "hgx-h100", "--format", "json").stdout)
    assert document["network"]["npus_count"] == [8, 2]
    run("write", "2x", "hgx-h100", "-o", str(tmp_path / "m"))
    text = (tmp_path / "m.network.yml").read_text()
    assert "# dim0 bandwidth [10^9 B/s]: 450 (datasheet:" in text


def test_a_gpu_of_a_dgx_1_sends_no_more_than_its_links_carry() -> None:
    """A V100 has six NVLinks of 25 GB/s in each direction: an all-reduce is no faster than those 150 GB/s."""
    builder = TraceBuilder()
    builder.collective("all_reduce", size_bytes=1 << 30)
    platform = load_platform("dgx-1v").sized()
    result = simulate([builder.build()] * 8, {"all-reduce-implementation": ["ring"]}, platform.network())
    assert result.records("collectives")[0]["bound_ns"] == pytest.approx(2 * 7 / 8 * 2**30 / 150, rel=1e-3)
