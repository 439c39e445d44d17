"""From a text workload and a row of the policy table to a dependency graph.

One builder serves every policy: it walks a pass once and asks the row what to issue and what to wait for. A
collective that is not there (word NONE, nobody to talk to, not issued by the policy) yields no node; whoever
would wait for it waits for the compute that would have issued it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from chakra.arrays import I8, I32, I64, bounds
from chakra.converters.text.grammar import COLLECTIVES, CommWord, Layer, Phase, Step, TextWorkload
from chakra.converters.text.policies import POLICIES, Backward, Forward, Issue, Link, Policy, Span

PHASES: tuple[Phase, ...] = tuple(Phase)
SPANS: tuple[Span, ...] = tuple(Span)

#: Kinds of graph node.
COMPUTE, UPDATE, COLLECTIVE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes of all passes; node k has id k. All arrays have one entry a node unless said otherwise.

    Attributes
    ----------
    kind
        `COMPUTE`, `UPDATE` (the delay after a collective) or `COLLECTIVE`.
    layer, phase
        Index into the workload's layers and into `PHASES`.
    time
        Duration in the unit of the file; 0 for collectives.
    comm_type
        ``CollectiveCommType`` value; -1 for computes.
    size_bytes
        Bytes per NPU of a collective.
    span
        Index into `SPANS` of the NPUs that a collective joins.
    words
        Index into ``word_table``: the collective's word.
    offsets, parents
        Node k waits for ``parents[offsets[k]:offsets[k + 1]]``, in the order in which they are written.
    """

    n_nodes: int
    kind: I8
    layer: I32
    phase: I8
    time: I64
    comm_type: I8
    size_bytes: I64
    span: I8
    words: I32
    word_table: tuple[str, ...]
    offsets: I64
    parents: I64


@dataclass(frozen=True, slots=True)
class Rules:
    """How a graph is built, beside the policy row."""

    #: a COMP node of ``update_time`` stands between each collective and its waiters
    update_time: bool = False
    #: words other than the four plain collectives become an all-reduce, NONE included, as in upstream's
    #: converter
    none_is_all_reduce: bool = False
    #: layer whose cI is left out where the first layer's is
    input_skipped: int = 0


def build_graph(
    workload: TextWorkload,
    policy: Policy,
    passes: int,
    *,
    rules: Rules = Rules(),
    nobody: frozenset[Span] = frozenset({Span.NOBODY}),
) -> Graph:
    """Build the graph of ``passes`` passes over a workload.

    Parameters
    ----------
    workload, policy
        The file and its row of the table.
    passes
        Number of passes, at least 1.
    nobody
        Spans that join a single NPU: their collectives are left out.
    """
    builder = _Builder(workload, policy, rules, nobody, workload.recomputations())
    ends = builder.add_pass(None)
    first = len(builder.kind)
    if passes > 1:
        builder.add_pass(ends)
    return _repeat(builder, first, passes)


def _repeat(builder: "_Builder", n: int, passes: int) -> Graph:
    """Turn the one or two passes that were built into all: each later pass is the second one with shifted
    ids."""
    copies = max(0, passes - 2)
    counts = np.fromiter(map(len, builder.parents), np.int64, len(builder.parents))
    flat = np.fromiter((p for parents in builder.parents for p in parents), np.int64, int(counts.sum()))
    split = int(counts[:n].sum())
    shifts = np.arange(1, copies + 1, dtype=np.int64) * n
    later = (flat[split:][None, :] + shifts[:, None]).ravel()
    counts = np.concatenate([counts, np.tile(counts[n:], copies)])
    offsets = bounds(counts)
    words = {word: code for code, word in enumerate(dict.fromkeys(builder.word))}
    codes = np.fromiter((words[word] for word in builder.word[:n]), np.int32, n)
    return Graph(
        n_nodes=n * passes,
        kind=np.tile(np.array(builder.kind[:n], np.int8), passes),
        layer=np.tile(np.array(builder.layer[:n], np.int32), passes),
        phase=np.tile(np.array(builder.phase[:n], np.int8), passes),
        time=np.tile(np.array(builder.time[:n], np.int64), passes),
        comm_type=np.tile(np.array(builder.comm_type[:n], np.int8), passes),
        size_bytes=np.tile(np.array(builder.size_bytes[:n], np.int64), passes),
        span=np.tile(np.array(builder.span[:n], np.int8), passes),
        words=np.tile(codes, passes),
        word_table=tuple(words),
        offsets=offsets,
        parents=np.concatenate([flat, later]),
    )


