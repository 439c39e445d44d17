"""What a conversion wrote, for people and for programs."""

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from chakra.arrays import distinct
from chakra.converters.text.grammar import CommWord, Phase
from chakra.converters.text.passes import COLLECTIVE, COMPUTE, PHASES, SPANS, UPDATE, step_of
from chakra.converters.text.policies import POLICIES, Issue
from chakra.converters.text.spans import HOW_TO_SAY, Dims, EvenGroups, Members, Nobody
from chakra.et import CommType
from chakra.io.readable import counted

if TYPE_CHECKING:
    from chakra.converters.text.convert import Converted

_PHASE_WORDS = {
    Phase.FORWARD: "forward",
    Phase.INPUT_GRADIENT: "input-gradient",
    Phase.WEIGHT_GRADIENT: "weight-gradient",
}


@dataclass(frozen=True, slots=True)
class Collectives:
    """Collectives of one kind and span of one NPU."""

    kind: str
    joins: str
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What was written; times in ns, sizes in bytes, figures per NPU and over all passes.

    Attributes
    ----------
    edges
        Data dependencies.
    prefix, distinct_files, groups_file
        Where the traces are, how many different contents they have, and the communicator-group file if there
        is one.
    notes
        Things the user should know, one sentence each.
    source, policy, layers
        File, policy and number of layers.
    passes, npus
        How many.
    time_unit, compat
        As given to `convert_text`.
    nodes, computes, updates
        Nodes of one NPU: all, compute, weight updates.
    compute_ns, update_ns
        Their time, ns.
    collectives
        Collectives of one NPU by kind and span.
    """

    source: str
    policy: str
    layers: int
    passes: int
    npus: int
    time_unit: str
    compat: str | None
    nodes: int
    computes: int
    updates: int
    edges: int
    compute_ns: int
    update_ns: int
    collectives: tuple[Collectives, ...]
    prefix: str
    distinct_files: int
    groups_file: str | None
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """The summary as a JSON document, schema ``chakra.convert.text/1``."""
        return {"schema": "chakra.convert.text/1", **asdict(self)}

    def to_text(self) -> str:
        """The summary for people."""
        head = (
            f"{self.source}: {self.policy}, {counted(self.layers, 'layer')}, {counted(self.passes, 'pass')}"
        )
        meant = "" if self.time_unit == "ns" else " (ASTRA-sim 1.0 meant ns: --time-unit ns)"
        lines = [
            f"{head}, {counted(self.npus, 'NPU')}",
            f"times    read as {self.time_unit}{meant}",
            f"each NPU {counted(self.nodes, 'node')}, {counted(self.edges, 'dependency')}",
            f"compute  {counted(self.computes, 'node')}, {self.compute_ns:,} ns",
        ]
        if self.updates:
            lines.append(f"update   {counted(self.updates, 'node')}, {self.update_ns:,} ns")
        lines += [
            f"comm     {item.count} x {item.kind}, {item.size_bytes:,} bytes, {item.joins}"
            for item in self.collectives
        ]
        said = "all equal" if self.distinct_files == 1 else f"{self.distinct_files} different"
        lines.append(f"written  {self.prefix}.<0..{self.npus - 1}>.et ({said})")
        if self.groups_file is not None:
            lines.append(f"groups   {self.groups_file}")
        return "\n".join(lines)


def summarize(
    converted: "Converted",
    prefix: Path,
    distinct_files: int,
    groups_file: Path | None,
    notes: tuple[str, ...],
) -> Summary:
    """Sum a conversion up."""
    graph = converted.graph
    ns = 1 if converted.time_unit == "ns" else 1000
    compute, update, collective = (graph.kind == kind for kind in (COMPUTE, UPDATE, COLLECTIVE))
    found: Counter[tuple[int, str, int]] = Counter()
    keys = np.stack([graph.comm_type[collective], graph.span[collective], graph.size_bytes[collective]])
    for (comm_type, span, size), count in zip(*_distinct(keys), strict=True):
        found[(comm_type, _joins(converted.members.get(SPANS[span]), converted.npus), size)] += count
    totals: dict[tuple[int, str], tuple[int, int]] = {}
    for (comm_type, joins, size), count in found.items():
        before = totals.get((comm_type, joins), (0, 0))
        totals[(comm_type, joins)] = (before[0] + count, before[1] + count * size)
    return Summary(
        source=converted.workload.source,
        policy=converted.workload.policy,
        layers=len(converted.workload.layers),
        passes=converted.passes,
        npus=converted.npus,
        time_unit=converted.time_unit,
        compat=converted.compat,
        nodes=graph.n_nodes,
        computes=int(compute.sum()),
        updates=int(update.sum()),
        edges=len(graph.parents),
        compute_ns=sum(graph.time[compute].tolist()) * ns,
        update_ns=sum(graph.time[update].tolist()) * ns,
        collectives=tuple(
            Collectives(CommType(comm_type).name, joins, count, size)
            for (comm_type, joins), (count, size) in sorted(totals.items())
        ),
        prefix=str(prefix),
        distinct_files=distinct_files,
        groups_file=None if groups_file is None else str(groups_file),
        notes=notes,
    )


def _distinct(keys: "np.ndarray[Any, Any]") -> tuple[list[tuple[int, ...]], list[int]]:
    if not keys.size:
        return [], []
    rows, counts = np.unique(keys, axis=1, return_counts=True)
    return [tuple(column) for column in rows.T.tolist()], counts.tolist()


def _joins(members: Members | None, npus: int) -> str:
    """Say in words whom a collective joins."""
    if isinstance(members, Dims):
        dims = [k for k, involved in enumerate(members.involved) if involved]
        return (
            "all dimensions"
            if len(dims) == len(members.involved)
            else f"dimension{'s' * (len(dims) > 1)} {_list(dims)}"
        )
    if isinstance(members, EvenGroups):
        if members.outer and members.block:
            count = members.block // members.inner
            return (
                f"groups of {counted(count, 'NPU')}, {counted(members.inner, 'rank')} apart, within "
                f"{counted(members.block, 'neighbour')}"
            )
        if members.outer:
            return (
                f"groups of {counted(npus // members.inner, 'NPU')}, {counted(members.inner, 'rank')} apart"
            )
        return f"groups of {counted(members.inner, 'neighbouring NPU')}"
    return "all NPUs"


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def notes_on(converted: "Converted") -> tuple[str, ...]:
    """Traffic and times of the file that the traces do not hold, and why."""
    workload = converted.workload
    if converted.compat is not None:
        return (
            "written as upstream's converter writes it, known mistakes included: not for use as a workload",
        )
    notes = []
    if converted.sizes_unknown:
        notes.append(
            f"the sizes of the model- and data-parallel groups are not known, so their collectives join all "
            f"{counted(converted.npus, 'NPU')}, as upstream has it; {HOW_TO_SAY}"
        )
    layout = workload.layout
    if layout is not None and layout.pp > 1:
        notes.append(
            f"the rows are those of one of {counted(layout.pp, 'pipeline stage')}: neither the messages between stages "
            f"({layout.pp_comm_bytes:,} bytes each) nor the pipeline's bubble are in the file"
        )
    policy = POLICIES[workload.policy]
    issued = _issued_layers(converted)
    for phase, word in _PHASE_WORDS.items():
        traffic = {
            index
            for index, layer in enumerate(workload.layers)
            if step_of(layer, phase).word != CommWord.NONE
        }
        missing = sorted(traffic - issued[phase])
        if missing:
            layers = _list(missing[:8]) + (", ..." if len(missing) > 8 else "")
            count = counted(len(missing), f"{word} collective")
            notes.append(f"{count} without a node ({_reason(converted, phase)}): layers {layers}")
    bottom = workload.last_bottom_layer
    if policy.issue_input is Issue.FIRST_FROM_TOP and bottom == len(workload.layers) - 1:
        notes.append(
            "there is no layer above the last bottom layer, so nothing issues the backward exchange of "
            "layer 0"
        )
    if not converted.update_time and any(layer.update_time for layer in workload.layers):
        notes.append("the layers' update times are not used (--update-time uses them)")
    return tuple(notes)


def _issued_layers(converted: "Converted") -> dict[Phase, set[int]]:
    graph = converted.graph
    collective = graph.kind == COLLECTIVE
    return {
        phase: set(distinct(graph.layer[collective & (graph.phase == PHASES.index(phase))]).tolist())
        for phase in _PHASE_WORDS
    }


def _reason(converted: "Converted", phase: Phase) -> str:
    policy = POLICIES[converted.workload.policy]
    span = policy.weight_span if phase is Phase.WEIGHT_GRADIENT else policy.span
    issue = {
        Phase.FORWARD: policy.issue_forward,
        Phase.INPUT_GRADIENT: policy.issue_input,
        Phase.WEIGHT_GRADIENT: policy.issue_weight,
    }[phase]
    if converted.npus == 1:
        return "there is one NPU"
    if converted.workload.layout is not None:
        return "the group is one NPU"
    if issue is Issue.ALL_BUT_FIRST:
        told = "nobody needs the gradient of the first layer's input"
        return told if not policy.per_layer else f"{told}; or the layer's policy has none"
    if issue is Issue.ALWAYS and policy.per_layer:
        return "the layer's policy has none, or its group is one NPU"
    if issue is Issue.ALWAYS and isinstance(converted.members.get(span), Nobody):
        return "the group is one NPU"
    return (
        f"{converted.workload.policy} has none"
        if issue is Issue.NEVER
        else f"{converted.workload.policy} leaves them out"
    )
