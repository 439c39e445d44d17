"""Small helpers of the text tests: workloads in a line, graphs as readable lines."""

from collections.abc import Callable
from pathlib import Path

import pytest

from chakra.converters.text import Converted, load_text
from chakra.converters.text.grammar import Phase
from chakra.converters.text.passes import COLLECTIVE, PHASES, UPDATE

_LETTERS = {Phase.FORWARD: "F", Phase.RECOMPUTE: "R", Phase.INPUT_GRADIENT: "I", Phase.WEIGHT_GRADIENT: "W"}


def workload(header: str, *layers: str) -> str:
    """Text of a workload. A layer is ``fwd ig wg [policy]``: three communication words, all times 1 and sizes
    8."""
    lines = [header, str(len(layers))]
    for index, layer in enumerate(layers):
        forward, input_gradient, weight, *policy = layer.split()
        lines.append(" ".join([f"L{index} -1 1 {forward} 8 1 {input_gradient} 8 1 {weight} 8 1", *policy]))
    return "\n".join(lines) + "\n"


def convert(folder: Path, text: str, **options: object) -> Converted:
    """Load a workload from its text; 4 NPUs unless said otherwise."""
    path = folder / "workload.txt"
    path.write_text(text)
    return load_text(path, **{"npus": 4, **options})  # type: ignore[arg-type]


def lines(converted: Converted) -> list[str]:
    """One line a node in file order: ``node < what it waits for``.

    F, I, W: computes; R: recomputed forward; c: the collective after one, c2 its second part; u: the update
    after one. A prime for every pass before.
    """
    graph = converted.graph
    per_pass = graph.n_nodes // converted.passes
    labels: list[str] = []
    for node in range(graph.n_nodes):
        label = f"{_LETTERS[PHASES[graph.phase[node]]]}{graph.layer[node]}"
        if graph.kind[node] == COLLECTIVE:
            label = f"c{label}"
        elif graph.kind[node] == UPDATE:
            label = f"u{label}"
        label += "'" * (node // per_pass)
        if label in labels and label.startswith("c"):
            label = f"c2{label[1:]}"
        assert label not in labels, f"two nodes {label}"
        labels.append(label)
    rows = []
    for node, label in enumerate(labels):
        parents = [labels[p] for p in graph.parents[graph.offsets[node] : graph.offsets[node + 1]]]
        rows.append(f"{label} < {' '.join(sorted(parents))}" if parents else label)
    return rows


def expected(text: str) -> list[str]:
    """The rows of a golden graph; what a node waits for is sorted, as in `lines`."""
    rows = []
    for row in filter(None, map(str.strip, text.splitlines())):
        node, _, parents = row.partition(" < ")
        rows.append(f"{node} < {' '.join(sorted(parents.split()))}" if parents else node)
    return rows


@pytest.fixture
def golden(tmp_path: Path) -> Callable[..., None]:
    """Check a graph: ``golden(rows, header, *layers, **options)``."""

    def check(rows: str, header: str, *layers: str, **options: object) -> None:
        assert lines(convert(tmp_path, workload(header, *layers), **options)) == expected(rows)

    return check


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Converted]:
    """Load a workload from its text: ``load(text, **options)``; 4 NPUs unless said otherwise."""
    return lambda text, **options: convert(tmp_path, text, **options)


@pytest.fixture
def text_of() -> Callable[..., str]:
    """Text of a workload: ``text_of(header, *layers)``."""
    return workload
