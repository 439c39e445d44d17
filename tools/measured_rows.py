"""Make the tables of measured training steps that ship with the package from tables in the shared columns.

    python tools/measured_rows.py FOLDER [--check]

FOLDER holds ``training_*.csv``. Columns that are the same in all rows of a table are written once, in its head. Rows
whose source has no licence that allows it are not taken (``LEFT_OUT``), nor are notes that repeat the measured value.
The column ``tuned`` marks the rows that constants of a framework were tuned on: a rule by the position of a row in its
table (``TUNED``), never by its value.
"""

import argparse
import csv
import io
import re
from pathlib import Path

from made_files import write_or_check

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "chakra" / "accuracy" / "measured"
#: tables that are compared with from a file, but do not ship: the licence of the source is not checked
LEFT_OUT = ("training_hf_ultrascale_h100",)
#: table -> every how many-th row was tuned on (from the first); 0: none
TUNED = {
    "training_vtrain_single": 8,
    "training_llm_foundry_fsdp": 5,
    "training_dgxc_h100": 2,
    "training_megatron_bridge": 0,
}
#: what repeats the value in other units, or is of no use to a prediction
_NOISE = re.compile(
    r"(model |hardware )?TFLOP/s(/GPU|/chip|/device)?\s*=?\s*[\d.]+;? ?|MFU=[\d.]+; HFU=[\d.]+; model TFLOP/s=\d+; |"
    r"CPU offload=False; params=\d+; "
)


def compact(text: str, every: int) -> str:
    """The table of a package from one in the shared columns."""
    rows = list(csv.DictReader(io.StringIO(text)))
    for number, row in enumerate(rows):
        row["notes"] = _NOISE.sub("", row["notes"]).strip("; ")
        row["tuned"] = "1" if every and number % every == 0 else ""
    columns = list(rows[0])
    shared = {name for name in columns if len({row[name] for row in rows}) == 1}
    out = io.StringIO()
    for name in columns:
        if name in shared and rows[0][name]:
            out.write(f"# {name}: {rows[0][name]}\n")
    varying = [name for name in columns if name not in shared]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(varying)
    writer.writerows([row[name] for name in varying] for row in rows)
    return out.getvalue()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="fail instead of writing")
    options = parser.parse_args()
    made = {}
    for path in sorted(options.folder.glob("training_*.csv")):
        if path.stem not in LEFT_OUT:
            text = path.read_text(encoding="utf-8")
            made[TARGET / f"{path.stem.removeprefix('training_')}.csv"] = compact(
                text, TUNED.get(path.stem, 0)
            )
    write_or_check(made, "measured_rows.py FOLDER")


if __name__ == "__main__":
    main()
