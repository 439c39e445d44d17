"""Templates: the nodes of one action (say, the forward of a stage's chunk), stamped once per micro-batch.

A dependency is the index of a node in the same template, or a negative code for a node outside (:class:`Outside`),
which stamping turns into the id of that node for the micro-batch at hand.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from chakra.errors import UsageError
from chakra.et import NodeType
from chakra.et.operators import Attention, Direction, Host, MatrixProduct, operator_text, operators_text
from chakra.generate.model.ir import NO_WORK, OpKind, Work
from chakra.generate.model.placement import Conversion, joined
from chakra.generate.plan.compute import ComputeModel, OperatorTimes
from chakra.io.limits import MAX_GENERATED_NODES
from chakra.replay.config.model import CollectiveKind

#: symbolic groups of messages between prefill and decode ranks, where a position is the distance in rank numbers
CACHE_GROUP, TOKEN_GROUP = "kv", "token"


class Stream(IntEnum):
    """Device streams of the generated nodes (attribute ``stream``)."""

    COMPUTE = 0
    #: collectives inside layers: tp, cp, ep
    LAYER = 1
    #: gradients and parameters: dp, edp
    DATA = 2
    #: point-to-point
    PIPELINE = 3
    #: the host thread that issues operators
    HOST = 4


class Outside(IntEnum):
    """Nodes of other actions that a template depends on."""

    #: last compute node before this action on the same stage
    COMPUTE = -1
    #: last compute node of the forward of the same micro-batch and chunk
    FORWARD = -2
    #: last compute node of the input-gradient action of the same micro-batch and chunk
    INPUT = -3
    #: last send before this action
    SEND = -4
    #: last host node before this action
    HOST = -5
    #: last gather of updated parameters at the end of the step before this one
    STEP = -6
    #: as `FORWARD`, of the second of two actions beside each other
    SECOND_FORWARD = -7
    #: last compute node of the action behind which the receives of this one are posted
    POSTED = -8
    #: as `POSTED`, of the second of two actions beside each other
    SECOND_POSTED = -9
    #: last collective before this action, one code per chain
    CHAIN = -10

    @staticmethod
    def chain(number: int) -> int:
        """Code of the last collective on chain ``number``."""
        return Outside.CHAIN - number


N_CHAINS = 4


@dataclass(frozen=True, slots=True)
class EmitOptions:
    """How operators become nodes.

    Attributes
    ----------
    overlap
        Communication runs beside computation where data allow; otherwise everything runs in program order.
    exposed
        With ``overlap``: streams whose communication computation waits for all the same.
    host
        ``"none"``, or nodes for the host thread that issues operators, one for each run of operators between
        communication: ``"ahead"``, it runs ahead of the device; ``"synchronised"``, it waits for the device at the
        beginning of every pass.
    order
        ``"program"``: all collectives of a rank form one chain, so that ranks with a single communication engine can
        never block each other; ``"stream"``: one chain per stream.
    graphs
        A pass is one recorded graph (CUDA graphs), operators and collectives of layers: the host launches it as one
        operator.
    fuse
        Merge operators that follow each other without communication between them into one node.
    compute
        When given, nodes carry its durations; otherwise only what they compute.
    """

    overlap: bool = True
    order: str = "program"
    fuse: bool = False
    compute: ComputeModel | OperatorTimes | None = None
    exposed: frozenset[Stream] = frozenset()
    host: str = "none"
    graphs: bool = False

    def blocks(self, stream: Stream) -> bool:
        """Whether computation waits for communication of this stream, and it for computation."""
        return not self.overlap or stream in self.exposed


@dataclass(slots=True)
class Template:
    """Columns of one action's nodes, as lists; see :class:`TemplateBuilder`."""

    names: list[str] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    flops: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    expert_flops: list[int] = field(default_factory=list)
    expert_bytes: list[int] = field(default_factory=list)
    #: attribute ``operator``, "" where there is none
    operators: list[str] = field(default_factory=list)
    durations_ns: list[int] = field(default_factory=list)
    kinds: list[OpKind | CollectiveKind | None] = field(default_factory=list)
    comm_bytes: list[int] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    tag_bases: list[int] = field(default_factory=list)
    #: bytes to and from each member, of collectives of unequal shares
    shares: list[tuple[tuple[int, ...], tuple[int, ...]] | None] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    ctrl: list[list[int]] = field(default_factory=list)
    data: list[list[int]] = field(default_factory=list)
    #: activations kept: (node that makes them, tensor name, bytes), and (node after which they are gone, tensor name)
    saves: list[tuple[int, str, int]] = field(default_factory=list)
    frees: list[tuple[int, str]] = field(default_factory=list)
    #: matrix FLOPs among ``flops``
    matmul_flops: int = 0
    #: of them those of activations that are computed again
    recomputed_flops: int = 0
    last_compute: int = -1
    last_send: int = -1
    last_host: int = -1
    last_step: int = -1
    #: of two actions beside each other: which nodes are the second's, and the last compute node of the first
    second: list[bool] = field(default_factory=list)
    first_compute: int = -1
    last_chain: list[int] = field(default_factory=lambda: [-1] * N_CHAINS)

    def __len__(self) -> int:
        return len(self.types)


