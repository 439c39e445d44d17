"""Compare the speed of two commits in one run, and fail where the newer one is slower.

    python benchmarks/gate.py BASE [--head COMMIT] [--runs 11] [--limit 1.05] [--only WORD ...]

BASE is a commit; what is compared with it is the working tree, or another commit. Both are copied into a temporary
folder, and each runs its own code in a process of its own with a cache of compiled kernels of its own. For every row
the two processes take turns, each --runs times with kernels warm; the figure of a run is CPU seconds of the process.
A pair of neighbouring runs gives a ratio, head by base; printed are the medians, the median ratio, and the bound that
the true median ratio exceeds with at least 95 % confidence: the largest order statistic x(k) of n ratios with
P(Binomial(n, 1/2) < k) <= 5 %. It assumes nothing of how times are distributed. A row fails where that bound is above
--limit.

The row `warmup` is a cold start, `chakra warmup` without a cache: it runs --cold-runs times, and fails where even the
least of its ratios is above --cold-limit. A row that may cost so many times another one fails where the newer commit's
median is above that, if both ran; a row about something that the older commit does not have runs on the newer one alone,
and is judged by that. Exit codes: 0 no row is slower, 4 a row is slower, 1 a row did not run,
2 wrong arguments. Rows that need the reference data (docs/validation.md) are left out where it is absent.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from math import comb
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
from gate_rows import ROWS  # noqa: E402

WARMUP = "warmup"
#: seconds that a process may take for one answer
PATIENCE_S = 1800


#: run by every Python that is started: an editable installation would hand out the modules of its own checkout
CUSTOMIZE = """import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in str(finder)]
"""


class RowError(Exception):
    """A row did not run on one of the commits."""


def lower_bound(ratios: list[float], confidence: float = 0.95) -> float:
    """The value that the median of the distribution behind `ratios` exceeds with that confidence.

    Returns 0 if there are too few (fewer than five, for 95 %).
    """
    n = len(ratios)
    tail, k = 0.0, 0
    while tail + comb(n, k) / 2**n <= 1 - confidence:
        tail += comb(n, k) / 2**n
        k += 1
    return sorted(ratios)[k - 1] if k else 0.0


def check_out(revision: str | None, folder: Path) -> Path:
    """A copy of a commit, or of the working tree; git's own files are not touched."""
    folder.mkdir()
    if revision is None:
        listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
    else:
        with tarfile.open(fileobj=BytesIO(git("archive", "--format=tar", revision))) as archive:
            archive.extractall(folder, filter="data")
    return folder


