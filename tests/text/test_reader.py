"""Reading text workloads: what is taken, and every complaint with its line and what would be right."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.converters.text import Layer, Step, parse_workload, read_workload
from chakra.converters.text.policies import POLICIES
from chakra.errors import ConversionError

PLAIN = "MODEL\n2\na -1 1 ALLREDUCE 10 2 NONE 0 3 NONE 0 4\nb -1 5 NONE 0 6 ALLGATHER 20 7 NONE 0 8\n"


def test_layers_are_read() -> None:
    workload = parse_workload(PLAIN)
    assert workload.policy == "MODEL"
    assert workload.layers == (
        Layer("a", Step(1, "ALLREDUCE", 10), Step(2, "NONE", 0), Step(3, "NONE", 0), 4),
        Layer("b", Step(5, "NONE", 0), Step(6, "ALLGATHER", 20), Step(7, "NONE", 0), 8),
    )


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace(" ", "\t\t ").replace("\n", " \t\n\n \n"),
        PLAIN.replace("\n", " "),
        PLAIN.rstrip("\n"),
        "\n\n" + PLAIN + "\n\n",
    ],
    ids=["crlf", "tabs and blank lines", "one line", "no final newline", "blank lines around"],
)
def test_white_space_means_nothing(text: str) -> None:
    assert parse_workload(text).layers == parse_workload(PLAIN).layers


@given(st.lists(st.sampled_from([" ", "\t", "\n", "\r\n", "  \n\n"]), min_size=30, max_size=30))
def test_any_separators_read_alike(separators: list[str]) -> None:
    words = PLAIN.split()
    text = "".join(word + gap for word, gap in zip(words, separators, strict=False))
    assert parse_workload(text).layers == parse_workload(PLAIN).layers


def test_gzip_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "w.txt.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + PLAIN.encode()))
    assert read_workload(path).layers == parse_workload(PLAIN).layers


def test_headers() -> None:
    layer = "L -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n"
    dlrm = parse_workload("HYBRID_DLRM 1\n2\n" + 2 * layer)
    assert dlrm.last_bottom_layer == 1
    transformer = parse_workload("HYBRID_TRANSFORMER model_parallel_NPU_group: 4\n1\n" + layer)
    assert transformer.model_parallel == 4
    recompute = parse_workload(
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 checkpoints: 2 0 2 "
        "checkpoint_initiates: 1 3\n4\n" + 4 * layer
    )
    assert (set(recompute.checkpoints), set(recompute.initiators)) == ({0, 2}, {3})
    custom = parse_workload("HYBRID_CUSTOMIZED\n1\nL -1 1 NONE 0 1 NONE 0 1 NONE 0 1 DATA")
    assert custom.layers[0].policy == "DATA"


LAYER = "L -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n"

BAD = {
    "unknown policy": (
        "DATA_PARALEL\n1\n" + LAYER,
        r"line 1: 'DATA_PARALEL' is not a parallelism policy \(allowed: MICRO",
    ),
    "policy in lower case": ("data\n1\n" + LAYER, r"line 1: 'data' .*did you mean DATA\?"),
    "empty file": ("", r"line 1: the file ends where a parallelism policy is expected"),
    "only a policy": ("DATA\n", r"line 1: the file ends where the number of layers is expected"),
    "no layers": ("DATA\n0\n", r"line 2: the number of layers must lie between 1 and"),
    "count is a word": (
        "DATA\nfour\n" + LAYER,
        r"line 2: the number of layers must be a whole number, but is 'four'",
    ),
    "fewer layers than said": ("DATA\n2\n" + LAYER, r"the header says 2 layers, but the file ends after 1"),
    "more layers than said": (
        "DATA\n1\n" + 2 * LAYER,
        r"line 4: 'L' follows the last layer; the header says 1 layer",
    ),
    "cut layer": (
        "DATA\n1\nL -1 1 NONE 0 1 NO",
        r"line 3: 'NO' is not the input-gradient communication of layer 'L'",
    ),
    "cut after a word": (
        "DATA\n1\nL -1 1 NONE 0",
        r"line 3: the file ends where the input-gradient time of layer 'L'",
    ),
    "unknown collective": (
        "DATA\n2\n" + LAYER + "M -1 1 NONE 0 1 NONE 0 1 BROADCAST 9 1",
        r"line 4: 'BROADCAST' is not the weight-gradient communication of layer 'M' \(allowed: NONE, ALL",
    ),
    "negative time": (
        "DATA\n1\nL -1 -5 NONE 0 1 NONE 0 1 NONE 0 1",
        r"forward time of layer 'L' must be a whole number",
    ),
    "fraction": ("DATA\n1\nL -1 1.5 NONE 0 1 NONE 0 1 NONE 0 1", r"must be a whole number, but is '1.5'"),
    "other digits": ("DATA\n1\nL -1 ٣ NONE 0 1 NONE 0 1 NONE 0 1", r"must be a whole number, but is '٣'"),
    "huge size": (
        "DATA\n1\nL -1 1 NONE 9223372036854775808 1 NONE 0 1 NONE 0 1",
        r"must lie between 0 and 9223372036854775807",
    ),
    "endless number": ("DATA\n1\nL -1 1 NONE " + "9" * 5000 + " 1 NONE 0 1 NONE 0 1", r"must lie between"),
    "huge time": (
        "DATA\n1\nL -1 9223372036854776 NONE 0 1 NONE 0 1 NONE 0 1",
        r"must lie between 0 and 9223372036854774",
    ),
    "reserved word": ("DATA\n1\nL x 1 NONE 0 1 NONE 0 1 NONE 0 1", r"second word of layer 'L' is 'x'"),
    "dlrm without index": (
        "HYBRID_DLRM\n",
        r"the file ends where the index of the last bottom layer is expected",
    ),
    "dlrm beyond the layers": (
        "HYBRID_DLRM 1\n1\n" + LAYER,
        r"last bottom layer is 1, but the layers are 0 to 0",
    ),
    "transformer without label": (
        "HYBRID_TRANSFORMER 4\n1\n" + LAYER,
        r"'4' stands where the label 'model_parallel_NPU_group:'",
    ),
    "group of nobody": (
        "HYBRID_TRANSFORMER g: 0\n1\n" + LAYER,
        r"model-parallel group must lie between 1 and",
    ),
    "foreign header": (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 4 dp: 2 pp\n1\n" + LAYER,
        r"'dp:' stands where 'checkpoints:' is expected \(this header is that of a later tool",
    ),
    "checkpoint beyond the layers": (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD g: 4 c: 1 5 i: 1 0\n1\n" + LAYER,
        r"checkpoints names layer 5, but the layers are 0 to 0",
    ),
    "initiator below every checkpoint": (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD g: 4 c: 1 1 i: 1 0\n2\n" + 2 * LAYER,
        r"checkpoint_initiates names layer 0, but no checkpoint lies at or below it",
    ),
    "announced checkpoints are missing": (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD g: 4 c: 900 1\n",
        r"900 checkpoint layers are announced, but the file has fewer words left",
    ),
    "customized without policy": (
        "HYBRID_CUSTOMIZED\n2\n" + 2 * LAYER,
        r"line 4: 'L' is not the policy of layer 'L' \(allowed: MICRO, DATA",
    ),
    "customized of customized": (
        "HYBRID_CUSTOMIZED\n1\nL -1 1 NONE 0 1 NONE 0 1 NONE 0 1 HYBRID_CUSTOMIZED",
        r"'HYBRID_CUSTOMIZED' is not the policy of layer 'L'",
    ),
    "micro benchmark of the forward column": (
        "MICRO\n1\nL -1 1 ALLREDUCE 8 1 NONE 0 1 NONE 0 1",
        r"MICRO runs .* of the first layer, and that is NONE .*move the forward ALLREDUCE there",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_wrong_files(text: str, message: str) -> None:
    with pytest.raises(ConversionError, match=message) as caught:
        parse_workload(text, "w.txt")
    assert str(caught.value).startswith("w.txt: ")
    assert len(str(caught.value)) < 500, "one line that can be read"
    assert "\n" not in str(caught.value)


def test_files_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    path.write_bytes(b"DATA\n1\n\xff\xfe")
    with pytest.raises(ConversionError, match="byte 7: not text"):
        read_workload(path)
    path.write_bytes(b"DATA\n1\n" + b"L\0 -1")
    with pytest.raises(ConversionError, match=r"NUL bytes|execution trace"):
        read_workload(path)
    with pytest.raises(ConversionError, match="cannot be read"):
        read_workload(tmp_path / "absent.txt")


@given(st.text(max_size=60), st.sampled_from(list(POLICIES)))
def test_any_text_is_read_or_refused_in_one_line(tail: str, policy: str) -> None:
    """Never another exception than the documented one."""
    for text in (tail, f"{policy} {tail}", f"{policy} 1 1 {tail}"):
        refusal = ""
        try:
            assert parse_workload(text).layers
        except ConversionError as error:
            refusal = str(error)
        assert "\n" not in refusal
