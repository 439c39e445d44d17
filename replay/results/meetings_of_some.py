"""Who meets in collectives that leave dimensions of the network out (`involved_dim`), and when the last of them had come.

To the engines such a collective is one of all NPUs; but those that differ in a dimension which takes no part exchange
nothing, and do not wait for each other. With a collective library they are collectives of groups, and not here.
"""

import math

import numpy as np

from chakra.arrays import I64
from chakra.replay.collectives.call import Call
from chakra.replay.config.model import Network
from chakra.replay.engines.outcome import RawRun
from chakra.replay.workload.communicators import Membership
from chakra.replay.workload.model import Program


def dims_left_out(call: Call, group: int, membership: Membership, network: Network) -> tuple[int, ...]:
    """Dimensions that take no part in a collective of all NPUs; none where it is one of a group."""
    if call.involved is None or not membership.comms[group].whole:
        return ()
    given = call.involved
    return tuple(k for k in range(len(network.dims)) if k >= len(given) or not given[k])


def partners(npu: int, left_out: tuple[int, ...], network: Network) -> I64:
    """NPUs that differ from one in other dimensions only, itself among them, ascending."""
    shape = [dim.npus for dim in reversed(network.dims)]
    place = np.unravel_index(npu, shape)
    axes = {len(shape) - 1 - k for k in left_out}
    cell = tuple(
        slice(int(at), int(at) + 1) if axis in axes else slice(None) for axis, at in enumerate(place)
    )
    return np.arange(math.prod(shape)).reshape(shape)[cell].reshape(-1)


def met_ns(raw: RawRun, programs: list[Program], membership: Membership, network: Network) -> dict[int, I64]:
    """When the last partner in each such collective had come, ns: of actors that have any, by node in program order.

    -1 of other nodes, and where a partner never came.
    """
    nodes_of: dict[tuple[int, ...], list[tuple[int, I64]]] = {}
    some_of: dict[int, bool] = {}
    for actor, program in enumerate(programs):
        if not some_of.setdefault(id(program), any(call.involved is not None for call in program.calls)):
            continue
        npu = int(raw.partition.representative[actor])
        left_out = [
            dims_left_out(call, int(membership.comm[npu, call.group]), membership, network)
            for call in program.calls
        ]
        instance = _instances(raw, program, actor)
        for some in {one for one in left_out if one}:
            mine = [k for k, one in enumerate(left_out) if one == some]
            nodes = np.flatnonzero((instance >= 0) & np.isin(program.call, mine))
            nodes_of.setdefault(some, []).append((actor, nodes))
    found: dict[int, I64] = {}
    for some, cells in nodes_of.items():
        # classes of equal NPUs meet the same classes everywhere: the least one tells sets of partners apart
        shape = [dim.npus for dim in reversed(network.dims)]
        axes = tuple(len(shape) - 1 - k for k in range(len(shape)) if k not in some)
        grid = raw.partition.class_of.reshape(shape)
        least = np.broadcast_to(grid.min(axis=axes, keepdims=True), shape).reshape(-1)
        owner = np.repeat([one for one, _ in cells], [len(nodes) for _, nodes in cells]).astype(np.int64)
        node = np.concatenate([nodes for _, nodes in cells])
        instance = np.concatenate([_instances(raw, programs[one], one)[nodes] for one, nodes in cells])
        issue = raw.issue_ns[raw.node_start[owner] + node]
        key = np.stack([instance, least[raw.partition.representative[owner]]], axis=1)
        _, where = np.unique(key, axis=0, return_inverse=True)
        where = where.reshape(-1)
        last = np.full(int(where.max(initial=-1)) + 1, -1, np.int64)
        np.maximum.at(last, where, issue)
        # who never came has no collective: until all have, nobody knows when the last one will
        last[where[raw.instance_ready_ns[instance] < 0]] = -1
        first = 0
        for one, nodes in cells:
            if one not in found:
                found[one] = np.full(programs[one].n_nodes, -1, np.int64)
            found[one][nodes] = last[where[first : first + len(nodes)]]
            first += len(nodes)
    return found


def _instances(raw: RawRun, program: Program, actor: int) -> I64:
    """The collective instance of each node of an actor; -1 of others."""
    out = np.full(program.n_nodes, -1, np.int64)
    cells = slice(int(raw.comm_start[actor]), int(raw.comm_start[actor + 1]))
    nodes = np.flatnonzero(program.comm >= 0)
    out[nodes] = raw.comm_instance[cells][program.comm[nodes]]
    return out
