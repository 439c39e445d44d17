"""Where a run's collectives take the time of a library: the model that a system file names, placed on a network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from chakra.arrays import I64
from chakra.errors import ConfigError, UsageError
from chakra.io.limits import MAX_DOCUMENT_BYTES
from chakra.io.readable import counted
from chakra.io.text import read_text
from chakra.io.yaml import parse_document
from chakra.replay.collectives.library.choice import EXCHANGES
from chakra.replay.collectives.library.cost import LibraryTime, library_time
from chakra.replay.collectives.library.fault_loads import FaultLoads
from chakra.replay.collectives.library.messages import Lane, lanes, lanes_of_pairs
from chakra.replay.collectives.library.parameters import MachineParameters, parameters_from
from chakra.replay.collectives.library.port_rates import PortRates, node_of, port_rates
from chakra.replay.collectives.library.presets import preset_parameters
from chakra.replay.collectives.library.shape import Algorithm, Choice, Communicator, Forced, Protocol
from chakra.replay.collectives.plan import Phase
from chakra.replay.collectives.uneven import pair_bytes
from chakra.replay.compute.in_effect import measured_names
from chakra.replay.config import silicon
from chakra.replay.config.keys import COLLECTIVE_TIMES
from chakra.replay.config.model import CollectiveKind, LinkTopology, Network, Switches, System
from chakra.replay.options import FLOW, RunOptions

if TYPE_CHECKING:  # imported where they are asked for: a replay starts sooner without
    from chakra.replay.collectives.measured import MeasuredTimes

#: kinds whose nccl-tests size is comm_size of all members together
_OF_ALL = (CollectiveKind.ALL_GATHER, CollectiveKind.GATHER)


#: order of members, their nodes, and the rate of their ports
Layout = tuple[bytes, bytes, float]


@dataclass(frozen=True, slots=True)
class PlacedLibrary:
    """A collective library on the nodes of a network."""

    machine: MachineParameters
    forced: Forced
    #: NPUs of a node: neighbouring numbers
    node_npus: int
    #: rate of an NPU's port into the network between nodes, 10^9 B/s; on single links of the slowest
    nic_gbps: float
    nics: int
    network_us: float
    #: whether switches between nodes reduce
    in_network: bool = False
    #: whether messages share links, so that the bytes of collectives travel as messages
    sends: bool = False
    #: what stands in for the model where it was measured
    measured: "MeasuredTimes | None" = None
    #: collectives that were asked for: kind, bytes and ranks, and whether they were measured
    asked: dict[tuple[CollectiveKind, int, int], bool] = field(default_factory=dict, compare=False)
    #: speed of computing while a collective runs on an NPU, and of a collective while a member computes
    computing_rate: float = 1.0
    collective_rate: float = 1.0
    #: on single links the rates of the ports of each group
    rates: PortRates | None = None
    #: where messages never meet, and some links have failed or are slow: what these need for a collective
    loads: FaultLoads | None = None

    @property
    def slows(self) -> bool:
        """Whether computing and collectives slow each other down."""
        return self.computing_rate < 1 or self.collective_rate < 1

    @property
    def name(self) -> str:
        """Name of the library."""
        return self.machine.library

    def size_bytes(self, kind: CollectiveKind, comm_size: int, members: int) -> int:
        """Size of a collective as nccl-tests count it."""
        return comm_size * members if kind in _OF_ALL else comm_size

    def communicator(self, kind: CollectiveKind, npus: I64) -> Communicator:
        """How members lie on nodes.

        Where nodes hold unequal numbers, all are taken to hold as many as the fullest. Rings and trees go through every
        node, and have no more ports than the node with fewest members. Between pairs every member has its own, and
        `even_bytes` says how much goes through them.
        """
        _, counts = np.unique(npus // self.node_npus, return_counts=True)
        nodes, most, least = len(counts), int(counts.max()), int(counts.min())
        if nodes == 1:
            return Communicator(most, most)
        ports = min(self.nics or most, most if kind in EXCHANGES else least)
        return Communicator(
            nodes * most, most, self.port_gbps(npus), ports, self.network_us, in_network=self.in_network
        )

    def port_gbps(self, npus: I64) -> float:
        """Rate of the ports of these members, 10^9 B/s: of the slowest that the members use."""
        return self.nic_gbps if self.rates is None else self.rates.gbps(npus)

    def even_bytes(self, kind: CollectiveKind, size_bytes: int, npus: I64, comm: Communicator) -> int:
        """Size of the collective on `comm` whose ports carry what the busiest one does here: its own on even nodes."""
        n = len(npus)
        if comm.ranks == n or kind not in EXCHANGES:
            return size_bytes
        _, counts = np.unique(npus // self.node_npus, return_counts=True)
        ports = np.minimum(self.nics or counts, counts)
        busiest = float((counts * (n - counts) / ports).max()) * size_bytes / n
        inner = comm.node_ranks
        return round(busiest * comm.ranks * comm.ports / ((comm.ranks - inner) * inner))

    def time(self, kind: CollectiveKind, size_bytes: int, npus: I64) -> LibraryTime:
        """Time of a collective of these NPUs, from the last start to the last end."""
        comm = self.communicator(kind, npus)
        even = self.even_bytes(kind, size_bytes, npus, comm)
        made = library_time(kind, even, comm, self.machine, self.forced)
        if self.measured is None or not size_bytes or comm.ranks == 1:
            return made
        time = None
        if comm.ranks == len(npus):  # logs are those of nodes that hold equally many
            time = self.measured.time_us(kind, size_bytes, comm, self.machine.node_ranks)
        self.asked[kind, size_bytes, len(npus)] = time is not None
        return made if time is None else LibraryTime(round(time * 1e3), made.choice)

    def phase_ns(self, phase: Phase, npus: I64) -> int:
        """Time of a phase that is a whole collective of these NPUs, on a network where messages never meet or before."""
        time = self.time(CollectiveKind(phase.algorithm.kind), phase.bytes, npus).time_ns
        return max(time, self.fault_ns(phase, npus))

    def fault_ns(self, phase: Phase, npus: I64) -> int:
        """What links with faults need for such a phase, ns; 0 where there are none, or they do not count."""
        return 0 if self.loads is None else self.loads.longer_ns(self.phase_lanes(phase, npus), npus)

    def choice(self, kind: CollectiveKind, size_bytes: int, npus: I64) -> Choice:
        """What the library runs for a collective of these NPUs: algorithm, protocol, channels."""
        comm = self.communicator(kind, npus)
        even = self.even_bytes(kind, size_bytes, npus, comm)
        return library_time(kind, even, comm, self.machine, self.forced).choice

    def layout(self, npus: I64) -> Layout:
        """Equal for members whose messages are the same, position by position."""
        nodes, node = np.unique(npus // self.node_npus, return_inverse=True)
        # what the library chooses depends on the rate of the ports
        rate = self.port_gbps(npus) if len(nodes) > 1 else 0.0
        return np.argsort(npus, kind="stable").tobytes(), node.astype(np.int64).tobytes(), rate

    def lanes(self, kind: CollectiveKind, size_bytes: int, npus: I64) -> list[Lane]:
        """The messages of a collective of these NPUs."""
        if kind is CollectiveKind.BARRIER:
            kind, size_bytes = CollectiveKind.ALL_REDUCE, 1
        comm = self.communicator(kind, npus)
        choice = library_time(kind, size_bytes, comm, self.machine, self.forced).choice
        mesh = self.machine.links == "fabric"
        return lanes(kind, size_bytes, npus, self.node_npus, comm, choice, mesh=mesh)

    def phase_lanes(self, phase: Phase, npus: I64) -> list[Lane]:
        """The messages of a phase that is a whole collective of these NPUs."""
        kind = CollectiveKind(phase.algorithm.kind)
        if phase.sizes is not None and kind in EXCHANGES:
            return lanes_of_pairs(pair_bytes(phase.do, phase.sizes.sizes))
        return self.lanes(kind, phase.bytes, npus)


def why_no_library(system: System, network: Network, options: RunOptions) -> str | None:
    """Why a library that the system file names has no effect; None if it has, or if none is named."""
    if system.collective_library is None:
        return None
    if options.compat is not None:
        return f"compat {options.compat!r} has the algorithms of ASTRA-sim"
    if system.shared_bus is not None:
        return "the shared memory bus has messages of its own"
    if system.custom or system.per_node_custom:
        return "a custom collective algorithm is given as traces"
    return None


def uses_library(system: System, network: Network, options: RunOptions) -> bool:
    """Whether a run's collectives take the times of a library, or `placed_library` says what is wrong with it."""
    return system.collective_library is not None and why_no_library(system, network, options) is None


