"""Chakra execution traces: generate, convert, inspect and replay distributed-ML workloads.

The names below are enough to build a workload, to describe a machine and to replay the one on the other. Each lives
in the package that its reference names and is imported when it is first used, so ``import chakra`` stays fast.

>>> import chakra
>>> def step(b: chakra.TraceBuilder) -> None:
...     gradients = b.compute("backward", num_ops=10**12, tensor_bytes=10**9)
...     b.collective("all_reduce", size_bytes=1 << 30, after=gradients)
>>> workload = chakra.Workload(8)
>>> workload.run(step)
>>> machine = chakra.cluster("hgx-h100")
>>> result = chakra.simulate(workload.traces(), machine.system(), machine.network())
>>> result.npus, int(result.finish_ns[0]), int(result.exposed_comm_ns[0])  # times are nanoseconds
(8, 5139672, 4128550)
"""

from pathlib import Path
from typing import TYPE_CHECKING

from chakra.checkout import find_siblings
from chakra.conflicts import warn_of_conflicts
from chakra.lazy import lazy_names

if TYPE_CHECKING:
    from chakra.builder import TraceBuilder, Workload
    from chakra.errors import ChakraError
    from chakra.et import CommType, NodeType, Trace, read_trace, read_traces, write_trace
    from chakra.platforms.cluster import cluster
    from chakra.replay import ReplayResult, simulate

__version__ = "0.1.0"

__all__ = [
    "ChakraError",
    "CommType",
    "NodeType",
    "ReplayResult",
    "Trace",
    "TraceBuilder",
    "Workload",
    "__version__",
    "cluster",
    "read_trace",
    "read_traces",
    "simulate",
    "write_trace",
]

find_siblings(Path(__file__).parent)
warn_of_conflicts()

lazy_names(
    __name__,
    {
        "ChakraError": "chakra.errors",
        "CommType": "chakra.et",
        "NodeType": "chakra.et",
        "ReplayResult": "chakra.replay",
        "Trace": "chakra.et",
        "TraceBuilder": "chakra.builder",
        "Workload": "chakra.builder",
        "cluster": "chakra.platforms",
        "read_trace": "chakra.et",
        "read_traces": "chakra.et",
        "simulate": "chakra.replay",
        "write_trace": "chakra.et",
    },
)
del find_siblings, warn_of_conflicts, lazy_names, Path
