"""Collectives of some dimensions of the network only (`involved_dim`), as collectives of groups.

A collective library knows members, not dimensions: to it, a collective of some dimensions is one of each set of NPUs that
differ in those alone. The algorithms of system files take one dimension after the other instead and need no groups.
"""

from dataclasses import replace

import numpy as np

from chakra.arrays import I64, distinct
from chakra.io.readable import nouns
from chakra.replay.config.model import Network
from chakra.replay.workload.communicators import Communicator, Membership
from chakra.replay.workload.model import Workload


def dimensions_as_groups(
    workload: Workload, membership: Membership, network: Network
) -> tuple[Workload, Membership]:
    """The same workload, in which collectives of some dimensions only are those of groups.

    Collectives that involve none keep their form, for which no plan exists.
    """
    rows_of: dict[tuple[int, ...], tuple[I64, I64]] = {}
    comms = list(membership.comms)
    programs, bindings = list(workload.programs), list(workload.bindings)
    added: list[tuple[I64, int, I64, I64]] = []
    for number, program in enumerate(programs):
        npus = workload.npus_of_program[number]
        first = len(workload.bindings[int(workload.trace_of[npus[0]])].groups)
        slots: dict[tuple[int, ...], int] = {}
        calls = []
        for call in program.calls:
            some = _some_dims(call.involved, len(network.dims))
            if some and membership.comms[int(membership.comm[npus[0], call.group])].whole:
                slot = slots.setdefault(some, first + len(slots))
                call = replace(call, group=slot, involved=None)
            calls.append(call)
        if not slots:
            continue
        programs[number] = replace(program, calls=tuple(calls))
        for t in distinct(workload.trace_of[npus]).tolist():
            # they are of no named group, as a collective of all is
            names = workload.bindings[t].groups
            bindings[t] = replace(bindings[t], groups=names + ("",) * len(slots))
        for some, slot in slots.items():
            if some not in rows_of:
                rows_of[some] = _add_groups(network, some, comms)
            of, place = rows_of[some]
            added.append((npus, slot, of[npus], place[npus]))
    if not added:
        return workload, membership
    width = max(membership.comm.shape[1], *(slot + 1 for _, slot, _, _ in added))
    comm = np.full((network.npus, width), -1, np.int64)
    member = np.full((network.npus, width), -1, np.int64)
    comm[:, : membership.comm.shape[1]] = membership.comm
    member[:, : membership.comm.shape[1]] = membership.member
    for npus, slot, of, place in added:
        comm[npus, slot], member[npus, slot] = of, place
    grown = Membership(tuple(comms), comm, member)
    return replace(workload, programs=tuple(programs), bindings=tuple(bindings)), grown


def _add_groups(network: Network, some: tuple[int, ...], comms: list[Communicator]) -> tuple[I64, I64]:
    """Add the groups of some dimensions; each NPU's communicator, and its place there."""
    rows = _rows(network, some)
    of, place = np.empty(network.npus, np.int64), np.empty(network.npus, np.int64)
    of[rows] = len(comms) + np.arange(len(rows))[:, None]
    place[rows] = np.arange(rows.shape[1])
    words = f"{nouns(len(some), 'dimension')} {', '.join(map(str, some))}"
    comms += [Communicator(words, row, whole=False) for row in rows]
    return of, place


def _some_dims(involved: tuple[bool, ...] | None, dims: int) -> tuple[int, ...]:
    """The dimensions that take part, where those are not all."""
    if involved is None:
        return ()
    some = tuple(k for k, flag in enumerate(involved[:dims]) if flag)
    return some if len(some) < dims else ()


def _rows(network: Network, some: tuple[int, ...]) -> I64:
    """NPUs that differ in some dimensions only, shape (sets, members), ascending in each."""
    dims = network.dims
    grid = np.arange(network.npus).reshape([dim.npus for dim in reversed(dims)])
    axes = [len(dims) - 1 - k for k in reversed(some)]
    members = 1
    for k in some:
        members *= dims[k].npus
    return np.moveaxis(grid, axes, range(-len(axes), 0)).reshape(-1, members)
