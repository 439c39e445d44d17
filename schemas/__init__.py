"""The Chakra execution-trace schema: `et_def_pb2`, its protobuf module, and `protolib`, its records in files."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakra.schemas import et_def_pb2, protolib

__all__ = ["et_def_pb2", "protolib"]
