"""Make the table that intervals rest on: what the prediction of every measured row was off by.

    chakra accuracy --rows --format json > rows.json
    python tools/residuals.py rows.json [--check]

The run must be of all rows that ship (minutes). A row of the table is a job and predicted over measured time.
"""

import argparse
import csv
import io
import json
from pathlib import Path
from typing import Any

from made_files import write_or_check

from chakra.accuracy import Case, measured_rows, read_case

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "chakra" / "accuracy" / "residuals.csv"
COLUMNS = (
    "family", "machine", "framework", "dtype", "npus", "parameters", "tp", "cp", "ep", "pp", "micro_batch", "experts",
    "states", "ratio", "tuned",
)  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """The table from the rows of ``chakra accuracy --rows``.

    Raises
    ------
    SystemExit
        Rows of another run than one of all rows.
    """
    cases = [case for case in map(read_case, measured_rows()) if isinstance(case, Case)]
    if len(rows) != len(cases):
        raise SystemExit(
            f"{len(rows)} rows were predicted, but {len(cases)} ship: run chakra accuracy on all"
        )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for case, row in zip(cases, rows, strict=True):
        if (case.family, case.machine.preset, case.measured) != (
            row["family"],
            row["machine"],
            row["measured"],
        ):
            raise SystemExit(f"row {row} is not that of {case.family}, {case.machine.preset}")
        if case.quantity.value != "step time" or row["predicted"] is None:
            continue
        request = case.request
        degrees = request.parallel()
        model = request.config()
        writer.writerow(
            (
                case.family, case.machine.preset, case.framework, request.matmul_dtype or request.dtype,
                case.machine.npus, f"{model.matrix_parameters:.3g}", degrees.tp, degrees.cp, degrees.ep, degrees.pp,
                request.micro_batch, int(bool(model.experts)), int(model.has_states),
                f"{row['predicted'] / row['measured']:.4f}", int(bool(case.row.tuned)),
            )
        )  # fmt: skip
    return out.getvalue()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path)
    parser.add_argument("--check", action="store_true", help="fail instead of writing")
    options = parser.parse_args()
    rows = json.loads(options.rows.read_text(encoding="utf-8"))["rows"]
    write_or_check({TARGET: table(rows)}, "residuals.py ROWS")


if __name__ == "__main__":
    main()