#: fields of a template with an entry for each node, beside dependencies
_COLUMNS = (
    "names", "types", "flops", "bytes", "expert_flops", "expert_bytes", "operators", "durations_ns", "kinds",
    "comm_bytes", "groups", "offsets", "tag_bases", "streams", "shares",
)  # fmt: skip


def behind(first: Template, then: Template) -> Template:
    """One template of two, the first compute node of ``then`` behind all nodes of ``first`` (which computes nothing)."""
    n = len(first)
    changed: dict[str, Any] = {name: [*getattr(first, name), *getattr(then, name)] for name in _COLUMNS}
    for name in ("ctrl", "data"):
        changed[name] = [*getattr(first, name), *_shifted(getattr(then, name), n)]
    for name in ("last_compute", "last_send", "last_host", "last_step"):
        last = getattr(then, name)
        changed[name] = last + n if last >= 0 else last
    joined = replace(
        then,
        **changed,
        saves=[(node + n, name, size) for node, name, size in then.saves],
        frees=[(node + n, name) for node, name in then.frees],
        last_chain=[last + n if last >= 0 else last for last in then.last_chain],
    )
    for index in range(n, len(joined)):
        if joined.types[index] == NodeType.COMP and joined.streams[index] != Stream.HOST:
            joined.data[index] = sorted({*joined.data[index], *range(n)})
            break
    return joined


def interleaved(first: Template, then: Template, *, order: str) -> Template:
    """One template of two actions, each of which computes while the other communicates.

    Where one of them has issued an exchange with experts (without such exchanges: any collective of its layers), the
    other goes on until it has, too. Nodes of each keep their order; all compute nodes are one chain, and so are
    collectives (``order`` as in `EmitOptions`), so that every rank of a group runs the same order.
    """
    sides = first, then
    turning = _turning(first, then)
    # (side, node) in the new order
    nodes: list[tuple[int, int]] = []
    at, side = [0, 0], 0
    while len(nodes) < len(first) + len(then):
        if at[side] == len(sides[side]):
            side = 1 - side
        node = at[side]
        at[side] += 1
        nodes.append((side, node))
        if turning[side][node]:
            side = 1 - side
    place = {old: new for new, old in enumerate(nodes)}
    out = Template(matmul_flops=first.matmul_flops + then.matmul_flops)
    out.recomputed_flops = first.recomputed_flops + then.recomputed_flops
    for name in _COLUMNS:
        getattr(out, name).extend(getattr(sides[side], name)[node] for side, node in nodes)
    out.second = [side == 1 for side, _ in nodes]
    for name in ("saves", "frees"):
        for side, t in enumerate(sides):
            getattr(out, name).extend((place[side, node], *rest) for node, *rest in getattr(t, name))
    for new, (side, node) in enumerate(nodes):
        t = sides[side]
        data, ctrl = (
            [place[side, dep] if dep >= 0 else _seconds(dep, side) for dep in deps]
            for deps in (t.data[node], t.ctrl[node])
        )
        ctrl.append(_behind_last(out, new, order))
        out.data.append(sorted(data))
        out.ctrl.append(sorted(set(ctrl) - set(data) - {new}))
        if side == 0 and t.types[node] == NodeType.COMP and t.streams[node] != Stream.HOST:
            out.first_compute = new
    return out


#: codes that mean other nodes to the second of two actions beside each other
_SECONDS: dict[int, int] = {
    Outside.FORWARD: Outside.SECOND_FORWARD,
    Outside.POSTED: Outside.SECOND_POSTED,
}


def _seconds(dep: int, side: int) -> int:
    """A node outside, as the second action means it."""
    return _SECONDS.get(dep, dep) if side else dep


