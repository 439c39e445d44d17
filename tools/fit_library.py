"""Make the presets' costs of collective libraries from published measurements, and say how far they are from them.

    python tools/fit_library.py fit [NAME...]     fit, and write chakra/presets/collectives/NAME.yml
    python tools/fit_library.py page              the tables of docs/guides/collective-library.md and library-errors.md
    python tools/fit_library.py [errors]          table of errors, by machine, collective and size, cross-validated
    python tools/fit_library.py --check           fail if costs or tables are not in step

The measurements lie beside the repository (``../shared/validation``), numbers only, one row each with its source.
"""

import argparse
import csv
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from made_files import renewed, write_or_check

from chakra.calibrate.library_fit import (
    LARGE_BYTES,
    FitRow,
    FittedTime,
    LibraryFit,
    fit_library,
    fitted_times,
    mean_error,
)
from chakra.platforms.collectives import collective_parameters, parameters_text
from chakra.replay.collectives.library import (
    Algorithm,
    Communicator,
    Evidence,
    Forced,
    MachineParameters,
    library_time,
)
from chakra.replay.collectives.library.published import Generation
from chakra.replay.collectives.measured.nccl_log import Measurement
from chakra.replay.config.model import CollectiveKind

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    ROOT / "docs" / "guides" / "collective-library.md",
    ROOT / "docs" / "reference" / "library-errors.md",
)
PRESETS = ROOT / "chakra" / "presets" / "collectives"
VALIDATION = ROOT.parent / "shared" / "validation"
SINGLE_NODE = VALIDATION / "nccl_single_node_aiconfigurator.csv"
SEVERAL_NODES = (VALIDATION / "nccl_multi_node.csv", VALIDATION / "nccl_stas_ml_engineering.csv")
SOURCE = "ai-dynamo/aiconfigurator, NCCL perf tables (Apache-2.0), {}"

#: presets and the hardware whose rows they are fitted to
HARDWARE = {
    "dgx-a100": "NVIDIA A100-SXM4-80GB",
    "hgx-h100": "NVIDIA H100 80GB HBM3 SXM",
    "hgx-h200": "NVIDIA H200 SXM",
    "hgx-b200": "NVIDIA B200 SXM",
    "hgx-b300": "NVIDIA B300 SXM6",
    "gb200-nvl72": "NVIDIA GB200",
    "gb300-nvl72": "NVIDIA GB300",
    "l40s": "NVIDIA L40S",
    "rtx-pro-6000": "NVIDIA RTX PRO 6000 Blackwell Server",
    "mi300x": "AMD MI300X",
}
#: public logs of rccl-tests, numbers only
RCCL_LOGS = ROOT / "tools" / "rccl_all_reduce.csv"
#: families of machines, whose errors are told apart: those of NVSwitch, but
PCIE, MESH = ("l40s", "rtx-pro-6000"), ("mi300x",)
#: what was not measured on a machine (more than 4 ranks, so no NVLS) is that of a machine with the same chips
BORROWED = {"gb200-nvl72": "hgx-b200", "gb300-nvl72": "hgx-b300"}
NVLS = ("nvls_launch_us", "nvls_gbps")
KINDS = {
    "all_reduce": CollectiveKind.ALL_REDUCE,
    "all_gather": CollectiveKind.ALL_GATHER,
    "reduce_scatter": CollectiveKind.REDUCE_SCATTER,
    "alltoall": CollectiveKind.ALL_TO_ALL,
}


def _nvswitch(
    name: str,
    generation: Generation,
    gbps: float,
    channels: int,
    link: float,
    ranks: int = 8,
    host: str = "intel",
) -> MachineParameters:
    """What the library sees of a machine with NVSwitch: links, as its topology search finds them."""
    return MachineParameters(
        name=name, library="nccl", generation=generation, links="nvlink", node_ranks=ranks, levels=(ranks,),
        search_gbps=(gbps,), channels=channels, nvls_link_gbps=link,
        # measured times on Blackwell have no sign of LL128: one curve of the Simple protocol describes them
        ll128=generation is not Generation.BLACKWELL,
        host="amd" if host == "amd" else "intel", rings={}, exchange=None, evidence=Evidence("assumed", "nothing yet"),
    )  # fmt: skip


