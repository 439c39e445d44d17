"""What the benchmark gate measures, and the process that measures it with one commit's own code.

``python gate_rows.py CHECKOUT INPUTS OUT`` answers lines on standard input: a row's name prepares it, ``run`` runs it
once and prints the CPU seconds. Rows use public names and commands only, so that they run on commits whose modules lie
elsewhere.
"""

import contextlib
import gc
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: data that is not part of the repository (docs/validation.md)
REFERENCE = ROOT.parent / "shared"
TIMING = REFERENCE / "oracle" / "timing"
PAIRS = REFERENCE / "data" / "pairs"

Action = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row finds its inputs and may write."""

    inputs: Path
    out: Path


@dataclass(frozen=True, slots=True)
class Row:
    """Something that is measured.

    Attributes
    ----------
    prepare
        Called once in a process, untimed; what it returns is timed. What that returns is the answer, which the two
        commits should share.
    times
        How often one measurement repeats it.
    needs
        A file or folder without which the row is left out.
    most
        Another row, and how many times its CPU time this one may cost.
    word
        A configuration key that the row's inputs have: a commit whose code does not contain it cannot run the row.
    fresh
        Each pair of runs has processes of its own: how a process happens to lie in memory changes the time of a run of a
        few ms by several per cent, for as long as it lives.
    """

    prepare: Callable[[Place], Action]
    times: int = 1
    needs: Path = ROOT
    most: tuple[str, float] | None = None
    word: str = ""
    fresh: bool = False


def command(*arguments: str | Path) -> Action:
    """A command in this process; its answer is what it prints."""
    from chakra.cli.main import cli

    def run() -> object:
        cli.main([str(argument) for argument in arguments], "chakra", standalone_mode=False)
        return None

    return run


def shipped(name: str) -> Callable[[Place], Action]:
    """A replay command on a trace of the repository."""

    def prepare(place: Place) -> Action:
        folder = place.inputs / "traces" / name
        files = ("-s", folder / "system.json", "-n", folder / "network.yml", "-m", folder / "memory.json")
        return command("replay", "-w", folder / "workload", *files, "-o", place.out / f"{name}.json")

    return prepare


def replay(name: str) -> Callable[[Place], Action]:
    """`simulate` on a workload of the reference data, with ASTRA-sim's numbers; its answer is the last finish."""

    def prepare(place: Place) -> Action:
        from chakra.replay import simulate

        work = json.loads((TIMING / "workloads.json").read_text())[name]
        system, network = place.out / "system.json", place.out / "network.yml"
        system.write_text(json.dumps(work["system"]))
        network.write_text(work["network"])
        traces = [str(TIMING / work["trace"])] * work["npus"]

        def run() -> object:
            result = simulate(traces, system, network, backend=work["backend"], compat="astra-sim")
            return int(result.finish_ns.max())

        return run

    return prepare


def read_million(place: Place) -> Action:
    """Reading a trace of 1,000,000 nodes into columns, dependencies resolved."""
    from chakra.et import read_trace

    return lambda: read_trace(place.inputs / "million.et").n_nodes


def text(place: Place) -> Action:
    """10,000 layers for 1024 NPUs, one content for all ranks."""
    return command(
        "convert", "text", "-i", place.inputs / "layers.txt", "--npus", "1024", "-o", place.out / "text" / "w"
    )


def pytorch(place: Place) -> Action:
    """Linking and converting a recording of 15,662 host nodes and 33,311 events."""
    pair = [PAIRS / f"h200_gpt.{kind}.json.gz" for kind in ("et", "kineto")]
    return command("convert", "pytorch", "--host", pair[0], "--device", pair[1], "-o", place.out / "p.et")


#: one step of GPT-3 on 102,400 NPUs
GPT3 = ("--model", "gpt3-175b", "--tp", "8", "--pp", "8", "--npus", "102400", "--micro-batches", "8")


def generate(place: Place) -> Action:
    """Writing the traces of one training step."""
    return command(
        "generate", "transformer", *GPT3, "--platform", "hgx-h100", "--quiet", "-o", place.out / "gpt3"
    )


def replay_generated(system: str) -> Callable[[Place], Action]:
    """Replaying that step, with a system file."""

    def prepare(place: Place) -> Action:
        files = ("-s", place.inputs / f"{system}.system.json", "-n", place.inputs / "h100.network.yml")
        return command("replay", "-w", place.inputs / "gpt3", *files, "-o", place.out / "step.json")

    return prepare


def anonymize(place: Place) -> Action:
    """Making a trace of 100,000 nodes fit for others."""
    return command("anonymize", place.inputs / "hundred.et", "-o", place.out / "anonymous.et")


