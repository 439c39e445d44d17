"""Make the presets' constants of operator times, and say how far they are from measured matrix products.

    python tools/fit_compute.py fit [NAME ...]  fit, and write chakra/presets/compute/NAME.yml
    python tools/fit_compute.py errors [NAME ...]  table of errors by machine and size, on rows that were not fitted to

Every second row of the measurements is fitted to. Those of products lie beside the repository (``../shared/validation``),
those of attention beside this file: numbers only, one row each with its source. What is not measured comes from data
sheets and is marked so.
"""

import argparse
import csv
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from chakra.arrays import F64
from chakra.et.operators import Attention, Direction
from chakra.platforms import load_platform
from chakra.platforms.compute import constants_text
from chakra.replay.compute import (
    AttentionCosts,
    ComputeParameters,
    FitError,
    MatmulCosts,
    MemoryCosts,
    SystolicArray,
    compute_parameters,
)
from chakra.replay.compute.attention import attention_us
from chakra.replay.compute.matmul import product_us

ROOT = Path(__file__).resolve().parent.parent
PRESETS = ROOT / "chakra" / "presets" / "compute"
PRODUCTS = ROOT.parent / "shared" / "validation" / "gemm_aiconfigurator_sample.csv"
SOURCE = "ai-dynamo/aiconfigurator, matrix products (Apache-2.0), {}"
#: times of fused attention in bf16: NVIDIA/cudnn-frontend (MIT)
ATTENTION = ROOT / "tools" / "measured_attention.csv"
#: operations from which a product counts as large
LARGE_FLOPS = 1e11


@dataclass(frozen=True)
class Machine:
    """What is known of a machine beside its preset."""

    units: int
    #: hardware of the measurements, or the preset whose shares it borrows
    measured: str = ""
    like: str = ""
    #: peak by element type in units of that of bf16, and reachable share of it where measured ("" : that of bf16)
    peaks: Mapping[str, float] | None = None
    shares: Mapping[str, float] | None = None
    #: (rate, peak) of the best product that somebody found, in 16 bits: the ceiling where no surface was measured
    best: tuple[float, float] | None = None
    #: arrays, rows and columns of systolic arrays, with the result in them
    arrays: tuple[int, int, int] | None = None
    memory: tuple[float, float] = (0.82, 2.5)
    attention: tuple[float, float] = (0.6, 0.5)
    #: machine whose measured attention counts, and the head below which it is no faster there
    attends_like: str = ""
    least_head: int = 0


_AMPERE = {"tf32": 0.5, "fp32": 19.5 / 312, "fp64": 19.5 / 312, "int8": 2}
_HOPPER = {"tf32": 0.5, "fp32": 67 / 989, "fp64": 67 / 989, "fp8": 2}
_BLACKWELL = {"tf32": 0.5, "fp32": 75 / 2250, "fp64": 37 / 2250, "fp8": 2, "nvfp4": 4}
_MI300X = {"tf32": 0.5, "fp32": 0.125, "fp64": 0.125, "fp8": 2}
#: bytes of a cast from 16 bits: read, written, written transposed
CAST_BYTES = {"fp8": 4.0, "nvfp4": 3.0}
MAMF = "stas00/ml-engineering, best matrix product found"
#: best shares of the 8-bit peak, and best 16-bit products: stas00/ml-engineering, MAMF table
MACHINES = {
    "dgx-a100": Machine(
        108, "NVIDIA A100-SXM4-80GB", peaks=_AMPERE, memory=(0.8, 2.5), attention=(0.62, 0.5)
    ),
    "hgx-h100": Machine(
        132,
        "NVIDIA H100 SXM",
        peaks=_HOPPER,
        shares={"fp8": 1402.6 / 1979},
        attends_like="hgx-h200",
        least_head=96,
    ),
    "hgx-h200": Machine(
        132,
        "NVIDIA H200 SXM",
        peaks=_HOPPER,
        shares={"fp8": 1453.4 / 1979},
        attends_like="hgx-h200",
        least_head=96,
    ),
    "hgx-b200": Machine(
        148,
        "NVIDIA B200 SXM",
        peaks=_BLACKWELL,
        shares={"fp8": 3432.5 / 4500},
        attends_like="gb200-nvl72",
        least_head=128,
    ),
    "gb200-nvl72": Machine(
        148,
        "NVIDIA GB200",
        peaks=_BLACKWELL,
        shares={"fp8": 3615.6 / 5000},
        attends_like="gb200-nvl72",
        least_head=128,
    ),
    "hgx-b300": Machine(
        148,
        like="hgx-b200",
        peaks=_BLACKWELL,
        shares={"fp8": 3353.3 / 4500},
        attends_like="gb300-nvl72",
        least_head=128,
    ),
    "gb300-nvl72": Machine(
        148, like="gb200-nvl72", peaks=_BLACKWELL, attends_like="gb300-nvl72", least_head=128
    ),
    "mi300x": Machine(304, like="hgx-h100", peaks=_MI300X, best=(668.4, 1300)),
    # units: tensor cores, which compute all but matrix products
    "hls-2": Machine(
        24,
        like="hgx-h100",
        peaks={"fp8": 2},
        shares={"fp8": 826.5 / 865},
        best=(418.7, 432),
        arrays=(2, 256, 256),
    ),
    "hls-3": Machine(
        64,
        like="hgx-h100",
        peaks={"fp8": 1},
        shares={"fp8": 1289.5 / 1677},
        best=(1243.0, 1677),
        arrays=(8, 256, 256),
    ),
}


