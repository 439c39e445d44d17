"""Write docs/differences.md from the registry of corrections; a test holds that they are in step."""

import re
from pathlib import Path

from chakra.replay.results.corrections import REGISTRY, Correction

PAGE = Path(__file__).resolve().parent.parent / "docs" / "differences.md"

HEAD = """# Where we differ from ASTRA-sim on purpose

Every case in which the default answer is not ASTRA-sim's: what each of the two says, why, and an example with both
numbers. Read it when a result names a correction (`C3`), or when you compare with published figures.

Two modes, one engine:

- **By default: the right answer.** The corrections below are on. When one changed something, the summary,
  the JSON document and `result.corrections` say which, and how often.
- **`compat="astra-sim"` (`--compat astra-sim`): ASTRA-sim's answer**, to the cycle, wherever ASTRA-sim (HEAD
  518bd51, March 2026) finishes. Use it to reproduce published results. Where ASTRA-sim crashes, hangs or reads
  undefined memory there is no number to reproduce: both modes give the right answer or a clear error.
  Malformed input (a cut file, a dependency cycle, a duplicate id, members of a group that run different
  collectives, a tree used for anything but all-reduce) is an error in both modes.

`compat="astra-sim-1.0"` is [the older cost model](reference/astra-sim-1.0.md). Where ASTRA-sim is sound
both modes agree: the tutorials' demos are such cases.

The page is written by `tools/differences.py` from `replay/results/corrections.py`; a test runs every example in both
modes.
"""

EXAMPLES = """
## Reasons and examples

R8 is a ring of 8 NPUs with 50 GB/s and 500 ns per link, ring algorithms, 4 splits, one active chunk, an
endpoint delay of 10 ns and 1600 GB/s of local memory. An all-reduce of 1 MiB takes 64440 ns on it in both
modes. Times are finish times unless said otherwise.
"""

KEPT = (
    (
        "halving-doubling charges L - 1 of its L reductions, each at the size of the next message",
        "e + sum over all messages p of (latency + m_p / bandwidth + e) + sum over p = 1 .. L-1 of r(m_p)",
    ),
    (
        "windowed direct reduces in alternate groups of w packets",
        "a packet reduces if it is not among the first w of its cycle and the cycle's number is even",
    ),
    (
        "inner nodes of a double binary tree reduce on the way down, too",
        "parent's message at R: it goes to the children at R + e + r(d)",
    ),
    ("each of the two trees carries whole chunks of d bytes", "chunks alternate between the trees"),
    (
        "ring all-to-all sends n(n-1)/2 messages of d/n to the neighbour",
        "e + n(n-1)/2 x (latency + d/n / bandwidth + e)",
    ),
    (
        "a group smaller than the system runs on one flat ring in the order of its list",
        "dimension 0's queues; `ring` unless exactly one algorithm is listed",
    ),
    (
        "network GB/s are 2^30 bytes per second, memory GB/s are 10^9",
        "`bandwidth` x 2^30 / 10^9 bytes per ns",
    ),
)

TAIL = """
## Time account

Per NPU the account adds up to its finish time. Each instant belongs to the first of these that applies: GPU
compute; transfer (a communication node in flight after its last member, or its sender, has issued); waiting for peers
(in flight before that); memory; CPU only; idle. Exposed communication (C9) is transfer plus waiting. In a trace without
work of the accelerator the host is what computes: there CPU comes before transfer.

## What is not monotone, and rightly so

Direct all-reduce, windowed direct and free graphs show scheduling anomalies: a longer node or a larger message
can finish a run earlier. An example on one NPU, whose CPU and GPU run one node each at a time: node 0 CPU 6 us;
node 1 GPU 6 us after 0; node 2 CPU 8 us after 1; node 3 GPU 5 us; node 4 GPU 6 us after 3. The run takes 25 us.
With node 3 of 7 us instead of 5 it takes 21 us, because node 1 then runs before node 4.
"""


def number(value: int | str) -> str:
    """A result: words, or ns."""
    return value if isinstance(value, str) else f"{value} ns"


def row(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def anchor(correction: Correction) -> str:
    """The place of a correction's section in the page, as sites of Markdown make it of the heading."""
    words = re.sub(r"[^\w\s-]", "", f"{correction.name}: {correction.case}".lower())
    return f"#{words.replace(' ', '-')}"


def detail(correction: Correction) -> str:
    """A correction's reason, example and count."""
    example = correction.example
    counted = f"Counted in results: {correction.unit}." if correction.unit else "Not counted in results."
    return (
        f"### {correction.name}: {correction.case}\n\n"
        f"Why: {correction.reason}. {counted}\n\n"
        f"Example: {example.what}. ASTRA-sim: {number(example.astra)}; default here: {number(example.default)}.\n"
    )


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            HEAD,
            row("#", "case", "ASTRA-sim HEAD = compat", "default here"),
            "|---|---|---|---|",
            *(row(f"[{c.name}]({anchor(c)})", c.case, c.astra, c.default) for c in REGISTRY),
            EXAMPLES,
            *(detail(correction) for correction in REGISTRY),
            "## Kept as they are, in both modes\n",
            "These look odd, but they are ASTRA-sim's cost model, and results stay comparable. n is the size of the",
            "ring, e the endpoint delay, r(m) the time to reduce m bytes, d the bytes of a chunk in a phase, m_p those",
            "of message p, L = log2 n.\n",
            row("rule", "formula"),
            "|---|---|",
            *(row(*kept) for kept in KEPT),
            TAIL,
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
