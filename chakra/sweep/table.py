"""What a study comes to, for people: one form of number per column, each with its unit, and notes."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from chakra.io.readable import (
    counted,
    percent_decimals,
    percent_figure,
    percent_text,
    printable,
    shortened,
    verb,
)
from chakra.platforms import cluster
from chakra.platforms.compute import takes_operator_times
from chakra.platforms.model import Platform
from chakra.replay.compute.frameworks import machine_notes
from chakra.replay.results.sharing_notes import NOT_SHARED, port_notes
from chakra.sweep.given import values_of
from chakra.sweep.nearest_fit import fits, nearest_fit
from chakra.sweep.pareto import label
from chakra.sweep.remarks import remark_notes
from chakra.sweep.sensitivity import without_effect
from chakra.sweep.store import Outcome
from chakra.sweep.study import Study
from chakra.sweep.ties import tie_note
from chakra.sweep.work import work_note

#: the smallest figure of a column keeps this many digits that say something
_DIGITS = 4
_MAX_DECIMALS = 6

#: metrics of which a table shows per cents, and their headings
_SHARES = {
    "bubble_share": "pipeline bubble [% of step]",
    "ideal_bubble_share": "ideal bubble [% of step]",
    "mfu": "MFU [% of peak]",
    "hfu": "HFU [% of peak]",
    "memory_share": "peak memory [% of an NPU's]",
}
#: characters of a value in a sentence or a cell
_LONGEST = 60


def value_text(value: object) -> str:
    """A parameter's value in a sentence or a cell."""
    return shortened(printable(str(value)), _LONGEST)


def named_values(study: Study, outcome: Outcome) -> str:
    """Values of a design's parameters with their names; empty for a study without parameters."""
    names = [parameter.name for parameter in study.parameters]
    return ", ".join(f"{printable(name)} {value_text(outcome.point.get(name))}" for name in names)


def heading(metric: str) -> str:
    """Heading of a metric's column, with its unit."""
    return _SHARES.get(metric) or label(metric)


def metric_column(name: str, shown: Sequence[Outcome]) -> list[str]:
    """A metric of some outcomes as text, shares as per cents.

    Parameters
    ----------
    name
        The metric.
    shown
        Outcomes; those without the metric get a dash.
    """
    values = [outcome.metrics.get(name) for outcome in shown]
    if name in _SHARES:
        decimals = max((percent_decimals(value) for value in values if value is not None), default=1)
        texts = ["-" if value is None else f"{100 * value:.{decimals}f}" for value in values]
        return [
            percent_figure(value) if value and not text.strip("-0.") else text
            for value, text in zip(values, texts, strict=True)
        ]
    return figures(values)


def figures(values: Sequence[Any]) -> list[str]:
    """Values of a column as text: numbers with the same decimals and thousands set apart, None as a dash.

    Parameters
    ----------
    values
        Numbers, texts or lists.
    """
    numbers = [value for value in values if isinstance(value, float) and math.isfinite(value)]
    sizes = [abs(value) for value in numbers if value]
    smallest = math.floor(math.log10(min(sizes))) if sizes else 0
    decimals = min(max(_DIGITS - 1 - smallest, 0), _MAX_DECIMALS)
    while decimals and all(round(value, decimals) == round(value, decimals - 1) for value in numbers):
        decimals -= 1
    return [_figure(value, decimals) for value in values]


def _figure(value: Any, decimals: int) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.{decimals}f}" if isinstance(value, float) else f"{value:,}"


def unranked(study: Study, outcomes: Sequence[Outcome]) -> list[str]:
    """How many designs ran without a value of the objective, which no ranking has; for people. Nothing without such.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points.
    """
    count = sum(outcome.ok and study.objective not in outcome.metrics for outcome in outcomes)
    if not count:
        return []
    return [
        f"{counted(count, 'design')} that ran {verb(count, 'has', 'have')} no {study.objective}, not ranked"
    ]


def fitting(best: Sequence[Outcome]) -> int | None:
    """Rank of the best design that fits, from 1 on; None where none does."""
    return next((rank for rank, outcome in enumerate(best, 1) if fits(outcome)), None)


def need_text(outcome: Outcome) -> str:
    """What share of the memory a design needs that is known to need some, in words."""
    return f"{percent_text(outcome.metrics['memory_share'])} of an accelerator's memory"


def overfull(study: Study, outcomes: Sequence[Outcome], best: Sequence[Outcome]) -> list[str]:
    """How many designs ran that need more memory than an NPU has, and which is the best that does not where the best
    one does; for people. Nothing without such.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points.
    best
        Good ones, best first.
    """
    count = sum(outcome.ok and not fits(outcome) for outcome in outcomes)
    if not count:
        return []
    some = f"{counted(count, 'design')} that ran {verb(count, 'needs', 'need')} more memory than the accelerator has"
    lines = [f"{some} (memory_share above 100 %); constraints: [memory] leaves such out"]
    if best and not fits(best[0]):
        need, rank = f"the best design needs {need_text(best[0])}", fitting(best)
        if rank is None:
            return [*lines, need]
        value = metric_column(study.objective, [best[rank - 1]])[0]
        lines.append(f"{need}; the best that fits has rank {rank}: {heading(study.objective)} {value}")
    return lines


