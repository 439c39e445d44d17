"""Runs of one collective after the other on a machine with a collective library, made for tests."""

from pathlib import Path
from typing import Any

from chakra.builder import TraceBuilder, Workload
from chakra.platforms import collective_parameters
from chakra.replay import ReplayResult, simulate

MIB = 1 << 20
LIBRARY = {"collective-library": "nccl", "collective-costs": "hgx-h100"}
PLAIN = {
    "endpoint-delay": 10,
    "preferred-dataset-splits": 4,
}
H100 = collective_parameters("hgx-h100")


def network(*npus: int) -> dict[str, Any]:
    rates = [419.095159, 46.566129][: len(npus)]
    return {
        "topology": ["Switch"] * len(npus), "npus_count": list(npus), "bandwidth": rates, "latency": [500.0] * len(npus),
    }  # fmt: skip


def system(**changes: Any) -> dict[str, Any]:
    one = {
        f"{kind}-implementation": ["ring"]
        for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    }
    return {**PLAIN, **LIBRARY, **one, **{key.replace("_", "-"): value for key, value in changes.items()}}


def groups_of(npus: int, size: int, stride: int) -> dict[str, list[int]]:
    """Groups of equal size: neighbours `stride` apart."""
    found: dict[str, list[int]] = {}
    for npu in range(npus):
        block, rest = divmod(npu, size * stride)
        found.setdefault(str(1 + block * stride + rest % stride), []).append(npu)
    return found


def job(
    folder: Path,
    npus: int,
    kind: str,
    size_bytes: int,
    groups: dict[str, list[int]] | None = None,
    times: int = 2,
    apart: int = 3,
) -> Path:
    """Every NPU runs some collectives one after the other, in its group or with all."""
    workload = Workload(npus)
    names = {}
    for ranks in (groups or {}).values():
        names.update(dict.fromkeys(ranks, workload.add_group(ranks)))

    def program(b: TraceBuilder) -> None:
        last: Any = b.compute("f", duration_micros=1 + b.rank % apart)
        for _ in range(times):
            last = b.collective(kind, size_bytes=size_bytes, group=names.get(b.rank), after=last)

    workload.run(program)
    workload.write(folder / "w")
    return folder / "w"


def run(folder: Path, machine: dict[str, Any], net: dict[str, Any], **options: Any) -> ReplayResult:
    groups = folder / "w.groups.json"
    return simulate(folder / "w", machine, net, comm_groups=groups if groups.exists() else None, **options)
