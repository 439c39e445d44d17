"""What nodes of the backward pass wait for: all gradients that meet in theirs, and none of them twice."""

import networkx as nx
import pytest

from chakra.et import Trace
from chakra.generate import TransformerRequest, build_workload


def trace_of(model: str, layers: int) -> Trace:
    plan = TransformerRequest.from_mapping({"model": model, "layers": layers, "seq": 64}).plan()
    return build_workload(plan).traces[0]


def image_trace(layers: int) -> Trace:
    plan = TransformerRequest.from_mapping({"model": "vit-b16", "layers": layers}).plan()
    return build_workload(plan).traces[0]


@pytest.mark.parametrize("model", ["vit-b16", "mamba2-130m"])
def test_dependencies_grow_with_the_layers(model: str) -> None:
    """Every eight layers more have as many dependencies more; each layer waited for all behind it."""
    edges = [
        (image_trace(n) if model == "vit-b16" else trace_of(model, n)).to_networkx().number_of_edges()
        for n in (8, 16, 24)
    ]
    assert edges[2] - edges[1] == edges[1] - edges[0]


def test_a_gradient_waits_for_those_that_went_around_its_branch() -> None:
    """The sum behind a norm has the gradients of all branches of later layers, waited for directly or not."""
    graph = image_trace(4).to_networkx()
    names = {str(data["name"]): node for node, data in graph.nodes(data=True)}
    before = nx.ancestors(graph, names["B0 layer0.fc2.dgrad"])
    met = {f"B0 layer{layer}.norm{norm}.dgrad" for layer in (1, 2, 3) for norm in (1, 2)}
    assert {names[name] for name in met | {"B0 head.norm.dgrad"}} <= before
    assert list(graph.predecessors(names["B0 layer0.fc2.dgrad"])) == [names["B0 layer1.norm1.dgrad"]]
