"""Where we differ from ASTRA-sim on purpose: one registry of corrections, and how often each changed something.

In default mode the corrections are on; ``compat="astra-sim"`` switches them off. The rules themselves live where the
architecture page says; this module names and counts them. `docs/differences.md` shows every entry with an example, and
is tested against this registry.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from chakra.arrays import I64, rows_by
from chakra.et import NodeType
from chakra.io.digits import is_whole
from chakra.replay.checks.partners import ASTRA_TAGS
from chakra.replay.collectives.algorithms import Algorithm, Family, parse
from chakra.replay.collectives.call import Call
from chakra.replay.collectives.plan import Do, chunk_sizes
from chakra.replay.collectives.select import (
    GROUP_ENDPOINT_DELAY_NS,
    INVOLVED_BY_DEFAULT,
    PRICED_AS,
    endpoint_delay,
    priced_kind,
    transfer_bytes,
)
from chakra.replay.config.model import CollectiveKind, Memory, MemoryKind, Network, System
from chakra.replay.engines.scenario import Scenario
from chakra.replay.options import RunOptions
from chakra.replay.symmetry.classes import coordinates, hops_between
from chakra.replay.workload.bindings import group_name
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.model import Op, Workload


@dataclass(frozen=True, slots=True)
class Example:
    """An input, ASTRA-sim's answer and ours: finish times in ns, or words where there is no number.

    R8 is the ring of 8 NPUs with 50 GB/s and 500 ns per link, ring algorithms, 4 splits, endpoint delay 10 ns,
    1600 GB/s of local memory; an all-reduce of 1 MiB takes 64440 ns on it.
    """

    what: str
    astra: int | str
    default: int | str


@dataclass(frozen=True, slots=True)
class Correction:
    """A difference from ASTRA-sim, on in default mode.

    Attributes
    ----------
    name
        C1 to C23.
    case
        When it applies.
    astra
        What ASTRA-sim (and ``compat="astra-sim"`` where it finishes) does.
    default
        What we do.
    reason
        Why.
    example
        Both numbers for one input; tests hold them.
    unit
        What its count in a result counts; empty if it never shows in a result (it turns input into an error, or is
        about how input is read).
    """

    name: str
    case: str
    astra: str
    default: str
    reason: str
    example: Example
    unit: str = ""

    @property
    def changes_time(self) -> bool:
        """Whether both give a time, and not the same one."""
        astra, default = self.example.astra, self.example.default
        return isinstance(astra, int) and isinstance(default, int) and astra != default


REGISTRY: tuple[Correction, ...] = (
    Correction(
        "C1",
        "a collective of 0 bytes (other than BARRIER)",
        "moves splits x NPUs bytes, or never ends",
        "waits for all members, then ends: 0 ns of transfer, and a warning",
        "nothing has to move; latency for nothing, or a hang, is no answer",
        Example("all-reduce of 0 bytes on R8", 28600, 0),
        "collective nodes",
    ),
    Correction(
        "C2",
        "a compute node of duration 0",
        "takes 1 ns",
        "takes 0 ns",
        "the nanosecond is an artefact of the event queue and adds up over thousands of nodes",
        Example("1000 compute nodes of 0 us, one after the other", 1000, 0),
        "compute nodes",
    ),
    Correction(
        "C3",
        "a collective size that the number of splits does not divide, or below splits x NPUs",
        "a whole chunk more; chunks lifted to as many bytes as there are NPUs",
        "min(P, S) chunks whose sizes differ by at most one byte; a message is at least 1 byte",
        "splitting must not add traffic",
        Example("all-reduce of 1000001 bytes on R8", 78485, 62788),
        "collective nodes",
    ),
    Correction(
        "C4",
        "more than 4 dimensions without involved_dim",
        "reads undefined memory",
        "all dimensions take part",
        "there is no other sensible meaning of a collective without a restriction",
        Example("all-reduce of 1 MiB on five dimensions Ring 2, otherwise as R8", 43085, 49240),
        "collective nodes",
    ),
    Correction(
        "C5",
        "a message whose ends differ in several dimensions (send/receive, one* algorithms, groups across dimensions)",
        "charged in the lowest differing dimension only",
        "sum over the differing dimensions, ascending, of the truncated hops x latency + bytes / bandwidth",
        "a message cannot be cheaper than each of the dimensions that it crosses",
        Example(
            "send of 1 MiB from NPU 0 to 5 on Ring 4 (100 GB/s, 500 ns) x Switch 2 (25 GB/s, 2000 ns)",
            10265,
            53327,
        ),
        "communication nodes",
    ),
    Correction(
        "C6",
        "BROADCAST, REDUCE, GATHER, SCATTER, BARRIER, REDUCE_SCATTER_BLOCK",
        "a local timer (BROADCAST), or an abort",
        "simulated on the network: BROADCAST and REDUCE by a binomial tree, a pipelined chain or scatter and all-gather, "
        "SCATTER and GATHER as an all-gather of the shards, REDUCE_SCATTER_BLOCK as a reduce-scatter, BARRIER as an "
        "all-reduce of no data",
        "they move data like the others; by duration only in replay-only mode",
        Example("BROADCAST of 1 MiB on R8", 1, 48760),
        "collective nodes",
    ),
    Correction(
        "C7",
        "a group of one member",
        "never ends",
        "ends at once, 0 bytes",
        "there is nobody to wait for",
        Example("all-reduce of 1 MiB in a group of one, then 5 us of compute", "never ends", 5000),
        "collective nodes",
    ),
    Correction(
        "C8",
        "roofline with 0 operations or 0 bytes",
        "9e18 ns, or skipped",
        "the bound that is left: memory or compute",
        "0 divided by 0 is not a time",
        Example("roofline with 1600 GB/s: 0 operations on 1000000 bytes", 9223372036854775808, 625),
        "compute nodes",
    ),
    Correction(
        "C9",
        "exposed communication",
        "finish minus GPU compute: counts CPU work and idling, modulo 2^64",
        "time with a communication node in flight and no work of the accelerator running (a host operator "
        "hides nothing): transfer plus waiting",
        "the name promises communication that compute does not hide",
        Example(
            "exposed communication of 10 us of CPU work, then an all-reduce of 1 MiB on R8", 74440, 64440
        ),
        "NPUs",
    ),
    Correction(
        "C10",
        "nodes that take no time (INVALID, METADATA)",
        "their children wait for the next unrelated completion, or for ever",
        "children are released at once; process groups in METADATA are registered",
        "a dependency is met when its node has ended",
        Example("an INVALID node, then 2 us of GPU compute; beside it 5 us of CPU work", 7000, 5000),
        "nodes of no time that have children",
    ),
    Correction(
        "C11",
        "messages are matched by exact size; ends may be unmatched",
        "silent stall, exit code 0",
        "an error that names ranks, nodes, the field that differs or the wait cycle; exit code 3; an unmatched send, too",
        "a run that did not finish must not look as if it had",
        Example(
            "NPU 0 sends 1 MiB, NPU 1 receives 512 KiB",
            "NPU 1 never finishes, exit code 0",
            "error that names comm_size, exit code 3",
        ),
    ),
    Correction(
        "C12",
        "collectives of groups smaller than the system",
        "fixed endpoint delay of 10 ns; stream numbers that can hang later collectives",
        "the configured endpoint delay; matched by group and ordinal",
        "the endpoint does not know the size of the group",
        Example(
            "all-reduce of 1 MiB in a group of 4 of 8 NPUs, FullyConnected, endpoint delay 100 ns, otherwise as R8",
            43000,
            45520,
        ),
        "collective nodes",
    ),
    Correction(
        "C13",
        "all-reduce over 3 or more dimensions, unequal starts, few queues",
        "can deadlock",
        "always ends",
        "phases of one collective must not block each other for ever",
        Example(
            "all-reduce of 1 MiB on Ring 2 x Ring 2 x Ring 2, localBWAware, otherwise as R8; NPU 0 starts 5 us late",
            "no NPU finishes",
            "every NPU finishes",
        ),
        "runs",
    ),
    Correction(
        "C14",
        "JSON booleans, absent keys, unknown keys and options",
        "false switches on; undefined memory; ignored",
        "booleans are booleans; documented defaults; an error with the nearest match",
        "a mistyped key must not go unnoticed",
        Example(
            '"roofline-enabled": false, a compute node of 5 us with 1e9 operations on 1e6 bytes, peak 900 TFLOP/s',
            1111,
            5000,
        ),
    ),
    Correction(
        "C15",
        "per-node remote memory, METADATA groups, a ring of 2 on the aware backend, endpoint delay 0, custom "
        "collectives with splits > 1",
        "crash or hang",
        "work",
        "they have a plain meaning",
        Example("all-reduce of 1 MiB on R8 with endpoint delay 0", "abort", 63840),
        "nodes concerned",
    ),
    Correction(
        "C16",
        "doubleBinaryTree for other than all-reduce, off powers of two, or in a group; halvingDoubling off powers of two",
        "crash, hang, or a silent all-reduce",
        "an error that names the algorithm and the count",
        "the algorithm has no such form",
        Example(
            "doubleBinaryTree for a reduce-scatter", "runs an all-reduce", "error that names the algorithm"
        ),
    ),
    Correction(
        "C17",
        "comm_scale and compute_scale",
        "accepted without effect",
        "multiply communication sizes and compute times",
        "an option that is accepted must do something",
        Example("all-reduce of 1 MiB on R8 with comm_scale 2", 64440, 100280),
        "nodes scaled",
    ),
    Correction(
        "C18",
        "names of groups",
        'the leading integer counts; "" and "0" are all ranks',
        'any string names a group; "" and "0" are all ranks, so a file entry "0" is an error',
        "generators name groups by what they are for",
        Example("all-reduce of 1 MiB on R8 in group 'tp' of all ranks", "abort", 64440),
        "collective nodes",
    ),
    Correction(
        "C19",
        "tags of messages",
        "modulo 5e8, in spaces that overlap",
        "no wrap; collectives have a space of their own",
        "messages of different tags must not meet",
        Example(
            "NPU 0 sends 1 MiB with tag 500000001, NPU 1 receives 1 MiB with tag 1; Ring 2, 50 GB/s, 500 ns",
            20031,
            "error that names comm_tag",
        ),
        "send and receive nodes",
    ),
    Correction(
        "C20",
        "a message of 0 bytes",
        "abort",
        "0 bytes plus latency",
        "an empty message is a signal, and signals take a latency",
        Example("send of 0 bytes on Ring 2, 500 ns", "abort", 500),
        "send and receive nodes",
    ),
    Correction(
        "C21",
        "attribute duration_ns",
        "ignored",
        "honoured before duration_micros",
        "kernels shorter than a microsecond are common",
        Example("a compute node with duration_ns 300, and duration_micros 1 beside it", 1000, 300),
        "nodes",
    ),
    Correction(
        "C22",
        'an option value that contains "empty"',
        "means none",
        "only the exact value `empty` means none",
        "a path may contain any word",
        Example("a group file named my_empty_room/groups.json", "no groups", "its groups"),
    ),
    Correction(
        "C23",
        "halvingDoubling's all-reduce of a chunk that 2N does not divide",
        "fewer bytes come back than went out; abort below 2N bytes",
        "the way back carries what the way out did",
        "every member needs the sums of all others",
        Example("all-reduce of 124 B by halvingDoubling on R8 with 0.05 GB/s", 31176, 31992),
        "collective nodes",
    ),
)

BY_NAME = {correction.name: correction for correction in REGISTRY}

#: names of those that change times; the others let a run begin or end at all
OF_TIME = frozenset(correction.name for correction in REGISTRY if correction.changes_time)


def find_corrections(scenario: Scenario) -> Counter[str]:
    """Corrections that changed something in a run of default mode: name -> count over all NPUs (see `unit`).

    Those that a program counts itself (`Program.corrections`) are not in it, and C9 and C13 are seen in a run only.
    """
    if scenario.options.astra:
        return Counter()
    found: Counter[str] = Counter()
    if scenario.plans.library is None:  # whose times are no algorithm's, and which ASTRA-sim has not
        _count_collectives(found, scenario)
    _count_messages(found, scenario.workload, scenario.network)
    _count_nodes(found, scenario.workload, scenario.memory)
    return +found


def _count_collectives(found: Counter[str], scenario: Scenario) -> None:
    """C1, C3 to C7, C12, C15 and C18 of all collective nodes."""
    workload, membership, system = scenario.workload, scenario.membership, scenario.system
    network, options = scenario.network, scenario.options
    names: dict[tuple[Call, int, bool], list[str]] = {}
    for t, bindings in enumerate(workload.bindings):
        npus = workload.npus_of_trace[t]
        program_of = workload.program_of[npus]
        for p, places in rows_by(program_of).items():
            program = workload.programs[p]
            if not program.calls:
                continue
            here = npus[places]
            nodes = np.bincount(program.call[program.op == Op.COLLECTIVE], minlength=len(program.calls))
            slots: dict[int, list[_Shape]] = {}
            for call, count in zip(program.calls, nodes.tolist(), strict=True):
                if call.group not in slots:
                    slots[call.group] = _shapes(membership, membership.comm[here, call.group])
                for shape in slots[call.group]:
                    key = (call, shape.size, shape.whole)
                    if key not in names:
                        names[key] = _collective_corrections(
                            call, shape.size, shape.whole, system, network, options
                        )
                        if not {"C1", "C7"} & set(names[key]) and _loses_bytes(call, shape, scenario):
                            names[key].append("C23")
                    for name in names[key]:
                        found[name] += count * shape.npus
                    if not _integer(bindings.groups[call.group]):
                        found["C18"] += count * shape.npus
                    if not {"C1", "C7"} & set(names[key]) and _charges_dims(network):
                        for algorithm in _flat_algorithms(call, shape.whole, system):
                            found["C5"] += count * shape.npus_across(algorithm, network)


@dataclass(slots=True)
class _Shape:
    """Communicators of one size that some NPUs use in one group slot."""

    size: int
    whole: bool
    #: (communicators, size) members, and how many of the NPUs belong to each
    members: I64
    users: I64
    across: dict[Algorithm, int]

    @property
    def npus(self) -> int:
        """NPUs that use one of them."""
        return int(self.users.sum())

    def npus_across(self, algorithm: Algorithm, network: Network) -> int:
        """NPUs in whose communicator some message crosses several dimensions."""
        if algorithm not in self.across:
            self.across[algorithm] = int(self.users[_crosses(self.members, algorithm, network)].sum())
        return self.across[algorithm]


def _shapes(membership: Membership, comm: I64) -> list[_Shape]:
    """The communicators of some NPUs, by size."""
    numbers, users = np.unique(comm, return_counts=True)
    by_size: dict[tuple[int, bool], list[int]] = {}
    for i, c in enumerate(numbers.tolist()):
        by_size.setdefault((membership.comms[c].size, membership.comms[c].whole), []).append(i)
    return [
        _Shape(size, whole, np.stack([membership.comms[int(numbers[i])].members for i in at]), users[at], {})
        for (size, whole), at in by_size.items()
    ]


def _integer(name: str) -> bool:
    """Whether ASTRA-sim reads a group's name as we do."""
    return name == "" or (is_whole(name) and group_name(name, astra=True) == name)


