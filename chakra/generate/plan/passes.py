"""Forward and backward passes of a layer as nodes. The backward pass is derived from the operators, never written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from chakra.et.operators import Attention
from chakra.generate.model.ir import INPUT, MEMORY, Edge, Layer, Operator, Work
from chakra.generate.model.placement import Conversion, convert, gradient_need
from chakra.generate.plan.template import TemplateBuilder


class Kept(Enum):
    """What a forward pass keeps for the backward pass: all, all but attention scores, the layer's input, nothing."""

    ALL = "all"
    NO_CORE = "no core"
    INPUT = "input"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class PassContext:
    """Where a layer's nodes go.

    ``ring_tags`` gives each ring exchange of a layer its own range of tags: tag base = first + number * stride.
    ``memory`` are the nodes that the encoder's output waits for; a backward pass appends those that its gradient waits
    for to ``memory_gradient``.
    """

    builder: TemplateBuilder
    axis_sizes: Mapping[str, int]
    ring_tag_first: int = 0
    ring_tag_stride: int = 1
    memory: Sequence[int] = ()
    memory_gradient: list[int] = field(default_factory=list)

    def source(self, edge: Edge, inputs: Sequence[int], outputs: Sequence[list[int]]) -> Sequence[int]:
        """Nodes that an edge's tensor waits for, of a layer with these inputs and the outputs so far."""
        if edge.producer == MEMORY:
            return self.memory
        return inputs if edge.producer == INPUT else outputs[edge.producer]


def edge_conversion(edge: Edge, axis_sizes: Mapping[str, int]) -> tuple[Conversion, ...]:
    """Collectives of an edge in the forward pass."""
    return convert(edge.have, edge.need, edge.size_bytes, axis_sizes, edge.shares)


def gradient_conversion(edge: Edge, axis_sizes: Mapping[str, int]) -> tuple[Conversion, ...]:
    """Collectives that bring the consumer's gradient into the layout that the producer needs."""
    if edge.grad is None:
        return ()
    size = edge.size_bytes
    for step in edge_conversion(edge, axis_sizes):
        size = step.result_bytes
    back = edge.shares.back() if edge.shares else None
    return convert(edge.grad, gradient_need(edge.have), size, axis_sizes, back)


def forward(
    context: PassContext, layer: Layer, inputs: Sequence[int], *, prefix: str = "", kept: Kept = Kept.ALL
) -> list[int]:
    """Append a layer's forward pass; returns the nodes that its output waits for."""
    builder = context.builder
    outputs: list[list[int]] = []
    for number, op in enumerate(layer.operators):
        name = f"{prefix}{layer.name}.{op.name}"
        data: list[int] = []
        for edge in op.edges:
            source = context.source(edge, inputs, outputs)
            data += builder.convert(name, edge_conversion(edge, context.axis_sizes), source)
        if op.counted:
            builder.host_reads()
        if op.ring:
            outputs.append([_ring(context, name, number, op, op.forward, data, op.ring.forward_bytes)])
        elif op.forward:
            outputs.append([builder.compute(name, op.kind, op.forward, data)])
        else:
            outputs.append(data)
        size = kept_bytes(op, kept)
        if size and builder.last_compute >= 0:
            builder.template.saves.append((builder.last_compute, name, size))
    if kept is Kept.INPUT and layer.input_bytes:
        builder.template.saves.append(
            (max(0, builder.last_compute), f"{layer.name}.input", layer.input_bytes)
        )
    return outputs[-1]


def kept_bytes(op: Operator, kept: Kept) -> int:
    """Bytes of an operator's activations that stay until its backward."""
    if kept is Kept.ALL:
        return op.saved_bytes
    return op.saved_bytes - op.core_bytes if kept is Kept.NO_CORE else 0


