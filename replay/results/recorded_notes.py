"""How far off the time of a recorded job may be elsewhere, from what is known of each of its parts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chakra.et import Trace
from chakra.io.readable import counted, percent_text, whole_percent_text
from chakra.replay.compute.other_accelerator import BY_SHAPE, accelerator_named, recorded_on
from chakra.replay.compute.parameters import FIRST_TYPE, ComputeParameters
from chakra.replay.engines.scenario import Scenario
from chakra.replay.options import RunOptions
from chakra.replay.workload.kernel_speeds import accelerator_shares
from chakra.replay.workload.recorded import (
    ALONE,
    COST,
    EXPLAINED,
    SPAN,
    has_turns,
    recorded_ranks,
    recorded_steps,
    turns,
)

#: By how much the cost of recording that other jobs' constants take off is off on average, as a share of it: mean of the
#: recorded jobs of an H200 (the last column in ``docs/reference/pytorch-recordings.md``, which ``tools/profile_table.py``
#: holds).
RECORDING_COST_ERROR = 0.18
#: parts of an uncertainty that read 0.000 ms
_LEAST_NS = 500


@dataclass(frozen=True, slots=True)
class RecordedSpan:
    """What the converter of profiles wrote of a rank's span, ns.

    Attributes
    ----------
    recorded
        The recorded span.
    explained
        Span of a replay without fitted waits.
    alone
        The same without other ranks' turns on an accelerator that they share, too.
    cost
        What was taken off the host as the cost of recording, of all nodes together.
    """

    recorded: int
    explained: int
    alone: int
    cost: int

    @property
    def fitted_share(self) -> float:
        """Share of the recorded span that is fitted waits."""
        return abs(1 - self.explained / self.recorded)

    @property
    def turns_share(self) -> float:
        """Share of the recorded span that is other ranks' turns on a shared accelerator."""
        return max(self.explained - self.alone, 0) / self.recorded


def recorded_spans(traces: Sequence[Trace]) -> list[RecordedSpan]:
    """Spans of the traces that a converter of profiles made; of others none."""
    out = []
    for trace in traces:
        said = {
            attribute.name: int(attribute.int64_val)
            for attribute in trace.metadata.attr
            if attribute.name in (SPAN, EXPLAINED, ALONE, COST)
        }
        if said.get(SPAN, 0) > 0 and EXPLAINED in said:
            explained = said[EXPLAINED]
            out.append(RecordedSpan(said[SPAN], explained, said.get(ALONE, explained), said.get(COST, 0)))
    return out


def recording_notes(traces: Sequence[Trace], npus: int, finish_ns: int) -> list[str]:
    """What a replay's time is the time of, in words: of a part of the recorded ranks, of several steps.

    Parameters
    ----------
    traces
        Traces of the replay.
    npus
        NPUs of the replay.
    finish_ns
        When the last of them has finished, ns.
    """
    out = []
    ranks, steps = recorded_ranks(traces), recorded_steps(traces)
    if npus < ranks:
        out.append(
            f"the recorded job had {counted(ranks, 'rank')}, this replay has {npus}: collectives of all ranks span "
            "these alone"
            + ("" if ranks % npus else " (--replicate on a machine of all ranks repeats the traces)")
        )
    if steps > 1:
        out.append(
            f"the recording holds {counted(steps, 'profiler step')}: one takes {finish_ns / steps / 1e6:,.3f} ms on "
            "average"
        )
    return out


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
    spans = recorded_spans(traces)
    if not spans or scenario.system.replay_only or options.astra:
        return []
    share, shared = max(span.fitted_share for span in spans), max(span.turns_share for span in spans)
    parts = [
        (share * (finish_ns - exposed_ns), f"{percent_text(share)} of the recorded span is fitted waits")
    ]
    if shared:
        why = f"{percent_text(shared)} of it is turns of ranks that share a GPU"
        parts.append((shared * (finish_ns - exposed_ns), why))
    cost = max(span.cost for span in spans)
    if cost:
        off = f"{whole_percent_text(RECORDING_COST_ERROR)} off on average"
        taken = f"the {cost / 1e6:,.3f} ms that were taken off as the cost of recording are {off}"
        parts.append((RECORDING_COST_ERROR * cost, taken))
    placed = scenario.plans.library
    collectives, messages = scenario.workload.has_collectives, scenario.workload.has_messages
    if placed is not None and exposed_ns and collectives:
        bands = placed.machine.evidence.errors.values()
        if bands:
            error = float(np.average([b.mean_error for b in bands], weights=[b.rows for b in bands]))
            also = ", which is taken for sends and receives, too" if messages else ""
            parts.append(
                (error * exposed_ns, f"collectives' times are {percent_text(error)} off on average{also}")
            )
    unknown = []
    if compute_ns:
        known, unmeasured = _other_accelerator(traces, options)
        parts += [(error * compute_ns, text) for error, text in known]
        unknown += unmeasured
    if exposed_ns and messages and not collectives:
        unknown.append("times of sends and receives")
    # as fitted waits of a recording of the device alone, which has none
    parts = [(time, text) for time, text in parts if time >= _LEAST_NS]
    if not parts and not unknown:
        return []
    total = sum(time for time, _ in parts)
    reasons = [text for _, text in parts] + [f"how far {what} are off is not known" for what in unknown]
    told = "; ".join(reasons)
    if not parts:
        return [f"uncertain: {told}, nor is what the recording does not hold"]
    within = f"{total / 1e6:,.3f} ms ({percent_text(total / max(finish_ns, 1))})" + " or more" * bool(unknown)
    return [f"uncertain by about {within}: {told}; what the recording does not hold is not in it"]


def _other_accelerator(
    traces: Sequence[Trace], options: RunOptions
) -> tuple[list[tuple[float, str]], list[str]]:
    """Errors of kernels' times on another accelerator than the recorded one: shares of computing, and what is not known.

    Errors of operator models are those of what they were fitted to, products of known shapes. Ratios of peaks and of
    bandwidths were held against no measured kernels.
    """
    if options.accelerator is None:
        return [], []
    models = (accelerator_named(options.accelerator), recorded_on(traces, options.recorded_on))
    if models[0].name == models[1].name:  # all ratios are 1
        return [], []
    shares = accelerator_shares(traces, options)
    by_shape, error = shares.pop(BY_SHAPE, 0.0), sum(map(_error, models))
    known = []
    if by_shape and error:
        of = f", of {whole_percent_text(by_shape)} of the kernels' time" if shares else ""
        together = whole_percent_text(error)
        known.append((by_shape * error, f"products of the two accelerators {together} together{of}"))
    by_ratio = f"times by {' and '.join(shares)}, {whole_percent_text(sum(shares.values()))} of the kernels',"
    return known, [by_ratio] if shares else []


def turns_notes(scenario: Scenario) -> list[str]:
    """What is left out because every NPU has an accelerator of its own, where recorded ranks shared one."""
    if scenario.system.replay_only or scenario.options.astra:
        return []
    held = [
        trace.durations_ns()[turns(trace)].sum() for trace in scenario.workload.traces if has_turns(trace)
    ]
    if not held:
        return []
    said = f"up to {int(max(held)) / 1e6:,.3f} ms of a rank's wait for the others' turns are left out"
    return [f"recorded ranks shared an accelerator: {said}; times of kernels are as recorded"]


def _error(parameters: ComputeParameters) -> float:
    known = parameters.errors.get(FIRST_TYPE)
    return known.mean_error if known is not None else 0.0
