"""Draw docs/pictures/<algorithm>.svg from the schedules that the engine runs.

python tools/pictures.py            write the pictures
python tools/pictures.py --check    fail if they are not in step

Time runs to the right, a row is an NPU. A strip shows what the NPU holds: a cell per block of data, filled as far as it
is reduced (or full where nothing is reduced). Lines are messages with the blocks that they carry. Text and background
follow the reader's colour scheme together, so the pictures read on white and dark pages.
"""

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from made_files import write_or_check
from schedule_blocks import (
    Block,
    Held,
    Message,
    Schedule,
    by_switch,
    custom,
    double_binary_tree,
    held,
    native,
    table,
)

from chakra.builder import TraceBuilder
from chakra.et import Trace
from chakra.replay.collectives.algorithms import parse
from chakra.replay.collectives.steps import Do
from chakra.replay.workload.custom import custom_program

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"

#: one hue per block, of middling lightness: they stand out from white and from near-black
HUES = ("#d1495b", "#2e86ab", "#e09f3e", "#3c9d6b", "#8e6bbf", "#c77a4a", "#2a9d8f", "#b5567f")
STYLE = (
    "svg{font-family:Helvetica,Arial,sans-serif}.card{fill:#fff;stroke:#d0d7de}.ink{fill:#1f2328}.dim{fill:#59636e}"
    ".halo{stroke:#fff;stroke-width:3;paint-order:stroke;stroke-linejoin:round}"
    ".cell{fill:#eef1f4;stroke:#818b98;stroke-width:.6}.sum{stroke:#bc4c00}.keep{stroke:#0969da;stroke-dasharray:5 3}"
    ".msg{fill:none;stroke-width:1.4}.tip-sum{fill:#bc4c00}.tip-keep{fill:#0969da}"
    "@media(prefers-color-scheme:dark){.card{fill:#0d1117;stroke:#3d444d}.ink{fill:#f0f6fc}.dim{fill:#9198a1}"
    ".halo{stroke:#0d1117}.cell{fill:#212830;stroke:#656c76}.sum{stroke:#f0883e}.keep{stroke:#58a6ff}"
    ".tip-sum{fill:#f0883e}.tip-keep{fill:#58a6ff}}"
)
ROW, TOP, LEFT, CELL, HEIGHT = 40, 86, 66, 9, 16

