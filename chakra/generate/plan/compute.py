"""How long an operator takes, in whole ns: a roofline with an efficiency per kind, or a machine's operator times."""

import math
from dataclasses import dataclass, field

from chakra.errors import UsageError
from chakra.et.operators import operator_text
from chakra.generate.model.ir import OpKind, Work
from chakra.replay.compute import ComputeParameters, operator_ns

#: no operator takes longer
MOST_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class ComputeModel:
    """Roofline of one accelerator.

    Attributes
    ----------
    peak_flops
        Dense matrix operations per second.
    memory_bytes_per_s
        Device memory bandwidth, bytes (decimal) per second.
    matmul_efficiency, memory_efficiency
        Reachable share of each, 0 < x <= 1.
    launch_ns
        Fixed cost of every operator.
    """

    peak_flops: float
    memory_bytes_per_s: float
    matmul_efficiency: float = 1.0
    memory_efficiency: float = 1.0
    launch_ns: int = 0

    def __post_init__(self) -> None:
        for key in ("peak_flops", "memory_bytes_per_s"):
            if not 0 < getattr(self, key) < float("inf"):
                raise UsageError(f"{key} must be a positive number, not {getattr(self, key)}")
        for key in ("matmul_efficiency", "memory_efficiency"):
            if not 0 < getattr(self, key) <= 1:
                raise UsageError(f"{key} must be above 0 and at most 1, not {getattr(self, key)}")
        if self.launch_ns < 0:
            raise UsageError(f"launch_ns must not be negative, not {self.launch_ns}")

    def duration_ns(self, kind: OpKind, work: Work) -> int:
        """Larger of compute and memory time, rounded up, plus the launch cost."""
        peak = self.peak_flops * (self.matmul_efficiency if kind.is_matmul else 1.0)
        bandwidth = self.memory_bytes_per_s * self.memory_efficiency
        needs = ((work.flops, peak), (work.bytes, bandwidth))
        ns = max(
            (1e9 * (amount / speed if speed else math.inf) for amount, speed in needs if amount), default=0.0
        )
        if not ns < MOST_NS:
            raise UsageError(
                f"an operator of kind {kind} takes more ns than 64 bits hold: peak-tflops, mem-gbps or their "
                "efficiencies are too small"
            )
        return math.ceil(ns) + self.launch_ns


@dataclass(frozen=True, slots=True)
class OperatorTimes:
    """Durations by the operator model of a machine, as a replay on it gives them.

    Attributes
    ----------
    parameters
        Constants of the machine.
    """

    parameters: ComputeParameters
    _known: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def duration_ns(self, kind: OpKind, work: Work) -> int:
        """Time of an operator that says what it is."""
        if work.what is None:
            raise UsageError(f"an operator of kind {kind} does not say what it computes")
        return self.text_ns(operator_text(work.what))

    def text_ns(self, text: str) -> int:
        """Time of an operator by its text."""
        if text not in self._known:
            self._known[text] = round(float(operator_ns([text], self.parameters)[0]))
        return self._known[text]
