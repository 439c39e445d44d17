"""Import path of upstream scripts for `chakra.schemas.protolib`."""

from chakra.schemas.protolib import decode_message as decode_message
from chakra.schemas.protolib import decodeMessage as decodeMessage
from chakra.schemas.protolib import encode_message as encode_message
from chakra.schemas.protolib import encodeMessage as encodeMessage
from chakra.schemas.protolib import open_file_rd as open_file_rd
from chakra.schemas.protolib import openFileRd as openFileRd
