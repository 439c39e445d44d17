"""Random layers of switches, and all shortest paths of a network by another algorithm than the library's."""

from typing import Any

from hypothesis import strategies as st

from chakra.replay.config import load_network
from chakra.replay.config.model import Network
from chakra.replay.networks.routes import weights


def shortest_paths(network: Network, src: int, dst: int) -> list[list[int]]:
    """Links of all shortest paths between two NPUs."""
    assert network.links is not None
    links, length = network.links.links, weights(network).tolist()
    out: dict[int, list[int]] = {}
    for k, link in enumerate(links):
        if link.src in (src, dst) or link.src >= network.npus or network.links.npus_forward:
            out.setdefault(link.src, []).append(k)
    far = {dst: 0}
    for _ in range(network.npus + len(network.links.vertices)):
        for here, onward in out.items():
            ways = [far[links[k].dst] + length[k] for k in onward if links[k].dst in far]
            if ways and here != dst:
                far[here] = min(ways)
    routes: list[list[int]] = []
    open_ends: list[tuple[int, list[int]]] = [(src, [])]
    while open_ends:
        here, route = open_ends.pop()
        if here == dst:
            routes.append(route)
            continue
        open_ends += [
            (links[k].dst, [*route, k])
            for k in out[here]
            if links[k].dst in far and far[links[k].dst] + length[k] == far[here]
        ]
    return routes


@st.composite
def layers(draw: st.DrawFn) -> Network:
    """Two pods of leaf switches, most of them alike, under cores; NPUs at one leaf or two; links in any order."""
    leaves, pods, cores = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    npus = draw(st.integers(2, 6))
    latency = st.sampled_from([0.0, 10.0, 500.0])
    names = [[f"leaf{pod}.{k}" for k in range(leaves)] for pod in range(pods)]
    ends: list[tuple[Any, str]] = [(npu, names[npu % pods][npu // pods % leaves]) for npu in range(npus)]
    ends += [
        (npu, draw(st.sampled_from(names[npu % pods]))) for npu in draw(st.sets(st.integers(0, npus - 1)))
    ]
    up: list[tuple[Any, str]] = [
        (leaf, f"pod{pod}.{k}") for pod in range(pods) for leaf in names[pod] for k in range(2)
    ]
    up += [(f"pod{pod}.{k}", f"core{core}") for pod in range(pods) for k in range(2) for core in range(cores)]
    # one spanning way is left whatever is missing: over the first switch above each
    missing = draw(
        st.sets(st.sampled_from([e for e in up if not e[1].endswith(".0") and e[1] != "core0"] or up[:1]))
    )
    if len(missing) < 3:
        up = [e for e in up if e not in missing or e[1].endswith(".0") or e[1] == "core0"]
    usual = draw(latency)
    rows = [
        [*e, 50.0, draw(latency) if draw(st.integers(0, 9)) == 0 else usual] for e in dict.fromkeys(ends + up)
    ]
    return load_network(
        {
            "npus_count": [npus],
            "links": draw(st.permutations(rows)),
            "ecmp": "spray",
            "routing": draw(st.sampled_from(["hops", "latency"])),
            "npus_forward": draw(st.booleans()),
        }
    )
