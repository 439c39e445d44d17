"""Taking the cost of recording off a job: the constant, measured or given, and what the step is without it."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from chakra.converters.pytorch.all_ranks.job_replay import RankGraph, replay_job
from chakra.converters.pytorch.graph.event_cost import CALL_SHARE, without_events
from chakra.errors import UsageError
from chakra.io.digits import decimal_number
from chakra.io.files import read_json
from chakra.io.readable import signed_percent_text

#: what `--deprofile` takes for a constant that the recording's own steps without profiler give
AUTO = "auto"
#: costs of a record between which the constant is looked for, us per operator
_MOST_US = 200.0
_HALVINGS = 24
#: share of the cost of all records by which the step must fall where a constant is measured
_LEAST_SLOPE = 0.5
#: endings of a device trace's name, in whose place the facts of the rank have theirs
_ENDINGS = (".kineto.json.gz", ".kineto.json", ".pt.trace.json.gz", ".pt.trace.json", ".json.gz", ".json")
FACTS_SUFFIX = ".meta.json"


@dataclass(frozen=True, slots=True)
class Deprofiled:
    """A job without the cost of its recording.

    Attributes
    ----------
    operator_us
        Cost of an operator's record.
    measured
        Whether it was measured from the job's own steps without profiler, rather than given.
    profiled_step_ns, step_ns
        Step of the slowest rank in a replay of all, with and without the cost.
    unprofiled_step_ns
        The step as it was timed without the profiler, of the slowest rank; 0 where it was not.
    """

    operator_us: float
    measured: bool
    profiled_step_ns: int
    step_ns: int
    unprofiled_step_ns: int

    def to_dict(self) -> dict[str, object]:
        """Facts for summaries."""
        return {
            "operator_us": self.operator_us, "call_us": self.operator_us * CALL_SHARE, "measured": self.measured,
            "profiled_step_ns": self.profiled_step_ns, "step_ns": self.step_ns,
            "unprofiled_step_ns": self.unprofiled_step_ns,
        }  # fmt: skip

    def said(self) -> list[str]:
        """Lines for people."""
        how = "measured from this job's steps without profiler" if self.measured else "given"
        step = f"{self.profiled_step_ns / 1e3:,.1f} us -> {self.step_ns / 1e3:,.1f} us"
        lines = [
            f"deprofiled: {self.operator_us:.2f} us per operator, half of it per call ({how}): slowest step {step}"
        ]
        if self.unprofiled_step_ns:
            error = self.step_ns / self.unprofiled_step_ns - 1
            lines.append(
                f"deprofiled: without the profiler a step took {self.unprofiled_step_ns / 1e3:,.1f} us "
                f"({signed_percent_text(error)})"
            )
        return lines


def parse_cost(text: str) -> float | None:
    """The cost that an option gives in us per operator; None for ``auto``.

    Raises
    ------
    UsageError
        Neither ``auto`` nor a number from 0 to 200.
    """
    if text == AUTO:
        return None
    try:
        value = decimal_number(text.removesuffix("us"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MOST_US:
        raise UsageError(
            f"--deprofile: {text!r} is neither 'auto' nor a cost of 0 to {_MOST_US:g} us per operator"
        )
    return value


def facts_file(device: Path) -> Path:
    """Where the facts of a rank lie: beside its device trace, under its name."""
    ending = next((e for e in _ENDINGS if device.name.endswith(e)), "")
    return device.with_name(device.name.removesuffix(ending) + FACTS_SUFFIX)


def unprofiled_step_ns(device: Path | None) -> int:
    """Median step without profiler that `chakra.capture` timed for a rank, ns; 0 where there is none.

    Raises
    ------
    UsageError
        The file of facts holds something else.
    """
    if device is None or not os.path.isfile(path := facts_file(device)):
        return 0
    facts = read_json(path, error=UsageError)
    steps = facts.get("step_us_unprofiled") if isinstance(facts, dict) else None
    if not steps:
        return 0
    if not isinstance(steps, list) or not all(type(s) in (int, float) and 0 < s < 1e12 for s in steps):
        raise UsageError(
            f"{path}: step_us_unprofiled must be a list of times in us, not {json.dumps(steps)[:60]}"
        )
    return round(median(map(float, steps)) * 1e3)


def deprofile(ranks: Sequence[RankGraph], unprofiled_ns: int, cost_us: float | None) -> Deprofiled:
    """The constant, and the step of the job without the cost of its recording.

    Parameters
    ----------
    ranks
        All ranks.
    unprofiled_ns
        Step without profiler of the slowest rank, 0 where it is not known.
    cost_us
        Cost of an operator's record; None measures it: the constant whose replay takes the step without profiler.

    Raises
    ------
    UsageError
        It is to be measured, but there is no step without profiler, or the host does not limit the job.
    """
    profiled = _step(ranks, 0.0)
    if any(rank.parted for rank in ranks):
        if cost_us is None:
            raise UsageError(
                "--deprofile auto: a part of a step only was taken, which cannot be compared with steps without "
                "profiler; take whole steps, or give the cost in us per operator"
            )
        unprofiled_ns = 0
    if cost_us is not None:
        return Deprofiled(cost_us, False, profiled, _step(ranks, cost_us), unprofiled_ns)
    if not unprofiled_ns:
        raise UsageError(
            "--deprofile auto: the recording holds no steps without profiler (chakra.capture times them, in "
            "PREFIX.rank<R>.meta.json); give the cost in us per operator that another job of this machine has"
        )
    low, high = 0.0, _MOST_US
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _step(ranks, middle) > unprofiled_ns else (low, middle)
    cost_us = round((low + high) / 2, 3)
    events = min(rank.events.count / rank.steps for rank in ranks)
    falls = (_step(ranks, 0.9 * cost_us) - _step(ranks, cost_us)) / 0.1
    told = 0 < cost_us < 0.99 * _MOST_US and falls >= _LEAST_SLOPE * cost_us * 1e3 * events
    if profiled <= unprofiled_ns or not told:
        raise UsageError(
            "--deprofile auto: the host does not limit this job, so its step does not tell what a record costs; give "
            "the cost in us per operator that another job of this machine has"
        )
    return Deprofiled(cost_us, True, profiled, _step(ranks, cost_us), unprofiled_ns)


def _step(ranks: Sequence[RankGraph], cost_us: float) -> int:
    """Step of the slowest rank with the cost taken off."""
    durations = [without_events(rank.duration, rank.events, cost_us * 1e3) for rank in ranks]
    spans = replay_job(ranks, durations)
    return max(span // rank.steps for span, rank in zip(spans, ranks, strict=True))
