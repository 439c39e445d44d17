"""Kernel: orders and levels of a graph that may have cycles, linear in nodes and edges (run compiled or as
plain Python)."""

import numpy as np

from chakra.arrays import I32, I64


def order_and_levels(offsets: I64, children: I32, waiting: I64) -> tuple[I64, I32]:
    """Order nodes after their parents where there is no cycle, and give each the length of the longest path
    to it.

    Parameters
    ----------
    offsets, children
        CSR of every node's children, (n + 1,) and (m,).
    waiting
        (n,) number of parents; used up.

    Returns
    -------
    order, level
        (n,) each. On a cycle, the waiting node of lowest index goes first; edges back to placed nodes count
        nothing.
    """
    n = len(waiting)
    order = np.empty(n, np.int64)
    level = np.zeros(n, np.int32)
    placed = np.zeros(n, np.uint8)
    tail = 0
    for node in range(n):
        if waiting[node] == 0:
            order[tail] = node
            placed[node] = 1
            tail += 1
    head = 0
    lowest = 0
    while head < n:
        if head == tail:
            while placed[lowest]:
                lowest += 1
            order[tail] = lowest
            placed[lowest] = 1
            tail += 1
        node = order[head]
        head += 1
        for k in range(offsets[node], offsets[node + 1]):
            child = children[k]
            if placed[child]:
                continue
            if level[child] < level[node] + 1:
                level[child] = level[node] + 1
            waiting[child] -= 1
            if waiting[child] == 0:
                order[tail] = child
                placed[child] = 1
                tail += 1
    return order, level
