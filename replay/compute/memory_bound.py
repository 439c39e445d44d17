"""Time of kernels that memory bounds: bytes over the reachable bandwidth, and a floor for each kernel.

    time = floor * kernels + bytes * factor / (bandwidth * efficiency)

The number of kernels of an operator is that of the usual libraries; `factor` is the program's own for its kind.
"""

from chakra.et.operators import Attention, Computed, Direction, Host, Kernel, KernelKind
from chakra.replay.compute.parameters import ComputeParameters, MemoryCosts

#: kernels of an operator, forward and in the backward pass, where they are not one each
_KERNELS: dict[KernelKind, tuple[int, int]] = {
    # the gradients of scale and bias are summed up by a kernel of their own
    KernelKind.NORM: (1, 2),
    # queries and keys
    KernelKind.ROPE: (2, 2),
    # sorting of tokens beside the gradients
    KernelKind.EMBEDDING: (1, 3),
    # gradient norm, scaling, step, copy to the weights' type
    KernelKind.OPTIMIZER: (4, 4),
}


def kernels_of(operator: Computed) -> int:
    """Kernels that the device runs for an operator."""
    if isinstance(operator, Host):
        return 0
    forward = operator.direction is Direction.FORWARD
    if isinstance(operator, Kernel):
        return _KERNELS.get(operator.kind, (1, 1))[not forward]
    if isinstance(operator, Attention):
        if operator.fused:
            return 1 if forward else 3
        return (3 if forward else 5) + operator.dropout
    return 1


def kernel_us(operator: Kernel, parameters: ComputeParameters) -> float:
    """Time of a memory-bound operator, us."""
    moved = operator.bytes * parameters.kernels.get(operator.kind.value, 1.0)
    return kernels_of(operator) * parameters.memory.floor_us + moved_us(moved, parameters.memory)


def moved_us(moved_bytes: float, memory: MemoryCosts) -> float:
    """Time of reading and writing so many bytes, us."""
    return moved_bytes / (memory.gbps * 1e3 * memory.efficiency)