def _pcie(name: str, generation: Generation, gbps: tuple[float, ...], channels: int) -> MachineParameters:
    """What the library sees of a machine on PCIe: pairs behind a switch, a socket, two sockets."""
    return MachineParameters(
        name=name, library="nccl", generation=generation, links="pcie", node_ranks=8, levels=(2, 4, 8),
        search_gbps=gbps, channels=channels, nvls_link_gbps=0.0, ll128=False, host="intel", rings={}, exchange=None,
        evidence=Evidence("assumed", "nothing yet"),
    )  # fmt: skip


MACHINES = {
    machine.name: machine
    for machine in (
        _nvswitch("dgx-a100", Generation.AMPERE, 240, 24, 0, host="amd"),
        _nvswitch("hgx-h100", Generation.HOPPER, 360, 24, 370.8),
        _nvswitch("hgx-h200", Generation.HOPPER, 360, 24, 370.8),
        _nvswitch("hgx-b200", Generation.BLACKWELL, 720, 32, 721.8),
        _nvswitch("hgx-b300", Generation.BLACKWELL, 720, 32, 721.8),
        _nvswitch("gb200-nvl72", Generation.BLACKWELL, 720, 32, 721.8, ranks=72),
        _nvswitch("gb300-nvl72", Generation.BLACKWELL, 720, 32, 721.8, ranks=72),
        _pcie("l40s", Generation.AMPERE, (24, 24, 24), 2),
        _pcie("rtx-pro-6000", Generation.BLACKWELL, (48, 48, 24), 4),
        # 7 links of 48 GB/s as RCCL counts them, in 64 channels
        MachineParameters(
            name="mi300x",
            library="rccl",
            generation=Generation.CDNA3,
            links="fabric",
            node_ranks=8,
            levels=(8,),
            search_gbps=(336,),
            channels=64,
            nvls_link_gbps=0.0,
            ll128=False,
            host="amd",
            rings={},
            exchange=None,
            evidence=Evidence("assumed", "nothing yet"),
        ),
    )
}


def family(name: str) -> str:
    """Machines whose errors are told together."""
    return "PCIe" if name in PCIE else "mesh" if name in MESH else "NVSwitch"


def rccl_rows() -> Iterator[tuple[str, Communicator, Measurement]]:
    """All-reduces of RCCL: hardware, where they ran, and the time."""
    with RCCL_LOGS.open(newline="") as file:
        for row in csv.DictReader(file):
            nodes, inner = int(row["nodes"]), int(row["gpus_per_node"])
            comm = Communicator(nodes * inner, inner, float(row["nic_gbps"] or 0))
            kind = CollectiveKind.ALL_REDUCE
            made = Measurement(kind, comm.ranks, int(row["bytes"]), float(row["time_us"]), row["log"])
            yield row["hardware"], comm, made


def measured(hardware: str) -> list[Measurement]:
    """Rows of the published tables on one node, out of place."""
    if hardware.startswith("AMD"):
        return [row for name, comm, row in rccl_rows() if name == hardware and comm.nodes == 1]
    rows = []
    with SINGLE_NODE.open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            if row["hardware"] != hardware:
                continue
            size = re.search(r"bytes=(\d+)", row["notes"])
            if size is None or row["unit"] != "us":
                raise SystemExit(f"{SINGLE_NODE.name}: line {number}: no size, or a unit that is not us")
            ranks = int(row["parallelism"].split()[0])
            where = f"{SINGLE_NODE.name}: line {number}"
            rows.append(
                Measurement(KINDS[row["workload_model"]], ranks, int(size[1]), float(row["value"]), where)
            )
    return rows


def _source(name: str) -> str:
    if name in MESH:
        return f"rccl-tests on 8 {HARDWARE[name]}, all-reduce (tools/{RCCL_LOGS.name} names the logs)"
    return SOURCE.format(HARDWARE[name])


def fits(names: Sequence[str], *, validate: bool) -> Iterator[tuple[str, LibraryFit]]:
    """Fits of machines, those that others borrow from first."""
    done: dict[str, MachineParameters] = {}
    for name in names:
        fit = fit_library(measured(HARDWARE[name]), MACHINES[name], source=_source(name), validate=validate)
        lender = BORROWED.get(name)
        if lender:
            source = done.get(lender) or collective_parameters(lender)
            fit = replace(fit, machine=_borrowing(fit.machine, source))
        done[name] = fit.machine
        yield name, fit


