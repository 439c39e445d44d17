"""From a PyTorch host trace and its Kineto device trace to one graph that replays like the machine.

`convert_rank` takes the files of one rank to a linked JSON or an execution trace, `convert_job` those of a whole job,
which `find_inputs` finds in a folder:

>>> from pathlib import Path
>>> from chakra.converters.pytorch import Settings, convert_job, find_inputs
>>> job = convert_job(find_inputs(Path("traces")), Path("job"), Settings(), check=True)  # doctest: +SKIP
>>> job.mismatches, [outcome.check.error for outcome in job.outcomes]  # doctest: +SKIP
([], [0.0012, 0.0009])

The rooms follow the steps: `read` (files to columns), `match` (which operator is which, who launched what), `time` (the
host's time in pieces, waits), `comm` (what is communicated, in which group), `graph` (nodes, edges, order), and `write`.
`link` joins those before `write`; `all_ranks` is what only the ranks of a job together say. ``docs/guides/pytorch.md``
says what each does and why.
"""

from typing import TYPE_CHECKING

from chakra.lazy import lazy_names

if TYPE_CHECKING:
    from chakra.converters.pytorch.folder import find_inputs
    from chakra.converters.pytorch.job import Inputs, Outcome, Settings, convert_rank
    from chakra.converters.pytorch.link import LinkOptions
    from chakra.converters.pytorch.ranks import JobResult, convert_job
    from chakra.converters.pytorch.write.emit import EmitOptions
    from chakra.converters.pytorch.write.replay_check import ReplayCheck

__all__ = [
    "EmitOptions",
    "Inputs",
    "JobResult",
    "LinkOptions",
    "Outcome",
    "ReplayCheck",
    "Settings",
    "convert_job",
    "convert_rank",
    "find_inputs",
]

_PACKAGE = "chakra.converters.pytorch"
# the kernels of this package are imported without the readers, which take a tenth of a second
lazy_names(
    __name__,
    {
        "EmitOptions": f"{_PACKAGE}.write.emit",
        "Inputs": f"{_PACKAGE}.job",
        "JobResult": f"{_PACKAGE}.ranks",
        "LinkOptions": f"{_PACKAGE}.link",
        "Outcome": f"{_PACKAGE}.job",
        "ReplayCheck": f"{_PACKAGE}.write.replay_check",
        "Settings": f"{_PACKAGE}.job",
        "convert_job": f"{_PACKAGE}.ranks",
        "convert_rank": f"{_PACKAGE}.job",
        "find_inputs": f"{_PACKAGE}.folder",
    },
)
