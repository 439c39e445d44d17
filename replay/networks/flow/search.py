"""Kernel: shortest paths towards one vertex, and the paths between two.

Links are numbered; `into_start`/`into` list those that end at a vertex, `from_start`/`onward` those that begin there, in
the order of the file. `length` are whole numbers, so that equal paths are equal.
"""

from chakra.arrays import Numbers

ENTRY_POINTS = ("search", "count_paths", "spray", "enumerate_paths")
ALLOCATES = False

FAR = 1 << 62


def search(
    into_start: Numbers,
    into: Numbers,
    tail: Numbers,
    length: Numbers,
    closed: Numbers,
    to: int,
    wanted: Numbers,
    missing: int,
    equal: bool,
    dist: Numbers,
    queue: Numbers,
    heap: Numbers,
    place: Numbers,
) -> int:
    """Distances to a vertex, into `dist` (which is `FAR` before); returns how many vertices are in `queue`.

    `queue` has those with a distance, nearest first. The search ends when the `missing` vertices with `wanted` are found:
    what is farther away has none. Vertices that are `closed` may only begin or end a path. `equal`: all links have one
    length. `place` is 0 before and after.
    """
    if equal:
        return _level_by_level(into_start, into, tail, length, closed, to, wanted, missing, dist, queue)
    return _nearest_first(
        into_start, into, tail, length, closed, to, wanted, missing, dist, queue, heap, place
    )


def _level_by_level(
    into_start: Numbers,
    into: Numbers,
    tail: Numbers,
    length: Numbers,
    closed: Numbers,
    to: int,
    wanted: Numbers,
    missing: int,
    dist: Numbers,
    queue: Numbers,
) -> int:
    """The search over links of one length."""
    dist[to] = 0
    queue[0] = to
    n = 1
    at = 0
    while at < n:
        vertex = queue[at]
        at += 1
        if closed[vertex] and vertex != to:
            continue
        for k in range(into_start[vertex], into_start[vertex + 1]):
            other = tail[into[k]]
            if dist[other] < FAR:
                continue
            dist[other] = dist[vertex] + length[into[k]]
            queue[n] = other
            n += 1
            if wanted[other]:
                missing -= 1
                if missing == 0:
                    return n
    return n


def _nearest_first(
    into_start: Numbers,
    into: Numbers,
    tail: Numbers,
    length: Numbers,
    closed: Numbers,
    to: int,
    wanted: Numbers,
    missing: int,
    dist: Numbers,
    queue: Numbers,
    heap: Numbers,
    place: Numbers,
) -> int:
    """The search over links of any length (Dijkstra's); `heap` has the vertices that are not settled, the nearest on top.

    `place` is where in it each stands, from 1 on.
    """
    dist[to] = 0
    heap[0] = to
    place[to] = 1
    size = 1
    n = 0
    while size > 0:
        vertex = heap[0]
        place[vertex] = 0
        size -= 1
        if size > 0:
            heap[0] = heap[size]
            _sink(dist, heap, place, size)
        queue[n] = vertex
        n += 1
        if wanted[vertex]:
            missing -= 1
            if missing == 0:
                break
        if closed[vertex] and vertex != to:
            continue
        for k in range(into_start[vertex], into_start[vertex + 1]):
            other = tail[into[k]]
            far = dist[vertex] + length[into[k]]
            if far >= dist[other]:
                continue
            if dist[other] == FAR:
                heap[size] = other
                size += 1
                place[other] = size
            dist[other] = far
            _rise(dist, heap, place, place[other] - 1)
    for k in range(size):
        dist[heap[k]] = FAR
        place[heap[k]] = 0
    return n


def _rise(dist: Numbers, heap: Numbers, place: Numbers, at: int) -> None:
    """A vertex has come nearer."""
    vertex = heap[at]
    while at > 0:
        above = (at - 1) >> 1
        if dist[heap[above]] <= dist[vertex]:
            break
        heap[at] = heap[above]
        place[heap[at]] = at + 1
        at = above
    heap[at] = vertex
    place[vertex] = at + 1


