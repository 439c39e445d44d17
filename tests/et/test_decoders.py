"""The kernel decoder and encoder agree with the protobuf library on everything, damaged input included."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import wire_gen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chakra.errors import TraceError
from chakra.et import _decode_kernel, _encode_kernel, codec, decode_protobuf, encode
from chakra.et.columns import Columns, Records, StringPool
from chakra.et.wire import make_records
from chakra.jit import compiled
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, IOInfo

MANY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", params=["plain", "checked"])
def kernel(request: pytest.FixtureRequest) -> Any:
    """The decoder as plain Python, and compiled with bounds checks: a read past a buffer would raise IndexError.

    The shipped form, without them, is compared in test_read.
    """
    return _decode_kernel if request.param == "plain" else compiled(codec.DECODE_KERNEL, boundscheck=True)


def records_of(data: bytes) -> Records:
    array = np.frombuffer(data, np.uint8)
    return make_records(array, *codec.frame(array, "f"), "f")


def assert_equal(a: Columns, b: Columns) -> None:
    for name, value in vars(a).items():
        other = getattr(b, name)
        if isinstance(value, np.ndarray):
            assert value.dtype == other.dtype, name
            np.testing.assert_array_equal(value, other, err_msg=name)
        elif isinstance(value, StringPool):
            assert value.strings == other.strings, name
        else:
            assert value == other, name


@MANY
@given(data=wire_gen.files())
def test_kernel_decodes_what_protobuf_decodes(kernel: Any, data: bytes) -> None:
    records = records_of(data)
    assert_equal(decode_protobuf.decode(records, "f"), codec.decode_compiled(kernel, records, "f"))


@MANY
@given(data=wire_gen.files(), where=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.booleans())
def test_damaged_files_give_the_same_verdict_and_message(
    kernel: Any, data: bytes, where: int, byte: int, cut: bool
) -> None:
    damaged = bytearray(data)
    place = where % len(damaged)
    if cut:
        del damaged[place:]
    else:
        damaged[place] = byte
    try:
        records = records_of(bytes(damaged))
    except TraceError:
        return
    try:
        expected: Columns | str = decode_protobuf.decode(records, "f")
    except TraceError as error:
        expected = str(error)
    try:
        got: Columns | str = codec.decode_compiled(kernel, records, "f")
    except TraceError as error:
        got = str(error)
    if isinstance(expected, str):
        # The kernel does not look at text and messages without a column; protobuf does, on demand.
        assert got == expected or "is not a Node message" in expected
    else:
        assert not isinstance(got, str), got
        assert_equal(expected, got)


@MANY
@given(data=wire_gen.files(), where=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.booleans())
def test_kernel_frames_like_the_plain_reader(data: bytes, where: int, byte: int, cut: bool) -> None:
    damaged = bytearray(data)
    place = where % len(damaged)
    if cut:
        del damaged[place:]
    else:
        damaged[place] = byte
    frame_kernels: list[ModuleType | Any] = [_decode_kernel, compiled(codec.DECODE_KERNEL, boundscheck=True)]
    array = codec.readable(np.frombuffer(bytes(damaged), np.uint8))
    for module in frame_kernels:
        starts, ends, broken = module.frame_records(array)
        if broken >= 0:
            with pytest.raises(TraceError, match=f"byte {broken} "):
                codec.frame(array, "f")
        else:
            expected = codec.frame(array, "f")
            np.testing.assert_array_equal(expected[0], starts)
            np.testing.assert_array_equal(expected[1], ends)


@pytest.fixture(scope="module", params=["plain", "compiled"])
def encoder(request: pytest.FixtureRequest) -> Any:
    return _encode_kernel if request.param == "plain" else compiled(codec.ENCODE_KERNEL)


@MANY
@given(data=wire_gen.files(), seed=st.integers(0, 2**32))
def test_kernel_encodes_the_bytes_that_protobuf_encodes(encoder: Any, data: bytes, seed: int) -> None:
    columns = decode_protobuf.decode(records_of(data), "f")
    rng = np.random.default_rng(seed)
    n = len(columns.ids)
    attributes = []
    for member, values in wire_gen.INTEGERS.items():
        del values
        low, high = {"32": (0, 2**31 - 1), "64": (0, 2**62)}[member[-6:-4]]
        if member.startswith(("int", "sint", "sfixed")):
            low = -high
        column = rng.integers(low, high, n)
        column[rng.random(n) < 0.3] = -(2**63)
        attributes.append(encode.AttributeColumn("n" * int(rng.integers(1, 140)), member, column, None))
    pieces = tuple(AttributeProto(name=f"t{k}", string_val="é" * 70 * k) for k in range(3))
    codes = rng.integers(-1, 3, n).astype(np.int32)
    attributes.insert(1, encode.AttributeColumn("t", "message", codes, pieces))
    infos = (IOInfo(), IOInfo(values="[1]", types="x" * 200))
    source = encode.Encodable(
        metadata=GlobalMetadata(version="1"),
        ids=columns.ids,
        types=columns.types,
        names=(columns.name_codes, columns.name_pool.strings),
        ctrl=(columns.ctrl_offsets, columns.ctrl_ids),
        data=(columns.data_offsets, columns.data_ids),
        start_micros=columns.start_micros,
        duration_micros=columns.duration_micros,
        inputs=(rng.integers(-1, 2, n).astype(np.int32), infos),
        outputs=None,
        attributes=tuple(attributes),
    )
    assert encode.encode_compiled(encoder, source) == encode.encode_protobuf(source)