def span_of(workload: TextWorkload, policy: Policy, layer: int, phase: Phase) -> Span:
    """NPUs that a layer's collective joins (trace formats, section 3.2)."""
    group = step_of(workload.layers[layer], phase).group
    if group:
        return Span.EXPERT if group == "EP" else Span.EXPERT_DATA
    own = workload.layers[layer].policy
    row = POLICIES[own] if own is not None else policy
    if policy.issue_input is Issue.FIRST_FROM_TOP and phase is not Phase.WEIGHT_GRADIENT:
        return (
            Span.ALL
        )  # the embedding exchange joins everybody, and so does that of any other layer that has one
    return row.weight_span if phase is Phase.WEIGHT_GRADIENT else row.span


@dataclass(slots=True)
class _Ends:
    """What the next pass can wait for: node ids by layer."""

    weight: list[int]
    weight_compute: list[int]
    first_input: int
    last_compute: int
    last_forward: int


@dataclass(slots=True)
class _Builder:
    workload: TextWorkload
    policy: Policy
    rules: Rules
    nobody: frozenset[Span]
    #: checkpoint from which a layer's recomputation starts, by initiating layer
    recomputations: dict[int, int]
    kind: list[int] = field(default_factory=list)
    layer: list[int] = field(default_factory=list)
    phase: list[int] = field(default_factory=list)
    time: list[int] = field(default_factory=list)
    comm_type: list[int] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)
    span: list[int] = field(default_factory=list)
    word: list[str] = field(default_factory=list)
    parents: list[list[int]] = field(default_factory=list)

    def add_pass(self, before: _Ends | None) -> _Ends:
        """Append one pass that waits for the pass ``before``; returns what the next one can wait for."""
        n = len(self.workload.layers)
        ends = _Ends([-1] * n, [-1] * n, -1, -1, -1)
        if self.policy.backward is Backward.COLLECTIVES_ONLY:
            for index in range(n if self.policy.micro_layers is None else self.policy.micro_layers):
                self._collective(index, Phase.WEIGHT_GRADIENT, None)
            return ends
        waits = self._forward(ends, before)
        if self.policy.backward is not Backward.ABSENT:
            self._backward(ends, waits)
        return ends

    def _forward(self, ends: _Ends, before: _Ends | None) -> list[int]:
        """Forward computes and collectives; returns what the first backward compute waits for."""
        policy = self.policy
        bottom = self.workload.last_bottom_layer
        top = -1 if bottom is None else bottom + policy.top_offset
        computes: list[int] = []
        results: list[int] = []
        for index in range(len(self.workload.layers)):
            within = []
            if index:
                within.append((computes if policy.forward is Forward.COMPUTE else results)[index - 1])
            if index == top and index:
                within.append(results[0])
            links = [] if before is None else self._links(index, before)
            compute = self._compute(
                index, Phase.FORWARD, links + within if policy.links_first else within + links
            )
            computes.append(compute)
            results.append(self._issued(policy.issue_forward, index, Phase.FORWARD, compute))
        ends.last_forward = results[-1]
        waits = [computes[-1] if policy.forward is Forward.COMPUTE else results[-1]]
        if bottom is not None and bottom + 1 == top == len(computes):
            # There is no top layer: the backward pass waits for the exchange.
            waits.append(results[0])
        return waits

    def _links(self, index: int, before: _Ends) -> list[int]:
        """What F(index) waits for in the pass before."""
        found = []
        for link in self.policy.links:
            if link is Link.WEIGHT_COLLECTIVE:
                found.append(before.weight[index])
            elif link is Link.WEIGHT_COMPUTE:
                found.append(before.weight_compute[index])
            elif index == 0:
                found.append(
                    {
                        Link.LAST_COMPUTE: before.last_compute,
                        Link.FIRST_INPUT_COLLECTIVE: before.first_input,
                        Link.LAST_FORWARD_COLLECTIVE: before.last_forward,
                    }[link]
                )
        return found

    def _backward(self, ends: _Ends, waits: list[int]) -> None:
        """Backward computes and collectives. ``waits``: what the next compute waits for."""
        policy = self.policy
        bottom = self.workload.last_bottom_layer
        result_above = -1  # what a waiter for cI(i+1) waits for
        for phase, index in backward_order(policy.backward, len(self.workload.layers)):
            if phase is Phase.WEIGHT_GRADIENT:
                if index == 0 and policy.wait_first_input and ends.first_input >= 0:
                    waits = [*waits, ends.first_input]
                if policy.wait_own_input and result_above >= 0:
                    waits = [*waits, result_above]
                compute = self._compute(index, phase, waits)
                ends.weight_compute[index] = ends.last_compute = compute
                ends.weight[index] = self._issued(policy.issue_weight, index, phase, compute)
            else:
                if policy.wait_input and result_above >= 0:
                    waits = [*waits, result_above]
                compute = self._compute(index, phase, self._recomputed(index, waits))
                result_above = self._issued(policy.issue_input, index, phase, compute)
                if index == 0:
                    ends.first_input = result_above
                elif (
                    policy.issue_input is Issue.FIRST_FROM_TOP and bottom is not None and index == bottom + 1
                ):
                    ends.first_input = self._collective(0, phase, compute)
            waits = [compute]

    def _recomputed(self, initiator: int, waits: list[int]) -> list[int]:
        """Recompute the forward pass from the nearest checkpoint up to ``initiator``; returns what
        I(initiator) waits for."""
        for index in range(self.recomputations.get(initiator, initiator), initiator):
            compute = self._compute(index, Phase.RECOMPUTE, waits)
            waits = [self._issued(self.policy.issue_forward, index, Phase.RECOMPUTE, compute)]
        return waits

    def _issued(self, issue: Issue, index: int, phase: Phase, compute: int) -> int:
        """Issue the collective after a compute if the policy says so; returns what a waiter for it waits
        for."""
        if issue is Issue.ALWAYS:
            wanted = True
        elif issue is Issue.ALL_BUT_FIRST:
            wanted = index != self.rules.input_skipped
        elif issue is Issue.ALL_TO_ALL_ONLY:
            wanted = step_of(self.workload.layers[index], phase).word == CommWord.ALL_TO_ALL
        else:
            wanted = False
        return self._collective(index, phase, compute) if wanted else compute

    def _compute(self, index: int, phase: Phase, parents: list[int]) -> int:
        time = step_of(self.workload.layers[index], phase).time
        return self._node(COMPUTE, index, phase, parents, time=time)

    def _collective(self, index: int, phase: Phase, compute: int | None) -> int:
        """Add a layer's collective after a compute; returns the node that stands for its result."""
        layer = self.workload.layers[index]
        step = step_of(layer, phase)
        span = span_of(self.workload, self.policy, index, phase)
        last = compute
        for word, comm_type in self._meaning(step.word, phase):
            if span in self.nobody:
                break
            parents = [] if last is None else [last]
            last = self._node(
                COLLECTIVE,
                index,
                phase,
                parents,
                comm_type=comm_type,
                size_bytes=step.size_bytes,
                span=span,
                word=f"{word}_{step.group}" if step.group else word,
            )
        if last is not None and last != compute and self.rules.update_time and layer.update_time:
            last = self._node(UPDATE, index, phase, [last], time=layer.update_time)
        return -1 if last is None else last

    def _meaning(self, word: str, phase: Phase) -> tuple[tuple[str, int], ...]:
        if self.rules.none_is_all_reduce:
            if (
                word == CommWord.NONE
                and phase is Phase.WEIGHT_GRADIENT
                and self.workload.policy.startswith("HYBRID_DLRM")
            ):
                return ()
            known = COLLECTIVES.get(word, ())
            return ((word, known[0][1] if len(known) == 1 else 0),)
        return COLLECTIVES[word]

    def _node(
        self,
        kind: int,
        index: int,
        phase: Phase,
        parents: list[int],
        *,
        time: int = 0,
        comm_type: int = -1,
        size_bytes: int = 0,
        span: Span = Span.NOBODY,
        word: str = "",
    ) -> int:
        self.kind.append(kind)
        self.layer.append(index)
        self.phase.append(PHASES.index(phase))
        self.time.append(time)
        self.comm_type.append(comm_type)
        self.size_bytes.append(size_bytes)
        self.span.append(SPANS.index(span))
        self.word.append(word)
        self.parents.append(list(dict.fromkeys(parents)))
        return len(self.kind) - 1


def step_of(layer: Layer, phase: Phase) -> Step:
    """The compute and communication of a layer in a phase."""
    if phase is Phase.WEIGHT_GRADIENT:
        return layer.weight_gradient
    return layer.input_gradient if phase is Phase.INPUT_GRADIENT else layer.forward


def backward_order(order: Backward, n_layers: int) -> Iterator[tuple[Phase, int]]:
    """Backward computes of a pass in the order in which the NPU's one compute engine runs them."""
    for index in range(n_layers - 1, -1, -1):
        if order is Backward.WEIGHT_FIRST:
            yield Phase.WEIGHT_GRADIENT, index
            if index:
                yield Phase.INPUT_GRADIENT, index
        else:
            if index or order is Backward.INPUT_FIRST:
                yield Phase.INPUT_GRADIENT, index
            yield Phase.WEIGHT_GRADIENT, index
