"""How far off the time of a recorded job may be elsewhere, from what is known of each of its parts."""

from collections.abc import Sequence

import numpy as np

from chakra.et import Trace
from chakra.replay.compute.other_accelerator import accelerator_named, recorded_on
from chakra.replay.compute.parameters import FIRST_TYPE, ComputeParameters
from chakra.replay.engines.scenario import Scenario
from chakra.replay.workload.recorded import SPAN

#: metadata attribute of the converter: span of the recording that its graph explains without fitted waits
EXPLAINED = "explained_span_ns"


def unexplained_share(traces: Sequence[Trace]) -> float | None:
    """Largest share of a recorded span that is fitted waits; None of workloads that are not recorded."""
    found = []
    for trace in traces:
        spans = {
            attribute.name: attribute.int64_val
            for attribute in trace.metadata.attr
            if attribute.name in (SPAN, EXPLAINED)
        }
        if len(spans) == 2 and spans[SPAN] > 0:
            found.append(abs(1 - spans[EXPLAINED] / spans[SPAN]))
    return max(found, default=None)


def uncertainty_notes(scenario: Scenario, finish_ns: int, exposed_ns: int, compute_ns: int) -> list[str]:
    """By how much the finish of the last NPU is uncertain: the sum of what each part is known to be off by.

    Parameters
    ----------
    scenario
        What ran.
    finish_ns, exposed_ns, compute_ns
        Finish, exposed communication and computing of the last NPU.
    """
    traces, options = scenario.workload.traces, scenario.options
    share = unexplained_share(traces)
    if share is None or scenario.system.replay_only or options.astra:
        return []
    parts = [(share * (finish_ns - exposed_ns), f"{100 * share:.1f} % of the recorded span is fitted waits")]
    placed = scenario.plans.library
    if placed is not None and exposed_ns:
        bands = placed.machine.evidence.errors.values()
        if bands:
            error = float(np.average([b.mean_error for b in bands], weights=[b.rows for b in bands]))
            parts.append((error * exposed_ns, f"collectives' times are {100 * error:.1f} % off on average"))
    if options.accelerator is not None and compute_ns:
        models = (accelerator_named(options.accelerator), recorded_on(traces, options.recorded_on))
        error = sum(map(_error, models))
        if error:
            parts.append(
                (error * compute_ns, f"products of the two accelerators {100 * error:.0f} % together")
            )
    total = sum(time for time, _ in parts)
    reasons = "; ".join(text for _, text in parts)
    within = f"{total / 1e6:,.3f} ms ({100 * total / max(finish_ns, 1):.1f} %)"
    return [f"uncertain by about {within}: {reasons}; what the recording does not hold is not in it"]


def _error(parameters: ComputeParameters) -> float:
    known = parameters.errors.get(FIRST_TYPE)
    return known.mean_error if known is not None else 0.0