def _turning(first: Template, then: Template) -> list[list[bool]]:
    """Nodes of both behind which the other action goes on."""
    calls = [
        [kind if stream == Stream.LAYER else None for kind, stream in zip(t.kinds, t.streams, strict=True)]
        for t in (first, then)
    ]
    exchanges = any(kind is CollectiveKind.ALL_TO_ALL for side in calls for kind in side)
    return [
        [
            kind is CollectiveKind.ALL_TO_ALL if exchanges else isinstance(kind, CollectiveKind)
            for kind in side
        ]
        for side in calls
    ]


def _behind_last(out: Template, node: int, order: str) -> int:
    """The node of the same engine before a node, which is the last one now; itself where there is none."""
    kind, stream = out.types[node], out.streams[node]
    before = -1
    if kind == NodeType.COMP and stream == Stream.HOST:
        before, out.last_host = out.last_host, node
    elif kind == NodeType.COMP:
        before, out.last_compute = out.last_compute, node
    elif kind == NodeType.COMM_SEND:
        out.last_send = node
    elif kind == NodeType.COMM_COLL:
        chain = 0 if order == "program" else stream
        before, out.last_chain[chain] = out.last_chain[chain], node
    return before if before >= 0 else node


def _shifted(lists: Sequence[Sequence[int]], by: int) -> list[list[int]]:
    return [[item + by if item >= 0 else item for item in deps] for deps in lists]


class HostThread:
    """What the host has issued since its last node, and that node."""

    def __init__(self, *, graphs: bool) -> None:
        self.last: int = Outside.HOST
        self.waits: list[int] = []
        self.graphs = graphs
        self._launched = False
        self._counts: dict[str, int] = {}

    def begin(self) -> None:
        """Begin the next node."""
        self.waits, self._counts = [], {}

    def count(self, what: str, number: int = 1) -> None:
        """Count things to do."""
        self._counts[what] = self._counts.get(what, 0) + number

    def operator(self, work: Work, again: bool) -> None:
        """Count an operator; without fused kernels, attention is one for each product, and softmax and dropout.

        Products of experts are counted for each of them beside.
        """
        what = work.what
        if what is None:
            return
        if self.graphs and self._launched:
            return
        self._launched = True
        backward = not isinstance(what, Host) and what.direction in (Direction.BACKWARD, Direction.WEIGHT)
        number = 1
        if isinstance(what, Attention) and not what.fused and not self.graphs:
            number = 3 + what.dropout
        self.count("backward" if backward else "again" if again else "forward", number)
        if work.expert_bytes and isinstance(what, MatrixProduct):
            self.count("experts", what.batch)
        elif work.launches:
            self.count("experts", work.launches)

    @property
    def first(self) -> str:
        """What it has to do first; "" for nothing."""
        return next(iter(self._counts), "")

    def begin_pass(self) -> None:
        """What follows is another graph."""
        self._launched = False

    def text(self) -> str:
        """The node's attribute ``operator``; "" for nothing to do."""
        return operator_text(Host(**self._counts)) if self._counts else ""


