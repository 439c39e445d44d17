"""What a step comes to: samples and tokens in a second, shares of the peak, costs. One rule for studies and replays."""

from collections.abc import Mapping
from typing import TypeGuard

from chakra.arguments import checked
from chakra.et.memory_need import generated_totals
from chakra.et.operators import COUNTS
from chakra.replay.results.result import ReplayResult
from chakra.replay.results.serving import ServingTimes, serving_times


def rates_of(
    totals: Mapping[str, float],
    step_ns: int,
    npus: int,
    *,
    peak_tflops: float | None = None,
    price: float | None = None,
    serving: ServingTimes | None = None,
    paid_npus: int | None = None,
) -> dict[str, float]:
    """Figures of a step of `step_ns` ns on `npus` NPUs, or of as many steps as ``iterations`` among the totals says.

    ``samples_per_s``, ``tokens_per_s`` and ``tokens_per_s_per_npu``; ``mfu``, the matrix products of the model as a share
    of all accelerators' peak, and ``hfu``, which also counts those that are done again, where the peak is known; costs in
    an hour, for the step and for a million tokens where an NPU's hour has a price: of `paid_npus` NPUs, those of the
    machines, where a step uses a part of them. Tokens are those that are trained on,
    or that requests are given. ``serving`` adds ``ttft_ms``, ``tpot_ms``, and either ``decode_tokens_per_s`` or, where
    prefill and decoding have ranks of their own, the rates and the cost of the steady state.
    """
    seconds = step_ns / 1e9
    found: dict[str, float] = {}
    if paid_npus is not None:
        found["paid_npus"] = paid_npus
    an_hour = None if price is None else price * (npus if paid_npus is None else paid_npus)
    for name in ("samples", "tokens"):
        if name in totals:
            found[f"{name}_per_s"] = totals[name] / seconds if seconds else 0.0
    if "tokens_per_s" in found:
        found["tokens_per_s_per_npu"] = found["tokens_per_s"] / npus
    if an_hour is not None:
        found["cost_per_hour"] = an_hour
        found["cost_per_step"] = an_hour * seconds / 3600 / totals.get("iterations", 1)
        if found.get("tokens_per_s"):
            found["cost_per_million_tokens"] = an_hour / 3600 / found["tokens_per_s"] * 1e6
    if serving is not None:
        found |= _of_requests(totals, serving, an_hour)
    if "matmul_flops" in totals and peak_tflops and seconds:
        peak = seconds * npus * peak_tflops * 1e12
        found["mfu"] = (totals["matmul_flops"] - totals.get("recomputed_flops", 0)) / peak
        found["hfu"] = totals["matmul_flops"] / peak
    return found


def _of_requests(totals: Mapping[str, float], times: ServingTimes, an_hour: float | None) -> dict[str, float]:
    """Latencies of requests, and the rates and costs (`an_hour` of all NPUs) that follow from them."""
    found: dict[str, float] = {}
    if times.first_ns is not None:
        found["ttft_ms"] = times.first_ns / 1e6
    if times.token_ns is not None:
        found["tpot_ms"] = times.token_ns / 1e6
    if times.half_ns:
        for name in ("samples", "tokens"):
            if name in totals:
                found[f"steady_{name}_per_s"] = totals[name] / times.half_ns * 1e9
        if an_hour is not None and found.get("steady_tokens_per_s"):
            found["steady_cost_per_million_tokens"] = an_hour / 3600 / found["steady_tokens_per_s"] * 1e6
    elif times.decode_ns and "samples" in totals:
        found["decode_tokens_per_s"] = totals["samples"] * times.steps / times.decode_ns * 1e9
    return found


@checked
def replay_rates(result: ReplayResult, *, price: float | None = None) -> dict[str, float]:
    """What the step of a replay comes to, as a study shows it.

    Parameters
    ----------
    result
        From `chakra.replay.simulate`.
    price
        What an NPU costs in an hour, in any currency.

    Returns
    -------
    dict
        See the result document's key ``rates``. Tokens and shares of the peak are those of generated workloads that were
        not changed since; costs need a price only. Empty for a partial run.
    """
    if result.partial:
        return {}
    return rates_of(
        counts_of(result),
        int(result.finish_ns.max()),
        result.npus,
        peak_tflops=result.system.peak_perf_tflops,
        price=price,
        serving=serving_times(result),
    )


def counts_of(result: ReplayResult) -> dict[str, float]:
    """Counts that the generator wrote of what a replay ran, such as tokens, and its steps; of other workloads none."""
    found = generated_totals(result.workload.traces, result.npus)
    counts = {name: float(count) for name in COUNTS if _is_count(count := found.get(name))}
    if counts.get("iterations", 1) < 1:  # of a file that was damaged
        del counts["iterations"]
    return counts


def _is_count(value: object) -> TypeGuard[int | float]:
    """Whether a total is a number that can be."""
    return isinstance(value, int | float) and 0 <= value < float("inf")
