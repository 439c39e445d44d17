"""Bounds within which 64-bit integers hold every time and every count of bytes of a run.

The engines count in int64 and do not check; what could overflow is refused here, before a run, with the value's name.
"""

from chakra.errors import ConfigError, WorkloadError
from chakra.io.limits import MAX_CHUNKS
from chakra.io.readable import counted
from chakra.replay.config.keys import SPLITS
from chakra.replay.config.model import Network, System, bytes_per_ns
from chakra.replay.config.readers import SLOWEST
from chakra.replay.options import RunOptions
from chakra.replay.workload.model import Workload

#: longest delay of one message or one endpoint, ns (about a year); a run may have a hundred of them in a row
LONGEST_NS = 1 << 55
#: most bytes that all NPUs may send in one dimension
MOST_BYTES = 1 << 62


def check_limits(workload: Workload, system: System, network: Network, options: RunOptions) -> None:
    """Refuse sizes and delays that 64-bit integers cannot hold.

    Raises
    ------
    ConfigError
        For latencies, bandwidths, delays or scales that make one message last longer than a year.
    WorkloadError
        For sizes of messages and collectives, or durations, whose sums leave 64 bits.
    """
    largest = 1
    for program in workload.programs:
        source = program.trace.source
        sizes = [call.bytes for call in program.calls]
        if len(program.p2p_bytes):
            sizes.append(int(program.p2p_bytes.max()))
        size = max(sizes, default=0)
        nodes = max(program.n_comm, 1)
        if size * nodes * workload.npus > MOST_BYTES:
            raise WorkloadError(
                f"{source}: comm_size {size:,} bytes times {counted(nodes, 'communication node')} on "
                f"{counted(workload.npus, 'NPU')} "
                "does not fit 64 bits"
            )
        if float(program.duration_ns.sum(dtype=float)) > MOST_BYTES:
            raise WorkloadError(f"{source}: the sum of all durations does not fit 64 bits of nanoseconds")
        largest = max(largest, size)
        if system.computing_rate < 1 and float(program.duration_ns.sum(dtype=float)) / SLOWEST > MOST_BYTES:
            raise WorkloadError(
                f"{source}: the sum of all durations is more than five days, which overlap-computing-rate does not count"
            )
    alike = {(x.latency_ns, x.bandwidth_gibps): x for x in network.links.links} if network.links else {}
    for link in alike.values():
        longest = link.latency_ns + largest * workload.npus / link.bytes_per_ns
        if not longest < LONGEST_NS:
            raise ConfigError(
                f"{network.source}: a link of latency {link.latency_ns:g} ns and bandwidth {link.bandwidth_gibps:g} GB/s "
                f"may need {longest:.3g} ns for a message of {largest:,} bytes, more than a year"
            )
    for k, dim in enumerate(network.dims):
        longest = dim.npus * dim.latency_ns + largest * workload.npus / dim.bytes_per_ns
        if not longest < LONGEST_NS:
            raise ConfigError(
                f"{network.source}: dimension {k}: with latency {dim.latency_ns:g} ns and bandwidth "
                f"{dim.bandwidth_gibps:g} GB/s a message of {largest:,} bytes may take {longest:.3g} ns, "
                "more than a year; latency is in ns, bandwidth in GB/s of 2^30 B/s"
            )
    if network.flow_cap_gibps is not None:
        longest = largest * workload.npus / bytes_per_ns(network.flow_cap_gibps)
        if not longest < LONGEST_NS:
            raise ConfigError(
                f"{network.source}: at flow_cap {network.flow_cap_gibps:g} GB/s a message of {largest:,} bytes may take "
                f"{longest:.3g} ns, more than a year"
            )
    chunks = min(system.splits, largest)
    if chunks > MAX_CHUNKS:
        raise ConfigError(
            f"{system.source}: key '{SPLITS.name}' cuts a collective of {largest:,} bytes into {chunks:,} "
            f"chunks; at most {MAX_CHUNKS:,} are replayed"
        )
    if system.local_mem_bw_gbps and not largest * workload.npus / system.local_mem_bw_gbps < LONGEST_NS:
        raise ConfigError(
            f"{system.source}: key 'local-mem-bw' {system.local_mem_bw_gbps:g} GB/s: a reduction of {largest:,} bytes "
            "may take more than a year"
        )
    endpoint = system.endpoint_delay_ns * (options.injection_scale if system.endpoint_delay_given else 1.0)
    if not endpoint < LONGEST_NS:
        raise ConfigError(
            f"{system.source}: endpoint-delay {system.endpoint_delay_ns} ns times injection scale "
            f"{options.injection_scale:g} is more than a year"
        )
