"""Designs whose steps do different amounts of work: the shortest step need not be that of the fastest design."""

from collections.abc import Sequence
from typing import Final

from chakra.io.readable import count_text
from chakra.sweep.store import Outcome
from chakra.sweep.study import Study

#: metrics of a whole step, whatever it does
OF_A_STEP: Final = frozenset(("step_ms", "step_low_ms", "step_high_ms", "exposed_ms", "cost_per_step"))
#: what is counted, and the metric that tells it a second, first what says most
_COUNTED: Final = (("tokens", "tokens_per_s"), ("samples", "samples_per_s"))


def work_note(study: Study, best: Sequence[Outcome]) -> list[str]:
    """That designs ranked by a metric of the step do not do the same in it; for people. Nothing where they do.

    Parameters
    ----------
    study
        The study.
    best
        Good points, best first.
    """
    if study.objective not in OF_A_STEP:
        return []
    for word, rate in _COUNTED:
        done = [
            outcome.metrics[rate] * outcome.metrics["step_ms"] / 1e3
            for outcome in best
            if rate in outcome.metrics
        ]
        if len(done) < len(best):
            continue
        # rates times times are whole numbers but for rounding
        found = sorted({round(count) for count in done})
        if len(found) < 2:
            continue
        span = f"{count_text(found[0])} to {count_text(found[-1])} {word}"
        told = f"so that {study.objective} does not tell which design is faster"
        way = f"rank by {rate}, or give all of them one workload.global-batch"
        return [f"steps of the designs do not do the same: {span}, {told}; {way}"]
    return []
