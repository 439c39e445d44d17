"""Time of matrix products: tiles of the result in waves over the compute units, or the bytes, whichever is longer.

A product of m x n x k is cut into tiles of the result, and k into `split` parts; each unit computes one tile at a time,
so that they take ``ceil(units of work / compute units)`` waves. The library takes the fastest of all tiles and splits:

    time = launch + max(min over tile, split of waves * tile time + split's sums, bytes / (bandwidth * efficiency))
    tile time = 2 * tile_m * tile_n * (k / split rounded up to 64, + fill_k) / (peak * efficiency / units) * (1 + penalty)

The penalty of a tile is ``small_tile * (128 / min(tile_m, tile_n) - 1 + max(0, 32768 / (tile_m * tile_n) - 1) / 2)``:
small tiles read their operands more often. Activations that must be brought into the type of the product first (8-bit
recipes) cost `cast_bytes` each; the gradient of the weights finds its operands made. Six numbers for an accelerator and
element type, fitted to measured products.
"""

from collections.abc import Sequence

import numpy as np

from chakra.arrays import F64
from chakra.et.operators import Direction, KernelKind, MatrixProduct
from chakra.replay.compute.parameters import ComputeParameters, MatmulCosts, MemoryCosts
from chakra.replay.compute.systolic import systolic_us

#: tiles of the result that libraries have
TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (256, 64), (64, 256))
#: parts that k is cut into
SPLITS = (1, 2, 4, 8)
#: k is worked off in steps of so many elements
K_STEP = 64


def product_us(sizes: F64, moved_bytes: F64, costs: MatmulCosts, memory: MemoryCosts, units: int) -> F64:
    """Time of matrix products.

    Parameters
    ----------
    sizes
        (4, products): m, n, k and batch.
    moved_bytes
        (products,): bytes of the matrices of each.
    costs
        Of their element type.
    memory
        Of the accelerator; its bandwidth counts, the reachable share of it is that of `costs`.
    units
        Compute units.

    Returns
    -------
    numpy.ndarray
        (products,), us.
    """
    bandwidth = memory.gbps * 1e3 * costs.memory_efficiency  # bytes per us
    best = np.full(sizes.shape[1], np.inf)
    for tile in TILES:
        for split in SPLITS:
            np.minimum(best, _tiled_us(sizes, tile, split, costs, bandwidth, units), out=best)
    time: F64 = costs.launch_us + np.maximum(best, moved_bytes / bandwidth)
    return time


def _tiled_us(
    sizes: F64, tile: tuple[int, int], split: int, costs: MatmulCosts, bandwidth: float, units: int
) -> F64:
    """Time of the waves with one tile and split, and of adding up the parts."""
    m, n, k, batch = sizes
    tm, tn = tile
    waves = np.ceil(np.ceil(m / tm) * np.ceil(n / tn) * batch * split / units)
    depth = np.ceil(k / split / K_STEP) * K_STEP + costs.fill_k
    penalty = 128 / min(tile) - 1 + max(0.0, 32768 / (tm * tn) - 1) / 2
    rate = costs.peak_tflops * 1e6 * costs.efficiency / units  # operations per us and unit
    time: F64 = waves * (2 * tm * tn * depth / rate) * (1 + costs.small_tile * max(0.0, penalty))
    if split > 1:
        time = time + m * n * batch * 8 * split / (bandwidth * costs.split_k)
    return time


def matrix_us(products: Sequence[MatrixProduct], costs: MatmulCosts, parameters: ComputeParameters) -> F64:
    """Times of products of one element type on a machine, us."""
    if parameters.systolic is not None:
        time: F64 = systolic_us(products, costs, parameters.memory, parameters.systolic)
    else:
        time = products_us(products, costs, parameters.memory, parameters.units)
    # chunks of a recurrence are computed by kernels of the program's own, not by the library's
    scan = KernelKind.SCAN.value
    factor = parameters.kernels.get(scan, 1.0)
    time *= np.array([factor if product.role == scan else 1.0 for product in products])
    return time


def products_us(
    products: Sequence[MatrixProduct], costs: MatmulCosts, memory: MemoryCosts, units: int
) -> F64:
    """Times of products of one element type on compute units, us."""
    sizes = np.array([(p.m, p.n, p.k, p.batch) for p in products], np.float64).reshape(-1, 4).T
    moved = np.array([p.moved_bytes for p in products], np.float64)
    time = product_us(sizes, moved, costs, memory, units)
    if costs.cast_bytes:
        cast = [0 if p.direction is Direction.WEIGHT else p.m * p.k * p.batch for p in products]
        time = time + np.array(cast, np.float64) * costs.cast_bytes / (memory.gbps * 1e3 * memory.efficiency)
    return time
