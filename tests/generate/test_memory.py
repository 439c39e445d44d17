"""Peak memory of a planned step."""

import pytest

from chakra.generate import TransformerRequest, summarize


@pytest.mark.parametrize("layers", [2, 32])
def test_weights_gathered_together_are_neighbours(layers: int) -> None:
    """Llama-3 8B under ZeRO-3 with one layer gathered ahead: layer and head; embedding and head are never together."""
    vocabulary, hidden = 128256, 4096
    head = vocabulary * hidden * 2 + 2 * hidden
    layer = (2 * hidden * hidden + 2 * hidden * 1024 + 3 * hidden * 14336 + 2 * hidden) * 2
    plan = TransformerRequest(model="llama3-8b", layers=layers, npus=8, zero=3).plan()
    assert summarize(plan)[0].memory.transient == head + layer
