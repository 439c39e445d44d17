"""Import path of upstream scripts for `chakra.schemas.et_def_pb2`."""

from chakra.schemas.et_def_pb2 import *  # noqa: F403
from chakra.schemas.et_def_pb2 import DESCRIPTOR as DESCRIPTOR