# ---------------------------------------------------------------------------------------------------------- measurements


def measured(hardware: str) -> tuple[F64, F64]:
    """Sizes (4, rows) and times in us of the measured products of a machine."""
    found = []
    with PRODUCTS.open(newline="") as file:
        for row in csv.DictReader(file):
            sizes = re.fullmatch(r"gemm m(\d+) n(\d+) k(\d+)", row["workload_model"])
            if row["hardware"] == hardware and sizes:
                found.append((*map(float, sizes.groups()), 1.0, float(row["value"])))
    table: F64 = np.array(found).T
    return table[:4], table[4]


def moved(sizes: F64) -> F64:
    """Bytes of the matrices in 16 bits."""
    m, n, k, batch = sizes
    out: F64 = 2 * batch * (m * k + k * n + m * n)
    return out


# ------------------------------------------------------------------------------------------------------------------- fit

_FITTED = ("efficiency", "memory_efficiency", "launch_us", "fill_k", "small_tile", "split_k")
_START = (0.8, 0.8, 3.0, 100.0, 0.1, 2.0)


def fitted(sizes: F64, times: F64, peak: float, memory: MemoryCosts, units: int) -> MatmulCosts:
    """Costs that come closest to the times, by logarithms; far rows count less (soft L1)."""
    bytes_ = moved(sizes)

    def costs(logs: F64) -> MatmulCosts:
        values = dict(zip(_FITTED, np.exp(logs).tolist(), strict=True))
        for share in ("efficiency", "memory_efficiency"):
            values[share] = min(values[share], 1.0)
        return MatmulCosts(peak, **values)

    def residuals(logs: F64) -> F64:
        out: F64 = np.log(product_us(sizes, bytes_, costs(logs), memory, units) / times)
        return out

    return costs(least(residuals, np.log(_START)))


def least(residuals: Callable[[F64], F64], start: F64, scale: float = 0.1) -> F64:
    """Levenberg and Marquardt's least squares with soft-L1 weights."""
    damping = 1e-2
    x: F64 = start.copy()

    def cost(r: F64) -> float:
        return float((np.sqrt(1 + (r / scale) ** 2) - 1).sum())

    r = residuals(x)
    for _ in range(200):
        weights = (1 + (r / scale) ** 2) ** -0.25
        jacobian = np.empty((len(r), len(x)))
        for k in range(len(x)):
            step = x.copy()
            step[k] += 1e-4
            jacobian[:, k] = (residuals(step) - r) / 1e-4
        j, w = jacobian * weights[:, None], r * weights
        normal = j.T @ j
        for _ in range(12):
            move = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -j.T @ w)
            trial = x + np.clip(move, -0.5, 0.5)
            tried = residuals(trial)
            if cost(tried) < cost(r):
                gain, x, r, damping = cost(r) - cost(tried), trial, tried, max(damping / 5, 1e-9)
                break
            damping *= 5
        else:
            return x
        if gain < 1e-9 * cost(r):
            return x
    return x


def error_of(sizes: F64, times: F64, costs: MatmulCosts, memory: MemoryCosts, units: int) -> FitError:
    """Errors on rows."""
    errors = np.abs(product_us(sizes, moved(sizes), costs, memory, units) / times - 1)
    large = 2 * sizes[0] * sizes[1] * sizes[2] > LARGE_FLOPS
    return FitError(len(times), float(errors.mean()), int(large.sum()), float(errors[large].mean()))


