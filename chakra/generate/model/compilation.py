"""Compiled models: memory-bound operators that follow each other become one kernel (``--compiled``).

What a compiler such as torch.compile changes in a layer: an operator whose input was made by the operator before it, with
no communication between, reads it from registers. The tensor between them is not read from memory, and not written if
nobody else needs it; backward the same holds for its gradient. Each memory-bound operator becomes one kernel of the kind
``fused``, for which a program's own factors on eager kernels do not count. Matrix products, attention, lookups and the
optimizer stay as they are.
"""

from collections.abc import Mapping
from dataclasses import replace

from chakra.et.operators import Direction, Kernel, KernelKind
from chakra.generate.model.ir import NO_WORK, Edge, Layer, Operator, OpKind, Work
from chakra.generate.model.placement import convert
from chakra.generate.model.stage_model import StageModel

#: kernels that compilers make of their own; others are calls of libraries
_MADE = (
    KernelKind.NORM, KernelKind.ACTIVATION, KernelKind.CLAMPED, KernelKind.BIAS, KernelKind.ROPE, KernelKind.ADD,
    KernelKind.LOSS,
)  # fmt: skip


def compiled(model: StageModel, axis_sizes: Mapping[str, int]) -> StageModel:
    """A model with the memory-bound operators of each layer merged; layers of one kind are merged once."""
    # layers of one kind share their operators
    known: dict[int, tuple[Operator, ...]] = {}

    def layer(old: Layer) -> Layer:
        key = id(old.operators)
        if key not in known:
            known[key] = compiled_operators(old.operators, axis_sizes)
        return replace(old, operators=known[key])

    return replace(model, chunks=tuple(tuple(map(layer, chunk)) for chunk in model.chunks))


def compiled_operators(
    operators: tuple[Operator, ...], axis_sizes: Mapping[str, int]
) -> tuple[Operator, ...]:
    """Operators with runs of memory-bound ones merged."""
    groups: list[list[int]] = []
    for index in range(len(operators)):
        if groups and _joins(operators, groups[-1], index, axis_sizes):
            groups[-1].append(index)
        else:
            groups.append([index])
    place = {index: number for number, group in enumerate(groups) for index in group}
    return tuple(_merged(operators, group, place) for group in groups)


def _is_made(operator: Operator) -> bool:
    what = operator.forward.what
    return operator.kind is OpKind.ELEMENTWISE and isinstance(what, Kernel) and what.kind in _MADE


def _joins(
    operators: tuple[Operator, ...], group: list[int], index: int, axis_sizes: Mapping[str, int]
) -> bool:
    """Whether an operator can be computed in the kernel of the group before it."""
    if not (_is_made(operators[group[0]]) and _is_made(operators[index])):
        return False
    inner = [edge for edge in operators[index].edges if edge.producer in group]
    return bool(inner) and not any(
        convert(edge.have, edge.need, edge.size_bytes, axis_sizes) for edge in inner
    )


def _merged(operators: tuple[Operator, ...], group: list[int], place: Mapping[int, int]) -> Operator:
    last = operators[group[-1]]
    outer: list[Edge] = []
    saved = back_saved = 0
    for index in group:
        for edge in operators[index].edges:
            if edge.producer not in group:
                outer.append(replace(edge, producer=place.get(edge.producer, edge.producer)))
                continue
            alone = _consumers(operators, edge.producer) == 1 and edge.producer != len(operators) - 1
            saved += edge.size_bytes * (2 if alone else 1)
            if edge.grad is not None and operators[edge.producer].backward_input:
                back_saved += edge.size_bytes * (2 if alone else 1)
    if not _is_made(last):
        return replace(last, edges=tuple(outer))
    parts = [operators[index] for index in group]
    return replace(
        last,
        name="_".join(part.name for part in parts),
        edges=tuple(outer),
        forward=_work([part.forward for part in parts], saved),
        backward_input=_work([part.backward_input for part in parts], back_saved),
        weights=tuple(weight for part in parts for weight in part.weights),
        saved_bytes=sum(part.saved_bytes for part in parts),
    )


def _consumers(operators: tuple[Operator, ...], producer: int) -> int:
    return sum(edge.producer == producer for operator in operators for edge in operator.edges)


def _work(works: list[Work], saved: int) -> Work:
    """Works of one kernel, without the bytes that stay in it."""
    total = sum(works[1:], works[0])
    whats = [work.what for work in works if isinstance(work.what, Kernel)]
    if not total or not whats:
        return NO_WORK
    moved = max(total.bytes - saved, 0)
    direction = whats[-1].direction if whats[-1].direction is Direction.FORWARD else Direction.BACKWARD
    what = Kernel(
        KernelKind.FUSED, max(what.elements for what in whats), moved, whats[-1].type, direction
    )  # fmt: skip
    return replace(total, bytes=moved, what=what)
