"""Which NPUs a collective joins, said in terms of network dimensions or of communicator groups.

A span is resolved once for the whole file. Inner groups are runs of neighbouring ranks, outer groups take one
rank of each run (trace formats, section 3.2). Where the boundary between the two is a boundary between
network dimensions the collective can say so by ``involved_dim``: all NPUs then have the same file and a
collective keeps its algorithm per dimension. Otherwise groups are named, and each rank names its own.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np

from chakra.arrays import I64
from chakra.converters.text.grammar import CommWord, Phase, Step, TextWorkload
from chakra.converters.text.passes import span_of
from chakra.converters.text.policies import POLICIES, Header, Policy, Span
from chakra.errors import ConversionError, UsageError
from chakra.io.readable import counted


class Style(Enum):
    """How a collective that joins part of the NPUs says so."""

    AUTO = auto()  # dimensions where they can say it, else groups
    DIMS = auto()
    GROUPS = auto()


@dataclass(frozen=True, slots=True)
class Everyone:
    """All NPUs; nothing need be said."""


@dataclass(frozen=True, slots=True)
class Nobody:
    """One NPU: there is nothing to communicate."""


@dataclass(frozen=True, slots=True)
class Dims:
    """All NPUs that differ in these network dimensions only."""

    involved: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class EvenGroups:
    """Communicator groups: runs of ``inner`` neighbouring ranks, or with ``outer`` one rank of each run.

    With ``block`` one rank of each run of a block of neighbouring ranks.
    """

    inner: int
    outer: bool
    #: neighbouring ranks within which the groups lie; 0: all
    block: int = 0


Members = Everyone | Nobody | Dims | EvenGroups

HOW_TO_SAY = "give --network FILE (dimension 0 is the inner group) or --model-parallel N"

#: Which spans lie inside and which across; the value tells whether the model-parallel group is the inner one.
_INNER = {Span.MODEL_INNER: True, Span.DATA_INNER: False}
_OUTER = {Span.DATA_OUTER: True, Span.MODEL_OUTER: False}


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of the machine that the traces are for.

    Attributes
    ----------
    npus
        Number of NPUs.
    dims
        Sizes of the network's dimensions, dimension 0 varies fastest; None if no network was given.
    model_parallel
        NPUs that share one model replica, from the option; None if not given.
    """

    npus: int
    dims: tuple[int, ...] | None = None
    model_parallel: int | None = None


def spans_used(workload: TextWorkload, policy: Policy) -> tuple[Span, ...]:
    """Spans that any collective of the workload may have."""
    if workload.layout is not None:
        return (Span.MODEL_INNER, Span.DATA_OUTER, Span.EXPERT, Span.EXPERT_DATA)
    if not policy.per_layer:
        return tuple(dict.fromkeys(span_of(workload, policy, 0, phase) for phase in Phase)) + tuple(
            dict.fromkeys((policy.span, policy.weight_span))
        )
    return tuple(
        dict.fromkeys(
            span_of(workload, policy, index, phase)
            for index in range(len(workload.layers))
            for phase in (Phase.FORWARD, Phase.WEIGHT_GRADIENT)
        )
    )


def sizes_unknown(workload: TextWorkload, policy: Policy, machine: Machine) -> bool:
    """Whether nothing says how large the groups of some span are; with `Style.AUTO` it then joins all "
    "NPUs."""
    return (
        workload.layout is None
        and machine.npus > 1
        and any(
            (span in _INNER or span in _OUTER) and _inner_size(span, workload, machine) is None
            for span in spans_used(workload, policy)
        )
    )


def resolve_spans(
    workload: TextWorkload, policy: Policy, machine: Machine, style: Style = Style.AUTO
) -> dict[Span, Members]:
    """Say for every span of a workload which NPUs it joins.

    Raises
    ------
    ConversionError
        If the size of the model-parallel groups does not divide the NPUs.
    UsageError
        If dimensions are asked for and cannot say it, or groups whose size nothing says.
    """
    resolve = _resolve if workload.layout is None else _resolve_layout
    return {
        span: resolve(span, workload, machine, style)
        for span in dict.fromkeys((*spans_used(workload, policy), Span.NOBODY))
    }