WORDS = {
    Do.ALL_REDUCE: "all-reduce",
    Do.REDUCE_SCATTER: "reduce-scatter",
    Do.ALL_GATHER: "all-gather",
    Do.ALL_TO_ALL: "all-to-all",
    Do.BROADCAST: "broadcast",
    Do.REDUCE: "reduce",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn into one file; `dims` are the sizes of the dimensions that a flat ring runs over."""

    schedule: Schedule
    dims: tuple[int, ...] = ()
    note: str = ""


def star_traces(n: int) -> list[Trace]:
    """A custom algorithm as a user would write it: all send to member 0, which sends the result to all."""
    traces = []
    for i in range(n):
        builder = TraceBuilder(rank=i)
        if i:
            sent = builder.send(0, size_bytes=1 << 20, tag=i)
            builder.recv(0, size_bytes=1 << 20, tag=n + i, after=sent)
        else:
            came = [builder.recv(j, size_bytes=1 << 20, tag=j) for j in range(1, n)]
            for j in range(1, n):
                builder.send(j, size_bytes=1 << 20, tag=n + j, after=came)
        traces.append(builder.build())
    return traces


def pictures() -> dict[str, Picture]:
    """Every picture by the name of its file."""
    reduce, exchange = Do.ALL_REDUCE, Do.ALL_TO_ALL
    star = [custom_program(trace, 4, astra=False) for trace in star_traces(4)]
    return {
        "ring": Picture(native(parse("ring", ""), reduce, 4)),
        "ring_all_to_all": Picture(native(parse("ring", ""), exchange, 4)),
        "direct": Picture(
            native(parse("direct", ""), reduce, 4), note="all messages of a step in flight at once"
        ),
        "direct_all_to_all": Picture(
            native(parse("direct", ""), exchange, 4), note="all messages in flight at once"
        ),
        "direct1": Picture(native(parse("direct1", ""), reduce, 4), note="a window of one message"),
        "halvingDoubling": Picture(native(parse("halvingDoubling", ""), reduce, 8)),
        "doubleBinaryTree": Picture(
            double_binary_tree(8), note="two chunks, each on a tree of its own, drawn together"
        ),
        "oneRing": Picture(native(parse("oneRing", ""), reduce, 4), (2, 2)),
        "oneDirect": Picture(native(parse("oneDirect", ""), reduce, 4), (2, 2)),
        "oneHalvingDoubling": Picture(native(parse("oneHalvingDoubling", ""), reduce, 8), (4, 2)),
        "rabenseifner": Picture(table("rabenseifner", reduce, 8)),
        "recursiveDoubling": Picture(table("recursiveDoubling", reduce, 8)),
        "bruck": Picture(table("bruck", reduce, 6)),
        "bruck_all_to_all": Picture(table("bruck", exchange, 6)),
        "binomialTree": Picture(table("binomialTree", reduce, 8)),
        "chain": Picture(table("chain", Do.BROADCAST, 5, segments=4), note="four segments"),
        "scatterAllGather": Picture(table("scatterAllGather", Do.BROADCAST, 8)),
        "pipelinedTree": Picture(
            table("pipelinedTree", reduce, 8, segments=2),
            note="even blocks on one tree, odd ones on the other, two segments each",
        ),
        "inNetwork": Picture(by_switch(reduce, 4), note="the switch reduces and multicasts"),
        "inNetwork_all_gather": Picture(by_switch(Do.ALL_GATHER, 4), note="the switch multicasts"),
        "custom": Picture(custom("custom", star, lambda src, dst: dst == 0), note="the star of the guide"),
    }


def _label(blocks: tuple[Block, ...]) -> str:
    """Blocks in short: 0, 2-5, 1>3."""
    if blocks and isinstance(blocks[0], tuple):
        return " ".join(f"{a}>{b}" for a, b in sorted(blocks))
    numbers = sorted(blocks)
    parts: list[str] = []
    start = 0
    for k in range(1, len(numbers) + 1):
        if k == len(numbers) or numbers[k] != numbers[k - 1] + 1:
            parts.append(str(numbers[start]) if k == start + 1 else f"{numbers[start]}-{numbers[k - 1]}")
            start = k
    return ",".join(parts)


def _fill(schedule: Schedule, state: Held, i: int, cell: int) -> tuple[str, float]:
    """Hue and level (0 to 1) of a cell of NPU i's strip."""
    if schedule.do is Do.ALL_TO_ALL:  # cell s: what s sends to i
        return HUES[cell % len(HUES)], float((cell, i) in state[i])
    who = state[i].get(schedule.blocks[cell], frozenset())
    reduces = schedule.do in (Do.ALL_REDUCE, Do.REDUCE, Do.REDUCE_SCATTER)
    return HUES[cell % len(HUES)], len(who) / schedule.n if reduces else float(bool(who))


def draw(picture: Picture) -> str:
    """The picture as SVG text."""
    schedule = picture.schedule
    cells = schedule.n if schedule.do is Do.ALL_TO_ALL else len(schedule.blocks)
    width = max(cells * CELL, 14)
    longest = max(len(_label(m.blocks)) for step in schedule.steps for m in step) if cells > 1 else 0
    gap = max(64, 30 + 6 * longest)
    pitch = width + gap
    total = LEFT + pitch * len(schedule.steps) + width + 20
    rows = schedule.n + schedule.switch
    high = TOP + ROW * rows + 22
    total = max(total, 400)
    title = f"{schedule.name}: {WORDS[schedule.do]} among {schedule.n} NPUs"
    if picture.dims:
        title += f" of {' x '.join(map(str, picture.dims))}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {high}" width="{total}" height="{high}" '
        f'role="img" aria-label="{escape(title)}">'
    )
    out = [
        head,
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="card" x=".5" y=".5" width="{total - 1}" height="{high - 1}" rx="8"/>',
        f'<text class="ink" x="16" y="24" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    if picture.note:
        out.append(f'<text class="dim" x="16" y="41" font-size="11">{escape(picture.note)}</text>')
    out += _legend(schedule, high - 14)
    for k in range(len(schedule.steps)):
        x = LEFT + k * pitch + width + gap / 2
        sizes = sorted({m.share for m in schedule.steps[k]})
        size = " ".join(
            "d"
            if s == 1
            else f"{s.numerator if s.numerator > 1 else ''}d/{s.denominator}"
            if s.denominator > 1
            else f"{s}d"
            for s in sizes
        )
        out.append(
            f'<text class="ink" x="{x:g}" y="60" font-size="11" text-anchor="middle">step {k + 1}</text>'
        )
        out.append(f'<text class="dim" x="{x:g}" y="74" font-size="10" text-anchor="middle">{size}</text>')
    for i in range(rows):
        y = TOP + i * ROW + HEIGHT / 2 + 4
        name = f"NPU {i}" if not picture.dims else f"NPU {i} ({', '.join(map(str, _place(i, picture.dims)))})"
        if i == schedule.n:
            name = "switch"
        points = 11 if not picture.dims else 9
        out.append(f'<text class="ink" x="8" y="{y:g}" font-size="{points}">{name}</text>')
    states = held(schedule)
    for k, step in enumerate(schedule.steps):
        x = LEFT + k * pitch + width
        sent: dict[int, int] = {}
        labels = []  # above all lines
        for message in step:
            turn = sent.setdefault(message.src, 0)
            sent[message.src] += 1
            # labels of several messages of one sender stand one behind the other
            many = sum(m.src == message.src for m in step) > 1
            apart = message.dst - message.src
            near = max(20, 10 + 2 * len(_label(message.blocks)))
            place = 22 + 20 * turn if many else near if apart >= -1 else 18 - 14 * apart
            line, label = _message(message, x + 2, x + gap - 2, place, picture.dims)
            out.append(line)
            labels += [label] if cells > 1 else []
        out += labels
    for k, state in enumerate(states):
        for i in range(rows):
            out += _strip(schedule, state, i, LEFT + k * pitch, width / cells, cells)
    return "\n".join([*out, "</svg>"]) + "\n"


def _place(i: int, dims: tuple[int, ...]) -> list[int]:
    """Coordinates of an NPU, the first dimension varying fastest."""
    out = []
    for size in dims:
        i, at = divmod(i, size)
        out.append(at)
    return out


def _legend(schedule: Schedule, y: int) -> list[str]:
    """What the lines mean, below the rows."""
    kinds = {m.reduces for step in schedule.steps for m in step}
    out, x = [], LEFT
    for reduces, text in ((True, "receiver reduces it"), (False, "receiver keeps it")):
        if reduces in kinds:
            kind = "sum" if reduces else "keep"
            out.append(f'<path class="msg {kind}" d="M{x} {y - 4}h26"/>')
            out.append(f'<text class="dim" x="{x + 32}" y="{y}" font-size="11">{text}</text>')
            x += 6 * len(text) + 56
    return out


def _message(message: Message, x0: float, x1: float, label_at: int, dims: tuple[int, ...]) -> tuple[str, str]:
    """Line and label of a message; thin inside the first dimension of a flat ring, thick where it leaves it.

    The label stands `label_at` from the sender, where lines have not met yet.
    """
    y0, y1 = (TOP + i * ROW + HEIGHT / 2 for i in (message.src, message.dst))
    kind = "sum" if message.reduces else "keep"
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    tip = (
        f"{x1:.1f},{y1:.1f} {x1 - 7 * ux - 3 * uy:.1f},{y1 - 7 * uy + 3 * ux:.1f} "
        f"{x1 - 7 * ux + 3 * uy:.1f},{y1 - 7 * uy - 3 * ux:.1f}"
    )
    crosses = bool(dims) and _place(message.src, dims)[1:] != _place(message.dst, dims)[1:]
    wide = ' style="stroke-width:2.8"' if crosses else ""
    out = (
        f'<path class="msg {kind}"{wide} d="M{x0:.1f} {y0:.1f}L{x1 - 5 * ux:.1f} {y1 - 5 * uy:.1f}"/>'
        f'<polygon class="tip-{kind}" points="{tip}"/>'
    )
    at = min(0.6, label_at / length)
    label = (
        f'<text class="ink halo" x="{x0 + at * (x1 - x0):.1f}" y="{y0 + at * (y1 - y0) + 3:.1f}" font-size="9" '
        f'text-anchor="middle">{escape(_label(message.blocks))}</text>'
    )
    return out, label


def _strip(schedule: Schedule, state: Held, i: int, x: float, wide: float, cells: int) -> list[str]:
    """The cells of one NPU at one time."""
    y = TOP + i * ROW
    out = []
    for cell in range(cells):
        hue, level = _fill(schedule, state, i, cell)
        left = x + cell * wide
        out.append(f'<rect class="cell" x="{left:g}" y="{y}" width="{wide:g}" height="{HEIGHT}"/>')
        if level > 0:
            high = HEIGHT * level
            box = f'x="{left + 0.5:g}" y="{y + HEIGHT - high:g}" width="{wide - 1:g}" height="{high:g}"'
            out.append(f'<rect fill="{hue}" {box}/>')
    return out


def main() -> None:
    """Write or check the pictures."""
    made = {FOLDER / f"{name}.svg": draw(picture) for name, picture in pictures().items()}
    write_or_check(made, "pictures.py")


if __name__ == "__main__":
    main()
