"""Draw docs/pictures/library_<algorithm>.svg: who sends how much to whom in the algorithms of collective libraries.

python tools/library_pictures.py            write the pictures
python tools/library_pictures.py --check    fail if they are not in step

The arrows are the messages that a replay sends where links are shared: 2 nodes (3 for trees) of 4 ranks run an
all-reduce, or what the algorithm is for. A box is a node, a circle a rank, and numbers are bytes in units of the buffer.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
from made_files import write_or_check

from chakra.replay.collectives.library import Algorithm, Choice, Communicator, Protocol
from chakra.replay.collectives.library.messages import lanes
from chakra.replay.config.model import CollectiveKind as Kind

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
STYLE = (
    "svg{font-family:Helvetica,Arial,sans-serif}.card{fill:#fff;stroke:#d0d7de}.ink{fill:#1f2328}.dim{fill:#59636e}"
    ".node{fill:#f6f8fa;stroke:#d0d7de}.npu{fill:#ddf4ff;stroke:#0969da}.sw{fill:#fff8c5;stroke:#9a6700}"
    ".in{stroke:#0969da;fill:none;stroke-width:1.5}.out{stroke:#bc4c00;fill:none;stroke-width:1.5}"
    ".tip-in{fill:#0969da}.tip-out{fill:#bc4c00}"
    "@media(prefers-color-scheme:dark){.card{fill:#0d1117;stroke:#3d444d}.ink{fill:#f0f6fc}.dim{fill:#9198a1}"
    ".node{fill:#151b23;stroke:#3d444d}.npu{fill:#0c2d6b;stroke:#58a6ff}.sw{fill:#4d2d00;stroke:#d29922}"
    ".in{stroke:#58a6ff}.out{stroke:#f0883e}.tip-in{fill:#58a6ff}.tip-out{fill:#f0883e}}"
)
BUFFER = 12 << 20
RADIUS, NODE, TALL, GAP, TOP = 11, 300, 62, 34, 58


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn into one file."""

    algorithm: Algorithm
    title: str
    note: str
    kind: Kind = Kind.ALL_REDUCE
    nodes: int = 2
    node_ranks: int = 4


PICTURES = {
    "ring": Picture(Algorithm.RING, "Ring", "around each node, and from port to port of the next"),
    "tree": Picture(Algorithm.TREE, "Tree", "chains inside nodes, two binary trees between them", nodes=3),
    "nvls": Picture(Algorithm.NVLS, "NVLS", "reduced and spread by the NVSwitch", nodes=1),
    "nvlstree": Picture(Algorithm.NVLS_TREE, "NVLSTree", "NVSwitch inside nodes, two trees between them", nodes=3),
    "collnet": Picture(Algorithm.COLLNET_CHAIN, "CollNetChain, CollNetDirect", "reduced by switches of the network"),
    "pat": Picture(Algorithm.PAT, "PAT, all-gather", "1, 2, 4 ranks on, ever more blocks", Kind.ALL_GATHER, 8, 1),
    "sendrecv": Picture(Algorithm.SEND_RECV, "SendRecv, all-to-all", "a message for every pair", Kind.ALL_TO_ALL, 2, 3),
}  # fmt: skip


def sent(picture: Picture) -> dict[tuple[int, int], int]:
    """Bytes from rank to rank."""
    ranks = picture.nodes * picture.node_ranks
    comm = Communicator(ranks, picture.node_ranks, 50.0 if picture.nodes > 1 else 0.0)
    choice = Choice(picture.algorithm, Protocol.SIMPLE, 16)
    found: dict[tuple[int, int], int] = defaultdict(int)
    for lane in lanes(picture.kind, BUFFER, np.arange(ranks), picture.node_ranks, comm, choice):
        for target, size in zip(lane.target.tolist(), lane.size.tolist(), strict=True):
            found[lane.source, target] += size
    return dict(found)


def shares(moved: dict[tuple[int, int], int], picture: Picture, inside: bool) -> str:
    """What one message carries, or what a rank hands to its switch, in units of the buffer."""
    found: dict[tuple[int, int], int] = defaultdict(int)
    for (a, b), size in moved.items():
        if (a // picture.node_ranks == b // picture.node_ranks) == inside:
            found[a, -1 if inside and switched(picture) else b] += size
    sizes = sorted({Fraction(size, BUFFER).limit_denominator(64) for size in found.values()})
    return ", ".join(str(size) for size in sizes)


def places(picture: Picture) -> list[tuple[float, float]]:
    """Centre of every rank: nodes one below the other; one circle for nodes of one rank."""
    n = picture.node_ranks
    if n == 1:
        turn = 2 * math.pi / picture.nodes
        angles = [turn * i - math.pi / 2 for i in range(picture.nodes)]
        return [(GAP + NODE / 2 + 70 * math.cos(a), TOP + 84 + 70 * math.sin(a)) for a in angles]
    wide, y = (NODE - 90) / (n - 1), TALL - 20 if switched(picture) else TALL / 2 + 4
    return [
        (GAP + 66 + wide * i, TOP + node * (TALL + GAP) + y)
        for node in range(picture.nodes)
        for i in range(n)
    ]


def switched(picture: Picture) -> bool:
    """Whether what moves inside nodes goes through a switch that reduces."""
    return picture.algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE)