def _borrowing(machine: MachineParameters, lender: MachineParameters) -> MachineParameters:
    kind = CollectiveKind.ALL_REDUCE
    costs = replace(machine.rings[kind], **{key: getattr(lender.rings[kind], key) for key in NVLS})
    source = f"{machine.evidence.source}; NVLS (more than 4 ranks) as measured on {lender.name}"
    return replace(
        machine, rings={**machine.rings, kind: costs}, evidence=replace(machine.evidence, source=source)
    )


#: machines of rows on several nodes, and rates of ports and latencies of networks, by what the rows print
NODES_OF = (("A100", "dgx-a100"), ("GB300", "gb300-nvl72"), ("GB200", "gb200-nvl72"), ("B200", "hgx-b200"),
            ("H200", "hgx-h200"), ("H100", "hgx-h100"))  # fmt: skip
PORTS = (
    ("HDR", 25.0, 0.0),
    ("NDR", 50.0, 0.0),
    ("EFA", 50.0, 35.0),
    ("400 Gb/s RoCE", 50.0, 0.0),
    ("X800", 100.0, 0.0),
)
RACK_SCALE = ("gb200-nvl72", "gb300-nvl72")


@dataclass(frozen=True, slots=True)
class NodesTime:
    """An all-reduce on several nodes beside the model, to which nothing was fitted."""

    group: str
    machine: str
    size_bytes: int
    measured_us: float
    modelled_us: float
    choice: str
    #: group, collective and what the library was held to
    title: str
    #: as the row was compared: the collective, its communicator, and the log's rows print the time to this share
    kind: CollectiveKind
    comm: Communicator
    resolution: float

    @property
    def error(self) -> float:
        return self.modelled_us / self.measured_us - 1


def several_nodes() -> Iterator[NodesTime]:
    """All-reduces on several nodes: costs of one node, the rate of a port and published latencies."""
    for path in SEVERAL_NODES:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                made = _several_nodes(row)
                if made:
                    yield made


#: kinds of rows that are no times of collectives on a machine with a preset, by a word of theirs
_NOT_COMPARED = ("A100-80GB PCIe", "acceptance floor")


def _several_nodes(row: dict[str, str]) -> NodesTime | None:
    if row["workload_model"] != "all_reduce" or int(row["nodes"]) < 2:
        return None
    return _beside(row)


def not_fitted() -> Iterator[NodesTime]:
    """Every collective of the logs that the costs were not fitted to: all sizes, one node and several."""
    for path in SEVERAL_NODES:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                made = _beside(row)
                if made:
                    yield made