ROWS: dict[str, Row] = {
    "command_ring8": Row(shipped("allreduce_ring8"), 10, fresh=True),
    "command_h100_box": Row(shipped("h100_box"), 10, fresh=True),
    "command_mlp": Row(shipped("mlp_model_parallel"), 10, fresh=True),
    "ring1024": Row(replay("ring_ar_64MiB_n1024_unaware"), 10, TIMING, fresh=True),
    "ring1024_aware": Row(replay("ring_ar_64MiB_n1024_aware"), 10, TIMING, fresh=True),
    "dag20000_n8": Row(replay("dag20000_n8_unaware"), 2, TIMING),
    "dag20000_n8_aware": Row(replay("dag20000_n8_aware"), 1, TIMING),
    "dag20000_n64": Row(replay("dag20000_n64_unaware"), 2, TIMING),
    "dag20000_n64_aware": Row(replay("dag20000_n64_aware"), 1, TIMING),
    "comp200000_n2": Row(replay("comp200000_n2_unaware"), 1, TIMING),
    "text": Row(text),
    "read_million": Row(read_million),
    "pytorch": Row(pytorch, 1, PAIRS),
    "generate_102400": Row(generate),
    "replay_102400": Row(replay_generated("algorithms")),
    # a folded step costs at most twice the one without a collective library
    "replay_102400_library": Row(replay_generated("h100"), most=("replay_102400", 2.0)),
    "replay_102400_beside": Row(
        replay_generated("beside"), most=("replay_102400", 2.0), word="overlap-computing-rate"
    ),
    "anonymize": Row(anonymize),
}


def make_inputs(folder: Path) -> None:
    """Files that both commits read: the traces of the repository, large ones, a text workload, a generated step."""
    from shutil import copytree

    copytree(ROOT / "traces", folder / "traces")
    for name, nodes in (("million", 1_000_000), ("hundred", 100_000)):
        write_chain(folder / f"{name}.et", nodes)
    draw = random.Random(1)
    lines = ["DATA", "10000"]
    for index in range(10_000):
        steps = "\t".join(f"{draw.randint(1, 9999)}\tALLREDUCE\t{draw.randint(1, 1 << 24)}" for _ in range(3))
        lines.append(f"layer_{index}\t-1\t{steps}\t10")
    (folder / "layers.txt").write_text("\n".join(lines) + "\n")
    command("generate", "transformer", *GPT3, "--platform", "hgx-h100", "--quiet", "-o", folder / "gpt3")()
    command("platform", "write", "hgx-h100", "--npus", "102400", "-o", folder / "h100")()
    write_systems(folder)


def write_systems(folder: Path) -> None:
    """Beside the preset's system file one without its collective library, and one in which computing slows that down."""
    system = json.loads((folder / "h100.system.json").read_text())
    library = ("collective-library", "collective-costs")
    plain = {key: value for key, value in system.items() if key not in library}
    (folder / "algorithms.system.json").write_text(json.dumps(plain))
    slowed = {**system, "overlap-computing-rate": 0.9, "overlap-collective-rate": 0.8}
    (folder / "beside.system.json").write_text(json.dumps(slowed))


def write_chain(path: Path, n: int) -> None:
    """Compute nodes one after the other, an all-reduce after every fourth: about 80 bytes a node."""
    import numpy as np

    from chakra.et import ABSENT, NodeType, TraceColumns, write_trace

    rng = np.random.default_rng(1)
    columns = TraceColumns(n)
    collective = np.arange(n) % 5 == 4
    columns.types[:] = np.where(collective, NodeType.COMM_COLL, NodeType.COMP)
    columns.duration_micros[:] = np.where(collective, 0, rng.integers(1, 1000, n))
    columns.set_names(np.arange(n) % 1000, [f"layer{k}.forward" for k in range(1000)])
    columns.set_data_deps(np.concatenate([[0], np.arange(n)]), np.arange(n - 1))
    columns.set_bool("is_cpu_op", 0)
    columns.set_int("num_ops", np.where(collective, ABSENT, 1_234_567))
    columns.set_int("comm_type", np.where(collective, 0, ABSENT))
    columns.set_int("comm_size", np.where(collective, 1 << 20, ABSENT))
    write_trace(columns, path)


def strangers(checkout: Path) -> list[str]:
    """Modules of chakra that this process took from elsewhere."""
    found = []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "chakra":
            file = getattr(module, "__file__", None)
            if file and not Path(file).resolve().is_relative_to(checkout.resolve()):
                found.append(f"{name} ({file})")
    return found


def cpu_s() -> float:
    """CPU seconds of this process and of those it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(action: Action, times: int) -> tuple[float, object]:
    """CPU seconds of one run, the mean of some, and its answer."""
    gc.collect()
    answer: object = None
    begin = cpu_s()
    for _ in range(times):
        answer = action()
    return (cpu_s() - begin) / times, answer


def serve(checkout: Path, place: Place) -> None:
    """Answer the lines of the parent process."""
    talk = os.fdopen(os.dup(1), "w", buffering=1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)

    def say(**answer: Any) -> None:
        talk.write(json.dumps(answer) + "\n")

    action: Action | None = None
    times = 1
    for line in sys.stdin:
        word = line.strip()
        try:
            if word == "inputs":
                make_inputs(place.inputs)
                say(done=True)
            elif word == "run" and action is not None:
                seconds, answer = measure(action, times)
                say(seconds=seconds, answer=answer)
            else:
                row = ROWS[word]
                action, times = row.prepare(place), row.times
                action()
                action()  # what the first run made the process load is in use now
                say(done=True, strangers=strangers(checkout))
        except BaseException as error:
            say(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        serve(Path(sys.argv[1]), Place(Path(sys.argv[2]), Path(sys.argv[3])))
