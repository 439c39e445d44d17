"""Time of matrix products on systolic arrays, after SCALE-Sim (Samajdar et al. 2020, arXiv 1811.02883).

A product is cut into folds of the array's size. By what stays in the array while the rest streams through it,

    weight stationary   folds = ceil(k / rows) * ceil(n / columns), stream t = m
    input stationary    folds = ceil(k / rows) * ceil(m / columns), stream t = n
    output stationary   folds = ceil(m / rows) * ceil(n / columns), stream t = k

A fold takes ``2 * rows + columns + t - 2`` cycles: loading, stream, and the way through the array. With the output
stationary there is nothing to load (``rows + columns + t - 2``). These are SCALE-Sim's compute cycles; version 3.0.0
counts from cycle 0, so that its figure of a product is one less. An array that loads (or, with the output stationary,
empties) one fold while another runs takes ``max(t, rows)`` for each, and its way through once. Folds and the products
of a batch are spread over all arrays.
"""

from collections.abc import Sequence

import numpy as np

from chakra.arrays import F64
from chakra.et.operators import MatrixProduct
from chakra.replay.compute.parameters import MatmulCosts, MemoryCosts, SystolicArray

#: sizes (index into m, n, k) over rows and columns of the array, and of the stream, by what is stationary
_MAPPING = {"weight": (2, 1, 0), "input": (2, 0, 1), "output": (0, 1, 2)}


def systolic_cycles(sizes: F64, array: SystolicArray) -> F64:
    """Cycles of matrix products.

    Parameters
    ----------
    sizes
        (4, products): m, n, k and batch.
    array
        The arrays.

    Returns
    -------
    numpy.ndarray
        (products,) cycles of the array with the most folds.
    """
    over_rows, over_columns, stream = (sizes[i] for i in _MAPPING[array.stationary])
    rows, columns = array.rows, array.columns
    folds = np.ceil(over_rows / rows) * np.ceil(over_columns / columns) * sizes[3]
    each = np.ceil(folds / array.arrays)
    way = rows + columns - 2
    loaded = 0 if array.stationary == "output" else rows
    cycles: F64 = each * (loaded + stream + way)
    if array.overlapped:
        cycles = each * np.maximum(stream, rows) + way
    return cycles


def systolic_us(
    products: Sequence[MatrixProduct], costs: MatmulCosts, memory: MemoryCosts, array: SystolicArray
) -> F64:
    """Times of products of one element type, us: cycles at the reachable share of the peak, or bytes."""
    sizes = np.array([(p.m, p.n, p.k, p.batch) for p in products], np.float64).reshape(-1, 4).T
    moved = np.array([p.moved_bytes for p in products], np.float64)
    # other element types run at the rate of their peak
    clock = array.clock_ghz * 1e3 * costs.peak_tflops / array.peak_tflops * costs.efficiency
    bandwidth = memory.gbps * 1e3 * costs.memory_efficiency
    time: F64 = costs.launch_us + np.maximum(systolic_cycles(sizes, array) / clock, moved / bandwidth)
    return time