def arrow(a: tuple[float, float], b: tuple[float, float], bend: float, kind: str) -> list[str]:
    """A bent line from edge to edge of two circles, with a tip."""
    (x0, y0), (x1, y1) = a, b
    away = math.hypot(x1 - x0, y1 - y0)
    cx, cy = (x0 + x1) / 2 + bend * (y1 - y0) / away, (y0 + y1) / 2 - bend * (x1 - x0) / away
    out = []
    ends = []
    for (x, y), radius in ((a, RADIUS), (b, RADIUS + 6)):
        far = math.hypot(cx - x, cy - y)
        ends.append((x + radius * (cx - x) / far, y + radius * (cy - y) / far))
    (sx, sy), (ex, ey) = ends
    out.append(f'<path class="{kind}" d="M{sx:.1f} {sy:.1f}Q{cx:.1f} {cy:.1f} {ex:.1f} {ey:.1f}"/>')
    turn = math.atan2(y1 - ey, x1 - ex)
    corners = [(turn + t, 6 * r) for t, r in ((0, 1), (2.2, 0.7), (-2.2, 0.7))]
    points = " ".join(f"{ex + r * math.cos(t):.1f},{ey + r * math.sin(t):.1f}" for t, r in corners)
    return [*out, f'<polygon class="tip-{kind}" points="{points}"/>']


def arrows(picture: Picture, moved: dict[tuple[int, int], int], at: list[tuple[float, float]]) -> list[str]:
    """Every message; what a switch reduces goes to the switch and back."""
    out: list[str] = []
    n = picture.node_ranks
    for a, b in moved:
        inside = a // n == b // n
        if inside and switched(picture):
            continue
        (x0, y0), (x1, y1) = at[a], at[b]
        away = math.hypot(x1 - x0, y1 - y0)
        if inside:
            bend = 12.0 if abs(b - a) == 1 else 0.18 * away
        elif n == 1:
            bend = 0.12 * away
        else:
            # past a node in between, and apart from what comes the other way
            bend = 8.0 if abs(a // n - b // n) == 1 else 52.0
        out += arrow((x0, y0), (x1, y1), bend, "in" if inside else "out")
    if switched(picture):
        for node in range(picture.nodes):
            x, y = GAP + NODE / 2 + 21, TOP + node * (TALL + GAP) + 11
            out.append(f'<rect class="sw" x="{x - 115}" y="{y - 8}" width="230" height="14" rx="3"/>')
            out.append(
                f'<text class="ink" x="{x}" y="{y + 3}" font-size="10" text-anchor="middle">NVSwitch</text>'
            )
            for px, _ in at[node * n : node * n + n]:
                out.append(f'<path class="in" d="M{px} {y + 6}v14"/>')
                for tip, way in ((y + 6, 6), (y + 20, -6)):
                    points = f"{px},{tip} {px - 4},{tip + way} {px + 4},{tip + way}"
                    out.append(f'<polygon class="tip-in" points="{points}"/>')
    return out


def draw(picture: Picture) -> str:
    """The picture as SVG text."""
    moved, at = sent(picture), places(picture)
    width, rows = NODE + 2 * GAP, 2.1 if picture.node_ranks == 1 else picture.nodes
    high = round(TOP + rows * (TALL + GAP))
    inside, outside = shares(moved, picture, True), shares(moved, picture, False)
    words = [f"{name} {text}" for name, text in (("inside", inside), ("between", outside)) if text]
    carried = escape("a message carries, of the buffer: " + "; ".join(words))
    size = f'viewBox="0 0 {width} {high}" width="{width}" height="{high}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(picture.title)}</title><style>{STYLE}</style>",
        f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{high - 1}" rx="8"/>',
        f'<text class="ink" x="14" y="24" font-size="14" font-weight="bold">{escape(picture.title)}</text>',
        f'<text class="dim" x="14" y="42" font-size="11">{escape(picture.note)}</text>',
        f'<text class="dim" x="14" y="{high - 12}" font-size="11">{carried}</text>',
    ]
    if picture.node_ranks > 1:
        for node in range(picture.nodes):
            top = TOP + node * (TALL + GAP)
            out.append(f'<rect class="node" x="{GAP}" y="{top}" width="{NODE}" height="{TALL}" rx="6"/>')
            out.append(
                f'<text class="dim" x="{GAP + 6}" y="{top + TALL - 7}" font-size="10">node {node}</text>'
            )
    out += arrows(picture, moved, at)
    for rank, (x, y) in enumerate(at):
        out.append(f'<circle class="npu" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/>')
        out.append(
            f'<text class="ink" x="{x:.1f}" y="{y + 4:.1f}" font-size="11" text-anchor="middle">{rank}</text>'
        )
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    write_or_check(
        {FOLDER / f"library_{name}.svg": draw(picture) for name, picture in PICTURES.items()},
        "library_pictures.py",
    )