class TemplateBuilder:
    """Appends nodes to a template and keeps the order of engines.

    Compute nodes form one chain (control dependencies). Collectives form one chain per rank or per stream. Without
    overlap, compute waits for the collective before it and the other way round.
    """

    def __init__(self, options: EmitOptions) -> None:
        self.options = options
        self.template = Template()
        self._compute: int = Outside.COMPUTE
        self._send: int = Outside.SEND
        self._chains: list[int] = [Outside.chain(number) for number in range(N_CHAINS)]
        #: text of the node that operators are merged into, and how often it runs each of them
        self._counted: tuple[str, dict[str, int]] = ("", {})
        #: data dependencies that the next compute node takes on
        self.required: list[int] = []
        #: last collective or send of each stream within the template that computation waits for
        self._exposed: dict[Stream, int] = {}
        self._issue = HostThread(graphs=options.graphs) if options.host != "none" else None
        #: by identity, since the same few objects come back for every layer and micro-batch, and hashing one costs
        #: more than all else that is done with it: work, its kind, the text of its operator, its duration in ns
        self._priced: dict[int, tuple[Work, OpKind, str, int]] = {}

    def _price(self, kind: OpKind, work: Work) -> tuple[str, int]:
        """The text of an operator ("": it does not say what it is), and how long it takes, in ns (0: not known yet)."""
        known = self._priced.get(id(work))
        if known is None or known[1] is not kind:
            compute = self.options.compute
            known = (
                work,
                kind,
                operator_text(work.what) if work.what else "",
                compute.duration_ns(kind, work) if compute else 0,
            )
            self._priced[id(work)] = known
        return known[2], known[3]

    def reserve(self, count: int) -> None:
        """Refuse, before it is begun, what would make the template larger than a trace may be.

        Raises
        ------
        UsageError
            With ``count`` more nodes it would be.
        """
        if len(self.template.names) + count > MAX_GENERATED_NODES:
            raise UsageError(
                f"a trace of more than {MAX_GENERATED_NODES} nodes: take larger buckets or fewer layers"
            )

    def _append(
        self,
        name: str,
        node_type: NodeType,
        data: Sequence[int],
        ctrl: Sequence[int],
        *,
        kind: OpKind | CollectiveKind | None = None,
        work: Work = NO_WORK,
        operator: str = "",
        comm_bytes: int = 0,
        group: str | None = None,
        offset: int = 0,
        tag_base: int = 0,
        stream: Stream = Stream.COMPUTE,
        shares: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    ) -> int:
        t = self.template
        data = sorted(set(data))
        self.reserve(1)
        t.names.append(name)
        t.types.append(int(node_type))
        t.flops.append(work.flops)
        t.bytes.append(work.bytes)
        t.expert_flops.append(work.expert_flops)
        t.expert_bytes.append(work.expert_bytes)
        t.operators.append(operator)
        t.durations_ns.append(0)
        t.kinds.append(kind)
        t.comm_bytes.append(comm_bytes)
        t.groups.append(group)
        t.offsets.append(offset)
        t.tag_bases.append(tag_base)
        t.streams.append(int(stream))
        t.shares.append(shares)
        t.data.append(data)
        t.ctrl.append(sorted(set(ctrl) - set(data)))
        return len(t) - 1

    # ------------------------------------------------------------------ compute

    def compute(
        self, name: str, kind: OpKind, work: Work, data: Sequence[int], *, duration_ns: int | None = None
    ) -> int:
        """Append (or, when fusing, extend) a compute node; returns its index."""
        t, options = self.template, self.options
        operator, usual_ns = self._price(kind, work)
        if duration_ns is None:
            duration_ns = usual_ns
        again = "recompute" in name
        if kind.is_matmul:
            t.matmul_flops += work.flops
            t.recomputed_flops += work.flops * again
        if self._issue:
            self._issue.operator(work, again)
        last = len(t) - 1
        data = [*data, *self.required]
        self.required = []
        if options.fuse and last >= 0 and self._waits_already(last, data):
            first = t.names[last].split("..", 1)[0]
            t.names[last] = f"{first}..{name.rsplit('.', 1)[-1]}"
            t.flops[last] += work.flops
            t.bytes[last] += work.bytes
            t.expert_flops[last] += work.expert_flops
            t.expert_bytes[last] += work.expert_bytes
            t.operators[last] = self._merged(t.operators[last], operator)
            t.durations_ns[last] += duration_ns
            return last
        ctrl = [self._compute, *self._exposed.values()]
        if not options.overlap:
            ctrl += [*self._chains, self._send]
        if self._issue:
            ctrl.append(self._issue.last)
        self._compute = self._append(
            name, NodeType.COMP, data, ctrl, kind=kind, work=work, operator=operator if work else ""
        )
        t.durations_ns[self._compute] = duration_ns
        t.last_compute = self._compute
        return self._compute

    def _merged(self, text: str, added: str) -> str:
        """Operators of the last node, which takes on another; none if one of them does not say what it is."""
        if not text or not added:
            return ""
        if text != self._counted[0]:
            self._counted = ("", {text: 1})
        counts = self._counted[1]
        counts[added] = counts.get(added, 0) + 1
        self._counted = (operators_text(counts), counts)
        return self._counted[0]

    def _waits_already(self, last: int, data: Sequence[int]) -> bool:
        """Whether the last node is a compute node of the accelerator that has waited for all of ``data``."""
        t = self.template
        if t.types[last] != NodeType.COMP or t.streams[last] == Stream.HOST:
            return False
        known = {last, *t.data[last], *t.ctrl[last]}
        return all(d in known or (d >= 0 and t.types[d] == NodeType.COMP) for d in data)

    @property
    def last_compute(self) -> int:
        """The compute node before this point, perhaps outside the template."""
        return self._compute

    def pending_chains(self) -> list[int]:
        """Last collective of every chain, perhaps outside the template."""
        return list(self._chains)

    # ------------------------------------------------------------------ communication

    def collective(
        self,
        name: str,
        kind: CollectiveKind,
        group: str,
        size_bytes: int,
        data: Sequence[int],
        stream: Stream,
        *,
        ctrl: Sequence[int] = (),
        shares: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    ) -> int:
        """Append a collective on symbolic ``group``; ``size_bytes`` is what the rank brings in.

        ``shares`` are the bytes to and from each member where they are not even.
        """
        chain = 0 if self.options.order == "program" else int(stream)
        waits = [self._chains[chain], *ctrl, *self._issued("collectives", stream)]
        if self.options.blocks(stream):
            waits.append(self._compute)
        index = self._append(
            name,
            NodeType.COMM_COLL,
            data,
            waits,
            kind=kind,
            comm_bytes=size_bytes,
            group=group,
            stream=stream,
            shares=shares,
        )
        self._chains[chain] = index
        self.template.last_chain[chain] = index
        if stream in self.options.exposed:
            self._exposed[stream] = index
        return index

    def convert(self, name: str, steps: Sequence[Conversion], data: Sequence[int]) -> list[int]:
        """Append the collectives of a layout change, one after the other; returns what the consumer waits for."""
        for step in steps:
            title = f"{name}.{step.kind.lower()}"
            shares = (step.sent, step.received) if step.sent else None
            data = [
                self.collective(
                    title, step.kind, joined(step.axes), step.size_bytes, data, Stream.LAYER, shares=shares
                )
            ]
        return list(data)

    def send(
        self, name: str, group: str, offset: int, size_bytes: int, tag_base: int, data: Sequence[int]
    ) -> int:
        """Append a send to the rank ``offset`` positions on in ``group``."""
        waits = [self._compute] if self.options.blocks(Stream.PIPELINE) else []
        index = self._append(
            name, NodeType.COMM_SEND, data, [*waits, *self._issued("messages")], comm_bytes=size_bytes, group=group,
            offset=offset, tag_base=tag_base, stream=Stream.PIPELINE,
        )  # fmt: skip
        self._send = self.template.last_send = index
        if Stream.PIPELINE in self.options.exposed:
            self._exposed[Stream.PIPELINE] = index
        return index

    def receive(
        self, name: str, group: str, offset: int, size_bytes: int, tag_base: int, ctrl: Sequence[int] = ()
    ) -> int:
        """Append a receive; posted when the compute node before it is done."""
        index = self._append(
            name, NodeType.COMM_RECV, [], [*ctrl] or [self._compute], comm_bytes=size_bytes, group=group,
            offset=offset, tag_base=tag_base, stream=Stream.PIPELINE,
        )  # fmt: skip
        if self._issue:
            self._issue.count("messages")
        return index

    # ------------------------------------------------------------------ host

    def host_waits(self, *nodes: int) -> None:
        """Let the host thread wait for nodes before it issues more: a program that synchronises with its device."""
        if self._issue:
            self._issue.waits += nodes

    def host_reads(self) -> None:
        """Let the host thread wait for what was computed, of which it reads a number; recorded graphs need none."""
        if not self.options.graphs:
            self.host_waits(self._compute)

    def host_does(self, what: str) -> None:
        """Count a thing that the host does: a pass (an action of the schedule) or a step."""
        if self._issue:
            self._issue.count(what)
            self._issue.begin_pass()
            if what == "passes" and self.options.host == "synchronised":
                self.host_waits(self._compute)

    def _issued(self, what: str, stream: Stream | None = None) -> list[int]:
        """The host node after which a communication can begin: all operators before it, and it, have been issued."""
        if not self._issue:
            return []
        # collectives of layers are part of a recorded graph
        if not (self.options.graphs and stream is Stream.LAYER):
            self._issue.count(what)
        return [self.flush_host()]

    def flush_host(self) -> int:
        """Append the host's node for what was counted since the last; returns the last host node."""
        issue = self._issue
        if issue is None:
            return Outside.HOST
        text = issue.text()
        if text:
            ctrl = [issue.last, *issue.waits]
            name = self.template.names[-1] if self.template.names else issue.first
            issue.last = self._append(f"host.{name}", NodeType.COMP, [], ctrl, stream=Stream.HOST)
            self.template.operators[issue.last] = text
            if isinstance(self.options.compute, OperatorTimes):
                self.template.durations_ns[issue.last] = self.options.compute.text_ns(text)
            self.template.last_host = issue.last
            issue.begin()
        return issue.last