def _collective_corrections(
    call: Call, members: int, whole: bool, system: System, network: Network, options: RunOptions
) -> list[str]:
    """Names of the corrections that change a collective on a communicator of this many members."""
    if members == 1:
        return ["C7"]
    names = []
    native = priced_kind(call.kind)
    if call.kind in PRICED_AS:
        names.append("C6")
    if call.bytes == 0 and call.kind is not CollectiveKind.BARRIER:
        return [*names, "C1"]
    if system.custom.get(native) is not None or call.node_id is not None:
        return names + (["C15"] if system.splits > 1 else [])
    if call.kind not in PRICED_AS:
        size = transfer_bytes(call, members)
        ours = chunk_sizes(native, size, system.splits, network.npus, compat=False)
        if ours != chunk_sizes(native, size, system.splits, network.npus, compat=True) or (
            native is CollectiveKind.ALL_GATHER and size < system.splits
        ):
            names.append("C3")
    listed = len(system.implementations.get(native, ()))
    if whole and call.involved is None and listed > INVOLVED_BY_DEFAULT:
        names.append("C4")
    delay = endpoint_delay(whole, system, options)
    if not whole and delay != GROUP_ENDPOINT_DELAY_NS:
        names.append("C12")
    if delay == 0:
        names.append("C15")
    return names