def placed_library(
    system: System, network: Network, options: RunOptions, groups: Sequence[I64] = ()
) -> PlacedLibrary | None:
    """The library whose times a run's collectives take; None: the algorithms of the system file.

    Parameters
    ----------
    groups
        Members of the run's groups.

    Raises
    ------
    ConfigError
        Costs that are none, or a network whose innermost dimension is larger than a node.
    """
    if system.collective_library is None and options.compat is None and _stands_alone(system, options):
        _, asked = measured_collectives(system, options)
        raise ConfigError(
            f"{asked}: measured times stand in for a collective library's model; name one with collective-library and "
            "collective-costs in the system file"
        )
    if system.collective_library is None and options.held and options.compat is None:
        raise ConfigError(
            f"--{next(iter(options.held))} holds a collective library to something; name one with collective-library and "
            "collective-costs in the system file"
        )
    if not uses_library(system, network, options):
        return None
    machine = _machine(system)
    node, rate, rates = _node(network, machine, groups)
    algorithm = options.collective_algorithm or system.collective_algorithm
    protocol = options.collective_protocol or system.collective_protocol
    forced = Forced(
        Algorithm(algorithm) if algorithm else None,
        Protocol(protocol) if protocol else None,
        options.collective_channels or system.collective_channels,
    )
    reduces = system.network_reduces or _switches_reduce(network, node)
    sends = options.backend in ("aware", FLOW) or network.outside is not None
    return PlacedLibrary(
        machine, forced, node, rate, system.node_ports, system.network_latency_us, reduces, sends,
        _measured(system, options, machine), computing_rate=system.computing_rate, collective_rate=system.collective_rate,
        rates=rates, loads=None if sends or network.faults is None else FaultLoads(network, network.faults),
    )  # fmt: skip


