"""Reading and writing the length-delimited records of an execution trace, one protobuf message at a time.

This is the low-level interface that the Chakra tutorials teach. Whole files go faster through `chakra.et`.

>>> import io
>>> from chakra.schemas.et_def_pb2 import GlobalMetadata, Node
>>> file = io.BytesIO()
>>> encode_message(file, GlobalMetadata(version="1.0.0"))
>>> encode_message(file, Node(id=1, name="gemm"))
>>> _ = file.seek(0)
>>> metadata, node = GlobalMetadata(), Node()
>>> decode_message(file, metadata), decode_message(file, node), decode_message(file, Node())
(True, True, False)
>>> metadata.version, node.name
('1.0.0', 'gemm')
"""

import gzip
import os
from typing import IO

from google.protobuf.message import DecodeError, Message

from chakra.arguments import checked
from chakra.errors import TraceError

__all__ = [
    "decodeMessage",
    "decode_message",
    "encodeMessage",
    "encode_message",
    "encode_varint",
    "openFileRd",
    "open_file_rd",
]

#: A record length is a base-128 varint of at most 5 bytes; the simulator refuses longer ones.
MAX_LENGTH_BYTES = 5

GZIP_MAGIC = b"\x1f\x8b"


@checked
def encode_varint(value: int) -> bytes:
    """Encode a non-negative integer as a base-128 varint, seven bits a byte, lowest first.

    Parameters
    ----------
    value
        The number, 0 or more.
    """
    if value < 0:
        raise ValueError(f"a varint cannot hold {value}")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(0x80 | (value & 0x7F))
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


@checked
def encode_message(out_file: IO[bytes], message: Message) -> None:
    """Append one message as a length-delimited record to a file opened for binary writing.

    Parameters
    ----------
    out_file
        File opened for binary writing.
    message
        The message.
    """
    payload = message.SerializeToString()
    out_file.write(encode_varint(len(payload)) + payload)


@checked
def decode_message(in_file: IO[bytes], message: Message) -> bool:
    """Read the next record of a binary file into ``message``; False at the end of the file.

    A record of length zero is an empty message, not the end of the file.

    Parameters
    ----------
    in_file
        File opened for binary reading.
    message
        Filled with what the record holds.

    Raises
    ------
    TraceError
        If the record is cut off or does not parse.
    """
    name = getattr(in_file, "name", "<stream>")
    size = shift = 0
    while True:
        byte = in_file.read(1)
        if not byte:
            if shift:
                raise TraceError(f"{name}: the file ends inside the length of a record")
            return False
        if shift == 7 * MAX_LENGTH_BYTES:
            raise TraceError(
                f"{name}: a record length of more than {MAX_LENGTH_BYTES} bytes: not an execution trace"
            )
        size |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            break
    payload = in_file.read(size)
    if len(payload) < size:
        raise TraceError(f"{name}: the last record is cut off: {len(payload)} of {size} bytes are there")
    try:
        message.ParseFromString(payload)
    except DecodeError as error:
        raise TraceError(f"{name}: a record does not parse as {message.DESCRIPTOR.name}: {error}") from error
    return True


@checked
def open_file_rd(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a trace for reading, decompressing gzip (known by its first two bytes, whatever the name).

    Parameters
    ----------
    path
        File name.

    Raises
    ------
    TraceError
        The file cannot be opened.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - handed to the caller
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise TraceError(f"{path}: cannot be opened: {getattr(error, 'strerror', error)}") from error
    magic = file.read(2)
    if magic == GZIP_MAGIC:
        file.close()
        return gzip.open(path, "rb")  # type: ignore[return-value]
    file.seek(0)
    return file


# The names that scripts written for the upstream library use.
encodeMessage = encode_message  # noqa: N816
decodeMessage = decode_message  # noqa: N816
openFileRd = open_file_rd  # noqa: N816
