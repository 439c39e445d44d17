"""Draw docs/pictures/network_<name>.svg from the links that the engine routes over.

python tools/network_pictures.py            write the pictures
python tools/network_pictures.py --check    fail if they are not in step
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from made_files import write_or_check

from chakra.replay.config import load_network
from chakra.replay.config.model import Links, Network
from chakra.replay.networks.blocks import block_links
from chakra.replay.topologies import dragonfly, fat_tree, rail_optimised, torus

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
STYLE = (
    "svg{font-family:Helvetica,Arial,sans-serif}.card{fill:#fff;stroke:#d0d7de}.ink{fill:#1f2328}"
    ".link{stroke:#59636e;stroke-width:1.4}.npu{fill:#ddf4ff;stroke:#0969da}.sw{fill:#fff8c5;stroke:#9a6700}"
    "@media(prefers-color-scheme:dark){.card{fill:#0d1117;stroke:#3d444d}.ink{fill:#f0f6fc}.link{stroke:#9198a1}"
    ".npu{fill:#0c2d6b;stroke:#58a6ff}.sw{fill:#4d2d00;stroke:#d29922}}"
)
WIDTH, HIGH = 300, 220

Places = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Picture:
    """A network, and where its vertices stand: "circle", "grid" or "layers"."""

    title: str
    network: Network
    shape: str
    columns: int = 1


def pictures() -> dict[str, Picture]:
    """Every picture by its name."""

    def block(topology: list[str], npus: list[int]) -> Network:
        ones = [1.0] * len(npus)
        return load_network({"topology": topology, "npus_count": npus, "bandwidth": ones, "latency": ones})

    speed: dict[str, Any] = {"bandwidth_gibps": 1.0, "latency_ns": 1.0}
    rail: dict[str, Any] = {"node_bandwidth_gibps": 1.0, "node_latency_ns": 1.0}
    return {
        "ring": Picture("Ring(8)", block(["Ring"], [8]), "circle"),
        "fully_connected": Picture("FullyConnected(6)", block(["FullyConnected"], [6]), "circle"),
        "switch": Picture("Switch(6)", block(["Switch"], [6]), "circle"),
        "ring_switch": Picture("Ring(4) x Switch(2)", block(["Ring", "Switch"], [4, 2]), "layers"),
        "fat_tree": Picture(
            "fat tree, down 4,2", fat_tree([4, 2], bandwidth_gibps=1.0, latency_ns=1.0), "layers"
        ),
        "rail": Picture("rails, 2 nodes of 4", rail_optimised(2, 4, **rail, **speed), "layers"),
        "torus": Picture("torus 4 x 3", torus([4, 3], bandwidth_gibps=1.0, latency_ns=1.0), "grid", 4),
        "dragonfly": Picture("dragonfly, 3 groups", dragonfly(3, 2, 2, **speed), "circle"),
    }


def places(picture: Picture, links: Links) -> Places:
    """Centre of every vertex."""
    n, others = picture.network.npus, len(links.vertices)
    if picture.shape == "grid":
        rows = n // picture.columns
        return [
            (
                40 + 220 * (i % picture.columns) / (picture.columns - 1),
                55 + 130 * (i // picture.columns) / (rows - 1),
            )
            for i in range(n)
        ]
    if picture.shape == "circle":
        inner = 0.0 if others == 1 else 38.0
        return [_around(i, n, 82.0) for i in range(n)] + [
            _around(i, others, inner, 0.5) for i in range(others)
        ]
    # layers: a switch stands above the vertices that it joins; the last level is the highest
    level = dict.fromkeys(range(n), 0)
    out: dict[int, list[int]] = {}
    for link in links.links:
        out.setdefault(link.src, []).append(link.dst)
    wave = list(range(n))
    while wave:
        later = [b for a in wave for b in out.get(a, ()) if b not in level]
        for b in later:
            level[b] = max(level[a] for a in wave) + 1
        wave = list(dict.fromkeys(later))
    top = max(level.values())
    spots: dict[int, tuple[float, float]] = {}
    for floor in range(top + 1):
        row = [v for v in range(n + others) if level[v] == floor]
        for k, v in enumerate(row):
            spots[v] = (20 + (WIDTH - 40) * (k + 0.5) / len(row), 185 - 125 * floor / max(top, 1))
    return [spots[v] for v in range(n + others)]


def _around(i: int, n: int, radius: float, turn: float = 0.0) -> tuple[float, float]:
    angle = 2 * math.pi * (i + turn * (n > 1)) / n - math.pi / 2
    return WIDTH / 2 + radius * math.cos(angle), 122 + radius * math.sin(angle)


def draw(picture: Picture) -> str:
    """The picture as SVG text; links in both directions are one line."""
    links = picture.network.links or block_links(picture.network)
    at = places(picture, links)
    title = escape(picture.title)
    size = f'viewBox="0 0 {WIDTH} {HIGH}" width="{WIDTH}" height="{HIGH}"'
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{title}</title><style>{STYLE}</style>",
        f'<rect class="card" x=".5" y=".5" width="{WIDTH - 1}" height="{HIGH - 1}" rx="8"/>',
        f'<text class="ink" x="12" y="22" font-size="13" font-weight="bold">{title}</text>',
    ]
    for a, b in sorted({(min(link.src, link.dst), max(link.src, link.dst)) for link in links.links}):
        (x0, y0), (x1, y1) = at[a], at[b]
        far = picture.shape != "circle" and a < picture.network.npus > b and abs(b - a) > 1
        straight = abs(x0 - x1) > 1 and abs(y0 - y1) > 1
        if far and not straight and math.hypot(x1 - x0, y1 - y0) > 80:
            bend = 26 if abs(y0 - y1) < 1 else 0
            side = 0 if bend else 26
            path = (
                f"M{x0:.1f} {y0:.1f}Q{(x0 + x1) / 2 + side:.1f} {(y0 + y1) / 2 + bend:.1f} {x1:.1f} {y1:.1f}"
            )
            out.append(f'<path class="link" fill="none" d="{path}"/>')
        else:
            out.append(f'<line class="link" x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"/>')
    for v, (x, y) in enumerate(at):
        npu = v < picture.network.npus
        name = str(v) if npu else links.vertices[v - picture.network.npus]
        if npu:
            out.append(f'<circle class="npu" cx="{x:.1f}" cy="{y:.1f}" r="10"/>')
        else:
            wide = max(18, 6 * len(name) + 6)
            out.append(
                f'<rect class="sw" x="{x - wide / 2:.1f}" y="{y - 8:.1f}" width="{wide}" height="16" rx="3"/>'
            )
        out.append(
            f'<text class="ink" x="{x:.1f}" y="{y + 3:.1f}" font-size="9" text-anchor="middle">{escape(name)}</text>'
        )
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> None:
    """Write or check the pictures."""
    made = {FOLDER / f"network_{name}.svg": draw(picture) for name, picture in pictures().items()}
    write_or_check(made, "network_pictures.py")


if __name__ == "__main__":
    main()