def _beside(row: dict[str, str]) -> NodesTime | None:
    """A row beside the model; None: no collective, or of a machine without a preset."""
    size, kind = re.search(r"bytes=(\d+)", row["notes"]), KINDS.get(row["workload_model"])
    if kind is None or size is None or any(word in row["hardware"] + row["metric"] for word in _NOT_COMPARED):
        return None
    name = next(name for word, name in NODES_OF if word in row["hardware"].replace("80GB", ""))
    ranks, nodes, value = int(row["parallelism"].split()[0]), int(row["nodes"]), float(row["value"])
    factor = (2 if kind is CollectiveKind.ALL_REDUCE else 1) * (ranks - 1) / ranks
    time = value if row["unit"] == "us" else int(size[1]) * factor / value / 1e3
    if name in RACK_SCALE:
        # whole racks are joined by NVLink: trays of one rack are one node to the model
        nodes = max(1, -(-ranks // 72)) if ranks % 72 == 0 else 2 if ranks == 128 else 1
    gbps, latency = 0.0, 0.0
    if nodes > 1:
        gbps, latency = next(rest for word, *rest in PORTS if word in row["network"])
    comm = Communicator(ranks, ranks // nodes, gbps, network_us=latency)
    forced = next((f for pattern, f in FORCED if re.search(pattern, row["notes"])), Forced())
    made = library_time(kind, int(size[1]), comm, collective_parameters(name), forced)
    group = f"{name}, {nodes} x {ranks // nodes}"
    title = f"{group}, {kind.lower()}" + (f", {forced.algorithm}" if forced.algorithm else "")
    # half of the last digit that the row prints
    resolution = 0.5 * 10 ** -len(row["value"].partition(".")[2]) / value
    return NodesTime(
        group, name, int(size[1]), time, made.time_ns / 1e3, str(made.choice), title, kind, comm, resolution
    )


#: a log is fitted by half where it holds so many sizes; rows that are printed to a coarser share say no time
LEAST_LOG_SIZES, COARSEST = 10, 0.1


@dataclass(frozen=True, slots=True)
class HalfLog:
    """All-reduces of a log of several nodes, fitted on every second size, beside what the fit says of the others."""

    group: str
    #: rows of the smallest size on (0) or of the second smallest (1)
    half: int
    seen: tuple[FittedTime, ...]
    unseen: tuple[FittedTime, ...]


def half_logs() -> Iterator[HalfLog]:
    """Logs of several nodes, as `chakra calibrate` fits them to one half of their sizes and to the other."""
    logs: dict[str, list[NodesTime]] = {}
    for row in several_nodes():
        if row.machine not in RACK_SCALE and row.resolution <= COARSEST:
            logs.setdefault(row.group, []).append(row)
    for group, rows in logs.items():
        sizes = sorted({row.size_bytes for row in rows})
        if len(sizes) < LEAST_LOG_SIZES:
            continue
        machine, comm = collective_parameters(rows[0].machine), rows[0].comm
        for half in (0, 1):
            seen = [row for row in rows if row.size_bytes in sizes[half::2]]
            fit = fit_library(list(map(_measurement, seen)), machine, nodes=comm, validate=False)
            others = [FitRow(_measurement(row), row.comm) for row in rows if row not in seen]
            yield HalfLog(group, half, fit.times, fitted_times(others, fit.machine))


def _measurement(row: NodesTime) -> Measurement:
    return Measurement(row.kind, row.comm.ranks, row.size_bytes, row.measured_us, row.group)


def _half_log_table() -> list[str]:
    lines = [
        "| machine, nodes x ranks | fitted to sizes | in sample | rows not seen | error on them | all sizes |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    found = list(half_logs())
    titles = ("1st, 3rd, ...", "2nd, 4th, ...")
    rows = [(log.group, titles[log.half], log.seen, log.unseen) for log in found]
    for half, title in enumerate(titles):
        own = [log for log in found if log.half == half]
        seen_of_all = tuple(time for log in own for time in log.seen)
        rows.append(("**all**", title, seen_of_all, tuple(time for log in own for time in log.unseen)))
    for group, title, seen, unseen in rows:
        large = sum(t.measurement.size_bytes >= LARGE_BYTES for t in unseen)
        lines.append(
            f"| {group} | {title} | {percent(mean_error(seen, LARGE_BYTES))} | {large} "
            f"| {percent(mean_error(unseen, LARGE_BYTES))} | {percent(mean_error(unseen))} |"
        )
    return lines


FORCED = (
    ("forced Ring", Forced(Algorithm.RING)),
    ("forced NVLSTree", Forced(Algorithm.NVLS_TREE)),
    ("NCCL_NVLS_ENABLE=0", Forced(Algorithm.RING)),
    (r"Ring \(NVLS off\)", Forced(Algorithm.RING)),
    (r"; Ring$", Forced(Algorithm.RING)),
)


def nodes_errors() -> None:
    """Print errors on several nodes from 1 MiB up."""
    rows = [row for row in several_nodes() if row.size_bytes >= LARGE_BYTES]
    print("\nall-reduce on several nodes, 1 MiB and up, nothing fitted")
    print(f"{'nodes x ranks':24} {'rows':>4}  error %")
    for group in dict.fromkeys(row.group for row in rows):
        own = [abs(row.error) for row in rows if row.group == group]
        print(f"{group:24} {len(own):4d}  {percent(sum(own) / len(own))}")
    for title, racks in (("servers", False), ("racks", True)):
        own = [abs(row.error) for row in rows if (row.machine in RACK_SCALE) == racks]
        print(f"{'all ' + title:24} {len(own):4d}  {percent(sum(own) / len(own))}")


def percent(value: float) -> str:
    return "" if value != value else f"{100 * value:.1f}"


def _line(name: str, collective: str, groups: Sequence[Sequence[FittedTime]]) -> str:
    cells = [f"{percent(mean_error(g, LARGE_BYTES)):>6} {percent(mean_error(g)):>6}" for g in groups]
    return f"{name:13} {collective:15} {len(groups[0]):5d}  " + "  ".join(cells)


#: sizes of the bands of the guide's table
BANDS = ((0, 1 << 15), (1 << 15, 1 << 20), (1 << 20, 1 << 25), (1 << 25, 1 << 60))
SPLITS = ("every second size", "4 ranks", "2 ranks", "8 ranks")


def page_tables() -> dict[str, str]:
    """Tables of the guide: in sample by size, held out, and on several nodes."""
    by_size = ["| machine | collective | rows | below 32 KiB | to 1 MiB | to 32 MiB | above | all | from 1 MiB |",
               "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    titles = ("in sample", *(f"without {split}" for split in SPLITS))
    held = [f"| machine | {' | '.join(titles)} |", "| --- |" + " --- |" * len(titles)]
    groups: dict[str, dict[str, list[FittedTime]]] = {}
    pooled: dict[str, list[list[FittedTime]]] = {
        "NVSwitch": [[] for _ in titles],
        "PCIe": [[] for _ in titles],
        "mesh": [[] for _ in titles],
    }
    for name, fit in fits(list(HARDWARE), validate=True):
        for kind in KINDS.values():
            own = [t for t in fit.times if t.measurement.kind is kind]
            if not own:
                continue
            groups.setdefault(family(name), {})[f"{name} {kind.lower()}"] = own
            bands = [[t for t in own if least <= t.measurement.size_bytes < most] for least, most in BANDS]
            cells = [percent(mean_error(times)) for times in (*bands, own)]
            by_size.append(
                f"| {name} | {kind.lower()} | {len(own)} | {' | '.join(cells)} "
                f"| {percent(mean_error(own, LARGE_BYTES))} |"
            )
        unseen = {split.name: split.times for split in fit.splits}
        shown = [fit.times, *(unseen.get(split, ()) for split in SPLITS)]
        held.append(f"| {name} | {' | '.join(map(_pair, shown))} |")
        for total, group in zip(pooled[family(name)], shown, strict=True):
            total.extend(group)
    held += [f"| **all, {kin}** | {' | '.join(map(_pair, times))} |" for kin, times in pooled.items()]
    nodes = ["| machine, nodes x ranks | rows | error % |", "| --- | --- | --- |"]
    rows = [row for row in several_nodes() if row.size_bytes >= LARGE_BYTES]
    for cluster in dict.fromkeys(row.group for row in rows):
        errors_ = [abs(row.error) for row in rows if row.group == cluster]
        nodes.append(f"| {cluster} | {len(errors_)} | {percent(sum(errors_) / len(errors_))} |")
    for title, racks in (("servers", False), ("racks", True)):
        errors_ = [abs(row.error) for row in rows if (row.machine in RACK_SCALE) == racks]
        nodes.append(f"| **all {title}** | {len(errors_)} | {percent(sum(errors_) / len(errors_))} |")
    return {
        "by size": "\n".join(by_size),
        "worst": "\n".join(_worst_table(groups)),
        "held out": "\n".join(held),
        "several nodes": "\n".join(nodes),
        "rccl": "\n".join(_rccl_table()),
        "half a log": "\n".join(_half_log_table()),
        "not fitted": "\n".join(_not_fitted_table()),
    }


def _worst_table(groups: Mapping[str, Mapping[str, Sequence[FittedTime]]]) -> list[str]:
    """The machine and collective that a family's model is farthest from, in sample."""
    lines = [
        "| machines | worst over all sizes | error % | worst from 1 MiB up | error % |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kin, own in groups.items():
        cells = []
        for least in (0, LARGE_BYTES):
            errors_ = {title: mean_error(times, least) for title, times in own.items()}
            worst = max(errors_, key=errors_.__getitem__)
            cells.append(f"{worst} | {percent(errors_[worst])}")
        lines.append(f"| {kin} | {' | '.join(cells)} |")
    return lines


def _rccl_table() -> list[str]:
    """RCCL on two nodes: the costs of one, the rate of a port, and published hops."""
    lines = [
        "| log | below 1 MiB: rows, error % | to 128 MiB | above | signed mean % |",
        "| --- | --- | --- | --- | --- |",
    ]
    logs: dict[str, list[tuple[int, float]]] = {}
    machine = collective_parameters(MESH[0])
    for hardware, comm, row in rccl_rows():
        if comm.nodes > 1:
            made = library_time(row.kind, row.size_bytes, comm, machine).time_ns / 1e3
            title = f"{hardware}, {row.source}"
            logs.setdefault(title, []).append((row.size_bytes, made / row.time_us - 1))
    for title, own in logs.items():
        cells = []
        for least, most in ((0, LARGE_BYTES), (LARGE_BYTES, (128 << 20) + 1), ((128 << 20) + 1, 1 << 60)):
            found = [abs(error) for size, error in own if least <= size < most]
            cells.append(f"{len(found)}, {percent(sum(found) / len(found))}" if found else "")
        bias = sum(error for _, error in own) / len(own)
        lines.append(f"| {title} | {' | '.join(cells)} | {100 * bias:+.1f} |")
    return lines


def _not_fitted_table() -> list[str]:
    lines = [
        "| machine, nodes x ranks, collective | below 1 MiB: rows, error % | to 32 MiB | above | signed mean % |",
        "| --- | --- | --- | --- | --- |",
    ]
    rows = list(not_fitted())
    for title in dict.fromkeys(row.title for row in rows):
        own = [row for row in rows if row.title == title]
        cells = []
        for least, most in ((0, LARGE_BYTES), (LARGE_BYTES, 1 << 25), (1 << 25, 1 << 60)):
            found = [abs(row.error) for row in own if least <= row.size_bytes < most]
            cells.append(f"{len(found)}, {percent(sum(found) / len(found))}" if found else "")
        bias = sum(row.error for row in own) / len(own)
        lines.append(f"| {title} | {' | '.join(cells)} | {100 * bias:+.1f} |")
    return lines


def _pair(times: Sequence[FittedTime]) -> str:
    return f"{percent(mean_error(times, LARGE_BYTES))} / {percent(mean_error(times))}" if times else ""


#: tables of the pages, by name
TABLES = ("by size", "worst", "held out", "several nodes", "half a log", "not fitted", "rccl")


def renewed_pages() -> dict[Path, str]:
    """The pages with their tables made anew."""
    tables = page_tables()
    return {
        page: renewed(page.read_text(encoding="utf-8"), "library errors", tables, tables.__getitem__)
        for page in PAGES
    }


def errors(names: Sequence[str]) -> None:
    """Print the table: mean of absolute relative errors from 1 MiB up and over all sizes, per split."""
    titles = ("in sample", "every second size", "4 ranks", "2 ranks", "8 ranks")
    print(f"{'':13} {'':15} {'rows':>5}  " + "  ".join(f"{title:>13.13}" for title in titles))
    print(f"{'machine':13} {'collective':15} {'':5}  " + "  ".join(f"{'1M+':>6} {'all':>6}" for _ in titles))
    pooled: dict[str, list[list[FittedTime]]] = {}
    worst = (0.0, "")
    for name, fit in fits(names, validate=True):
        by_title = {"in sample": fit.times, **{split.name: split.times for split in fit.splits}}
        total = pooled.setdefault(family(name), [[] for _ in titles])
        for kind in KINDS.values():
            groups = [[t for t in by_title.get(title, ()) if t.measurement.kind is kind] for title in titles]
            if not groups[0]:
                continue
            print(_line(name, kind.lower(), groups))
            worst = max(worst, (mean_error(groups[0]), f"{name} {kind.lower()}"))
            for own, group in zip(total, groups, strict=True):
                own.extend(group)
    for kin, groups in pooled.items():
        print(_line(kin, "all", groups))
    print(f"worst in sample, all sizes: {worst[1]}, {percent(worst[0])} %")


def made(names: Sequence[str]) -> Iterator[tuple[Path, str, LibraryFit]]:
    """Files of costs, as a fit makes them now."""
    for name, fit in fits(names, validate=False):
        yield PRESETS / f"{name}.yml", parameters_text(fit.machine), fit


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", nargs="?", choices=["fit", "page", "errors"])
    parser.add_argument("names", nargs="*", choices=[*HARDWARE, []], help="presets (default: all)")
    parser.add_argument("--check", action="store_true", help="fail if costs or page are not in step")
    arguments = parser.parse_args()
    names = arguments.names or list(HARDWARE)
    if not SINGLE_NODE.exists():
        sys.exit(f"needs the measured times in {VALIDATION}")
    if arguments.check:
        write_or_check({**renewed_pages(), **{path: text for path, text, _ in made(names)}}, "fit_library.py")
    elif arguments.action == "fit":
        for path, text, fit in made(names):
            path.write_text(text, encoding="utf-8")
            rows = f"{len(fit.times)} rows, mean error {percent(mean_error(fit.times))} %"
            print(f"{path.relative_to(ROOT)}: {rows}")
    elif arguments.action == "page":
        for page, text in renewed_pages().items():
            page.write_text(text, encoding="utf-8")
    else:
        errors(names)
        nodes_errors()


if __name__ == "__main__":
    main()
