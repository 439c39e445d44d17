"""The Chakra execution-trace schema: protobuf module and record encoding."""
