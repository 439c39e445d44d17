"""Coverage-guided fuzzing of every reader: ``python tests/fuzz/run.py --seconds 60``.

Needs atheris (``pip install atheris``), with wheels for some Pythons only; where it cannot be imported, this says so and
ends with 0, and the property tests of ``test_fuzz.py`` stand for it. The time is the total, spread over the harnesses,
``--jobs`` of them at a time. Every finding is run again in a fresh process without instrumentation; those that stand are
kept, smallest first, under ``--keep``, and the exit code is 1.
"""

import argparse
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

RSS_LIMIT_MB = 2048
#: an input that libFuzzer gives up on; the plain replay then applies readers.SECONDS
TIMEOUT_S = 20
MAX_LEN = 16_384


def main() -> int:
    """Fuzz, print the table, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="time in all (default 60)")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this harness (may repeat)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="harnesses at a time")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--corpus", metavar="DIR", help="keep and reuse the corpora here")
    parser.add_argument("--keep", metavar="DIR", default="fuzz-findings", help="where findings are kept")
    parser.add_argument("--replay", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        return _replay(*options.replay)
    try:
        import atheris
    except ImportError:
        print(f"fuzz: atheris is not installed (Python {sys.version.split()[0]}): skipped", file=sys.stderr)
        return 0
    began = time.monotonic()
    with atheris.instrument_imports(include=["chakra"]):
        import readers
    names = options.only or list(readers.READERS)
    unknown = sorted(set(names) - set(readers.READERS))
    if unknown:
        parser.error(f"no harness {unknown[0]!r}; there are: {', '.join(readers.READERS)}")
    with tempfile.TemporaryDirectory(prefix="chakra-fuzz-") as scratch:
        folders = {name: _prepare(name, Path(scratch), options.corpus) for name in names}
        for name in names:
            _warm(name, folders[name])
        left = max(5.0, options.seconds - (time.monotonic() - began) - 2)
        # a process takes most of a second to begin and end
        each = max(1, int(left * min(options.jobs, len(names)) / len(names) - 0.7))
        _run_all(names, folders, each, options.jobs, options.seed)
        rows = [_row(name, folders[name], Path(options.keep)) for name in names]
    print(
        f"{'harness':18} {'executions':>10} {'exec/s':>7} {'edges':>6} {'features':>8} {'new':>5} {'findings':>8}"
    )
    for row in rows:
        print(
            f"{row.harness:18} {row.executions:10d} {row.per_s:7d} {row.edges:6d} {row.features:8d} {row.new:5d} "
            f"{len(row.findings):8d}"
        )
    found = [finding for row in rows for finding in row.findings]
    total = sum(row.executions for row in rows)
    print(f"{total} executions, {len(found)} findings, {time.monotonic() - began:.0f} s")
    for finding in found:
        print(finding)
    return 1 if found else 0


def _prepare(name: str, scratch: Path, corpus: str | None) -> dict[str, Path]:
    """Folders of a harness: work, seeds, corpus, candidates."""
    from seeds import beside, seeds

    out = {part: scratch / name / part for part in ("work", "seeds", "corpus", "candidates")}
    if corpus is not None:
        out["corpus"] = Path(corpus) / name
    for folder in out.values():
        folder.mkdir(parents=True, exist_ok=True)
    known = [path.read_bytes() for path in sorted((HERE / "found" / name).glob("*")) if path.is_file()]
    for data in [*seeds(name), *known]:
        if len(data) <= MAX_LEN:
            (out["seeds"] / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    beside(name, out["work"])
    return out


def _warm(name: str, folders: dict[str, Path]) -> None:
    """Run the seeds once, so that what is imported late is there before the clock runs."""
    import readers

    for path in sorted(folders["seeds"].iterdir()):
        try:
            readers.check(readers.READERS[name], path.read_bytes(), folders["work"])
        except Exception:  # found again, and reported, by the run itself
            continue


def _run_all(names: list[str], folders: dict[str, dict[str, Path]], each: int, jobs: int, seed: int) -> None:
    """One forked process per harness, `jobs` at a time; a harness whose process died goes on for the time left."""
    waiting = [(name, time.monotonic() + 0.0, each) for name in names]
    running: dict[int, tuple[str, float]] = {}
    while waiting or running:
        while waiting and len(running) < max(1, jobs):
            name, _, seconds = waiting.pop(0)
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                try:
                    _fuzz(name, folders[name], seconds, seed)
                finally:
                    os._exit(70)
            running[pid] = (name, time.monotonic() + seconds)
        pid, status = os.wait()
        if pid not in running:
            continue
        name, until = running.pop(pid)
        if status and until - time.monotonic() > 2:
            waiting.append((name, 0.0, int(until - time.monotonic())))
            seed += 1


def _fuzz(name: str, folders: dict[str, Path], seconds: int, seed: int) -> None:
    """The forked process: libFuzzer's loop, which does not return."""
    import atheris
    import mutations
    import readers

    log = os.open(folders["work"].parent / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    warnings.simplefilter("error")  # a warning is more than one line on standard error
    reader = readers.READERS[name]
    known: set[str] = set()

    def one(data: bytes) -> None:
        start = time.process_time()
        try:
            readers.check(reader, data, folders["work"])
        except Exception as error:
            _note(folders["candidates"], data, _signature(error), known)
        if time.process_time() - start > readers.SECONDS:
            _note(folders["candidates"], data, "slow", known)

    def mutate(data: bytes, max_size: int, number: int) -> bytes:
        rng = random.Random(number)
        out = (
            atheris.Mutate(data, max_size)
            if rng.random() < 0.2
            else mutations.mutated(reader.form, data, rng)
        )
        return out[:max_size]

    argv = [
        "fuzz",
        f"-max_total_time={seconds}",
        f"-timeout={TIMEOUT_S}",
        f"-rss_limit_mb={RSS_LIMIT_MB}",
        f"-max_len={MAX_LEN}",
        f"-seed={seed}",
        "-print_final_stats=1",
        f"-artifact_prefix={folders['candidates']}/",
        str(folders["corpus"]),
        str(folders["seeds"]),
    ]
    atheris.Setup(argv, one, custom_mutator=mutate)
    atheris.Fuzz()


def _signature(error: BaseException) -> str:
    """Type and innermost place: equal faults count once."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/tests/fuzz/" not in frame.filename] or list(frames)
    text = re.sub(r"\d+|'.*'", "#", str(error))[:40] if type(error).__name__ == "PropertyError" else ""
    return f"{type(error).__name__} {own[-1].filename}:{own[-1].lineno} {text}"


def _note(folder: Path, data: bytes, signature: str, known: set[str]) -> None:
    """Keep an input for a fault that was not seen before, or a smaller one."""
    name = hashlib.sha256(signature.encode()).hexdigest()[:12]
    path = folder / f"fault-{name}"
    if signature not in known or not path.exists() or len(data) < path.stat().st_size:
        path.write_bytes(data)
        known.add(signature)


class Row(NamedTuple):
    """What one harness did."""

    harness: str
    executions: int
    per_s: int
    edges: int
    features: int
    new: int
    findings: list[str]


def _row(name: str, folders: dict[str, Path], keep: Path) -> Row:
    """What libFuzzer's log says, and the findings that a fresh process confirms."""
    log = (folders["work"].parent / "log").read_text(errors="replace")
    runs = [int(number) for number in re.findall(r"stat::number_of_executed_units:\s*(\d+)", log)]
    if not runs:
        runs = [int(number) for number in re.findall(r"#(\d+)\s", log)[-1:]]
    took = sum(int(number) for number in re.findall(r"Done \d+ runs in (\d+) second", log)) or 1
    new = sum(int(number) for number in re.findall(r"stat::new_units_added:\s*(\d+)", log))
    edges = max((int(number) for number in re.findall(r"cov: (\d+)", log)), default=0)
    features = max((int(number) for number in re.findall(r"ft: (\d+)", log)), default=0)
    findings = []
    for path in sorted(folders["candidates"].iterdir(), key=lambda path: path.stat().st_size):
        reason = confirm(name, path)
        if reason:
            target = keep / name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
            findings.append(f"{name}: {reason}: python tests/fuzz/run.py --replay {name} {target}")
    return Row(name, sum(runs), sum(runs) // took, edges, features, new, findings)


def confirm(name: str, path: Path) -> str | None:
    """Why this input is a finding in a process of its own, or None."""
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "run.py"), "--replay", name, str(path)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:300]


def _replay(name: str, path: str) -> int:
    """Run one input in this process under the bounds of time and memory."""
    import resource

    import readers
    from seeds import beside, seeds

    with tempfile.TemporaryDirectory() as folder:
        beside(name, Path(folder))
        for data in seeds(name)[:2]:  # imports and warm caches do not count
            try:
                readers.check(readers.READERS[name], data, Path(folder))
            except Exception:
                continue
        warnings.simplefilter("error")
        limit = 4 * RSS_LIMIT_MB << 20  # address space, of which numpy's threads take a part
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        start = time.process_time()
        message = readers.check(readers.READERS[name], Path(path).read_bytes(), Path(folder))
        took = time.process_time() - start
    print(message or "read")
    if took > readers.SECONDS:
        print(f"slow: {took:.1f} s", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
