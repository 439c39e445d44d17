"""The placement algebra: which collective turns a tensor laid out one way into the layout that its consumer needs.

Every parallel axis places a tensor in one of three ways: split along one of its dimensions (:class:`Shard`), whole
on every rank (:data:`REPLICATE`), or as terms of a sum still to be formed (:data:`PARTIAL`). For one axis:

============  ==========================  ==============  ===========
from \\ to    shard                       replicate       partial
============  ==========================  ==============  ===========
shard         same dimension: nothing;    all-gather      impossible
              other: all-to-all
replicate     local slice                 nothing         impossible
partial       reduce-scatter              all-reduce      nothing
============  ==========================  ==============  ===========

Axes that make the same transition are joined into one collective over their product. Sizes are local bytes, so a
conversion knows what each rank brings in (Chakra's ``comm_size``) and what it has afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from chakra.errors import UsageError
from chakra.io.readable import counted
from chakra.replay.config.model import CollectiveKind


@dataclass(frozen=True, slots=True)
class Shard:
    """Split along the named dimension (``"sequence"``, ``"hidden"``, ``"vocabulary"``, ...)."""

    dim: str


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole on every rank of the axis."""


@dataclass(frozen=True, slots=True)
class Term:
    """A term of a sum over the ranks of the axis."""


Placement = Shard | Whole | Term
REPLICATE = Whole()
PARTIAL = Term()

#: placement per axis; an axis that is absent plays no part in the tensor
Placements = Mapping[str, Placement]


@dataclass(frozen=True, slots=True)
class Conversion:
    """One collective of a layout change.

    ``size_bytes`` is what each rank brings in, ``result_bytes`` what it has afterwards, ``axes`` the parallel axes
    whose product group takes part. ``sent`` and ``received`` are bytes to and from each member where they are not even.
    """

    kind: CollectiveKind
    axes: tuple[str, ...]
    size_bytes: int
    result_bytes: int
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Shares:
    """Bytes that a rank sends to and receives from each member in the all-to-all of a layout change."""

    sent: tuple[int, ...]
    received: tuple[int, ...]

    def back(self) -> "Shares":
        """Those of the way back."""
        return Shares(self.received, self.sent)


#: reductions first and gathers last, so that the sizes in between are smallest
_ORDER = (
    None,  # local slice
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
)


def _transition(axis: str, have: Placement, need: Placement) -> CollectiveKind | str | None:
    """Collective of one axis, None for a local slice, ``""`` for nothing to do."""
    if have == need:
        return ""
    if isinstance(need, Term):
        raise UsageError(f"axis {axis}: a tensor that is {have} cannot become a term of a sum")
    if isinstance(have, Term):
        return CollectiveKind.REDUCE_SCATTER if isinstance(need, Shard) else CollectiveKind.ALL_REDUCE
    if isinstance(have, Shard):
        return CollectiveKind.ALL_TO_ALL if isinstance(need, Shard) else CollectiveKind.ALL_GATHER
    return None


def convert(
    have: Placements,
    need: Placements,
    size_bytes: int,
    axis_sizes: Mapping[str, int],
    shares: Shares | None = None,
) -> tuple[Conversion, ...]:
    """Collectives that turn layout ``have`` into layout ``need``.

    Parameters
    ----------
    have, need
        Placement on each axis; an axis missing on one side counts as placed alike on both.
    size_bytes
        Local bytes of the tensor as it is placed by ``have``.
    axis_sizes
        Ranks per axis; axes of one rank need no communication.
    shares
        What goes to and comes from each member of the all-to-all, where that is not even.

    Returns
    -------
    tuple of Conversion
        In the order in which they run; empty when the layouts agree.

    Raises
    ------
    UsageError
        An impossible transition, or a size that does not divide by the ranks that split it.
    """
    steps: dict[tuple[int, Placement, Placement], list[str]] = {}
    for axis, wanted in need.items():
        held = have.get(axis, wanted)
        if axis_sizes.get(axis, 1) == 1:
            continue
        kind = _transition(axis, held, wanted)
        if kind != "":
            steps.setdefault((_ORDER.index(kind), held, wanted), []).append(axis)
    conversions = []
    size = size_bytes
    for (order, _, _), axes in sorted(steps.items(), key=lambda step: step[0][0]):
        kind = _ORDER[order]
        if shares is not None and not size and kind is not CollectiveKind.ALL_TO_ALL:
            # nothing comes to these ranks, nor to the others of such a group
            continue
        ranks = prod(axis_sizes[axis] for axis in axes)
        result = size
        if kind is CollectiveKind.ALL_GATHER:
            result = size * ranks
        elif kind in (None, CollectiveKind.REDUCE_SCATTER):
            if size % ranks:
                raise UsageError(
                    f"{size} bytes do not divide among the {counted(ranks, 'rank')} of {' x '.join(axes)}"
                )
            result = size // ranks
        if kind is CollectiveKind.ALL_TO_ALL and shares is not None:
            result = sum(shares.received)
            conversions.append(Conversion(kind, tuple(axes), size, result, shares.sent, shares.received))
        elif isinstance(kind, CollectiveKind):
            conversions.append(Conversion(kind, tuple(axes), size, result))
        size = result
    return tuple(conversions)


def gradient_need(have: Placements) -> dict[str, Placement]:
    """Layout that the producer of a tensor needs its gradient in: the dual of the layout it produced.

    A term of a sum gets the whole gradient (the sum's derivative is one); shards and whole tensors keep their layout.
    """
    return {axis: REPLICATE if isinstance(place, Term) else place for axis, place in have.items()}


def joined(axes: Sequence[str]) -> str:
    """Group name of a product of axes, such as ``dp_cp``."""
    return "_".join(axes)
