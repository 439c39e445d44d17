"""How many of a run's operators take measured times, and why the others do not."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from chakra.et.operators import Computed, Host, operator_text, parse_operators
from chakra.io.readable import count_text, percent_text
from chakra.replay.compute.in_effect import (
    measured_products,
    operator_model,
    product_names,
    why_no_operator_times,
)
from chakra.replay.compute.measured_products import Left
from chakra.replay.compute.times import times_us
from chakra.replay.engines.scenario import Scenario
from chakra.replay.workload.compile import framework_of
from chakra.replay.workload.model import Workload
from chakra.replay.workload.operator_times import operator_nodes, timed_nodes

#: reasons of which the operator that takes most time is named
_SHOWN = (Left.RESULT, Left.TYPE, Left.OUTSIDE)


@dataclass(frozen=True, slots=True)
class Share:
    """Operators of all ranks that have one thing in common.

    Attributes
    ----------
    operators
        How many run.
    time_us
        How long they take together, without gaps between kernels and contention.
    longest
        The one of them that takes most time.
    """

    operators: int
    time_us: float
    longest: Computed


def product_notes(scenario: Scenario) -> list[str]:
    """Whose measured times of matrix products count and for how much, or why they do not."""
    system, options = scenario.system, scenario.options
    names, asked = product_names(system, options)
    if not names:
        return []
    idle = f"{asked}: measured times of matrix products have no effect"
    reason = why_no_operator_times(system, options)
    if reason is not None:
        return [f"{idle}: {reason}"]
    if system.operator_model is None:
        return [f"{idle}: no operator model is named ({system.source})"]
    counts = operators_timed(scenario.workload)
    if not counts:
        return [f"{idle}: no node of the workload takes the time of an operator"]
    model = operator_model(system, options, framework_of(scenario.workload.traces))
    products = measured_products(system, options, model)
    if model is None or products is None:
        return []
    operators = list(counts)
    times, why = times_us(operators, model, products)
    shares = _shares(counts, dict(zip(operators, times.tolist(), strict=True)), why)
    return [_in_words(shares, products.name)]


def operators_timed(workload: Workload) -> Counter[Computed]:
    """How often all ranks together run each operator whose time is no trace's; the host's are left out."""
    found: Counter[Computed] = Counter()
    ranks = np.bincount(workload.program_of, minlength=len(workload.programs))
    for program, runs in zip(workload.programs, ranks.tolist(), strict=True):
        trace = program.trace
        if not len(trace.operator_table):
            continue
        codes = trace.operator_codes[operator_nodes(trace) & ~timed_nodes(trace)]
        nodes = np.bincount(codes, minlength=len(trace.operator_table))
        for text, count in zip(trace.operator_table, nodes.tolist(), strict=True):
            for operator, times in parse_operators(text) if count else ():
                if not isinstance(operator, Host):
                    found[operator] += runs * count * times
    return found


def _shares(
    counts: Mapping[Computed, int], times_us: Mapping[Computed, float], why: list[Left | None]
) -> dict[Left | None, Share]:
    """Operators by the reason why they were not measured; None: they were."""
    by_reason: dict[Left | None, list[Computed]] = {}
    for operator, reason in zip(counts, why, strict=True):
        by_reason.setdefault(reason, []).append(operator)
    spent = {operator: count * times_us[operator] for operator, count in counts.items()}
    return {
        reason: Share(
            sum(counts[one] for one in ones),
            sum(spent[one] for one in ones),
            max(ones, key=spent.__getitem__),
        )
        for reason, ones in by_reason.items()
    }


def _in_words(shares: Mapping[Left | None, Share], name: str) -> str:
    """How many operators were measured and what share of the time they are, and the same of each reason why not."""
    operators = sum(share.operators for share in shares.values())
    total_us = sum(share.time_us for share in shares.values()) or 1.0

    def of_time(share: Share | None) -> str:
        return percent_text(share.time_us / total_us if share else 0.0)

    taken = shares.get(None)
    rest = [
        f"{count_text(share.operators)} {reason.value} ({of_time(share)}"
        + (f", such as {operator_text(share.longest)})" if reason in _SHOWN else ")")
        for reason in Left
        if (share := shares.get(reason)) is not None
    ]
    left = f"; the model takes the others: {', '.join(rest)}" if rest else ""
    return (
        f"measured times of matrix products: {count_text(taken.operators if taken else 0)} of {count_text(operators)} "
        f"operators of all ranks, {of_time(taken)} of their time, are those of {name}{left}; no measured step was "
        "predicted with them, and errors that are stated are those of the model"
    )
