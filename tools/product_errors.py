"""How far measured tables of matrix products are from themselves, and what they change in measured steps.

    python tools/product_errors.py tables [MACHINE ...]  products left out, and taken from their neighbours or the model
    python tools/product_errors.py steps [FAMILY ...]  steps that others measured, predicted without and with each table

Needs the extra ``silicon``. Every second value of m, or of m, n and k, is left out of a table; the model's errors are on
the same products. Steps keep their collectives: of the package only products count. Rows of machines that have another
memory or peak than the preset have no tables, and are left out.
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from chakra.accuracy import Case, Quantity, measured_rows, read_case
from chakra.arrays import F64, I64, Bool
from chakra.et.operators import MatrixProduct
from chakra.generate.plan.training import build_workload
from chakra.io.digits import decimal_number
from chakra.platforms import load_platform
from chakra.replay import simulate
from chakra.replay.compute import ComputeParameters, compute_parameters
from chakra.replay.compute.matmul import matrix_us
from chakra.replay.compute.measured_products import Grid, grid_of
from chakra.replay.compute.product_tables import PREFERRED, read_products
from chakra.replay.config import silicon

MACHINES = ("dgx-a100", "hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72", "gb300-nvl72")
#: products above this are most of a training step, us
LARGE_US = 200.0


def products(grid: Grid) -> I64:
    """(3, products) m, n and k of a grid."""
    where = np.unravel_index(grid.places, tuple(len(axis) for axis in grid.axes))
    return np.stack([axis[index] for axis, index in zip(grid.axes, where, strict=True)])


def left_out(grid: Grid, sizes: I64, axes: tuple[int, ...]) -> tuple[Bool, Bool]:
    """Which products are taken from their neighbours, and which are kept: every second value of each of some axes."""
    out = np.ones(sizes.shape[1], np.bool_)
    kept = np.ones(sizes.shape[1], np.bool_)
    for axis in axes:
        values = grid.axes[axis]
        odd = (np.searchsorted(values, sizes[axis]) % 2 == 1) & (sizes[axis] < values[-1])
        out &= odd
        kept &= ~odd
    return out, kept


def model_us(sizes: I64, parameters: ComputeParameters) -> F64:
    """Times of the model."""
    made = [MatrixProduct(m, n, k) for m, n, k in sizes.T.tolist()]
    return matrix_us(made, parameters.matmul["bf16"], parameters)


def table_errors(machine: str) -> Iterator[str]:
    """A row of errors, in %, for each back end: model and table, of all products and of large ones."""
    parameters = compute_parameters(machine)
    for backend in PREFERRED:
        (table,) = read_products((f"{silicon.NAME}/{backend}",), machine, "tables").tables
        grid = table.grid("bf16")
        assert grid is not None
        sizes, cells = products(grid), [machine, table.name.rpartition(", ")[2].rstrip(")")]
        modelled = model_us(sizes, parameters)
        for axes in ((0,), (0, 1, 2)):
            out, kept = left_out(grid, sizes, axes)
            again = grid_of(sizes[:, kept], grid.times_us[kept]).at(sizes[:, out])
            times, large = grid.times_us[out], grid.times_us[out] > LARGE_US
            for made in (modelled[out], again):
                errors = 100 * np.abs(made / times - 1)
                cells += [f"{np.nanmean(errors):.1f}", f"{np.nanmean(errors[large]):.1f}"]
        yield "| " + " | ".join(cells) + " |"


def step_errors(families: list[str]) -> Iterator[str]:
    """Errors of steps that were not tuned on, by family and machine: in %, without a table and with each.

    Behind a table's errors stands the share of the operators' time that is measured, in the mean of its rows.
    """
    rows: dict[tuple[str, str], list[Case]] = {}
    for case in map(read_case, measured_rows()):
        if not isinstance(case, Case) or case.row.tuned or case.quantity is not Quantity.STEP:
            continue
        own = load_platform(case.machine.preset).accelerator
        if case.machine.platform().accelerator == own and (not families or case.family in families):
            rows.setdefault((case.family, case.machine.preset), []).append(case)
    for (family, machine), cases in rows.items():
        cells = [family, machine, str(len(cases))]
        for backend in ("", *PREFERRED):
            found = [step(case, f"{silicon.NAME}/{backend}" if backend else None) for case in cases]
            errors = 100 * np.array(
                [time / case.measured - 1 for (time, _), case in zip(found, cases, strict=True)]
            )
            share = float(np.mean([share for _, share in found]))
            cells.append(
                f"{np.abs(errors).mean():.1f} ({errors.mean():+.1f}){f', {share:.0f}' if backend else ''}"
            )
        yield "| " + " | ".join(cells) + " |"


def step(case: Case, products: str | None) -> tuple[float, float]:
    """Seconds of a step, and the share of the operators' time that is measured, in %."""
    platform = case.machine.platform()
    system = {**platform.system(), **({"operator-times": products} if products else {})}
    workload = build_workload(replace(case.request, fuse=True).plan(), names=False)
    result = simulate(workload, system, platform.network())
    said = [re.search(r"of all ranks, ([0-9.]+) % of their time", note) for note in result.notes]
    share = next((decimal_number(found[1]) for found in said if found), 0.0)
    return float(result.finish_ns.max()) / 1e9, share


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["tables", "steps"])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="machines, or families of measured rows; default: all"
    )
    args = parser.parse_args()
    found = (
        step_errors(args.names)
        if args.command == "steps"
        else chain.from_iterable(map(table_errors, args.names or MACHINES))
    )
    for row in found:
        print(row, flush=True)


if __name__ == "__main__":
    main()
