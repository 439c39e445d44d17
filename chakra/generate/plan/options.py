"""What a training step is made of, beside the model and the parallel degrees."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from chakra.errors import UsageError
from chakra.generate.schedule.pipeline import ScheduleKind


class Recompute(StrEnum):
    """Activations that are computed again in the backward pass: none, the attention core, or whole layers."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class Zero(IntEnum):
    """Sharding over the data-parallel ranks: nothing, optimizer states, also gradients, also weights (FSDP)."""

    NONE = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    WEIGHTS = 3


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """One training step.

    Attributes
    ----------
    micro_batches
        M: micro-batches (gradient accumulation steps) per replica.
    iterations
        Steps, one after the other.
    schedule, schedule_file
        Pipeline schedule, or a CSV file that spells it out.
    paired
        Forward passes go beside backward passes of other micro-batches: what one communicates, the other computes beside.
    zero
        ZeRO stage. 0: gradients all-reduced; 1: reduce-scattered once a step; 2: once per micro-batch; 3: weights
        gathered for every layer and pass.
    bucket_bytes
        Gradients are reduced in pieces of this size, as they become ready.
    reshard_after_forward
        ZeRO-3: gather again for the backward pass; else weights stay whole from a forward to its backward.
    reduce_once
        ZeRO-3: reduce gradients once a step instead of once per micro-batch (``no_sync``); each rank holds them whole.
    prefetch
        ZeRO-3: layers gathered ahead of the one that runs.
    optimizer_state_bytes
        Bytes of optimizer state per parameter (Adam with a master copy in 4 bytes: 12).
    optimizer_step
        Whether the trace ends with the optimizer.
    """

    micro_batches: int = 1
    schedule: ScheduleKind = ScheduleKind.ONE_F_ONE_B
    schedule_file: str | None = None
    paired: bool = False
    recompute: Recompute = Recompute.NONE
    zero: Zero = Zero.NONE
    bucket_bytes: int = 40_000_000
    reshard_after_forward: bool = True
    reduce_once: bool = False
    prefetch: int = 1
    optimizer_state_bytes: int = 12
    optimizer_step: bool = True
    iterations: int = 1

    def __post_init__(self) -> None:
        if self.micro_batches < 1:
            raise UsageError(f"micro-batches must be at least 1, not {self.micro_batches}")
        if self.iterations < 1:
            raise UsageError(f"iterations must be at least 1, not {self.iterations}")
        if self.iterations > 1 and not self.optimizer_step:
            raise UsageError("several iterations need the optimizer's step, for which the next one waits")
        if self.bucket_bytes < 1:
            raise UsageError(f"bucket bytes must be at least 1, not {self.bucket_bytes}")
        if self.prefetch < 0:
            raise UsageError(f"prefetch must not be negative, not {self.prefetch}")
        if self.optimizer_state_bytes < 0:
            raise UsageError(f"optimizer state bytes must not be negative, not {self.optimizer_state_bytes}")

    @property
    def adds_up_whole(self) -> bool:
        """Whether ZeRO-3 adds gradients up over micro-batches before it scatters them, all of them on each rank."""
        return self.zero is Zero.WEIGHTS and self.reduce_once and self.micro_batches > 1

    @property
    def passes(self) -> int:
        """Micro-batches of all steps: how many tags each boundary of the pipeline needs."""
        return self.micro_batches * self.iterations
