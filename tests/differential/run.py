"""Compare `--compat astra-sim` with ASTRA-sim itself on random cases.

    python tests/differential/run.py --binaries FOLDER --seeds 0 1000 [--keep FOLDER]

FOLDER holds ASTRA-sim's two analytical binaries, `AstraSim_Analytical_Congestion_Unaware` and `_Aware`
(docs/validation.md says how they are built). Prints one line per case that differs and a count of each outcome; cases
that differ are kept as folders of the oracle corpus with `--keep`. Exits with 1 if any differs.
"""

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "oracle"))
sys.path.insert(0, str(Path(__file__).parent))
import astra_sim
import random_cases
from oracle_cases import Case, difference

from chakra.errors import ChakraError


def compare(folder: Path, binaries: Path) -> tuple[str, str]:
    """Outcome of a case (equal, differs, or ASTRA-sim's symptom and ours) and the first difference."""
    case = Case(folder)
    with case.laid_out():
        expected = astra_sim.figures(binaries, case)
    astra_sim.record(folder, expected)
    try:
        result: Any = case.run("astra-sim")
    except ChakraError as error:
        result = error
    if expected["symptom"] == "ok":
        text = str(result) if isinstance(result, ChakraError) else difference(case, result)
        return ("differs", text) if text else ("equal", "")
    ours = type(result).__name__ if isinstance(result, ChakraError) else "an answer"
    return f"ASTRA-sim {expected['symptom']}, here {ours}", ""


def main() -> int:
    """Run the seeds asked for."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--binaries", type=Path, required=True)
    options.add_argument("--seeds", type=int, nargs=2, default=(0, 1000), metavar=("FIRST", "END"))
    options.add_argument("--keep", type=Path)
    given = options.parse_args()
    counts: Counter[str] = Counter()
    differ = 0
    for seed in range(*given.seeds):
        with tempfile.TemporaryDirectory() as place:
            made = random_cases.make(seed)
            folder = Path(place) / made.name
            made.write(folder)
            outcome, text = compare(folder, given.binaries)
            counts[outcome] += 1
            if outcome == "differs":
                differ += 1
                print(f"{made.name}: {text[:300]}", flush=True)
                if given.keep:
                    given.keep.mkdir(parents=True, exist_ok=True)
                    shutil.move(folder, given.keep)
    for outcome, count in counts.most_common():
        print(f"{count:6}  {outcome}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
