"""Which collectives of an NPU belong together, by the order of node ids; one form of the dimensions that they name."""

from dataclasses import replace

import numpy as np

from chakra.arrays import I64, rows_by
from chakra.replay.collectives.call import Call
from chakra.replay.collectives.select import INVOLVED_BY_DEFAULT
from chakra.replay.workload.model import Op, Program, Workload


def collectives_by_group(program: Program) -> dict[int, I64]:
    """Collective nodes (program order) of each of a program's groups, in one pass over the nodes."""
    nodes = np.flatnonzero(program.op == Op.COLLECTIVE)
    if not len(nodes):
        return {}
    groups = np.array([call.group for call in program.calls], np.int64)[program.call[nodes]]
    return {group: nodes[places] for group, places in rows_by(groups).items()}


def ordinals(program: Program) -> I64:
    """Number of every collective among those of its group, in ascending node id; 0 for other nodes."""
    out = np.zeros(program.n_nodes, np.int64)
    for nodes in collectives_by_group(program).values():
        out[nodes] = np.arange(len(nodes))
    return out


def match_dimensions(workload: Workload, dims: int) -> Workload:
    """The workload with one form of `involved_dim` for the same dimensions of a network of `dims`.

    Flags beyond the last dimension mean nothing, nor do trailing ones that are false. All dimensions are what nodes
    without the attribute take, up to as many as ASTRA-sim then takes (replay semantics, section 1.3).
    """
    programs = list(workload.programs)
    for number, program in enumerate(programs):
        calls = [replace(call, involved=_canonical(call.involved, dims)) for call in program.calls]
        if calls == list(program.calls):
            continue
        place = {call: i for i, call in enumerate(dict.fromkeys(calls))}
        index = program.call.copy()
        nodes = program.op == Op.COLLECTIVE
        index[nodes] = np.array([place[call] for call in calls], np.int64)[index[nodes]]
        programs[number] = _with_calls(program, list(place), index)
    return replace(workload, programs=tuple(programs))


def _canonical(involved: tuple[bool, ...] | None, dims: int) -> tuple[bool, ...] | None:
    if involved is None:
        return None
    used = involved[:dims]
    if len(used) == dims <= INVOLVED_BY_DEFAULT and all(used):
        return None
    while used and not used[-1]:
        used = used[:-1]
    return used


def _with_calls(program: Program, calls: list[Call], index: I64) -> Program:
    """A program with other collectives, of which it keeps those that it uses."""
    nodes = program.op == Op.COLLECTIVE
    used, position = np.unique(index[nodes], return_inverse=True)
    index[nodes] = position.reshape(-1)
    return replace(program, calls=tuple(calls[k] for k in used.tolist()), call=index)
