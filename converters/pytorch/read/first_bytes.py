"""What a file is, by its first bytes: the kinds of files of this tool chain."""

import re
from enum import StrEnum

from chakra.io.files import OWN_TIMELINE

#: The distinguishing keys of profiler files stand in front of the big array; some writers put much metadata
# there.
HEAD_BYTES = 1 << 20


class FileKind(StrEnum):
    """What a file is; the value is how messages call it."""

    HOST = "a PyTorch host trace (nodes)"
    DEVICE = "a Kineto trace (traceEvents)"
    LINKED = "a linked trace (nodes with times)"
    TIMELINE = "a timeline that chakra wrote"
    JSON_ET = "a JSON-encoded execution trace (workload_graph)"
    OTHER_JSON = "JSON of another kind"
    EMPTY = "an empty file"
    BINARY = "a binary file (perhaps a converted .et)"
    TEXT = "a text file"


def describe_bytes(head: bytes) -> FileKind:
    """Kind of a file by its first bytes (after decompression).

    Notes
    -----
    Upstream's linker copies the host trace's keys into its result, so only the nodes tell the two apart:
    ``exclusive_dur`` or ``inter_thread_dep`` appear in linked nodes alone.
    """
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        return FileKind.EMPTY
    if OWN_TIMELINE.match(text):
        return FileKind.TIMELINE  # its events are those of recordings, without what converters need
    if re.match(rb'\{\s*"(schema|format)"\s*:\s*"chakra\.', text):
        return FileKind.OTHER_JSON  # a document of ours: a replay's result has nodes, too
    if text[:1] in b"{[":
        keys = set(re.findall(rb'"(traceEvents|nodes|workload_graph)"\s*:\s*\[', head))
        if b"traceEvents" in keys or (text[:1] == b"[" and re.search(rb'"ph"\s*:', head)):
            return FileKind.DEVICE
        if b"workload_graph" in keys:
            return FileKind.JSON_ET
        if b"nodes" in keys:
            linked = re.search(rb'"(exclusive_dur|inter_thread_dep|sync_dep)"\s*:', head)
            return FileKind.LINKED if linked else FileKind.HOST
        return FileKind.OTHER_JSON
    if b"\x00" in text[:4096] or any(byte < 9 for byte in text[:64]):
        return FileKind.BINARY
    return FileKind.TEXT