def _resolve(span: Span, workload: TextWorkload, machine: Machine, style: Style) -> Members:
    if span is Span.NOBODY or machine.npus == 1:
        return Nobody()
    if span is Span.ALL:
        return _everyone(machine)
    inner = _inner_size(span, workload, machine)
    outer = span in _OUTER
    if inner is None:
        if style is Style.AUTO:
            return Everyone()
        raise UsageError(
            f"{workload.source}: {workload.policy} splits the {counted(machine.npus, 'NPU')} into model- and "
            f"data-parallel groups of unknown size; {HOW_TO_SAY}"
        )
    size = machine.npus // inner if outer else inner
    if size == 1:
        return Nobody()
    if size == machine.npus:
        return Everyone()
    if style is not Style.GROUPS and machine.dims is not None:
        boundary = _boundary(machine.dims, inner)
        if boundary is not None:
            return Dims(tuple((k < boundary) is not outer for k in range(len(machine.dims))))
    if style is Style.DIMS:
        where = "no network is given" if machine.dims is None else f"none of {list(machine.dims)} ends there"
        raise UsageError(
            f"{workload.source}: groups of {counted(inner, 'neighbouring NPU')} cannot be said by network dimensions "
            f"({where}); "
            f"use --span groups"
        )
    return EvenGroups(inner, outer)


def _everyone(machine: Machine) -> Members:
    """All NPUs; simulators take the first four dimensions where nothing is said."""
    dims = machine.dims
    return Dims((True,) * len(dims)) if dims is not None and len(dims) > 4 else Everyone()


def _resolve_layout(span: Span, workload: TextWorkload, machine: Machine, style: Style) -> Members:
    """The same where the header says the job's layout: ranks of a stage are ordered tp, ep, and the rest of dp."""
    layout = workload.layout
    assert layout is not None
    if span is Span.NOBODY:
        return Nobody()
    npus, tp = machine.npus, layout.tp
    held = tp * layout.ep
    stride, end = {
        Span.MODEL_INNER: (1, tp),
        Span.DATA_OUTER: (tp, npus),
        Span.EXPERT: (tp, held),
        Span.EXPERT_DATA: (held, npus),
    }[span]
    if end == stride:
        return Nobody()
    if (stride, end) == (1, npus):
        return _everyone(machine)
    if style is not Style.GROUPS and machine.dims is not None:
        first, last = (_boundary((*machine.dims, 1), size) for size in (stride, end))
        if first is not None and last is not None:
            return Dims(tuple(first <= k < last for k in range(len(machine.dims))))
    if style is Style.DIMS:
        where = "no network is given" if machine.dims is None else f"none of {list(machine.dims)} ends there"
        raise UsageError(
            f"{workload.source}: groups of every {stride}th of {counted(end, 'NPU')} cannot be said by network "
            "dimensions "
            f"({where}); use --span groups"
        )
    if stride == 1:
        return EvenGroups(end, outer=False)
    return EvenGroups(stride, outer=True, block=0 if end == npus else end)


def check_layout(workload: TextWorkload, machine: Machine) -> None:
    """Refuse a number of NPUs or of model-parallel ranks that contradicts a SimAI header.

    Raises
    ------
    ConversionError
        Naming what the header says, and the number of NPUs that fits.
    """
    layout = workload.layout
    if layout is None:
        return
    where = f"{workload.source}: line 1"
    if layout.stage is not None and machine.npus != layout.stage:
        raise ConversionError(
            f"{where}: all_gpus is {layout.all_gpus} and pp {layout.pp}, and the rows are one stage's: "
            f"{counted(layout.stage, 'NPU')}, not {machine.npus}"
        )
    if machine.npus % (layout.tp * layout.ep):
        raise ConversionError(
            f"{where}: model_parallel_NPU_group x ep is {layout.tp * layout.ep}, which does not divide the "
            f"{counted(machine.npus, 'NPU')} of a stage"
        )
    if machine.model_parallel not in (None, layout.tp):
        raise ConversionError(
            f"{where}: model_parallel_NPU_group is {layout.tp}, and --model-parallel {machine.model_parallel}"
        )