def constants(name: str, done: Mapping[str, ComputeParameters]) -> ComputeParameters:
    """Constants of a machine: fitted, or those of a like machine at its own peaks."""
    machine, platform = MACHINES[name], load_platform(name)
    peak = platform.accelerator.peak_tflops
    memory = MemoryCosts(platform.accelerator.mem_gbps, *machine.memory)
    errors: dict[str, FitError] = {}
    #: fused attention reaches no larger share of the best product than on the machine that is borrowed from
    scale = 1.0
    if machine.measured:
        sizes, times = measured(machine.measured)
        own = rounded(fitted(sizes[:, ::2], times[::2], peak, memory, machine.units))
        errors["bf16"] = error_of(sizes[:, 1::2], times[1::2], own, memory, machine.units)
        source, status = SOURCE.format(machine.measured), "fitted"
    else:
        like = done[machine.like] if machine.like in done else compute_parameters(machine.like)
        own = replace(like.matmul["bf16"], peak_tflops=peak)
        source, status = f"peaks of the data sheet, shares of {machine.like}", "datasheet"
        if machine.best is not None:
            rate, _ = machine.best
            scale = min(1.0, rate / peak / own.efficiency)
            own = rounded(replace(own, efficiency=rate / peak))
            source, status = f"{MAMF} ({rate:g} 10^12 op/s); the rest is that of {machine.like}", "ceiling"
    matmul = {"bf16": own}
    for element, factor in (machine.peaks or {}).items():
        share = (machine.shares or {}).get(element, own.efficiency)
        cast = CAST_BYTES.get(element, 0.0)
        matmul[element] = replace(own, peak_tflops=peak * factor, efficiency=share, cast_bytes=cast)
    shares = machine.attention
    if machine.attends_like:
        shares, _ = attention_shares(machine.attends_like)
    forward, backward = (float(f"{share * scale:.3g}") for share in shares)
    attention = AttentionCosts(forward, backward, least_head=machine.least_head)
    return ComputeParameters(
        name,
        platform.accelerator.name,
        machine.units,
        matmul,
        memory,
        attention,
        systolic=systolic(machine, peak),
        status=status,  # type: ignore[arg-type]
        source=source,
        errors=errors,
    )


def attention_shares(name: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """Shares of the peak of fused attention forward and backward on a machine, and their errors.

    Fitted to every second measured row (the least mean logarithm); the errors are those of the others.
    """
    machine, device = MACHINES[name], load_platform(name).accelerator
    peak, memory = device.peak_tflops, MemoryCosts(device.mem_gbps, *machine.memory)
    with ATTENTION.open(newline="") as file:
        rows = [
            row for row in csv.DictReader(line for line in file if line[0] != "#") if row["machine"] == name
        ]
    shares, errors = [], []
    for direction in (Direction.FORWARD, Direction.BACKWARD):
        cores = [(core_of(row), float(row["ms"])) for row in rows if row["pass"] == direction.value]

        def logs(share: float, cores: list[tuple[Attention, float]]) -> F64:
            costs = MatmulCosts(peak, 1.0, 1.0, 0.0)
            attention = AttentionCosts(share, share, least_head=machine.least_head)
            made = ComputeParameters("", "", machine.units, {"bf16": costs}, memory, attention)
            out: F64 = np.log([attention_us(core, made, costs) / 1e3 / ms for core, ms in cores])
            return out

        best = min(
            np.arange(0.2, 1.0, 0.01).tolist(), key=lambda share: np.abs(logs(share, cores[::2])).mean()
        )
        shares.append(round(best, 2))
        errors.append(float(np.abs(np.exp(logs(best, cores[1::2])) - 1).mean()))
    return (shares[0], shares[1]), (errors[0], errors[1])


def core_of(row: Mapping[str, str]) -> Attention:
    """The attention of a measured row."""
    batch, heads, kv_heads, sequence, head, value, causal, window = (
        int(row[key])
        for key in ("batch", "heads", "kv_heads", "sequence", "head", "value_head", "causal", "window")
    )
    return Attention(
        batch, heads, kv_heads, sequence, sequence, head, value_head=value if value != head else 0, causal=bool(causal),
        window=window, direction=Direction(row["pass"]),
    )  # fmt: skip


def systolic(machine: Machine, peak: float) -> SystolicArray | None:
    """Arrays whose clock makes the peak."""
    if machine.arrays is None:
        return None
    arrays, rows, columns = machine.arrays
    clock = float(f"{peak * 1e3 / (2 * arrays * rows * columns):.4g}")
    return SystolicArray(rows, columns, arrays, clock, stationary="output", overlapped=True)


def rounded(costs: MatmulCosts) -> MatmulCosts:
    """Costs as the file will have them."""
    values = {item.name: getattr(costs, item.name) for item in fields(costs)}
    return MatmulCosts(**{name: float(f"{v:.4g}") if v > 1e-6 else 0.0 for name, v in values.items()})


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["fit", "errors"])
    parser.add_argument("names", nargs="*", metavar="NAME", help="presets; default: all")
    args = parser.parse_args()
    done: dict[str, ComputeParameters] = {}
    for name in args.names or MACHINES:
        done[name] = constants(name, done)
        if args.command == "fit":
            (PRESETS / f"{name}.yml").write_text(constants_text(done[name]), encoding="utf-8")
    for name, made in done.items():
        for element, error in made.errors.items():
            print(
                f"{name:12} {element}: {error.rows} rows held out, mean error {100 * error.mean_error:.1f} %; "
                f"{error.large_rows} large ones, {100 * error.large_error:.1f} %; {made.matmul[element]}"
            )
    for name in sorted({machine.attends_like for machine in MACHINES.values()} - {""}):
        shares, held = attention_shares(name)
        print(
            f"{name:12} attention: shares {shares}, mean errors on rows held out {100 * held[0]:.1f} % forward, "
            f"{100 * held[1]:.1f} % backward"
        )


if __name__ == "__main__":
    main()
