"""What recorded operators of PyTorch compute, from the shapes of their inputs: the operators of `chakra.et.operators`.

Sources: PyTorch's operator schemas (``aten::mm(Tensor self, Tensor mat2)`` and its like). Inputs are as execution traces
hold them: JSON text of shapes and of types, an entry each.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

from chakra.et.operators import (
    ELEMENT_BITS,
    Attention,
    Computed,
    Direction,
    Kernel,
    KernelKind,
    MatrixProduct,
)

#: PyTorch's element types
_TYPES = {
    "c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32", "double": "fp64", "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8", "signed char": "int8", "unsigned char": "int8",
}  # fmt: skip
_WIDE = {"long int": 64, "int": 32, "bool": 8}
_KINDS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"norm", KernelKind.NORM),
        (r"softmax|cross_entropy|nll_loss", KernelKind.LOSS),
        (r"embedding|index_select|gather", KernelKind.EMBEDDING),
        (r"adam|optimizer|_foreach|sgd", KernelKind.OPTIMIZER),
        (r"gelu|relu|silu|sigmoid|tanh", KernelKind.ACTIVATION),
        (r"::(add|sub|mul|div|dropout)", KernelKind.ADD),
        (r"pool", KernelKind.POOL),
    )
)


class _Inputs:
    """Shapes and element types of an operator's tensors, in order."""

    def __init__(self, shapes: list[Any], types: list[Any]) -> None:
        self.tensors: list[tuple[tuple[int, ...], str]] = []
        for shape, kind in zip(shapes, types, strict=False):
            found = re.fullmatch(r"Tensor\((.+)\)", str(kind))
            if found and isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape):
                self.tensors.append((tuple(shape), found[1]))

    def matrices(self, least: int = 2) -> list[tuple[tuple[int, ...], str]]:
        """Tensors of at least so many dimensions."""
        return [tensor for tensor in self.tensors if len(tensor[0]) >= least]

    @property
    def moved_bytes(self) -> int:
        """Bytes of all tensors, the largest twice: what comes in, and a result like it."""
        sizes = [prod(shape) * _bits(kind) // 8 for shape, kind in self.tensors]
        return sum(sizes) + max(sizes, default=0)


def _bits(kind: str) -> int:
    return int(ELEMENT_BITS[_TYPES[kind]]) if kind in _TYPES else _WIDE.get(kind, 32)


@lru_cache(maxsize=1 << 15)
def recorded_operator(name: str, shapes: str, types: str) -> Computed | None:
    """What a recorded operator computes; None where its inputs do not say it.

    Parameters
    ----------
    name
        Name of the operator, ``aten::mm``.
    shapes, types
        JSON text of its inputs' shapes and types.

    Examples
    --------
    >>> made = recorded_operator("aten::mm", "[[2048,512],[512,8192]]", '["Tensor(float)","Tensor(float)"]')
    >>> made.m, made.n, made.k, made.type
    (2048, 8192, 512, 'fp32')
    """
    try:
        given = _Inputs(json.loads(shapes), json.loads(types))
    except (ValueError, TypeError, RecursionError):
        return None
    short = name.removeprefix("aten::")
    made = next((make(given) for pattern, make in _MAKERS if pattern.fullmatch(short)), None)
    if made is not None:
        return made
    if not given.tensors or _ANY_PRODUCT.search(short):
        return None
    moved = given.moved_bytes
    kind = next((kind for pattern, kind in _KINDS if pattern.search(name)), KernelKind.COPY)
    return Kernel(kind, max(prod(shape) for shape, _ in given.tensors), moved)


def _product(given: _Inputs) -> Computed | None:
    """(m x k)(k x n); a bias may stand before or behind."""
    found = [tensor for tensor in given.matrices() if len(tensor[0]) == 2]
    for (left, kind), (right, _) in pairwise(found):
        if left[1] == right[0]:
            return _made(1, left[0], right[1], left[1], kind)
    return None


def _linear(given: _Inputs) -> Computed | None:
    """Rows of any shape times the transposed weight."""
    found = given.matrices()
    if len(found) < 2 or len(found[1][0]) != 2 or found[0][0][-1] != found[1][0][1]:
        return None
    (left, kind), (right, _) = found[:2]
    return _made(1, prod(left[:-1]), right[0], right[1], kind)


def _batched(given: _Inputs) -> Computed | None:
    found = [tensor for tensor in given.matrices(3) if len(tensor[0]) == 3]
    for (left, kind), (right, _) in pairwise(found):
        if left[0] == right[0] and left[2] == right[1]:
            return _made(left[0], left[1], right[2], left[2], kind)
    return None


def _made(batch: int, m: int, n: int, k: int, kind: str) -> Computed | None:
    if min(batch, m, n, k) < 1 or kind not in _TYPES:
        return None
    return MatrixProduct(m=m, n=n, k=k, batch=batch, type=_TYPES[kind])


def _attention(direction: Direction, skipped: int) -> Callable[[_Inputs], Computed | None]:
    """Queries, keys and values of (batch, heads, length, size), behind so many other tensors of that form."""

    def make(given: _Inputs) -> Computed | None:
        found = [tensor for tensor in given.matrices(4) if len(tensor[0]) == 4][skipped:]
        if len(found) < 3 or found[0][1] not in _TYPES:
            return None
        (queries, kind), (keys, _), (values, _) = found[:3]
        if min(*queries, *keys, *values) < 1 or queries[0] != keys[0] or queries[3] != keys[3]:
            return None
        return Attention(
            batch=queries[0], heads=queries[1], kv_heads=keys[1], queries=queries[2], keys=keys[2], head=queries[3],
            value_head=values[3] if values[3] != queries[3] else 0, type=_TYPES[kind], direction=direction,
        )  # fmt: skip

    return make


_MAKERS: tuple[tuple[re.Pattern[str], Callable[[_Inputs], Computed | None]], ...] = (
    (re.compile(r"mm|addmm|_addmm_activation|_scaled_mm|_int_mm"), _product),
    (re.compile(r"linear"), _linear),
    (re.compile(r"bmm|baddbmm"), _batched),
    (re.compile(r"matmul"), lambda given: _batched(given) or _product(given)),
    (
        re.compile(r"_?scaled_dot_product\w*attention|_(flash|efficient|cudnn)_attention_forward"),
        _attention(Direction.FORWARD, 0),
    ),
    (
        re.compile(r"_scaled_dot_product\w*backward|_(flash|efficient|cudnn)_attention_backward"),
        _attention(Direction.BACKWARD, 1),
    ),
)
#: operators that multiply matrices in a form that is not read here: what bounds them is not the memory
_ANY_PRODUCT = re.compile(r"mm$|matmul|conv|attention|linear|einsum|lstm|gru")
