"""Tables of pages made from docs/benchmarks.md, so that every figure comes from one run.

    python tools/benchmark_tables.py [--check]

A page has a table between ``<!-- benchmarks: NAME -->`` and ``<!-- end -->``; the names are those of ``TABLES``.
"""

import re
from collections.abc import Callable
from pathlib import Path

from made_files import renewed, write_or_check

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs" / "benchmarks.md"
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "guides" / "performance.md",
    ROOT / "docs" / "reference" / "pytorch-recordings.md",
)

#: rows of the table beside ASTRA-sim: case, what it is
BESIDE = (
    ("ring_ar_64MiB_n1024_unaware", "ring all-reduce of 64 MiB, 1,024 NPUs"),
    ("ring_ar_64MiB_n1024_aware", "the same, congested"),
    ("a2a_direct_64MiB_switch512_aware", "direct all-to-all of 64 MiB, switch of 512, congested"),
    ("dag20000_n8_unaware", "graph of 20,000 nodes on 8 NPUs"),
    ("dag20000_n8_aware", "the same, congested"),
    ("dag20000_n64_unaware", "graph of 20,000 nodes on 64 NPUs"),
    ("comp200000_n2_unaware", "200,000 compute nodes on 2 NPUs"),
)
#: places of the cases of README
IN_SHORT = (0, 3, 4)


def line_of(text: str, begin: str) -> list[str]:
    """Words of the line that begins with a text, after it."""
    found = re.search(rf"^\s*{re.escape(begin)}\s+(\S.*)$", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{SOURCE.name} has no line that begins with {begin!r}")
    return found[1].split()


def seconds(milliseconds: str) -> str:
    """Milliseconds as seconds of two figures or more."""
    value = float(milliseconds) / 1000
    return f"{value:.4f} s" if value < 0.01 else f"{value:.3f} s"


def more_than(word: str, unit: str = "") -> str:
    """`>109.31` in words."""
    number = word.removeprefix(">")
    text = f"{float(number):,.0f}" if not unit else number
    return ("more than " if word != number else "") + text + unit


def beside(text: str, cases: tuple[tuple[str, str], ...] = BESIDE) -> list[str]:
    """Replays beside ASTRA-sim."""
    rows = ["| work | ASTRA-sim | chakra | ratio |", "| --- | --- | --- | --- |"]
    for case, what in cases:
        milliseconds, _, theirs, ratio, *_ = line_of(text, case)
        rows.append(f"| {what} | {more_than(theirs, ' s')} | {seconds(milliseconds)} | {more_than(ratio)} |")
    return rows


def in_short(text: str) -> list[str]:
    """A few of the replays beside ASTRA-sim, the slowest among them."""
    return beside(text, tuple(BESIDE[place] for place in IN_SHORT))


def scaling(text: str) -> list[str]:
    """One all-reduce on more and more NPUs."""
    rows = ["| NPUs | ring | halvingDoubling | direct | 3 dimensions |", "| --- | --- | --- | --- | --- |"]
    for npus in (64, 512, 4096, 32768, 131072):
        cells = [f"{cell} ms" if cell != "-" else "" for cell in line_of(text, str(npus))]
        rows.append(f"| {npus:,} | {' | '.join(cells)} |")
    return rows


def parallelism(text: str) -> list[str]:
    """A training step on both backends."""
    rows = ["| parallelism | unaware | aware | events, aware |", "| --- | --- | --- | --- |"]
    for what in ("data 64", "FSDP 64", "tensor 8 x data 8", "pipeline 8 x data 8", "tensor 8 x pipeline 8"):
        plain = re.search(rf"^{what} +unaware +(\S+)", text, re.MULTILINE)
        aware = re.search(rf"^{what} +aware +(\S+) +(\S+)", text, re.MULTILINE)
        if plain is None or aware is None:
            raise SystemExit(f"{SOURCE.name} has no step {what!r}")
        rows.append(f"| {what} | {plain[1]} s | {aware[1]} s | {aware[2]} |")
    return rows


def reading(text: str) -> list[str]:
    """Reading and writing traces."""
    rows = ["| trace | read | encode | write what was read |", "| --- | --- | --- | --- |"]
    for name, what in (("small", "small nodes"), ("converted", "converted PyTorch profile")):
        part = text[text.index(f"\n{name}: ") :]
        size = line_of(part, f"{name}:")
        rates = [
            line_of(part, begin)[2]
            for begin in (
                "read into columns, dependencies resolved",
                "encode columns",
                "write a trace that was read",
            )
        ]
        cells = " | ".join(f"{rate} million nodes/s" for rate in rates)
        rows.append(f"| {what}: {int(size[0]):,} nodes, {size[2]} MB | {cells} |")
    return rows


def pytorch(text: str) -> list[str]:
    """Conversion of profiles beside upstream's linker and converter."""
    rows = ["| trace | s | MB | upstream s | MB |", "| --- | --- | --- | --- | --- |"]
    for name, what in (
        ("h200_sync", "h200_sync"),
        ("h200_gpt", "h200_gpt"),
        ("resnet_cross", "resnet_cross"),
        ("gpt x10", "gpt x10 (164 MB + 110 MB)"),
        ("Kineto 300 MB alone", "Kineto file of 300 MB alone"),
    ):
        ours = [*line_of(text, name), "-", "-"][:4]
        rows.append(f"| {what} | {' | '.join(ours)} |")
    return rows


TABLES: dict[str, Callable[[str], list[str]]] = {
    "beside": beside,
    "in short": in_short,
    "scaling": scaling,
    "parallelism": parallelism,
    "reading": reading,
    "pytorch": pytorch,
}


def main() -> None:
    """Write the pages, or with --check say which are out of step."""
    text = SOURCE.read_text(encoding="utf-8")
    made = {
        path: renewed(
            path.read_text(encoding="utf-8"),
            "benchmarks",
            TABLES,
            lambda name: "\n".join(TABLES[name](text)) + "\n",
        )
        for path in PAGES
    }
    write_or_check(made, "benchmark_tables.py")


if __name__ == "__main__":
    main()
