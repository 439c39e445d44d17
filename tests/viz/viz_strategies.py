"""Random graphs."""

import numpy as np
from hypothesis import strategies as st

from chakra.viz.graph.graph import NONE, Graph

#: Text as bad as names get: quotes, markup, control characters, right-to-left, emoji, escapes.
names = st.one_of(
    st.sampled_from(['"', "\\", "a\\", "</script>", "&amp;", "<b>", "]]>", "\\n", "\\N", "%s", "a\nb"]),
    st.sampled_from(["漢字", "🙂", "שלום", "x" * 5000, ""]),
    st.text(max_size=40),
)  # fmt: skip


@st.composite
def graphs(
    draw: st.DrawFn, most: int = 24, acyclic: bool = True, texts: st.SearchStrategy[str] = names
) -> Graph:
    """A graph with edges of all kinds; edges run to later nodes unless cycles are asked for."""
    n = draw(st.integers(1, most))
    pairs = draw(
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(0, 1)), max_size=3 * n)
    )
    if acyclic:
        pairs = [(min(a, b), max(a, b), kind) for a, b, kind in pairs]
    edges = sorted({(a, b, kind) for a, b, kind in pairs if a != b})
    columns = np.array(edges, np.int64).reshape(-1, 3)
    lanes = draw(st.integers(1, 3))
    integers = st.lists(st.integers(0, 10**6), min_size=n, max_size=n)
    return Graph(
        title=draw(texts),
        ids=np.array(
            draw(st.lists(st.integers(0, 2**64 - 1), min_size=n, max_size=n, unique=True)), np.uint64
        ),
        kinds=np.array(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), np.uint8),
        names=draw(st.lists(texts, min_size=n, max_size=n)),
        notes=draw(st.lists(st.sampled_from(["", "ALL_REDUCE"]), min_size=n, max_size=n)),
        duration_ns=np.array(draw(integers), np.int64),
        size_bytes=np.full(n, NONE, np.int64),
        start_ns=np.full(n, NONE, np.int64),
        lanes=np.array(draw(st.lists(st.integers(0, lanes - 1), min_size=n, max_size=n)), np.int32),
        lane_names=tuple(f"lane {i}" for i in range(lanes)),
        members=np.ones(n, np.int64),
        src=columns[:, 0].astype(np.int32),
        dst=columns[:, 1].astype(np.int32),
        edge_kinds=columns[:, 2].astype(np.uint8),
        edge_counts=np.ones(len(edges), np.int64),
    )
