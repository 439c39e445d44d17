"""How sizes of nodes follow the number of positions, at a constant batch per rank.

Along data parallelism a group of the gradients grows from n to n' members. An all-reduce keeps its bytes; a shard (what
a rank brings into an all-gather, what its optimizer works on) shrinks to n/n' of them, rounded up to whole elements; the
buffer of a reduce-scatter is padded to n' equal parts. Along expert parallelism the same number of experts lies on more
ranks: the dispatch keeps its bytes, weights of experts on a rank shrink, and so do their gradients and their part of the
optimizer.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from chakra.arrays import I64
from chakra.et import ABSENT, CommType, NodeType, Trace
from chakra.et.operators import ATTRIBUTE as OPERATOR
from chakra.et.operators import (
    Host,
    Kernel,
    KernelKind,
    MatrixProduct,
    operator_text,
    operators_text,
    parse_operators,
)
from chakra.et.schema import IN_SPLIT, OUT_SPLIT
from chakra.rescale.edit import Edits, numbered

#: names of nodes that work on a rank's shard of weights and optimizer states
OPTIMIZER = r"(?i)optimi[sz]er|adam|adagrad|adafactor|lamb\b|\bsgd|muon|multi_tensor_apply"

#: a kernel does not get shorter than this, whatever it works on: launch and tail of a small kernel
_SHORTEST_NS = 2000


class Role(StrEnum):
    """What a group exchanges."""

    #: gradients and weights; it grows
    WEIGHTS = "weights"
    #: tokens of experts; it grows
    TOKENS = "tokens"
    #: gradients and weights of experts; it stays, but there is less of them on each rank
    EXPERT_WEIGHTS = "expert weights"
    #: anything else; it stays
    STAYS = "stays"


@dataclass(frozen=True, slots=True)
class SizeRules:
    """What the sizes depend on.

    Attributes
    ----------
    factor
        New over recorded number of positions.
    roles
        Group name -> what it exchanges; names that are not there mean all ranks.
    whole
        Role of the group of all ranks.
    sizes
        Group name -> members after rescaling.
    npus
        Ranks after rescaling.
    sharded
        Whether weights are sharded over the positions (ZeRO, FSDP): then so is the optimizer's work.
    experts
        Whether experts are what is spread.
    optimizer
        Regular expression of the names of the optimizer's nodes.
    """

    factor: int
    roles: dict[str, Role]
    whole: Role
    sizes: dict[str, int]
    npus: int
    sharded: bool
    experts: bool
    optimizer: str = OPTIMIZER

    def role(self, name: str) -> Role:
        """What a group exchanges."""
        return self.roles.get(name, self.whole)

    def members(self, name: str) -> int:
        """Members of a group after rescaling."""
        return self.sizes.get(name, self.npus)


@dataclass(slots=True)
class Changes:
    """Counts of what was changed, for people."""

    #: (group, kind) -> [calls before, calls after, bytes before, bytes after]
    collectives: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    optimizer: list[int] = field(default_factory=lambda: [0, 0, 0])
    expert_nodes: int = 0
    #: traces of workloads along experts whose nodes do not say how much of their work goes with the experts
    unsaid_experts: bool = False
    #: collectives of unequal shares in groups that grow
    uneven: int = 0


def size_edits(
    trace: Trace, rules: SizeRules, changes: Changes, origins: Callable[[str], Sequence[int]]
) -> Edits:
    """Changes of sizes in one trace; ``changes`` adds up what they are.

    ``origins`` gives for a group the places in the recorded group from which its members come.
    """
    edits = Edits()
    uneven = set(trace.split_nodes.tolist())
    collectives = np.flatnonzero(trace.types == NodeType.COMM_COLL)
    buckets: dict[tuple[str, int, str], list[int]] = {}
    for index in collectives.tolist():
        name = _group(trace, index)
        kind, size = int(trace.comm_type[index]), int(trace.comm_size[index])
        if size == ABSENT or kind == ABSENT:
            continue
        if index in uneven:
            new = _uneven(trace, edits, index, rules, name, origins)
            changes.uneven += rules.role(name) in (Role.WEIGHTS, Role.TOKENS)
            _count(changes, (name, CommType(kind).name), size, new)
            continue
        if rules.role(name) is Role.EXPERT_WEIGHTS:
            buckets.setdefault((name, kind, _bucket_family(trace, index)), []).append(index)
            continue
        new = _collective_size(kind, size, rules.role(name), rules.factor, rules.members(name))
        if new != size:
            edits.set(index, "comm_size", new)
        _count(changes, (name, CommType(kind).name), size, new)
    for (name, kind, family), nodes in buckets.items():
        _rebucket(trace, edits, nodes, rules, (name, kind), changes, bucketed="bucket" in family)
    _compute_edits(trace, rules, edits, changes)
    return edits


def _group(trace: Trace, index: int) -> str:
    code = int(trace.pg_codes[index])
    return trace.pg_table[code] if code >= 0 else ""


def _count(changes: Changes, key: tuple[str, str], before: int | None, after: int | None) -> None:
    row = changes.collectives.setdefault(key, [0, 0, 0, 0])
    row[0] += before is not None
    row[1] += after is not None
    row[2] += before or 0
    row[3] += after or 0


def _collective_size(kind: int, size: int, role: Role, factor: int, members: int) -> int:
    """Bytes of a collective after rescaling."""
    scatters = kind in (CommType.REDUCE_SCATTER, CommType.REDUCE_SCATTER_BLOCK)
    if role is Role.WEIGHTS:
        if kind == CommType.ALL_GATHER:
            return shard(size, factor)
        return -(-size // members) * members if scatters else size
    if role is Role.TOKENS and scatters:
        # every rank brings a part for each of the others, whose own tokens stay what they were
        return size * factor
    return size


def shard(size_bytes: int, factor: int) -> int:
    """A shard of bytes cut ``factor`` times finer, in whole elements of two bytes (one where the shard is odd)."""
    element = 2 if size_bytes % 2 == 0 else 1
    return -(-(size_bytes // element) // factor) * element


def _uneven(
    trace: Trace,
    edits: Edits,
    index: int,
    rules: SizeRules,
    name: str,
    origins: Callable[[str], Sequence[int]],
) -> int:
    """Shares of a collective whose members have different ones; returns its new size.

    A member's share goes to its replicas in equal parts, as any shard; that both ends of a transfer say the same, parts
    are rounded up each. Shares of tokens that are gathered or scattered stay what they are.
    """
    role, kind = rules.role(name), int(trace.comm_type[index])
    size = int(trace.comm_size[index])
    if role is Role.STAYS:
        return size
    whole = role is Role.TOKENS and kind != CommType.ALL_TO_ALL
    members = range(rules.members(name)) if role is Role.EXPERT_WEIGHTS else origins(name)
    given = dict(zip((IN_SPLIT, OUT_SPLIT), trace.splits(index), strict=True))
    shares = {
        attribute: [shares[k] if whole else shard(shares[k], rules.factor) for k in members]
        for attribute, shares in given.items()
        if shares is not None
    }
    edits.lists[index] = shares
    sums_up = kind in (
        CommType.ALL_TO_ALL,
        CommType.REDUCE_SCATTER,
        CommType.REDUCE_SCATTER_BLOCK,
        CommType.SCATTER,
    )
    if sums_up and IN_SPLIT in shares and size:
        new = sum(shares[IN_SPLIT])
    else:
        new = size if whole else shard(size, rules.factor)
    edits.set(index, "comm_size", new)
    return new


# --------------------------------------------------------------------------------------------------- expert gradients


def _bucket_family(trace: Trace, index: int) -> str:
    """Name of a collective without micro-batch label and bucket number."""
    name = trace.name_table[int(trace.name_codes[index])]
    return re.sub(r"bucket[0-9]+", "bucket", name)


def _rebucket(
    trace: Trace,
    edits: Edits,
    nodes: Sequence[int],
    rules: SizeRules,
    key: tuple[str, int],
    changes: Changes,
    *,
    bucketed: bool,
) -> None:
    """Shrink collectives of expert weights: each by itself, or, if they are buckets of one size, into fewer of them.

    A bucket is sent when it is full. With less to fill it, the k-th is sent where the (k + 1) x factor-th was.
    """
    name, kind = key
    label = (name, CommType(kind).name)
    members = rules.members(name)
    sizes = [int(trace.comm_size[index]) for index in nodes]
    if not bucketed or len(nodes) == 1:
        for index, size in zip(nodes, sizes, strict=True):
            new = _padded_share(kind, size, rules.factor, members)
            edits.set(index, "comm_size", new)
            _count(changes, label, size, new)
        return
    full = max(sizes)
    left = -(-sum(sizes) // rules.factor)
    keep = {min((k + 1) * rules.factor, len(nodes)) - 1: k for k in range(-(-left // full))}
    for place, (index, size) in enumerate(zip(nodes, sizes, strict=True)):
        if place not in keep:
            edits.dropped.add(index)
            _count(changes, label, size, None)
            continue
        new = min(full, left)
        left -= new
        if kind != CommType.ALL_GATHER and kind != CommType.ALL_REDUCE:
            new = -(-new // members) * members
        edits.set(index, "comm_size", new)
        edits.renamed[index] = numbered(trace.name_table[int(trace.name_codes[index])], keep[place])
        _count(changes, label, size, new)


def _padded_share(kind: int, size: int, factor: int, members: int) -> int:
    share = shard(size, factor)
    if kind in (CommType.REDUCE_SCATTER, CommType.REDUCE_SCATTER_BLOCK):
        return -(-share // members) * members
    return share


# --------------------------------------------------------------------------------------------------------- compute


def _compute_edits(trace: Trace, rules: SizeRules, edits: Edits, changes: Changes) -> None:
    """Work of the optimizer on its shard, and of experts on their weights."""
    optimizer = _named(trace, rules.optimizer)
    durations = trace.durations_ns()
    said = False
    for index in np.flatnonzero(trace.types == NodeType.COMP).tolist():
        expert = _attributes(trace, index, ("expert_ops", "expert_bytes")) if rules.experts else {}
        said = said or bool(expert)
        if rules.experts and trace.operator_codes[index] >= 0:
            text = trace.operator_table[int(trace.operator_codes[index])]
            if text.startswith(f"{Host.WORD} "):
                edits.set(index, OPERATOR, _rescaled(text, rules.factor, 0))
        shrinks = bool(optimizer[index]) and rules.sharded and int(trace.is_cpu_op[index]) != 1
        if not expert and not shrinks:
            continue
        bytes_now = 0
        for name, part in (("num_ops", "expert_ops"), ("tensor_size", "expert_bytes")):
            whole = int(getattr(trace, name)[index])
            if whole == ABSENT:
                continue
            of_experts = expert.get(part, 0)
            rest = whole - of_experts
            if of_experts:
                edits.set(index, part, -(-of_experts // rules.factor))
            dense = -(-rest // rules.factor) if shrinks else rest
            now = dense + -(-of_experts // rules.factor)
            edits.set(index, name, now)
            if name == "tensor_size":
                bytes_now = now
        if trace.operator_codes[index] >= 0:
            text = trace.operator_table[int(trace.operator_codes[index])]
            edits.set(index, OPERATOR, _rescaled(text, rules.factor, bytes_now))
        if shrinks:
            before = int(durations[index])
            after = max(-(-before // rules.factor), min(before, _SHORTEST_NS))
            if before:
                edits.set(index, "duration_ns", after)
            changes.optimizer[0] += 1
            changes.optimizer[1] += before
            changes.optimizer[2] += after
        changes.expert_nodes += bool(expert)
    changes.unsaid_experts = changes.unsaid_experts or (rules.experts and not said)


def _rescaled(text: str, factor: int, optimizer_bytes: int) -> str:
    """What a node does after rescaling: fewer experts with more rows each, and an optimizer's smaller shard."""
    counts: Counter[str] = Counter()
    for operator, count in parse_operators(text):
        if isinstance(operator, MatrixProduct) and operator.batch > 1 and operator.role != "scan":
            operator = operator.grouped(operator.rows, -(-operator.batch // factor))
        elif isinstance(operator, Host):
            operator = replace(operator, experts=-(-operator.experts // factor))
        elif isinstance(operator, Kernel) and operator.kind is KernelKind.OPTIMIZER and operator.bytes:
            elements = -(-operator.elements * optimizer_bytes // operator.bytes)
            operator = replace(operator, elements=elements, bytes=optimizer_bytes)
        counts[operator_text(operator)] += count
    return operators_text(counts) if counts else text


def _named(trace: Trace, pattern: str) -> I64:
    """(n,) whether each node's name has the pattern."""
    found = re.compile(pattern)
    table = np.array([found.search(name) is not None for name in trace.name_table], dtype=np.int64)
    flags: I64 = table[trace.name_codes]
    return flags


def _attributes(trace: Trace, index: int, names: Iterable[str]) -> dict[str, int]:
    """Integer attributes of a node that have no column."""
    found = {}
    for name in names:
        value = trace.attr(index, name)
        if isinstance(value, int):
            found[name] = value
    return found