def _loses_bytes(call: Call, shape: _Shape, scenario: Scenario) -> bool:
    """Whether ASTRA-sim's halving-doubling would bring back less than the members need in some phase of a call."""
    system, native = scenario.system, priced_kind(call.kind)
    listed = [parse(name, system.source).family for name in system.implementations.get(native, ())]
    own = system.custom.get(native) is not None or call.node_id is not None
    if own or native is not CollectiveKind.ALL_REDUCE or Family.HALVING_DOUBLING not in listed:
        return False
    return any(
        phase.algorithm.family is Family.HALVING_DOUBLING
        and phase.do is Do.ALL_REDUCE
        and phase.bytes % (2 * phase.size) > 0
        for phases in scenario.plans.of(call, shape.size, whole=shape.whole).variants
        for phase in phases
    )


def _flat_algorithms(call: Call, whole: bool, system: System) -> list[Algorithm]:
    """The algorithm of a call that runs on one ring through all members, if there is one."""
    listed = system.implementations.get(priced_kind(call.kind), ())
    parsed = [parse(name, system.source) for name in listed]
    if not whole:
        return [parsed[0] if len(parsed) == 1 else Algorithm(Family.RING)]
    return [algorithm for algorithm in parsed if algorithm.flat][:1]


def _charges_dims(network: Network) -> bool:
    """Whether a message may take time in several dimensions: links have none, and take it once whatever the mode."""
    return network.links is None and network.outside is None and len(network.dims) > 1


