"""Graph kernels: unions, transposes and topological order over CSR arrays (or lists, as plain Python).

Kernel module: flat sequences and integers only. All outputs are allocated by the caller.
"""

from chakra.arrays import Numbers

ENTRY_POINTS = ("longest_paths", "topological", "transpose", "union_parents")
ALLOCATES = False


def union_parents(
    ctrl_offsets: Numbers,
    ctrl_index: Numbers,
    data_offsets: Numbers,
    data_index: Numbers,
    mark: Numbers,
    out_offsets: Numbers,
    out_index: Numbers,
) -> tuple[int, int]:
    """Each node's distinct parents, control dependencies first, in the order they are given.

    ``mark`` has n entries of -1. Returns (number of edges, number of edges that do not point backward in the
    file).
    """
    n = len(out_offsets) - 1
    count = 0
    forward = 0
    out_offsets[0] = 0
    for i in range(n):
        for k in range(ctrl_offsets[i], ctrl_offsets[i + 1]):
            j = ctrl_index[k]
            if mark[j] != i:
                mark[j] = i
                out_index[count] = j
                count += 1
                if j >= i:
                    forward += 1
        for k in range(data_offsets[i], data_offsets[i + 1]):
            j = data_index[k]
            if mark[j] != i:
                mark[j] = i
                out_index[count] = j
                count += 1
                if j >= i:
                    forward += 1
        out_offsets[i + 1] = count
    return count, forward


def transpose(
    offsets: Numbers, index: Numbers, out_offsets: Numbers, out_index: Numbers, cursor: Numbers
) -> None:
    """Reverse all edges; the new lists are in ascending order. ``out_offsets`` and ``cursor`` have n + 1
    zeros.
    """
    n = len(offsets) - 1
    for k in range(len(index)):
        out_offsets[index[k] + 1] += 1
    for i in range(n):
        out_offsets[i + 1] += out_offsets[i]
        cursor[i] = out_offsets[i]
    for i in range(n):
        for k in range(offsets[i], offsets[i + 1]):
            j = index[k]
            out_index[cursor[j]] = i
            cursor[j] += 1


def topological(
    parent_offsets: Numbers, child_offsets: Numbers, child_index: Numbers, waiting: Numbers, order: Numbers
) -> int:
    """Kahn's order: roots by index, then each node when its last parent was taken. Returns how many were
    reached.

    ``waiting`` and ``order`` have n entries; afterwards waiting[i] > 0 for nodes on or behind a cycle.
    """
    n = len(order)
    tail = 0
    for i in range(n):
        waiting[i] = parent_offsets[i + 1] - parent_offsets[i]
        if waiting[i] == 0:
            order[tail] = i
            tail += 1
    head = 0
    while head < tail:
        i = order[head]
        head += 1
        for k in range(child_offsets[i], child_offsets[i + 1]):
            j = child_index[k]
            waiting[j] -= 1
            if waiting[j] == 0:
                order[tail] = j
                tail += 1
    return tail


def longest_paths(
    parent_offsets: Numbers,
    parent_index: Numbers,
    order: Numbers,
    weights: Numbers,
    finish: Numbers,
    best: Numbers,
) -> None:
    """Finish of every node when each starts as its last parent ends; ``best`` is that parent's index or -1.

    ``order`` is a topological order. Ties go to the parent that is listed first.
    """
    for position in range(len(order)):
        i = order[position]
        latest = 0
        winner = -1
        for k in range(parent_offsets[i], parent_offsets[i + 1]):
            j = parent_index[k]
            if winner < 0 or finish[j] > latest:
                latest = finish[j]
                winner = j
        finish[i] = latest + weights[i]
        best[i] = winner
