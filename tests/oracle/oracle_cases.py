"""Cases of the oracle corpus (figures of ASTRA-sim): how to run one, and what differs from its figures."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from chakra.replay import ReplayResult, simulate

#: names of ASTRA-sim's options where ours differ
OPTION_NAMES = {"num-queues-per-dim": "queues_per_dim", "rendezvous-protocol": "rendezvous"}
#: ASTRA-sim prints exposed communication modulo 2^64
WRAP = 1 << 64
#: `peak_mem` comes from ASTRA-sim's local-memory tracker, of which one case prints a rounded figure; its rules are
#: established no further, so `ReplayResult.memory` is tested on its own
NOT_COMPARED = ("peak_mem",)


def _load(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


@dataclass(frozen=True)
class Case:
    """One folder of the corpus."""

    folder: Path

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @cached_property
    def about(self) -> dict[str, Any]:
        """Content of case.json."""
        content: dict[str, Any] = _load(self.folder / "case.json")
        return content

    @cached_property
    def expected(self) -> dict[str, Any]:
        """Content of expected.json."""
        content: dict[str, Any] = _load(self.folder / "expected.json")
        return content

    @property
    def family(self) -> str:
        """Letter of its family."""
        return str(self.about["family"])

    @property
    def backend(self) -> str:
        """Network back end."""
        return str(self.about["backend"])

    @property
    def sound(self) -> bool:
        """Whether ASTRA-sim's figures of this case are right figures."""
        return self.family != "j" and self.expected.get("symptom") in ("ok", "warned")

    def options(self) -> dict[str, Any]:
        """The case's command-line options as keywords of `simulate`."""
        keywords: dict[str, Any] = {}
        for text in self.about.get("options") or []:
            name, _, value = text.lstrip("-").partition("=")
            name = OPTION_NAMES.get(name, name.replace("-", "_"))
            if value in ("true", "false"):
                keywords[name] = value == "true"
            else:
                keywords[name] = float(value) if "." in value else int(value)
        return keywords

    @contextmanager
    def laid_out(self) -> Iterator[None]:
        """A folder, made the current one, with the files as ASTRA-sim's command line wants them."""
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            prefixes = {"workload": self.folder / "et"}
            custom = self.folder / "custom"
            if custom.is_dir():
                prefixes |= {path.name: path for path in custom.iterdir()}
            for prefix, source in prefixes.items():
                for rank, name in _load(source / "map.json").items():
                    if name is not None:
                        (place / f"{prefix}.{rank}.et").symlink_to((source / name).resolve())
            for path in self.folder.iterdir():
                if path.suffix in (".json", ".yml", ".yaml"):
                    (place / path.name).symlink_to(path.resolve())
            os.chdir(place)
            try:
                yield
            finally:
                os.chdir(here)

    def run(self, compat: str | None, **more: Any) -> ReplayResult:
        """Replay the case; `more` are keywords of `simulate`."""
        with self.laid_out():
            groups = "comm_groups.json" if Path("comm_groups.json").exists() else None
            return simulate(
                "workload",
                "system.json",
                "network.yml",
                memory="memory.json",
                comm_groups=groups,
                backend=self.backend,
                compat=compat,
                **self.options(),
                **more,
            )


def cases(corpus: Path) -> list[Case]:
    """All cases of a corpus by name."""
    return [Case(folder) for folder in sorted(corpus.iterdir()) if (folder / "case.json").exists()]


def _statistics_difference(wanted: dict[str, list[Any]], result: ReplayResult) -> str:
    """First difference from ASTRA-sim's statistics; a line it did not print is not compared."""
    for name, values in wanted.items():
        if name in NOT_COMPARED:
            continue
        key = name if name in result.statistics else f"{name}_ns"
        for npu, want in enumerate(values):
            if want is None:
                continue
            got = result.statistics[key][npu]
            same = f"{got:.3f}" == want if isinstance(want, str) else int(got) == want
            if not same:
                return f"statistics {name} of NPU {npu}: {got}, expected {want}"
    return ""


def difference(case: Case, result: ReplayResult, *, exposed: bool = True, statistics: bool = True) -> str:
    """First difference from the figures of ASTRA-sim: finish, exposed time, statistics, ticks of nodes."""
    expected = case.expected
    finish = [int(t) for t in result.finish_ns]
    if finish != expected["finish"]:
        return f"finish {finish[:4]}, expected {expected['finish'][:4]}"
    if exposed:
        times = [int(t) % WRAP for t in result.exposed_comm_ns]
        wanted = [t % WRAP for t in expected["exposed_comm"]]
        if times != wanted:
            return f"exposed {times[:4]}, expected {wanted[:4]}"
    if statistics:
        text = _statistics_difference(expected.get("stats") or {}, result)
        if text:
            return text
    for npu, nodes in (expected.get("nodes") or {}).items():
        ids, issue, end = result.node_ticks(int(npu))
        ticks = {int(i): [int(s), int(e)] for i, s, e in zip(ids, issue, end, strict=True)}
        for node, want in nodes.items():
            if ticks.get(int(node)) != want:
                return f"NPU {npu}, node {node}: ticks {ticks.get(int(node))}, expected {want}"
    return ""
