"""From what `simulate` is given to a scenario: one sequence, in which every step has its own name.

Read the machine, read the traces, add groups, repeat ranks, compile programs, match collectives across ranks, check.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chakra.et.manifest import read_manifest
from chakra.io.rank_files import ranks_found
from chakra.io.readable import counted
from chakra.replay.checks.limits import check_limits
from chakra.replay.checks.run import check_dimensions, check_run, check_switches, run_warnings
from chakra.replay.collectives.library.in_effect import uses_library
from chakra.replay.config.groups import load_groups
from chakra.replay.config.memory import load_memory
from chakra.replay.config.model import Memory, Network, System
from chakra.replay.config.system import load_system
from chakra.replay.engines.scenario import Scenario
from chakra.replay.options import RunOptions
from chakra.replay.results.compute_notes import compute_warnings, generated_at_speed
from chakra.replay.results.input_warnings import (
    custom_warnings,
    idle_dimension_warnings,
    network_warnings,
    untimed_warnings,
)
from chakra.replay.workload.compile import compile_workload
from chakra.replay.workload.custom import load_per_node
from chakra.replay.workload.dimension_groups import dimensions_as_groups
from chakra.replay.workload.load import Loaded, load_workload, manifest_path, read_files
from chakra.replay.workload.match_ranks import match_ranks
from chakra.replay.workload.replicate import repeated_text, spread, traced_ranks
from chakra.replay.workload.starts import at_recorded_starts

Source = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scenario that is ready to run, and what the user should know of how it was made."""

    scenario: Scenario
    warnings: list[str]
    #: what the workload was read from, in words
    source: str


def prepare(
    workload: Any,
    system: Source | Mapping[str, Any] | System,
    network: Network,
    memory: Source | Mapping[str, Any] | Memory | None,
    comm_groups: Source | Mapping[str, Any] | None,
    options: RunOptions,
    *,
    replicate: bool = False,
) -> Prepared:
    """Read and check everything that a run needs; the arguments are those of `chakra.replay.simulate`.

    Raises
    ------
    ConfigError, TraceError, WorkloadError
        For input that is wrong: one line that names the file and what is wrong.
    StallError
        If the workload has ends without a partner, for which it would wait for ever.
    """
    machine = load_system(system, compat=options.compat)
    memory_of_machine = load_memory(memory, compat=options.compat) if memory is not None else Memory()
    traced = traced_ranks(workload, network.npus) if replicate else network.npus
    loaded = _spread(load_workload(workload, traced), traced, network.npus)
    loaded = loaded._replace(traces=at_recorded_starts(loaded.traces, options, machine))
    groups = dict(loaded.groups)
    if comm_groups is not None:
        given = load_groups(comm_groups, compat=options.compat, npus=network.npus)
        groups |= {name: [ranks] for name, ranks in given.items()}
    custom = load_per_node(machine.per_node_custom, machine) if machine.per_node_custom is not None else {}
    compiled = compile_workload(
        loaded.traces,
        loaded.trace_of,
        machine,
        memory_of_machine,
        options,
        per_node_custom=frozenset(custom),
        relative=loaded.relative,
    )
    repeated = None if traced == network.npus else traced
    named = isinstance(workload, str | os.PathLike)
    warnings = [] if repeated is None else [repeated_text(repeated, network.npus)]
    warnings += [*run_warnings(compiled, options), *network_warnings(network, options)]
    warnings += compute_warnings(compiled.traces, machine, options)
    if named:
        warnings += unused_traces(os.fspath(workload), network.npus)
    matched, membership = match_ranks(
        compiled, groups, dims=len(network.dims), astra=options.astra, traced=repeated
    )
    if uses_library(machine, network, options):
        matched, membership = dimensions_as_groups(matched, membership, network)
    scenario = Scenario(matched, membership, machine, network, memory_of_machine, options, custom)
    warnings += [
        *idle_dimension_warnings(scenario),
        *custom_warnings(scenario),
        *untimed_warnings(compiled, machine),
    ]
    check_limits(matched, machine, network, options)
    check_run(matched, membership, options, named_by_rank=named, traced_ranks=traced)
    check_dimensions(matched, membership, machine, network, options)
    if not uses_library(machine, network, options):
        check_switches(matched, membership, machine, network, options)
    source = os.fspath(workload) if named else f"{counted(len(matched.traces), 'trace')}"
    return Prepared(scenario, warnings, source)


def _spread(loaded: Loaded, traced: int, npus: int) -> Loaded:
    """The traces of the first ranks, given to all NPUs in turn."""
    if traced == npus:
        return loaded
    traces, trace_of = spread(loaded.traces, loaded.trace_of, npus)
    return loaded._replace(traces=traces, trace_of=trace_of)


def workload_facts(prefix: str) -> tuple[int | None, bool]:
    """Number of ranks below a prefix (None if it has no trace), and whether its computes were timed when generated."""
    manifest = manifest_path(prefix)
    if manifest is not None:
        read = read_manifest(manifest)
        return len(read.trace_of), bool(read.traces) and generated_at_speed(read.traces[0])
    found = ranks_found(prefix)
    if not found:
        return None, False
    return max(found) + 1, generated_at_speed(read_files([found[min(found)]])[0])


def unused_traces(prefix: str, npus: int) -> list[str]:
    """A warning if there are traces of ranks that the network does not have: probably it is the wrong one."""
    if manifest_path(prefix) is not None:
        return []
    beyond = sorted(rank for rank in ranks_found(prefix) if rank >= npus)
    if not beyond:
        return []
    first = ", ".join(str(rank) for rank in beyond[:3]) + (", ..." if len(beyond) > 3 else "")
    count = counted(len(beyond), "more rank")
    return [
        f"{prefix}.<rank>.et: traces of {count} ({first}) are not used: the network has {counted(npus, 'NPU')}"
    ]
