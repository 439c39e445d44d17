"""Bounds on what a file may ask for; docs/guides/robustness.md lists them all.

Work and memory grow in proportion to a file's (uncompressed) size. Where a few bytes can stand for much more than
themselves, a bound here holds the two together.
"""

#: Bytes taken from a pipe, or from a file that does not say its size.
MAX_STREAM_BYTES = 1 << 32
#: Bytes of a configuration (network, system, groups, memory, factors of NPUs).
MAX_CONFIG_BYTES = 1 << 28
#: Bytes of a study, a platform file or a request: larger ones are no such thing.
MAX_DOCUMENT_BYTES = 4_000_000
#: Uncompressed bytes that any gzip file may hold, whatever its size.
GZIP_FREE_BYTES = 1 << 28
#: Above that, uncompressed bytes allowed for each compressed byte. gzip cannot exceed about 1030; real traces
#: stay below 100, so that only a file made to exhaust memory is refused.
GZIP_MAX_RATIO = 400
#: Values that a YAML file may stand for once its aliases are written out.
MAX_YAML_VALUES = 1 << 22
#: Bytes of a line of a log.
MAX_LINE_BYTES = 1 << 20
#: NPUs of a replayed machine or of a workload.
MAX_NPUS = 1 << 24
#: Members of all groups of a workload's manifest together.
MAX_GROUP_MEMBERS = 1 << 26
#: NPUs of a network that is given link by link.
MAX_LINKED_NPUS = 1 << 17
#: NPUs of such a network where messages queue: there is a table of the routes between every two.
MAX_ROUTED_NPUS = 8192
#: Links of a topology that is written, or that building blocks become once links fail.
MAX_LINKS = 2_000_000
#: Chunks that a collective may be cut into.
MAX_CHUNKS = 1 << 16
#: NPUs of a generated workload.
MAX_GENERATED_NPUS = 1 << 22
#: Layers of a generated model.
MAX_GENERATED_LAYERS = 1 << 16
#: Nodes of one trace that is generated.
MAX_GENERATED_NODES = 1 << 22
#: Passes (of a micro-batch through a chunk of the model, or of a decode step) of all stages of a generated workload.
MAX_GENERATED_PASSES = 1 << 22