def backward(
    context: PassContext,
    layer: Layer,
    gradient: Sequence[int],
    *,
    split: bool = False,
    selective: bool = False,
    prefix: str = "",
) -> list[int]:
    """Append a layer's backward pass: gradients of inputs and, unless ``split``, of weights.

    Returns the nodes that the gradient of the layer's input waits for. Gradients of weights come right after the
    gradient of the same operator's input, so that its collectives run beside them.
    """
    builder = context.builder
    arriving: list[list[int] | None] = [None] * len(layer.operators)
    arriving[-1] = list(gradient)
    result: list[int] = []
    for number in range(len(layer.operators) - 1, -1, -1):
        op, data = layer.operators[number], arriving[number]
        if data is None:
            continue
        name = f"{layer.name}.{op.name}"
        again = [] if split else _regather(context, name, op, data)
        if op.core and selective:
            data = [builder.compute(f"{name}.recompute", op.kind, op.forward, data)]
        after = data
        if op.ring:
            after = [
                _ring(context, f"{name}.dgrad", number, op, op.backward_input, data, op.ring.backward_bytes)
            ]
        elif op.backward_input:
            # an operator without weights needs what it gathers again for its only gradient
            needs = data if op.backward_weight else [*data, *again]
            after = [builder.compute(f"{name}.dgrad", op.kind, op.backward_input, needs)]
        for edge in op.edges:
            if edge.grad is None:
                continue
            steps = gradient_conversion(edge, context.axis_sizes)
            landed = builder.convert(f"{name}.dgrad", steps, after)
            if edge.producer == MEMORY:
                context.memory_gradient.extend(landed)
            elif edge.producer == INPUT:
                result = _joined(builder, result, landed)
            else:
                arriving[edge.producer] = _joined(builder, arriving[edge.producer] or [], landed)
        if op.backward_weight and not split:
            builder.compute(f"{name}.wgrad", op.kind, op.backward_weight, [*data, *again])
        if op.saved_bytes and not (split and op.backward_weight):
            builder.template.frees.append((builder.last_compute, f"{prefix}{name}"))
    return sorted(set(result))


def _joined(builder: TemplateBuilder, known: Sequence[int], landed: Sequence[int]) -> list[int]:
    """Nodes that the sum of two gradients waits for, without known ones that the landed ones wait for themselves.

    A gradient that goes around a branch and through it meets itself behind the branch. Were it kept, every layer would
    wait for all behind it one by one.
    """
    left = set(known) - set(landed)
    if not left:
        return list(landed)
    first, template = min(left), builder.template
    waiting, seen = [*landed], set(landed)
    while waiting:
        node = waiting.pop()
        if node < 0:  # of another pass
            continue
        for before in (*template.data[node], *template.ctrl[node]):
            left.discard(before)
            if before > first and before not in seen:
                seen.add(before)
                waiting.append(before)
    return [*(node for node in known if node in left), *landed]


def weight_gradients(context: PassContext, layer: Layer, *, prefix: str = "") -> None:
    """Append the gradients of a layer's weights alone (the W action of zero-bubble schedules)."""
    for op in reversed(layer.operators):
        if op.backward_weight:
            name = f"{layer.name}.{op.name}"
            again = _regather(context, name, op, [])
            context.builder.compute(f"{name}.wgrad", op.kind, op.backward_weight, again)
            if op.saved_bytes:
                context.builder.template.frees.append((context.builder.last_compute, f"{prefix}{name}"))


def _regather(context: PassContext, name: str, op: Operator, data: Sequence[int]) -> list[int]:
    out: list[int] = []
    for edge in op.edges:
        if edge.regather:
            steps = edge_conversion(edge, context.axis_sizes)
            out += context.builder.convert(f"{name}.regather", steps, data) if steps else []
    return out


def _ring(
    context: PassContext,
    name: str,
    number: int,
    op: Operator,
    work: Work,
    data: Sequence[int],
    size_bytes: int,
) -> int:
    """Attention over a ring: at every step compute on one block while the next block arrives; last compute node."""
    ring = op.ring
    assert ring is not None
    builder = context.builder
    parts = ring.steps + 1
    what = replace(work.what, parts=work.what.parts * parts) if isinstance(work.what, Attention) else None
    builder.reserve(3 * ring.steps)
    held = list(data)
    last = -1
    for part in range(parts):
        arrived: list[int] = []
        if part < ring.steps:
            tag = context.ring_tag_first + (number * ring.steps + part) * context.ring_tag_stride
            builder.send(f"{name}.ring{part}.send", ring.axis, 1, size_bytes, tag, held)
            arrived = [builder.receive(f"{name}.ring{part}.recv", ring.axis, -1, size_bytes, tag)]
        share = Work(_share(work.flops, parts, part), _share(work.bytes, parts, part), what=what)
        last = builder.compute(f"{name}.block{part}", op.kind, share, held)
        held = arrived
    return last


def _share(total: int, parts: int, part: int) -> int:
    """Part ``part`` of ``total`` cut into near-equal integers that add up to it."""
    return total * (part + 1) // parts - total * part // parts
