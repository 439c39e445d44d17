"""Sweeps over sorted columns: nesting, alignment, replay. Plain Python that numba compiles (see
`chakra.jit`).
"""

# mypy: ignore-errors

import numpy as np


def nest(thread, start, end, parent):
    """Innermost enclosing interval of every interval; -1 at the top.

    Rows are ordered by (thread, start, longest first). A child that ends after its parent by overlap (the
    resolution of the file) is clipped: ``end`` is changed in place. One stack per thread, linear time.
    """
    n = len(thread)
    stack = np.empty(n + 1, np.int64)
    depth = 0
    current = np.int64(-1)
    for i in range(n):
        if thread[i] != current:
            current = thread[i]
            depth = 0
        while depth > 0 and end[stack[depth - 1]] <= start[i]:
            # Equal bounds: an empty interval at its parent's end is still its child.
            top = stack[depth - 1]
            if end[top] == start[i] and start[top] == start[i] and end[i] == start[i]:
                break
            depth -= 1
        if depth > 0:
            top = stack[depth - 1]
            parent[i] = top
            if end[i] > end[top]:
                end[i] = end[top]
        else:
            parent[i] = -1
        stack[depth] = i
        depth += 1


def innermost(op_thread, op_start, op_end, parent, call_thread, call_start, out):
    """Innermost interval that holds each point; -1 where none. Both tables are ordered by (thread, start)."""
    n = len(op_thread)
    i = 0
    last = np.int64(-1)
    for c in range(len(call_thread)):
        t = call_thread[c]
        s = call_start[c]
        while i < n and (op_thread[i] < t or (op_thread[i] == t and op_start[i] <= s)):
            last = i
            i += 1
        j = last
        while j >= 0 and op_thread[j] == t and op_end[j] <= s:
            j = parent[j]
        if j >= 0 and op_thread[j] != t:
            j = -1
        out[c] = j


def align(a, b, limit, out):
    """Longest common subsequence by the greedy O((n + m) d) edit script of Myers (1986), d at most ``limit``.

    ``out[i]`` becomes the position in ``b`` matched to ``a[i]``, or -1. Returns d, or -1 when more edits are
    needed.
    """
    n = len(a)
    m = len(b)
    width = 2 * limit + 3
    offset = limit + 1
    v = np.zeros(width, np.int64)
    trace = np.zeros((limit + 1, width), np.int32)
    found = -1
    for d in range(limit + 1):
        for k in range(-d, d + 1, 2):
            if k == -d or (k != d and v[offset + k - 1] < v[offset + k + 1]):
                x = v[offset + k + 1]
            else:
                x = v[offset + k - 1] + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x += 1
                y += 1
            v[offset + k] = x
            if x >= n and y >= m:
                found = d
                break
        for k in range(width):
            trace[d, k] = v[k]
        if found >= 0:
            break
    for i in range(n):
        out[i] = -1
    if found < 0:
        return -1
    x = n
    y = m
    for d in range(found, 0, -1):
        k = x - y
        if k == -d or (k != d and trace[d - 1, offset + k - 1] < trace[d - 1, offset + k + 1]):
            previous = k + 1
        else:
            previous = k - 1
        px = trace[d - 1, offset + previous]
        py = px - previous
        while x > px and y > py and x > 0 and y > 0:
            if previous == k + 1:
                if x <= px:
                    break
            elif x <= px + 1:
                break
            x -= 1
            y -= 1
            out[x] = y
        x = px
        y = py
    while x > 0 and y > 0:
        x -= 1
        y -= 1
        out[x] = y
    return found


def replay(offsets, sources, duration, engine, n_engines, hold, finish):
    """Finish times of a graph in file order: a node starts when its sources are done and its engine is free.

    Every source stands before its node, so one pass is enough. Where ``hold[i]`` is not negative, node i
    ends at
    ``hold[i]`` or when it can first end, whichever is later, and ``duration[i]`` is set to what that leaves.
    """
    free = np.zeros(n_engines, np.int64)
    for i in range(len(duration)):
        ready = free[engine[i]]
        for j in range(offsets[i], offsets[i + 1]):
            t = finish[sources[j]]
            if t > ready:
                ready = t
        if hold[i] >= 0:
            left = hold[i] - ready
            duration[i] = left if left > 0 else 0
        finish[i] = ready + duration[i]
        free[engine[i]] = finish[i]


def pieces(thread, start, end, skip_gap, cut_thread, cut_time, cut_resume, owner, begin, finish, head, cut):
    """Cut every thread's time into pieces: whose turn it is, from when to when.

    Operators are ordered by (thread, start, longest first) and nest; cuts by (thread, time). A piece ends
    where an operator starts or ends and at a cut; behind a cut the clock goes on at ``cut_resume``.
    Uncovered time before an operator with ``skip_gap`` belongs to nobody. Returns the number of pieces
    written.

    ``owner``: operator or -1; ``head``: 1 on the first piece of each operator; ``cut``: the cut it begins
    at, or -1.
    """
    far = np.int64(1) << np.int64(62)
    n = len(thread)
    m = len(cut_thread)
    stack = np.empty(n + 1, np.int64)
    out = 0
    i = 0
    c = 0
    while i < n:
        here = thread[i]
        depth = 0
        t = start[i]
        is_head = 0
        at_cut = -1
        while c < m and (cut_thread[c] < here or (cut_thread[c] == here and cut_time[c] < t)):
            c += 1
        while True:
            next_start = start[i] if i < n and thread[i] == here else far
            next_end = end[stack[depth - 1]] if depth > 0 else far
            next_cut = cut_time[c] if c < m and cut_thread[c] == here else far
            if next_start == far and depth == 0:
                break
            # At equal times: ends, then starts, then cuts.
            if next_end <= next_start and next_end <= next_cut:
                event = 0
                now = next_end
            elif next_start <= next_cut:
                event = 1
                now = next_start
            else:
                event = 2
                now = next_cut
            if now < t:
                now = t
            skipped = event == 1 and depth == 0 and skip_gap[i] != 0 and at_cut < 0
            if (now > t and not skipped) or is_head != 0 or at_cut >= 0:
                owner[out] = stack[depth - 1] if depth > 0 else -1
                begin[out] = t
                finish[out] = now
                head[out] = is_head
                cut[out] = at_cut
                out += 1
            is_head = 0
            at_cut = -1
            t = now
            if event == 0:
                depth -= 1
            elif event == 1:
                stack[depth] = i
                depth += 1
                is_head = 1
                i += 1
            else:
                if cut_resume[c] > t:
                    t = cut_resume[c]
                at_cut = c
                c += 1
        while c < m and cut_thread[c] == here:
            c += 1
    return out
