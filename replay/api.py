"""`chakra.replay.simulate`: from files or objects to a result."""

from collections.abc import Mapping, Sequence
from typing import Any

from chakra.arguments import checked
from chakra.replay.config.model import Memory, System
from chakra.replay.config.network import load_network
from chakra.replay.engines.run import Progress, run_engine
from chakra.replay.networks.answers import backend_on
from chakra.replay.networks.blocks import with_faults
from chakra.replay.options import NS3, RunOptions, npu_scales
from chakra.replay.prepare import Source, prepare
from chakra.replay.results.result import ReplayResult
from chakra.replay.results.stall import raise_if_stalled
from chakra.replay.workload.kernel_speeds import checked_speeds


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
    host_speed: float = 1.0,
    accelerator_speed: float = 1.0,
    kernel_speeds: Mapping[str, float] | None = None,
    accelerator: str | None = None,
    recorded_on: str | None = None,
    start: str | None = None,
    measured: str | Sequence[str] = (),
    collective_algorithm: str | None = None,
    collective_protocol: str | None = None,
    collective_channels: int | None = None,
    progress: Progress | None = None,
    engine: str = "auto",
    fold: bool = True,
    ideal: bool = False,
    replicate: bool = False,
    fail_links: Sequence[str] = (),
    slow_links: Mapping[str, float] | None = None,
    long_run: bool = False,
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
        `network` may be a list of links (docs/guides/networks.md), a NetworkX graph of them, or an
        `chakra.replay.networks.OutsideNetwork`, which simulates the transfers itself. What `chakra.replay.config` loads
        from them will do too.
    backend
        ``"unaware"`` (no contention), ``"aware"`` (links are first-come-first-served servers), ``"flow"`` (they are
        shared max-min fairly) or ``"ns3"`` (packets, by ns-3, one such run at a time in a process). A network that
        simulates itself has none of them; its result says ``"outside"``.
    compat
        None gives the right answer, ``"astra-sim"`` ASTRA-sim's number, ``"astra-sim-1.0"`` that of its older model.
    queues_per_dim, injection_scale, comm_scale, compute_scale, rendezvous
        As ASTRA-sim's options of these names; the scales multiply endpoint delay, sizes and compute durations.
    comm_streams
        Collectives that an NPU may have in flight.
    npu_scale
        Factor on each NPU's compute durations: a list or array of one number per NPU.
    host_speed, accelerator_speed
        Divide the compute durations that traces give: those of host nodes, gaps and waits, and those of the
        accelerator's kernels. Copies between host and device stay, and so does what the roofline gives a time.
    kernel_speeds
        Divide the times of the accelerator's kernels by family, whoever gave them: ``matmul``, ``attention``,
        ``convolution``, ``memory-bound`` (or one of its families: memory, norm, reduction, optimizer, copy), ``other``,
        or ``name:PATTERN`` for names that a regular expression finds.
    accelerator, recorded_on
        Give recorded kernels the times of another accelerator (``"b200"``), by the operator models of both for the
        shapes that the recording has, else by bandwidth or peak; `ReplayResult.notes` says for how much. ``recorded_on``
        is the recorded accelerator, where the traces do not say it.
    start
        ``"recorded"`` starts the ranks of a converted recording as far apart as they were recorded, ``"aligned"``
        together, as ranks of all other traces and with `compat`; `ReplayResult.notes` says how far that is. None is
        ``"recorded"``, but ``"aligned"`` for a replay of recorded times alone, where ranks do not wait for each other.
    measured
        Measured times of collectives and of matrix products in place of the models, where they reach: files (output of
        nccl-tests, CSV, parquet) or ``"aiconfigurator"``, ``"aiconfigurator:SYSTEM"``, either with ``/BACKEND`` behind it
        whose products. Empty: those that the system file names, if any; `ReplayResult.notes` says how far they reach.
    collective_algorithm, collective_protocol, collective_channels
        What a collective library is held to, as NCCL_ALGO, NCCL_PROTO and NCCL_MAX_NCHANNELS do: ``"Ring"``,
        ``"Simple"``, at most so many channels. None: what the system file says, if anything.
    progress
        Called now and then with (nodes done, simulated ns); a run whose `progress` returns False ends with a partial
        result.
    engine, fold
        ``"phases"``, ``"messages"`` or ``"auto"``; whether one NPU may stand for a class of equal ones. Results do
        not depend on them, but for the ties that docs/limits.md names.
    ideal
        Compute at 100 % of the peak and of the memory's bandwidth (the roofline), also where the system file names an
        operator model.
    replicate
        Whether fewer traces than NPUs are repeated block by block, with peers and groups shifted; the result warns.
    fail_links, slow_links
        Links ``"A-B"`` that are gone, and factors on the bandwidth of links ``"A-B"``; both directions of each.
    long_run
        Whether ``"ns3"`` may run for what it estimates to take more than an hour.

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
    machine = with_faults(load_network(network, compat=compat), fail_links, slow_links)
    runs_on = backend_on(machine, backend)
    options = RunOptions(
        backend=runs_on,
        compat=compat,
        queues_per_dim=queues_per_dim,
        injection_scale=injection_scale,
        comm_scale=comm_scale,
        compute_scale=compute_scale,
        rendezvous=rendezvous,
        comm_streams=comm_streams,
        npu_scale=npu_scales(npu_scale, machine.npus),
        host_speed=host_speed,
        accelerator_speed=accelerator_speed,
        kernel_speeds=checked_speeds(kernel_speeds or {}),
        accelerator=accelerator,
        recorded_on=recorded_on,
        start=start,
        measured=(measured,) if isinstance(measured, str) else tuple(measured),
        collective_algorithm=collective_algorithm,
        collective_protocol=collective_protocol,
        collective_channels=collective_channels,
        engine=engine,
        fold=fold,
        ideal=ideal,
    )
    if runs_on == NS3:
        from chakra.replay.networks.ns3.network import with_packets

        machine = with_packets(machine, long_run=long_run)
    ready = prepare(workload, system, machine, memory, comm_groups, options, replicate=replicate)
    raw = run_engine(ready.scenario, progress)
    raise_if_stalled(raw, ready.scenario)
    return ReplayResult(raw=raw, scenario=ready.scenario, warnings=ready.warnings, source=ready.source)
