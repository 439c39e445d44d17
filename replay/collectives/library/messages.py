"""Which messages a collective of a library is made of, where a network has its links shared.

The bytes are those of :func:`~chakra.replay.collectives.library.cost.link_bytes`, between the members between which the
algorithm that the library chose moves them, and all at once, since its channels overlap the steps of an algorithm. A
member has *lanes*: independent queues of messages, one for each direction in which it sends. Latencies and dependencies
of steps are in the library's time, not here.

- Ring: to the next member of the node, and from each network port to the same port of the next node.
- Tree: both ways along a chain inside each node, and both ways along two binary trees of nodes, half of the data each.
- NVLS: equal parts to all members of the node, which loads every link into the switch and out of it alike.
- NVLSTree: both of these. CollNet: the chain, and from each port to the next node's, once (the switches reduce).
- Inside a mesh: equal parts to all members of the node, each over its link, as the library's rings lie over all links.
- PAT: to the nodes 1, 2, 4, ... further, as many blocks as that step moves.
- Sends and receives: a message for every pair; between nodes that hold equally many members all pairs of a port
  together. With unequal shares each pair's bytes are its own; all-gathers and reduce-scatters are those of the even
  collective whose ports carry what the port with most does, as they run on its algorithm.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, rows_by
from chakra.replay.collectives.library.cost import link_bytes
from chakra.replay.collectives.library.shape import (
    BY_NODE_SWITCHES,
    Algorithm,
    Choice,
    Communicator,
)
from chakra.replay.collectives.pipelined_tree import two_trees
from chakra.replay.config.model import CollectiveKind

#: a lane is cut into about so many segments: through a switch, which passes a segment on when it has all of it, the last
#: one comes a 32nd of the transfer late
SEGMENTS = 32
#: no segment is smaller than this, so that latencies of segments hide behind each other
LEAST_SEGMENT = 1 << 16
#: segments of a lane that are under way at a time
WINDOW = 8

_CHAINS = (Algorithm.TREE, Algorithm.COLLNET_CHAIN, Algorithm.COLLNET_DIRECT)
_TREES = (Algorithm.TREE, Algorithm.NVLS_TREE)


@dataclass(frozen=True, slots=True)
class Lane:
    """Messages that a member sends one behind the other.

    Attributes
    ----------
    source
        Position of the member among the communicator's.
    target
        Positions that the messages go to, in order.
    size
        Bytes of each.
    """

    source: int
    target: I64
    size: I64


def lanes(
    kind: CollectiveKind,
    size_bytes: int,
    npus: I64,
    node_npus: int,
    comm: Communicator,
    choice: Choice,
    *,
    mesh: bool = False,
) -> list[Lane]:
    """The messages of a collective.

    Parameters
    ----------
    kind, size_bytes, comm, choice
        The collective and what the library runs, as for `link_bytes`.
    npus
        NPUs of the members; positions count in this order.
    node_npus
        NPUs of a node, neighbouring numbers.
    mesh
        Whether each two of a node have a link: rings and trees then lie over all of them alike.
    """
    inside, outside = link_bytes(kind, size_bytes, comm, choice)
    nodes = list(rows_by(npus // node_npus, np.argsort(npus, kind="stable")).values())
    if choice.algorithm is Algorithm.SEND_RECV and len({len(node) for node in nodes}) > 1:
        n = len(npus)
        return lanes_of_pairs((1 - np.eye(n, dtype=np.int64)) * (size_bytes // n))
    found: list[tuple[int, list[tuple[int, int]]]] = []
    for node in nodes:
        found += _inside(choice.algorithm, node.tolist(), inside, spread=mesh)
    if len(nodes) > 1:
        ports = [_ports(node, comm.ports) for node in nodes]
        found += _outside(choice.algorithm, ports, outside, size_bytes)
    return [_lane(source, messages) for source, messages in found if any(size for _, size in messages)]


@dataclass(frozen=True, slots=True)
class PairRoles:
    """Pairs of members between which messages go, and what each pair is to its two ends.

    Attributes
    ----------
    source, target
        Positions of the members, each pair once.
    role
        Equal for pairs that have the same place among all messages of their senders, which are alike.
    """

    source: I64
    target: I64
    role: tuple[tuple[bytes, int, int], ...]


def pair_roles(found: Sequence[Lane], members: int) -> PairRoles:
    """Roles of the pairs of a collective; a member sends to one other in each role, and hears from one in each.

    The order in which a member sends counts, and that in which it hears does not: it waits for all from the start.
    """
    sent: list[list[I64]] = [[] for _ in range(members)]
    peers: list[dict[int, int]] = [{} for _ in range(members)]
    for lane in found:
        mine = peers[lane.source]
        places = [mine.setdefault(to, len(mine)) for to in lane.target.tolist()]
        sent[lane.source] += [np.array([len(places)], np.int64), np.array(places, np.int64), lane.size]
    known: dict[bytes, bytes] = {}
    pairs: list[tuple[int, int]] = []
    roles: list[tuple[bytes, int, int]] = []
    heard: Counter[tuple[int, bytes, int]] = Counter()
    for member in range(members):
        text = b"".join(words.astype(np.int64).tobytes() for words in sent[member])
        part = known.setdefault(text, text)
        for to, place in peers[member].items():
            pairs.append((member, to))
            roles.append((part, place, heard[to, part, place]))
            heard[to, part, place] += 1
    source, target = np.array(pairs, np.int64).reshape(-1, 2).T
    return PairRoles(source, target, tuple(roles))


def lanes_of_pairs(pairs: I64) -> list[Lane]:
    """The messages of a collective of unequal shares: for each member one lane, with the bytes of each pair (n, n)."""
    n = len(pairs)
    sent = ([(j % n, int(pairs[i, j % n])) for j in range(i + 1, i + n)] for i in range(n))
    some = ((i, [(to, size) for to, size in messages if size]) for i, messages in enumerate(sent))
    return [_lane(i, messages) for i, messages in some if messages]


def _ports(node: I64, ports: int) -> list[int]:
    """The members of a node that its network ports belong to."""
    return [int(node[port * len(node) // ports]) for port in range(ports)]


def _inside(
    algorithm: Algorithm, node: list[int], size: int, *, spread: bool
) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Lanes of one node: member, and (member, bytes) of its messages."""
    n = len(node)
    if n == 1:
        return
    if spread:
        # each link has a queue of its own
        for i, here in enumerate(node):
            for k, part in enumerate(_parts(size, n - 1)):
                yield here, [(node[(i + k + 1) % n], part)]
    elif algorithm in _CHAINS:
        for here, after in itertools.pairwise(node):
            yield here, [(after, size // 2)]
            yield after, [(here, size // 2)]
    elif algorithm in BY_NODE_SWITCHES or algorithm is Algorithm.SEND_RECV:
        parts = _parts(size, n - 1)
        for i, here in enumerate(node):
            yield here, [(node[(i + k + 1) % n], part) for k, part in enumerate(parts)]
    else:
        for i, here in enumerate(node):
            yield here, [(node[(i + 1) % n], size)]


def _outside(
    algorithm: Algorithm, ports: list[list[int]], size: int, buffer: int
) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Lanes between the ports of nodes."""
    n, rails = len(ports), len(ports[0])
    if algorithm is Algorithm.SEND_RECV:
        every = [(j, port) for j in range(n) for port in ports[j]]
        parts = _parts(size, (n - 1) * rails)
        for i, (j, here) in enumerate(every):
            others = [every[(i + k) % len(every)] for k in range(1, len(every))]
            yield here, list(zip((to for node, to in others if node != j), parts, strict=True))
    elif algorithm in _TREES:
        for parents in two_trees(n):
            for child, parent in enumerate(parents):
                for rail in range(rails if parent >= 0 else 0):
                    below, above = ports[child][rail], ports[parent][rail]
                    part = buffer // (2 * rails)
                    yield below, [(above, part)]
                    yield above, [(below, part)]
    elif algorithm is Algorithm.PAT:
        steps = [1 << k for k in range((n - 1).bit_length())]
        for j in range(n):
            for rail in range(rails):
                blocks = ((step, min(step, n - step)) for step in steps)
                sent = [(ports[(j + step) % n][rail], size * share // (n - 1)) for step, share in blocks]
                yield ports[j][rail], sent
    else:
        for j in range(n):
            for rail in range(rails):
                yield ports[j][rail], [(ports[(j + 1) % n][rail], size)]


def _parts(size: int, n: int) -> list[int]:
    """`n` parts that differ by one byte at most."""
    each, more = divmod(size, n)
    return [each + 1] * more + [each] * (n - more)


def _lane(source: int, messages: list[tuple[int, int]]) -> Lane:
    """Cut messages into segments, which take turns, so that all targets are served at a time."""
    total = sum(size for _, size in messages)
    rounds = max(1, min(-(-SEGMENTS // len(messages)), total // (LEAST_SEGMENT * len(messages))))
    cut = [(target, _parts(size, rounds)) for target, size in messages if size]
    rows = [(target, parts[k]) for k in range(rounds) for target, parts in cut if parts[k]]
    target, size = np.array(rows, np.int64).reshape(-1, 2).T
    return Lane(source, target, size)
