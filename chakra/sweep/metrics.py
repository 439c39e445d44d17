"""What a point is measured by."""

from dataclasses import dataclass

from chakra.io.shown import describe
from chakra.replay.config.key import Schema, UnfitError

#: Metrics of a point and whether more is better. ``mfu`` counts FLOPs of the model's matrix products, ``hfu`` also those
#: of activations that are computed again; both as a share of the peak of all accelerators. ``step_low_ms`` and
#: ``step_high_ms`` are the ends of the 90 % interval of ``step_ms`` (`chakra.accuracy.replay_interval`);
#: ``ttft_ms`` is when the last request of an inference has its first token, ``tpot_ms`` the mean time from a request's
#: token to its next, ``decode_tokens_per_s`` counts while they decode; ``steady_...`` are of prefill and decoding on
#: ranks of their own, which work on different batches at once;
#: ``bubble_share`` is the mean of `chakra.replay.ReplayResult.pipeline` as a share of the step, ``ideal_bubble_share``
#: what the schedule alone has; ``memory_share`` is ``memory_gb`` as a share of an NPU's memory; ``switches`` and
#: ``cables`` are those of a fabric of switches with some ports. ``paid_npus`` are all NPUs of a point's machines, where
#: ``network: {dim0.npus: N}`` says how many of each are in use. Costs are those of all NPUs of a point, spare ones
#: included, in the currency of the study's price; figures of an NPU are of those in use.
METRICS: dict[str, bool] = {
    "step_ms": False,
    "exposed_ms": False,
    "bubble_share": False,
    "ideal_bubble_share": False,
    "memory_gb": False,
    "memory_share": False,
    "samples_per_s": True,
    "tokens_per_s": True,
    "tokens_per_s_per_npu": True,
    "ttft_ms": False,
    "tpot_ms": False,
    "decode_tokens_per_s": True,
    "steady_samples_per_s": True,
    "steady_tokens_per_s": True,
    "mfu": True,
    "hfu": True,
    "npus": False,
    "paid_npus": False,
    "switches": False,
    "cables": False,
    "cost_per_hour": False,
    "cost_per_step": False,
    "cost_per_million_tokens": False,
    "steady_cost_per_million_tokens": False,
    "step_low_ms": False,
    "step_high_ms": False,
}
#: metrics that are the step's time times, or over, what a design says beside it
OF_TIME = frozenset(
    {
        "step_ms", "samples_per_s", "tokens_per_s", "tokens_per_s_per_npu", "mfu", "hfu", "cost_per_step",
        "cost_per_million_tokens",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metric:
    """Reader of a metric's name."""

    allowed: str = "a metric"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> str:
        """The name."""
        if not isinstance(value, str) or value not in METRICS:
            raise UnfitError(f": {describe(value)} is not one of {', '.join(METRICS)}", "")
        return value

    def schema(self) -> Schema:
        """The closed set of names."""
        return {"enum": list(METRICS)}


@dataclass(frozen=True, slots=True)
class TwoMetrics:
    """Reader of the axes of a Pareto front."""

    allowed: str = "list of two metrics"
    missing: str = ""

    def read(self, value: object, compat: str | None = None) -> tuple[str, str]:
        """The two names."""
        if not isinstance(value, list) or len(value) != 2:
            raise UnfitError("must be a list of two metrics", "")
        first, second = (Metric().read(name) for name in value)
        return first, second

    def schema(self) -> Schema:
        """A list of two names."""
        return {"type": "array", "items": Metric().schema(), "minItems": 2, "maxItems": 2}