def measured_collectives(system: System, options: RunOptions) -> tuple[tuple[str, ...], str]:
    """Names of measured collectives that the options or else the system file give, and who asks for them.

    Raises
    ------
    ConfigError
        A file that cannot be read.
    """
    source = f"{system.source}: {COLLECTIVE_TIMES.name}"
    return measured_names(options, _has_collectives, system.collective_times, source)


def _has_collectives(name: str) -> bool:
    from chakra.replay.collectives.measured import has_collectives

    return has_collectives(name)


def _stands_alone(system: System, options: RunOptions) -> bool:
    """Whether measured collectives are asked for, and not by a package's name that may mean matrix products."""
    names, _ = measured_collectives(system, options)
    package = bool(options.measured) and system.operator_model is not None
    return not all(package and silicon.named(name) for name in names)


def _measured(system: System, options: RunOptions, machine: MachineParameters) -> "MeasuredTimes | None":
    """The measured times that the options or else the system file ask for."""
    names, asked = measured_collectives(system, options)
    if not names:
        return None
    from chakra.replay.collectives.measured import read_measured

    return read_measured(names, machine.name, asked)


def _switches_reduce(network: Network, node: int) -> bool:
    """Whether the network file says of all switches between nodes of so many NPUs that they reduce."""
    inner, outer = 1, []
    for dim in network.dims:
        if inner >= node:
            outer.append(dim.switches)
        inner *= dim.npus
    return bool(outer) and all(can is Switches.REDUCES for can in outer)


def _node(
    network: Network, machine: MachineParameters, groups: Sequence[I64]
) -> tuple[int, float, PortRates | None]:
    """NPUs of a node, the rate of a port into the network between nodes, 10^9 B/s, and on single links each group's."""
    node, _, outer = node_of(network, machine.node_ranks)
    if node == 1 and network.npus > 1:
        raise ConfigError(
            f"{network.source}: dimension 0 has {counted(network.dims[0].npus, 'NPU')}, and a node of {machine.name} has "
            f"{machine.node_ranks}: collective-library cannot place them"
        )
    if node == network.npus:
        return node, 0.0, None
    # dimensions of a list of links have no speeds of their own
    listed = network.links is not None and network.dims[0].topology is LinkTopology.LINKS
    most = float("inf") if listed else min(dim.bytes_per_ns for dim in outer)
    if network.links is None:
        return node, most, None
    rates = port_rates(network, node, most)
    places = list(np.arange(network.npus).reshape(-1, node).T)
    rates.learn([*places, *groups])
    return node, min(map(rates.gbps, places)), rates


def _machine(system: System) -> MachineParameters:
    machine = _costs(system.collective_costs or "", system.source)
    if machine.library != system.collective_library:
        raise ConfigError(
            f"{system.source}: collective-library is {system.collective_library!r}, and the costs of {machine.name} are "
            f"those of {machine.library!r}"
        )
    return machine


def _costs(text: str, source: str) -> MachineParameters:
    """Costs of a file, which may have changed since it was last read; or by name, or as JSON."""
    if text.endswith((".yml", ".yaml")) and not text.startswith("{"):
        return _costs_of_file(read_text(text, most=MAX_DOCUMENT_BYTES), text)
    return _kept_costs(text, source)


@lru_cache(maxsize=64)
def _costs_of_file(content: str, path: str) -> MachineParameters:
    return parameters_from(parse_document(content, path), path)


@lru_cache(maxsize=64)
def _kept_costs(text: str, source: str) -> MachineParameters:
    if text.startswith("{"):
        return parameters_from(json.loads(text), f"{source}: collective-costs")
    try:
        return preset_parameters(text)
    except UsageError as exc:
        raise ConfigError(f"{source}: collective-costs: {exc}") from None
