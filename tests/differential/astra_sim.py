"""Run ASTRA-sim's analytical binaries on a case and read what they print, in the form of the corpus's expected.json."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

BINARIES = {
    "unaware": "AstraSim_Analytical_Congestion_Unaware",
    "aware": "AstraSim_Analytical_Congestion_Aware",
}
FINISH = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles, exposed communication (\d+) cycles")
TICK = re.compile(r"(issue|callback),sys->id=(\d+), tick=(\d+), node->id=(\d+)")
STATISTICS = {
    "Wall time": "wall",
    "Comm time": "comm",
    "GPU time": "gpu",
    "CPU time": "cpu",
    "Total compute-communication overlap": "overlap",
}
TIMEOUT_S = 20
#: ticks of so many NPUs are recorded
TRACED_NPUS = 16


def command_line(binaries: Path, backend: str) -> list[str]:
    """ASTRA-sim's command for a folder that holds the files of a case under their usual names."""
    return [
        str((binaries / BINARIES[backend]).resolve()),
        "--workload-configuration=workload",
        "--system-configuration=system.json",
        "--network-configuration=network.yml",
        "--remote-memory-configuration=memory.json",
        "--logging-folder=log",
    ]


def figures(binaries: Path, case: Any) -> dict[str, Any]:
    """Run a case (`oracle_cases.Case`) in the current folder, where its files are laid out.

    Parameters
    ----------
    binaries
        Folder of ASTRA-sim's two analytical binaries.
    case
        The case.
    """
    line = [*command_line(binaries, case.backend), *(case.about.get("options") or [])]
    if Path("comm_groups.json").exists():
        line.append("--comm-group-configuration=comm_groups.json")
    npus = case.about["npus"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"symptom": "timeout"}
    ended = {int(n): (int(t), int(x)) for n, t, x in FINISH.findall(done.stdout)}
    symptom = "ok"
    if done.returncode:
        symptom = f"signal:{-done.returncode}" if done.returncode < 0 else f"exit:{done.returncode}"
    elif len(ended) < npus:
        symptom = "incomplete"
    expected: dict[str, Any] = {"symptom": symptom}
    if symptom != "ok":
        return expected
    expected["finish"] = [ended[n][0] for n in range(npus)]
    expected["exposed_comm"] = [ended[n][1] for n in range(npus)]
    statistics: dict[str, list[int | None]] = {}
    for text, key in STATISTICS.items():
        found = re.findall(rf"sys\[(\d+)\], {text}: (\d+)", done.stdout)
        if found:
            values: list[int | None] = [None] * npus
            for n, value in found:
                values[int(n)] = int(value)
            statistics[key] = values
    if "cpu" in statistics or "Remote mem time" in done.stdout or "Invalid time" in done.stdout:
        # GPU + Comm - Wall: right only where nothing else runs (replay semantics, section 2.4)
        statistics.pop("overlap", None)
    if statistics:
        expected["stats"] = statistics
    expected["nodes"] = _ticks(Path("log/log.log").read_text(), min(npus, TRACED_NPUS))
    return expected


def _ticks(log: str, npus: int) -> dict[str, dict[str, list[int]]]:
    """Issue and completion of the nodes of the first NPUs; those that are like NPU 0 are left out."""
    found: dict[int, dict[str, list[int]]] = {n: {} for n in range(npus)}
    for event, npu, tick, node in TICK.findall(log):
        if int(npu) < npus:
            found[int(npu)].setdefault(node, [-1, -1])[event == "callback"] = int(tick)
    return {str(n): nodes for n, nodes in found.items() if n == 0 or nodes != found[0]}


def record(folder: Path, expected: dict[str, Any]) -> None:
    """Write the figures beside a case."""
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")
