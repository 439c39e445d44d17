"""Peak memory of a planned step."""

import pytest

from chakra.generate import Mode, TransformerRequest, summarize


@pytest.mark.parametrize("layers", [2, 32])
def test_weights_gathered_together_are_neighbours(layers: int) -> None:
    """Llama-3 8B under ZeRO-3 with one layer gathered ahead: layer and head; embedding and head are never together."""
    vocabulary, hidden = 128256, 4096
    head = vocabulary * hidden * 2 + 2 * hidden
    layer = (2 * hidden * hidden + 2 * hidden * 1024 + 3 * hidden * 14336 + 2 * hidden) * 2
    plan = TransformerRequest(model="llama3-8b", layers=layers, npus=8, zero=3).plan()
    assert summarize(plan)[0].memory.transient == head + layer


def largest_result(
    model: str, mode: Mode, *, seq: int | None = None, encoder_seq: int | None = None, steps: int = 1
) -> int:
    """Twice the largest result of an operator, which inference holds beside weights and cache."""
    plan = TransformerRequest(
        model=model, mode=mode, npus=1, micro_batch=8, seq=seq, encoder_seq=encoder_seq, decode_steps=steps
    ).plan()
    return summarize(plan)[0].memory.transient


def test_serving_holds_what_its_prefill_holds() -> None:
    """GPT-2 small: the results of the MLP's first product, 8 x 1,024 tokens of 4 x 768 numbers of 2 bytes."""
    mlp = 8 * 1024 * 4 * 768 * 2
    assert largest_result("gpt2-small", Mode.PREFILL, seq=1024) == 2 * mlp
    assert largest_result("gpt2-small", Mode.SERVE, seq=1024, steps=3) == 2 * mlp
    assert largest_result("gpt2-small", Mode.DECODE, seq=1024, steps=3) == 2 * 8 * 50257 * 2


def test_decoding_does_not_hold_the_results_of_an_encoder() -> None:
    """Whisper large: a vocabulary of 51,866 for each of 8 requests, whatever the encoder's length."""
    for length in (1, 1500):
        found = largest_result("whisper-large-v3", Mode.DECODE, encoder_seq=length)
        assert found == 2 * 8 * 51866 * 2


@pytest.mark.parametrize("mode", ["prefill", "serve", "decode"])
def test_a_stage_without_layers_passes_the_tensor_on(mode: str) -> None:
    plan = TransformerRequest(
        model="gpt2-small",
        layers=4,
        mode=Mode(mode),
        npus=3,
        pp=3,
        stage_layers=(2, 0, 2),
        seq=64,
        decode_steps=2,
    ).plan()
    sent = {
        template.comm_bytes[node]
        for template in plan.stages[1].templates
        for node, name in enumerate(template.names)
        if name == "send"
    }
    tokens = {"prefill": {64}, "serve": {64, 1}, "decode": {1}}[mode]
    assert sent == {count * 768 * 2 for count in tokens}
