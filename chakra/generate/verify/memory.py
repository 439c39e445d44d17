"""Peak device memory of a rank: model states by ZeRO stage, and activations by a sweep over the schedule order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakra.generate.model.ir import Layer, WeightGroup
from chakra.generate.plan.options import Recompute, Zero
from chakra.generate.plan.passes import Kept, kept_bytes
from chakra.generate.schedule.pipeline import Phase
from chakra.generate.verify.closed_forms import model_state_bytes

if TYPE_CHECKING:
    from chakra.generate.plan.training import StagePlan, StepPlan


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Bytes of one rank of a stage.

    ``states`` are weights, gradients and optimizer states; ``activations`` the peak of what passes keep for each
    other; ``transient`` what is there for a while on top: what recomputation holds, weights that ZeRO-3 has gathered
    (without resharding all of a chunk from its forward to its backward), and gradients that ZeRO 2 and 3 have not
    scattered yet; ``cache`` keys and values.
    """

    states: int
    activations: int
    transient: int
    cache: int = 0

    @property
    def total(self) -> int:
        """Sum of all parts: the peak."""
        return self.states + self.activations + self.transient + self.cache


def layer_activations(layer: Layer, recompute: Recompute) -> int:
    """Bytes that one micro-batch keeps of a layer between its forward and its backward."""
    if recompute is Recompute.FULL and layer.recomputable:
        return layer.input_bytes
    kept = Kept.NO_CORE if recompute is Recompute.SELECTIVE and layer.recomputable else Kept.ALL
    return sum(kept_bytes(op, kept) for op in layer.operators)


def stage_memory(plan: "StepPlan", stage: "StagePlan") -> StageMemory:
    """Peak memory of a rank of ``stage``."""
    chunks = plan.chunks_of(stage)
    training = plan.training
    states = 0.0
    for group in WeightGroup:
        elements = sum(
            w.elements for chunk in chunks for layer in chunk for w in layer.weights() if w.group is group
        )
        shards = plan.parallel.size(plan.parallel.sharding(group.replica_axes()))
        trained = plan.model.training and group in WeightGroup.trained()
        states += model_state_bytes(
            elements, shards, int(training.zero), itemsize=plan.model.itemsize,
            grad_itemsize=plan.model.grad_itemsize if trained else 0,
            state_bytes=training.optimizer_state_bytes if trained else 0, whole_gradients=training.adds_up_whole,
        )  # fmt: skip
    if not plan.model.training:
        cache = plan.model.cache_bytes(stage.stage, plan.parallel.pp)
        return StageMemory(int(states), 0, 2 * stage.working_bytes, cache)
    kept = [sum(layer_activations(layer, training.recompute) for layer in chunk) for chunk in chunks]
    held = peak = 0
    for action in plan.schedule[stage.stage]:
        if action.phase is Phase.FORWARD:
            held += kept[action.chunk]
            peak = max(peak, held)
        elif action.phase in (Phase.BACKWARD, Phase.WEIGHT):
            held -= kept[action.chunk]
    layers = [layer for chunk in chunks for layer in chunk]
    transient = 0
    if training.recompute is Recompute.FULL:
        transient = max((layer.saved_bytes for layer in layers if layer.recomputable), default=0)
    elif training.recompute is Recompute.SELECTIVE:
        transient = max((op.core_bytes for layer in layers for op in layer.operators), default=0)
    if training.zero is Zero.WEIGHTS:
        transient += _gathered_bytes(plan, stage)
    transient += stage.unscattered_bytes
    return StageMemory(-int(-states // 1), peak, transient)


def _gathered_bytes(plan: "StepPlan", stage: "StagePlan") -> int:
    """Most bytes of weights that are whole at once (ZeRO-3).

    The layers of a chunk are gathered in order: those that are whole together are neighbours. Without resharding a chunk
    stays whole until no micro-batch waits for its backward. Weights that one rank holds alone are not gathered.
    """
    sizes = [[_gathered_of(plan, layer) for layer in chunk] for chunk in plan.chunks_of(stage)]
    if plan.training.reshard_after_forward:
        ahead = plan.training.prefetch + 1
        return max((sum(window) for chunk in sizes for window in _windows(chunk, ahead)), default=0)
    whole = [sum(chunk) for chunk in sizes]
    waiting = [0] * len(whole)
    most = 0
    for action in plan.schedule[stage.stage]:
        # gradients of weights (Phase.WEIGHT) need no weights
        if action.phase is Phase.FORWARD:
            waiting[action.chunk] += 1
            most = max(most, sum(size for size, count in zip(whole, waiting, strict=True) if count))
        elif action.phase in (Phase.BACKWARD, Phase.INPUT):
            waiting[action.chunk] -= 1
    return most


def _gathered_of(plan: "StepPlan", layer: Layer) -> int:
    """Bytes of a layer's weights that are sharded, and so whole only where they are gathered."""
    parallel = plan.parallel
    return plan.model.itemsize * sum(
        weight.elements for weight in layer.weights() if parallel.sharding(weight.group.replica_axes())
    )


def _windows(sizes: Sequence[int], length: int) -> list[Sequence[int]]:
    """Every `length` neighbouring layers' sizes (all of them where there are fewer)."""
    return [sizes[first : first + length] for first in range(max(len(sizes) - length, 0) + 1)]
