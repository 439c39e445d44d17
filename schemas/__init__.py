"""The Chakra execution-trace schema: `et_def_pb2`, its protobuf module, and `protolib`, its records in files."""

__all__ = ["et_def_pb2", "protolib"]