def nothing_fits(study: Study, outcomes: Sequence[Outcome]) -> list[str]:
    """That no design fits in memory, which comes nearest, and what would make it fit; for people. Nothing for others.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points.
    """
    found = nearest_fit(study, outcomes)
    if found is None:
        return []
    design, text = found
    return [f"no design fits in memory: the nearest{in_parentheses(named_values(study, design))} {text}"]


def in_parentheses(text: str) -> str:
    """A text behind what it explains; nothing for an empty one."""
    return f" ({text})" if text else ""


def result_notes(study: Study, outcomes: Sequence[Outcome], best: Sequence[Outcome]) -> list[str]:
    """All that a reader of the results should know; for people.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points.
    best
        Good ones, best first.
    """
    said = [
        *notes(study, outcomes),
        *unshared(study),
        *_wide_switches(study),
        *remark_notes(best),
        *overfull(study, outcomes, best),
        *nothing_fits(study, outcomes),
        *unranked(study, outcomes),
        *without_effect(study, outcomes),
        *tie_note(study, best),
        *work_note(study, best),
    ]
    return list(dict.fromkeys(said))  # replays note what the study says of all its points, too


def _platforms(study: Study) -> list[Platform]:
    """Machines that the points of a study run on."""
    words = [study.fixed.get("platform")]
    words += [value for p in study.parameters if p.name == "platform" for value in p.values]
    return [cluster(str(text), sized=False) for text in words if text is not None]


def _machines(study: Study, outcomes: Sequence[Outcome]) -> list[str]:
    """Presets of the points of a study that have a result, sorted."""
    ran = [
        str(outcome.point["platform"]) for outcome in outcomes if outcome.ok and "platform" in outcome.point
    ]
    found = [cluster(text, sized=False) for text in dict.fromkeys(ran)] if ran else _platforms(study)
    return sorted({platform.name for platform in found})


def unshared(study: Study) -> list[str]:
    """That points run on the links of a fabric without waiting for each other; for people. Nothing for others.

    Parameters
    ----------
    study
        The study.
    """
    fixed = study.fixed.get("replay")
    backends = {fixed.get("backend", "unaware") if isinstance(fixed, Mapping) else "unaware"}
    for parameter in study.parameters:
        if parameter.name == "replay.backend":
            backends = set(parameter.values)
    on_links = any(platform.fabric is not None for platform in _platforms(study))
    return [NOT_SHARED] if on_links and "unaware" in backends else []


def _wide_switches(study: Study) -> list[str]:
    """That switches of some fabrics are more than one chip; for people. Nothing for others."""
    found = [
        note
        for platform in _platforms(study)
        if platform.fabric is not None
        for note in port_notes(platform.fabric.ports, 8 * platform.dims[-1].bandwidth.value)
    ]
    return list(dict.fromkeys(found))


def _wants_peak(study: Study) -> bool:
    """Whether some point asks for the peak, or for ASTRA-sim's times."""
    fixed = study.fixed.get("replay")
    given = set(fixed) if isinstance(fixed, Mapping) else set()
    given |= {p.name.removeprefix("replay.") for p in study.parameters if p.name.startswith("replay.")}
    return bool(given & {"ideal", "compat"})


def notes(study: Study, outcomes: Sequence[Outcome] = ()) -> list[str]:
    """What a reader of the results should know: whose times computation takes, or that it runs at the peak.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points: machines on which none has a result are left out.
    """
    given = study.fixed.get("workload")
    names = {str(name).replace("_", "-") for name in given} if isinstance(given, Mapping) else set()
    names |= {
        parameter.name.removeprefix("workload.").replace("_", "-")
        for parameter in study.parameters
        if parameter.name.startswith("workload.")
    }
    machine = study.fixed.get("platform") or any(p.name == "platform" for p in study.parameters)
    if "files" in names or not (machine or "peak-tflops" in names):
        return []
    machines = _machines(study, outcomes)
    if (
        machines
        and not _wants_peak(study)
        and all(takes_operator_times(name, sorted(names)) for name in machines)
    ):
        frameworks = [str(name) for name in values_of(study, "workload.framework")]
        return [
            f"computation takes the operator times of {', '.join(machines)}",
            *(note for name in frameworks for machine in machines for note in machine_notes(name, machine)),
        ]
    unset = [name for name in ("matmul-efficiency", "memory-efficiency") if name not in names]
    if not unset:
        return []
    what = {"matmul-efficiency": "peak FLOP/s", "memory-efficiency": "memory bandwidth"}
    speeds = " and ".join(what[name] for name in unset)
    keys = " and ".join(f"workload.{name}" for name in unset)
    return [
        f"computation runs at 100 % of {speeds}, which no machine reaches: set {keys} (a share, such as 0.6)"
    ]
