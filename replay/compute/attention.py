"""Time of attention: fused kernels that keep the scores on the chip, or products with the scores in memory between them.

Fused (FlashAttention): a compute unit works on a tile of queries of one head, so that heads and tiles come in waves,

    time = floor * kernels + max(operations of full waves / (peak * share), bytes / (bandwidth * efficiency))

Of a window whole tiles of keys are computed, and heads smaller than `least_head` take the time of one of that size.

Unfused: the two products forward (four backward) as batches of matrix products over all pairs of query and key, masked or
not, and the scores read and written between them by softmax, mask and dropout.
"""

from dataclasses import replace
from math import ceil

from chakra.et.operators import ELEMENT_BITS, Attention, Direction, MatrixProduct
from chakra.replay.compute.matmul import matrix_us
from chakra.replay.compute.memory_bound import kernels_of, moved_us
from chakra.replay.compute.parameters import AttentionCosts, ComputeParameters, MatmulCosts


def attention_us(operator: Attention, parameters: ComputeParameters, costs: MatmulCosts) -> float:
    """Time of an attention operator, us; `costs` are those of products of its element type."""
    if operator.fused:
        return _fused_us(operator, parameters, costs)
    return _unfused_us(operator, parameters, costs) / operator.parts


def _fused_us(operator: Attention, parameters: ComputeParameters, costs: MatmulCosts) -> float:
    attention = parameters.attention
    forward = operator.direction is Direction.FORWARD
    share = attention.fused_forward if forward else attention.fused_backward
    # forward a unit holds queries, backward keys; a part of them
    split = (operator.queries if forward else operator.keys) / operator.parts
    tiles = operator.batch * operator.heads * ceil(split / attention.tile)
    idle = ceil(tiles / parameters.units) * parameters.units / tiles
    compute = _fused_flops(operator, attention) * idle / (costs.peak_tflops * 1e6 * share)
    memory = moved_us(_fused_bytes(operator) / operator.parts, parameters.memory)
    return kernels_of(operator) * parameters.memory.floor_us + max(compute, memory)


def _fused_flops(operator: Attention, attention: AttentionCosts) -> float:
    """Operations that a fused kernel does, or could do in its time."""
    if operator.window:
        # a tile of queries sees its own tile of keys, and those that begin before
        keys = (ceil((operator.window - 1) / attention.tile) + 1) * attention.tile
        operator = replace(operator, window=min(keys, operator.keys))
    width = operator.head + (operator.value_head or operator.head)
    return operator.flops * max(1.0, 2 * attention.least_head / width)


def _fused_bytes(operator: Attention) -> float:
    """Bytes of queries, keys, values and results, each once; backward with their gradients."""
    value = operator.value_head or operator.head
    queries = operator.batch * operator.heads * operator.queries * (operator.head + value)
    read = operator.head if operator.latent else operator.head + value
    keys = operator.batch * operator.kv_heads * operator.seen * read
    passes = 1 if operator.direction is Direction.FORWARD else 2.5
    return (queries + keys) * passes * ELEMENT_BITS[operator.type] / 8


def _unfused_us(operator: Attention, parameters: ComputeParameters, costs: MatmulCosts) -> float:
    attention = parameters.attention
    forward = operator.direction is Direction.FORWARD
    size = {"type": operator.type, "batch": operator.batch * operator.heads}
    q, k, d, v = operator.queries, operator.keys, operator.head, operator.value_head or operator.head
    scores = [(q, k, d), (q, v, k)]
    if not forward:
        # gradients of weights and values, then of queries and keys
        scores = [(q, k, v), (k, v, q), (q, d, k), (k, d, q)]
    products = [MatrixProduct(m, n, inner, **size) for m, n, inner in scores]  # type: ignore[arg-type]
    time = float(matrix_us(products, costs, parameters).sum())
    passes = attention.unfused_passes if forward else attention.unfused_backward_passes
    if operator.dropout:
        passes += attention.dropout_passes
    matrix = operator.batch * operator.heads * q * k * ELEMENT_BITS[operator.type] / 8
    kernels = kernels_of(operator) - len(products)
    return time + kernels * parameters.memory.floor_us + moved_us(matrix * passes, parameters.memory)