def with_shards(workload: TextWorkload, npus: int) -> TextWorkload:
    """A workload whose all-gathers say what a rank brings in; SimAI's say what it gets.

    A size that the members do not divide is rounded up.
    """
    layout = workload.layout
    if layout is None:
        return workload
    data = npus // layout.tp

    def step(one: Step, plain: int) -> Step:
        if one.word != CommWord.ALL_GATHER:
            return one
        members = {"": plain, "EP": layout.ep, "DP_EP": data // layout.ep}[one.group]
        return replace(one, size_bytes=-(-one.size_bytes // members))

    layers = tuple(
        replace(
            layer,
            forward=step(layer.forward, layout.tp),
            input_gradient=step(layer.input_gradient, layout.tp),
            weight_gradient=step(layer.weight_gradient, data),
        )
        for layer in workload.layers
    )
    return replace(workload, layers=layers)


def _boundary(dims: tuple[int, ...], inner: int) -> int | None:
    """Number of dimensions whose product is ``inner``, or None."""
    product = 1
    for k, size in enumerate(dims):
        if product == inner:
            return k
        product *= size
    return None


def _inner_size(span: Span, workload: TextWorkload, machine: Machine) -> int | None:
    """Number of neighbouring ranks in an inner group; None if nothing says it."""
    group = machine.model_parallel
    if group is None and POLICIES[workload.policy].header in (Header.GROUP, Header.GROUP_AND_CHECKPOINTS):
        group = workload.model_parallel
    if group is not None:
        if machine.npus % group:
            told = "--model-parallel" if machine.model_parallel is not None else "model_parallel_NPU_group"
            raise ConversionError(
                f"{workload.source}: {told} {group} does not divide the {counted(machine.npus, 'NPU')}; give "
                f"--model-parallel N with "
                f"N among {_divisors(machine.npus)}"
            )
        return group if {**_INNER, **_OUTER}[span] else machine.npus // group
    return None if machine.dims is None else machine.dims[0]


def _divisors(number: int) -> str:
    found = [k for k in range(1, min(number, 1 << 20) + 1) if number % k == 0]
    return ", ".join(map(str, found if len(found) <= 16 else [*found[:15], "..."]))


class SpanGroups:
    """Numbers for the communicator groups of a workload: decimal, positive and all of the same length.

    Equal lengths let the files of all ranks be made from one by exchanging digits.
    """

    def __init__(self, npus: int, members: dict[Span, Members]) -> None:
        self.npus = npus
        self.kinds: tuple[EvenGroups, ...] = tuple(
            dict.fromkeys(item for item in members.values() if isinstance(item, EvenGroups))
        )
        counts = [self._count(kind) for kind in self.kinds]
        total = sum(counts)
        first = 1
        self.digits: int = 1
        while total > 9 * first:
            first *= 10
            self.digits += 1
        self._first: dict[EvenGroups, int] = {}
        for kind, count in zip(self.kinds, counts, strict=True):
            self._first[kind] = first
            first += count

    def _count(self, kind: EvenGroups) -> int:
        """Number of groups of a kind."""
        if not kind.outer:
            return self.npus // kind.inner
        return kind.inner * (self.npus // (kind.block or self.npus))

    def number_of(self, kind: EvenGroups) -> I64:
        """(npus,) int64: the number of the group of this kind that each rank belongs to."""
        ranks = np.arange(self.npus, dtype=np.int64)
        if not kind.outer:
            return self._first[kind] + ranks // kind.inner
        return self._first[kind] + ranks // (kind.block or self.npus) * kind.inner + ranks % kind.inner

    def to_dict(self) -> dict[str, list[int]]:
        """The communicator-group file's content: group number as text, its ranks in ascending order."""
        groups: dict[str, list[int]] = {}
        for kind in self.kinds:
            first, inner = self._first[kind], kind.inner
            if kind.outer:
                block = kind.block or self.npus
                for start in range(0, self.npus, block):
                    for k in range(inner):
                        number = first + start // block * inner + k
                        groups[str(number)] = list(range(start + k, start + block, inner))
            else:
                for k in range(self.npus // inner):
                    groups[str(first + k)] = list(range(k * inner, (k + 1) * inner))
        return groups