def git(*arguments: str) -> bytes:
    """Output of git in this repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


@dataclass
class Commit:
    """One of the two, with its code and its cache."""

    name: str
    code: Path
    cache: Path
    folder: Path
    out: Path

    def knows(self, word: str) -> bool:
        """Whether its code has a word."""
        return any(word in path.read_text("utf-8") for path in self.code.rglob("*.py"))

    def environment(self) -> dict[str, str]:
        """What its processes, and those that they start, see: this commit's code before any that is installed."""
        path = os.pathsep.join([str(self.folder / "site"), str(self.code)])
        return {**os.environ, "PYTHONPATH": path, "CHAKRA_CACHE_DIR": str(self.cache), "NO_COLOR": "1"}

    @contextmanager
    def process(self) -> Iterator["Worker"]:
        """A process that runs its code."""
        line = [
            sys.executable,
            ROOT / "benchmarks" / "gate_rows.py",
            self.code,
            self.folder / "inputs",
            self.out,
        ]
        with subprocess.Popen(
            [str(word) for word in line],
            cwd=self.code,
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield Worker(self, process)
            finally:
                process.kill()

    def warm_up(self, cache: Path) -> float:
        """CPU seconds of a cold start; afterwards `cache` is the one that is used."""
        self.cache = cache
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "chakra", "warmup", "--quiet"],
            cwd=self.code,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RowError(f"{self.name}: {done.stderr.strip()}")
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@dataclass
class Worker:
    """A process of a commit that waits for rows."""

    commit: Commit
    process: "subprocess.Popen[str]"

    def ask(self, word: str) -> dict[str, Any]:
        """Send a line, and wait for the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            raise RowError(f"{self.commit.name}: {answer['error']}")
        if foreign := answer.get("strangers"):
            raise RowError(f"{self.commit.name} imported the code of another place: {', '.join(foreign)}")
        return answer


@dataclass
class Figures:
    """CPU seconds of one row, run by run, and whether the two commits gave one answer."""

    base: list[float]
    head: list[float]
    same: bool = True

    @property
    def new(self) -> bool:
        """Whether the older commit cannot run the row."""
        return not self.base

    @property
    def ratios(self) -> list[float]:
        """Head by base, pair by pair; none where only one can run."""
        return [] if self.new else [new / old for old, new in zip(self.base, self.head, strict=True)]


def compare(row: str, base: Commit, head: Commit, runs: int) -> Figures:
    """Run a row on both, in turn; who goes first changes from pair to pair."""
    figures = Figures([], [])
    numbers = range(runs)
    for some in ([number] for number in numbers) if ROWS[row].fresh else [numbers]:
        with base.process() as old, head.process() as new:
            for worker in (old, new):
                worker.ask(row)
            for number in some:
                pair = [(old, figures.base), (new, figures.head)]
                answers = []
                for worker, seconds in pair if number % 2 == 0 else reversed(pair):
                    answer = worker.ask("run")
                    seconds.append(answer["seconds"])
                    answers.append(answer["answer"])
                figures.same &= answers[0] == answers[1]
    return figures


def measure_new(row: str, head: Commit, runs: int) -> Figures:
    """Run a row that only the newer commit can run."""
    with head.process() as worker:
        worker.ask(row)
        return Figures([], [worker.ask("run")["seconds"] for _ in range(runs)])


def compare_cold(base: Commit, head: Commit, runs: int, folder: Path) -> Figures:
    """Cold starts in turn; the last caches stay for the rows after."""
    figures = Figures([], [])
    for number in range(runs):
        figures.base.append(base.warm_up(folder / f"base{number}"))
        figures.head.append(head.warm_up(folder / f"head{number}"))
    return figures


def report(row: str, figures: Figures, bound: float, limit: float) -> bool:
    """Print a line; whether the row is within its limit."""
    head = statistics.median(figures.head)
    if figures.new:
        print(f"{row:20} {'-':>12} {1000 * head:>12.2f} {'-':>7} {'-':>7} {'-':>6}  (new)", flush=True)
        return True
    base = statistics.median(figures.base)
    ratio = statistics.median(figures.ratios)
    slower = bound > limit
    remark = "SLOWER" if slower else ""
    if not figures.same:
        remark = f"{remark} (the answers differ)".strip()
    print(
        f"{row:20} {1000 * base:>12.2f} {1000 * head:>12.2f} {ratio:>7.3f} {bound:>7.3f} {limit:>6.2f}  {remark}",
        flush=True,
    )
    return not slower


def costly(heads: Mapping[str, float]) -> list[str]:
    """Rows of the newer commit that cost more than their share of another row, and a line for each that has one."""
    found = []
    for row, seconds in heads.items():
        other, times = ROWS[row].most or ("", 0.0)
        if other in heads:
            above = seconds > times * heads[other]
            remark = "  TOO COSTLY" if above else ""
            print(f"{row:20} {seconds / heads[other]:.2f} times {other}, at most {times:g}{remark}")
            found += [row] if above else []
    return found


def arguments(given: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="commit that is the yardstick")
    parser.add_argument("--head", help="commit to compare with it [the working tree]")
    parser.add_argument("--runs", type=int, default=11, help="runs of each commit and row [11]")
    parser.add_argument("--limit", type=float, default=1.05, help="largest ratio that passes [1.05]")
    parser.add_argument(
        "--cold-runs", type=int, default=3, help="cold starts of each commit [3]; 0: one, not judged"
    )
    parser.add_argument("--cold-limit", type=float, default=1.10, help="the same for cold starts [1.10]")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="rows whose name has a word")
    options = parser.parse_args(given)
    if options.runs < 5:
        parser.error("--runs must be 5 or more: fewer give no bound of 95 %")
    for revision in filter(None, (options.base, options.head)):
        try:
            git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        except subprocess.CalledProcessError:
            parser.error(f"{revision} is no commit of this repository")
    return options


def wanted(words: list[str]) -> list[str]:
    """Rows to run; says which need data that is not there."""
    rows = [row for row in ROWS if not words or any(word in row for word in words)]
    missing = [row for row in rows if not ROWS[row].needs.exists()]
    if missing:
        print(f"left out, without reference data: {', '.join(missing)}")
    return [row for row in rows if row not in missing]


def main(given: list[str] | None = None) -> int:
    """Run all rows; returns the exit code."""
    options = arguments(given)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the temporary folder goes
    failed, broken = [], []
    with tempfile.TemporaryDirectory(prefix="chakra-gate-") as name:
        folder = Path(name)
        for part in ("inputs", "base-out", "head-out", "site"):
            (folder / part).mkdir()
        (folder / "site" / "sitecustomize.py").write_text(CUSTOMIZE)
        label = options.head or "working tree"
        base = Commit(
            options.base, check_out(options.base, folder / "base"), folder, folder, folder / "base-out"
        )
        head = Commit(label, check_out(options.head, folder / "head"), folder, folder, folder / "head-out")
        print(f"{options.base} against {label}; CPU ms, {options.runs} runs each in turn")
        print(f"{'row':20} {'base':>12} {'head':>12} {'ratio':>7} {'bound':>7} {'limit':>6}", flush=True)
        try:
            figures = compare_cold(base, head, max(1, options.cold_runs), folder)  # one fills the caches
            within = report(WARMUP, figures, min(figures.ratios), options.cold_limit)
            if options.cold_runs and not within:
                failed.append(WARMUP)
        except RowError as error:
            broken.append(WARMUP)
            print(f"{WARMUP:20} {error}", flush=True)
        if rows := wanted(options.only):
            with base.process() as worker:  # what the older commit writes, both can read
                worker.ask("inputs")
        heads: dict[str, float] = {}
        for row in rows:
            try:
                if base.knows(ROWS[row].word):
                    figures = compare(row, base, head, options.runs)
                else:
                    figures = measure_new(row, head, options.runs)
                heads[row] = statistics.median(figures.head)
                if not report(row, figures, lower_bound(figures.ratios), options.limit):
                    failed.append(row)
            except RowError as error:
                broken.append(row)
                print(f"{row:20} {error}", flush=True)
        failed += [row for row in costly(heads) if row not in failed]
    if broken:
        print(f"did not run: {', '.join(broken)}")
        return 1
    print(f"slower: {', '.join(failed)}" if failed else "no row is slower")
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
