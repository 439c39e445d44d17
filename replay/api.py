"""`chakra.replay.simulate`: from files or objects to a result."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from chakra.arguments import checked, shown
from chakra.arrays import I64
from chakra.errors import UsageError, WorkloadError
from chakra.et import ABSENT, Trace, read_traces
from chakra.et.manifest import SUFFIX, read_manifest
from chakra.io.files import missing_ranks, ranks_found
from chakra.replay.checks.limits import check_limits
from chakra.replay.checks.run import check_dimensions, check_run, run_warnings
from chakra.replay.checks.stall import raise_if_stalled
from chakra.replay.collectives.custom import load_per_node
from chakra.replay.collectives.node_order import match_dimensions, match_scatters
from chakra.replay.config.groups import load_groups
from chakra.replay.config.memory import load_memory
from chakra.replay.config.model import Memory, System
from chakra.replay.config.network import load_network
from chakra.replay.config.system import load_system
from chakra.replay.engines.choice import why_every_npu, why_messages
from chakra.replay.engines.messages.run import MessageRun
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.phases.channels import UnfoldableError
from chakra.replay.engines.phases.engine import PhaseEngine
from chakra.replay.engines.scenario import Scenario
from chakra.replay.networks.blocks import with_faults
from chakra.replay.options import RunOptions
from chakra.replay.results.compute_notes import compute_warnings, generated_at_speed
from chakra.replay.results.result import ReplayResult
from chakra.replay.symmetry.classes import Partition, discrete, partition, peers_of
from chakra.replay.symmetry.rings_used import usage_of
from chakra.replay.workload.communicators import GroupTable, resolve_groups
from chakra.replay.workload.compile import compile_workload
from chakra.replay.workload.model import Op
from chakra.replay.workload.process_groups import with_metadata_groups
from chakra.replay.workload.replicate import repeat_blocks, repeated_text, spread, traced_ranks

Source = str | os.PathLike[str]
Progress = Callable[[int, int], bool]


@checked
def simulate(
    workload: Any,
    system: Source | Mapping[str, Any] | System,
    network: Any,
    *,
    memory: Source | Mapping[str, Any] | Memory | None = None,
    comm_groups: Source | Mapping[str, Any] | None = None,
    backend: str = "unaware",
    compat: str | None = None,
    queues_per_dim: int = 1,
    injection_scale: float = 1.0,
    comm_scale: float = 1.0,
    rendezvous: bool = False,
    compute_scale: float = 1.0,
    comm_streams: int = 1,
    npu_scale: Any = None,
    progress: Progress | None = None,
    engine: str = "auto",
    fold: bool = True,
    replicate: bool = False,
    fail_links: Sequence[str] = (),
    slow_links: Mapping[str, float] | None = None,
) -> ReplayResult:
    """Replay a workload on a described machine.

    Parameters
    ----------
    workload
        A prefix (rank i reads ``PREFIX.<i>.et`` or ``.et.gz``), a list of paths or of `Trace`, one per NPU (an entry
        may repeat: equal ranks share a trace), a `Trace` for a machine of one NPU, a `chakra.builder.Workload` with its
        groups, or a `chakra.et.manifest.WorkloadManifest`.
    system, network, memory, comm_groups
        Paths of ASTRA-sim's files, or plain dicts with the same keys. Without `memory` there is no remote memory.
        `network` may be a list of links (docs/guides/networks.md) or a NetworkX graph of them. What
        `chakra.replay.config` loads from them will do too.
    backend
        ``"unaware"`` (no contention) or ``"aware"`` (links are first-come-first-served servers).
    compat
        None gives the right answer, ``"astra-sim"`` ASTRA-sim's number, ``"astra-sim-1.0"`` that of its older model.
    queues_per_dim, injection_scale, comm_scale, compute_scale, rendezvous
        As ASTRA-sim's options of these names; the scales multiply endpoint delay, sizes and compute durations.
    comm_streams
        Collectives that an NPU may have in flight.
    npu_scale
        Factor on each NPU's compute durations: a list or array of one number per NPU.
    progress
        Called now and then with (nodes done, simulated ns); a run whose `progress` returns False ends with a partial
        result.
    engine, fold
        ``"phases"``, ``"messages"`` or ``"auto"``; whether one NPU may stand for a class of equal ones. Results do
        not depend on them.
    replicate
        Whether fewer traces than NPUs are repeated block by block, with peers and groups shifted; the result warns.
    fail_links, slow_links
        Links ``"A-B"`` that are gone, and factors on the bandwidth of links ``"A-B"``; both directions of each.

    Returns
    -------
    ReplayResult
        Finish and exposed-communication times in ns, and everything derived from them.

    Raises
    ------
    ConfigError, TraceError, WorkloadError
        For input that is wrong: one line that names the file and what is wrong.
    StallError
        When the workload cannot end: says who waits for whom.
    """
    net = with_faults(load_network(network, compat=compat), fail_links, slow_links)
    options = RunOptions(
        backend=backend,
        compat=compat,
        queues_per_dim=queues_per_dim,
        injection_scale=injection_scale,
        comm_scale=comm_scale,
        compute_scale=compute_scale,
        rendezvous=rendezvous,
        comm_streams=comm_streams,
        npu_scale=_scales(npu_scale, net.npus),
        engine=engine,
        fold=fold,
    )
    sys = load_system(system, compat=compat)
    mem = load_memory(memory, compat=compat) if memory is not None else Memory()
    traced = traced_ranks(workload, net.npus) if replicate else net.npus
    loaded = load_workload(workload, traced)
    traces, trace_of, groups = loaded.traces, loaded.trace_of, loaded.groups
    if comm_groups is not None:
        given = load_groups(comm_groups, compat=compat, npus=net.npus)
        groups = {**groups, **{name: [ranks] for name, ranks in given.items()}}
    if traced < net.npus:
        traces, trace_of = spread(traces, trace_of, net.npus)
    per_node = load_per_node(sys.per_node_custom, sys) if sys.per_node_custom is not None else {}
    compiled = compile_workload(
        traces, trace_of, sys, mem, options, per_node_custom=frozenset(per_node), relative=loaded.relative
    )
    groups = with_metadata_groups(compiled, groups, astra=options.astra)
    warnings = []
    if traced < net.npus:
        compiled, groups = repeat_blocks(compiled, groups, traced)
        warnings.append(repeated_text(traced, net.npus))
    warnings += run_warnings(compiled, options)
    warnings += compute_warnings(compiled.traces, sys)
    if isinstance(workload, str | os.PathLike):
        warnings += unused_traces(os.fspath(workload), net.npus)
    membership = resolve_groups(compiled, groups)
    compiled = match_scatters(match_dimensions(compiled, len(net.dims)), membership)
    named = isinstance(workload, str | os.PathLike)
    check_limits(compiled, sys, net, options)
    check_run(compiled, membership, options, named_by_rank=named, traced_ranks=traced)
    check_dimensions(compiled, membership, sys, net, options)
    scenario = Scenario(compiled, membership, sys, net, mem, options)
    raw = run_engine(scenario, progress, per_node)
    raise_if_stalled(raw, compiled, membership, options)
    if raw.engine == "messages" and comm_streams > 1 and any(has_priorities(t) for t in compiled.traces):
        warnings.append("comm_priority has no effect where every message is simulated")
    return ReplayResult(
        raw=raw,
        workload=compiled,
        membership=membership,
        system=sys,
        network=net,
        memory_config=mem,
        options=options,
        warnings=warnings,
        source=os.fspath(workload) if named else f"{len(compiled.traces)} traces",
    )


def has_priorities(trace: Trace) -> bool:
    """Whether nodes of a trace differ in `comm_priority`."""
    given = np.where(trace.comm_priority == ABSENT, 0, trace.comm_priority)
    return bool(len(given) and (given != given[0]).any())


def _scales(npu_scale: Any, npus: int) -> Any:
    if npu_scale is None:
        return None
    given = npu_scale if isinstance(npu_scale, np.ndarray) else None
    if (
        isinstance(npu_scale, Sequence)
        and not isinstance(npu_scale, str | bytes)
        and all(
            isinstance(factor, int | float | np.number) and not isinstance(factor, bool)
            for factor in npu_scale
        )
    ):
        given = np.array(npu_scale, np.float64)
    if given is None or given.dtype.kind not in "iuf":
        raise UsageError(
            f"npu_scale: a list or array of one factor for each of {npus} NPUs is needed, not {shown(npu_scale)}"
        )
    scale = given.astype(np.float64)
    if scale.shape != (npus,):
        raise UsageError(f"npu_scale: {scale.size} factors for {npus} NPUs; give one per NPU")
    if not np.isfinite(scale).all() or (scale < 0).any():
        raise UsageError("npu_scale: factors must be numbers of at least 0")
    return scale


class Loaded(NamedTuple):
    """A workload as it was given."""

    #: distinct ones
    traces: list[Trace]
    #: trace of each NPU
    trace_of: I64
    #: groups that come with the workload
    groups: GroupTable
    #: whether peers are offsets
    relative: bool


def load_workload(workload: Any, npus: int) -> Loaded:
    """Read what `simulate` takes as a workload."""
    if callable(
        getattr(workload, "trace_of", None)
    ):  # a builder's: a layer above, so known by what it offers
        if workload.npus != npus:
            raise WorkloadError(f"the workload is for {workload.npus} NPUs, but the network has {npus}")
        built = load_workload(workload.traces(), npus)
        return built._replace(groups={name: [ranks] for name, ranks in workload.groups.items()})
    if hasattr(workload, "trace_of") and hasattr(workload, "traces"):
        trace_of = np.asarray(workload.trace_of, np.int64)
        if len(trace_of) != npus:
            raise WorkloadError(f"the workload is for {len(trace_of)} NPUs, but the network has {npus}")
        if not all(isinstance(trace, Trace) for trace in workload.traces):
            raise UsageError("workload: its traces must be of the class chakra.et.Trace")
        relative = getattr(workload, "peer_mode", "absolute") == "relative"
        return Loaded(list(workload.traces), trace_of, workload.groups, relative)
    if isinstance(workload, str | os.PathLike):
        manifest = manifest_path(os.fspath(workload))
        if manifest is not None:
            return load_workload(read_manifest(manifest), npus)
        paths: Sequence[Any] = files_of_ranks(os.fspath(workload), npus)
    else:
        if not isinstance(workload, Iterable | Trace) or isinstance(workload, bytes | Mapping):
            raise UsageError(
                "workload: a prefix of files, a list of paths or traces, or a workload of chakra.builder or "
                f"chakra.generate is needed, not {shown(workload)}"
            )
        paths = [workload] if isinstance(workload, Trace) else list(workload)
        if len(paths) != npus:
            raise WorkloadError(
                f"{len(paths)} trace{'s' * (len(paths) != 1)} for {npus} NPU{'s' * (npus != 1)}; give one per NPU"
            )
    if all(isinstance(path, Trace) for path in paths):
        every = list(paths)
    elif all(isinstance(path, str | os.PathLike) for path in paths):
        every = read_files([os.fspath(path) for path in paths])
    else:
        odd = next(path for path in paths if not isinstance(path, str | os.PathLike))
        raise UsageError(f"workload: the list must hold paths alone or traces alone, but holds {shown(odd)}")
    distinct: dict[int, int] = {}
    traces: list[Trace] = []
    trace_of = np.empty(npus, np.int64)
    for i, trace in enumerate(every):
        if id(trace) not in distinct:
            distinct[id(trace)] = len(traces)
            traces.append(trace)
        trace_of[i] = distinct[id(trace)]
    return Loaded(traces, trace_of, {}, False)


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


def manifest_path(prefix: str) -> str | None:
    """The workload manifest that a prefix names, if it names one: the file itself, or ``PREFIX.workload.json``."""
    if prefix.endswith(SUFFIX):
        return prefix
    return prefix + SUFFIX if os.path.exists(prefix + SUFFIX) else None


def read_files(paths: Sequence[str]) -> list[Trace]:
    """Traces of all paths; a file that several ranks share, by name or by link, is read once."""
    first: dict[Any, str] = {}
    names: dict[str, str] = {}
    for path in paths:
        if path not in names:
            try:
                status = os.stat(path)
                names[path] = first.setdefault((status.st_dev, status.st_ino), path)
            except OSError:
                names[path] = path  # the reader says what is wrong with it
    distinct = list(dict.fromkeys(names.values()))
    traces = dict(zip(distinct, read_traces(distinct), strict=True))
    return [traces[names[path]] for path in paths]


def files_of_ranks(prefix: str, npus: int) -> list[str]:
    """Files of all ranks below a prefix.

    Raises
    ------
    WorkloadError
        When ranks have no file: the first of them are named.
    """
    found = ranks_found(prefix)
    missing, shown = missing_ranks(found, npus)
    if missing:
        there = [rank for rank in found if rank < npus]
        repeatable = there and there[-1] == len(there) - 1 and npus % len(there) == 0
        raise WorkloadError(
            f"{prefix}.<rank>.et: no file for {missing} of {npus} ranks: {shown}"
            + (
                ""
                if os.path.isdir(Path(prefix).parent)
                else f" (folder {Path(prefix).parent} does not exist)"
            )
            + ("; --replicate repeats the traces that there are" if repeatable else "")
            + (f"; the prefix of this file is {prefix_of(prefix)}" if prefix_of(prefix) else "")
        )
    return [found[rank] for rank in range(npus)]


def prefix_of(file: str) -> str:
    """The prefix of a trace ``PREFIX.<rank>.et`` that exists; empty for anything else."""
    match = re.fullmatch(r"(.+)\.\d+\.et(\.gz)?", file)
    return match[1] if match is not None and os.path.isfile(file) else ""


def unused_traces(prefix: str, npus: int) -> list[str]:
    """A warning if there are traces of ranks that the network does not have: probably it is the wrong one."""
    if manifest_path(prefix) is not None:
        return []
    beyond = sorted(rank for rank in ranks_found(prefix) if rank >= npus)
    if not beyond:
        return []
    first = ", ".join(str(rank) for rank in beyond[:3]) + (", ..." if len(beyond) > 3 else "")
    count = f"{len(beyond)} more rank" + ("s" if len(beyond) > 1 else "")
    return [f"{prefix}.<rank>.et: traces of {count} ({first}) are not used: the network has {npus} NPUs"]


def choose_partition(scenario: Scenario) -> Partition:
    """Classes of NPUs, or every NPU its own class where a resource that all share breaks the symmetry."""
    workload, membership, network = scenario.workload, scenario.membership, scenario.network
    shared = any((p.op == Op.SERVER).any() for p in workload.programs)
    if not scenario.options.fold or shared:
        return discrete(workload.npus)
    usage = usage_of(workload, membership, scenario.system, network, scenario.options)
    return partition(workload, membership, network, usage, peers_of(workload))


def run_engine(scenario: Scenario, progress: Progress | None, per_node: dict[int, str]) -> RawRun:
    """Run the engine that fits."""
    network, options = scenario.network, scenario.options
    reason = why_every_npu(scenario)
    if network.links is not None:
        if options.engine == "phases":
            raise UsageError(
                f"engine: 'phases' cannot run {network.source}, whose links are given one by one"
            )
        reason = "the network is given link by link"
    if reason is None:
        classes = choose_partition(scenario)
        reason = why_messages(scenario, classes)
    if reason is not None:
        every = replace(scenario, options=replace(options, engine="messages"))
        run = MessageRun(every, per_node).run(progress)
        return replace(run, notes=(f"every message simulated: {reason}", *run.notes))
    try:
        engine = PhaseEngine(scenario, classes)
    except UnfoldableError:
        engine = PhaseEngine(scenario, discrete(scenario.workload.npus))
    return engine.run(progress)