def _sink(dist: Numbers, heap: Numbers, place: Numbers, size: int) -> None:
    """The vertex on top takes its place among `size`."""
    vertex = heap[0]
    at = 0
    below = 1
    while below < size:
        if below + 1 < size and dist[heap[below + 1]] < dist[heap[below]]:
            below += 1
        if dist[vertex] <= dist[heap[below]]:
            break
        heap[at] = heap[below]
        place[heap[at]] = at + 1
        at = below
        below = 2 * at + 1
    heap[at] = vertex
    place[vertex] = at + 1


def count_paths(
    from_start: Numbers,
    onward: Numbers,
    head: Numbers,
    length: Numbers,
    closed: Numbers,
    to: int,
    dist: Numbers,
    queue: Numbers,
    n: int,
    paths: Numbers,
) -> None:
    """Number of shortest paths from each of the vertices of `queue`, which is in the order of distance."""
    for k in range(n):
        vertex = queue[k]
        total = 1 if vertex == to else 0
        for j in range(from_start[vertex], from_start[vertex + 1]):
            link = onward[j]
            there = head[link]
            if (there == to or not closed[there]) and dist[there] + length[link] == dist[vertex]:
                total += paths[there]
        paths[vertex] = total


def spray(
    from_start: Numbers,
    onward: Numbers,
    head: Numbers,
    length: Numbers,
    closed: Numbers,
    src: int,
    to: int,
    dist: Numbers,
    paths: Numbers,
    ways: Numbers,
    frontier: Numbers,
    out_link: Numbers,
    out_paths: Numbers,
    at: int,
) -> int:
    """Links on the shortest paths between two vertices, and how many of the paths use each; returns the end of both.

    `ways` is 0 before and after. Vertices are taken in the order of distance from the source, nearest first, which a
    selection from a short list gives. -1: no room.
    """
    frontier[0] = src
    ways[src] = 1
    n = 1
    while n > 0:
        best = 0
        for k in range(1, n):
            if dist[frontier[k]] > dist[frontier[best]]:
                best = k
        vertex = frontier[best]
        n -= 1
        frontier[best] = frontier[n]
        mine = ways[vertex]
        ways[vertex] = 0
        if vertex == to:
            continue
        for j in range(from_start[vertex], from_start[vertex + 1]):
            link = onward[j]
            there = head[link]
            if (there != to and closed[there]) or dist[there] + length[link] != dist[vertex]:
                continue
            if at == len(out_link):
                return -1
            out_link[at] = link
            out_paths[at] = mine * paths[there]
            at += 1
            if ways[there] == 0:
                frontier[n] = there
                n += 1
            ways[there] += mine
    return at


def enumerate_paths(
    from_start: Numbers,
    onward: Numbers,
    head: Numbers,
    length: Numbers,
    closed: Numbers,
    src: int,
    to: int,
    most: int,
    dist: Numbers,
    stack: Numbers,
    out_link: Numbers,
    out_start: Numbers,
) -> int:
    """The first shortest paths between two vertices, at most so many, in the order of links; returns their number.

    Path i is `out_link[out_start[i]:out_start[i + 1]]`.
    """
    found = 0
    deep = 0
    at = 0
    out_start[0] = 0
    vertex = src
    stack[0] = from_start[src]
    while found < most and deep >= 0:
        if vertex == to:
            found += 1
            out_start[found] = at + deep
            for k in range(deep):  # the next path begins like this one
                out_link[at + deep + k] = out_link[at + k]
            at += deep
        else:
            j = stack[deep]
            while j < from_start[vertex + 1]:
                link = onward[j]
                there = head[link]
                if (there == to or not closed[there]) and dist[there] + length[link] == dist[vertex]:
                    break
                j += 1
            if j < from_start[vertex + 1]:
                stack[deep] = j + 1
                out_link[at + deep] = onward[j]
                deep += 1
                vertex = head[onward[j]]
                stack[deep] = from_start[vertex]
                continue
        deep -= 1
        if deep >= 0:
            vertex = _tail_of(head, out_link, at, deep, src)
    return found


def _tail_of(head: Numbers, out_link: Numbers, at: int, deep: int, src: int) -> int:
    """The vertex at which the link at a depth of the running path begins."""
    return int(head[out_link[at + deep - 1]]) if deep > 0 else src