def _crosses(members: I64, algorithm: Algorithm, network: Network) -> np.typing.NDArray[np.bool_]:
    """Per ring (rings, size): whether a message between two of its members crosses several dimensions."""
    n = members.shape[1]
    if algorithm.family is Family.DIRECT:
        # all pairs talk: some pair differs in two dimensions as soon as the members do
        where = coordinates(network, members)
        return np.asarray((where != where[:, :1]).any(axis=1).sum(axis=1) > 1)
    index = np.arange(n)
    steps = [(index + 1) % n]
    if algorithm.family is Family.HALVING_DOUBLING:
        steps = [index ^ (1 << k) for k in range(n.bit_length() - 1)]
    found = np.zeros(len(members), bool)
    for step in steps:
        found |= ((hops_between(network, members, members[:, step]) > 0).sum(axis=2) > 1).any(axis=1)
    return found


def _count_messages(found: Counter[str], workload: Workload, network: Network) -> None:
    """C5, C19 and C20 of all sends and receives."""
    if not any(len(program.p2p_peer) for program in workload.programs):
        return
    peers = workload.peers
    for p, program in enumerate(workload.programs):
        npus = workload.npus_of_program[p]
        if not len(program.p2p_peer) or not len(npus):
            continue
        found["C19"] += len(npus) * int(((program.p2p_tag < 0) | (program.p2p_tag >= ASTRA_TAGS)).sum())
        found["C20"] += len(npus) * int((program.p2p_bytes == 0).sum())
        if _charges_dims(network):
            uses = np.bincount(program.p2p_peer)
            own = np.broadcast_to(npus[:, None], (len(npus), len(uses)))
            crossed = (hops_between(network, own, peers.rows(npus, len(uses))) > 0).sum(axis=2) > 1
            found["C5"] += int((crossed * uses).sum())


def _count_nodes(found: Counter[str], workload: Workload, memory: Memory) -> None:
    """C10 and C15 of nodes that need no partner."""
    runs = np.bincount(workload.program_of, minlength=len(workload.programs))
    for program, count in zip(workload.programs, runs.tolist(), strict=True):
        trace, order = program.trace, program.order
        types = trace.types[order]
        children = np.diff(program.child_start)
        found["C10"] += count * int(((program.op == Op.ZERO) & (children > 0)).sum())
        found["C15"] += count * int((types == NodeType.METADATA).sum())
        if memory.kind is MemoryKind.PER_NODE:
            found["C15"] += count * int((program.op == Op.SERVER).sum())
