"""The parallelism policies as a table: who waits for whom, stated once.

``F(i)``, ``I(i)``, ``W(i)`` are the forward, input-gradient and weight-gradient computes of layer i, ``cF``,
``cI``, ``cW`` the collectives after them. The rows follow the training loops of ASTRA-sim 1.0
(``Workload.cc``); where a row chooses between readings the comment says so. `passes.py` turns a row into a
graph.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto


class Header(Enum):
    """What follows the policy word on the header line."""

    NOTHING = auto()
    LAST_BOTTOM_LAYER = auto()
    GROUP = auto()
    GROUP_AND_CHECKPOINTS = auto()


class Forward(Enum):
    """What F(i) waits for within its pass."""

    ABSENT = auto()  # no forward computes
    COMPUTE = auto()  # F(i-1)
    COLLECTIVE = auto()  # cF(i-1)


class Issue(Enum):
    """Which layers' collective of a kind is issued."""

    NEVER = auto()
    ALWAYS = auto()
    ALL_TO_ALL_ONLY = auto()  # layers whose word is ALLTOALL
    ALL_BUT_FIRST = auto()  # not layer 0: nobody needs the gradient of the model's input
    FIRST_FROM_TOP = auto()  # that of layer 0 alone, after I(B+1), B the last bottom layer


class Backward(Enum):
    """Order of the backward computes."""

    ABSENT = auto()
    COLLECTIVES_ONLY = auto()  # no computes; weight-gradient collectives by themselves
    WEIGHT_FIRST = auto()  # W(i), I(i) from the last layer down; no I(0)
    INPUT_FIRST = auto()  # I(i), W(i) from the last layer down
    INPUT_FIRST_BUT_LAST_TWO = auto()  # I(i), W(i) down to layer 1, then W(0); no I(0)


class Link(Enum):
    """What the forward computes of a pass wait for in the pass before."""

    WEIGHT_COLLECTIVE = auto()  # F(i) after cW(i)
    WEIGHT_COMPUTE = auto()  # F(i) after W(i)
    LAST_COMPUTE = auto()  # F(0) after W(0)
    FIRST_INPUT_COLLECTIVE = auto()  # F(0) after cI(0)
    LAST_FORWARD_COLLECTIVE = auto()  # F(0) after cF(L-1)


class Span(Enum):
    """The NPUs that a collective joins. *Inner* means neighbouring ranks (the lowest network dimensions)."""

    NOBODY = auto()
    ALL = auto()
    MODEL_INNER = auto()  # model-parallel group of neighbouring ranks ...
    DATA_OUTER = auto()  # ... and the data-parallel group across them
    EXPERT = (
        auto()
    )  # expert-parallel group: as many successive model-parallel groups, one rank of each (SimAI)
    EXPERT_DATA = auto()  # ranks that hold the same experts (SimAI)
    DATA_INNER = auto()  # data-parallel group of neighbouring ranks ...
    MODEL_OUTER = auto()  # ... and the model-parallel group across them


@dataclass(frozen=True, slots=True)
class Policy:
    """One row of the table."""

    forward: Forward
    backward: Backward
    issue_forward: Issue
    issue_input: Issue
    issue_weight: Issue
    links: tuple[Link, ...]
    #: NPUs joined by cF and cI, and by cW
    span: Span
    weight_span: Span
    header: Header = Header.NOTHING
    #: every layer names the policy whose spans it uses
    per_layer: bool = False
    #: I(i) also waits for cI(i+1)
    wait_input: bool = False
    #: W(i) waits for cI(i)
    wait_own_input: bool = False
    #: W(0) waits for cI(0)
    wait_first_input: bool = False
    #: layer B + this waits for cF(0), B the last bottom layer
    top_offset: int = 1
    #: links come before the dependency within the pass (only the order in the node)
    links_first: bool = False
    #: layers whose collective a pass without computes issues; None = all
    micro_layers: int | None = 1


_DATA = Policy(
    forward=Forward.COMPUTE,
    backward=Backward.WEIGHT_FIRST,
    issue_forward=Issue.NEVER,
    issue_input=Issue.NEVER,
    issue_weight=Issue.ALWAYS,
    links=(Link.WEIGHT_COLLECTIVE, Link.LAST_COMPUTE),
    span=Span.NOBODY,
    weight_span=Span.ALL,
)

_MODEL = Policy(
    forward=Forward.COLLECTIVE,
    backward=Backward.INPUT_FIRST,
    issue_forward=Issue.ALWAYS,
    issue_input=Issue.ALL_BUT_FIRST,
    issue_weight=Issue.NEVER,
    wait_input=True,
    links=(Link.LAST_COMPUTE,),
    span=Span.ALL,
    weight_span=Span.NOBODY,
)

_HYBRID_DATA_MODEL = replace(
    _MODEL,
    issue_weight=Issue.ALWAYS,
    links=(Link.WEIGHT_COLLECTIVE,),
    span=Span.MODEL_INNER,
    weight_span=Span.DATA_OUTER,
    links_first=True,
)

_HYBRID_TRANSFORMER = replace(
    _HYBRID_DATA_MODEL,
    issue_input=Issue.ALWAYS,
    links=(Link.WEIGHT_COLLECTIVE, Link.FIRST_INPUT_COLLECTIVE),
    header=Header.GROUP,
)

# Which layers issue cF is the words' matter; in 1.0 only layer 0 has dimensions to do it on. F(B) overlaps
# cF(0), the first top layer waits for it. 1.0 computes W(0) before it waits for cI(0); the data-flow reading,
# W(0) after cI(0), is used.
_HYBRID_DLRM = replace(
    _DATA,
    issue_forward=Issue.ALL_TO_ALL_ONLY,
    issue_input=Issue.FIRST_FROM_TOP,
    links=(Link.WEIGHT_COLLECTIVE,),
    wait_first_input=True,
    header=Header.LAST_BOTTOM_LAYER,
    links_first=True,
)

POLICIES: dict[str, Policy] = {
    "MICRO": replace(
        _DATA, forward=Forward.ABSENT, backward=Backward.COLLECTIVES_ONLY, links=(), micro_layers=1
    ),
    "DATA": _DATA,
    "DATA_REORDER": replace(_DATA, backward=Backward.INPUT_FIRST_BUT_LAST_TWO),
    "MODEL": _MODEL,
    "HYBRID_DATA_MODEL": _HYBRID_DATA_MODEL,
    "HYBRID_MODEL_DATA": replace(_HYBRID_DATA_MODEL, span=Span.MODEL_OUTER, weight_span=Span.DATA_INNER),
    "HYBRID_TRANSFORMER": _HYBRID_TRANSFORMER,
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": replace(_HYBRID_TRANSFORMER, header=Header.GROUP_AND_CHECKPOINTS),
    "HYBRID_DLRM": _HYBRID_DLRM,
    "HYBRID_DLRM_ENHANCED": replace(_HYBRID_DLRM, wait_first_input=False),
    "HYBRID_CUSTOMIZED": replace(_HYBRID_DATA_MODEL, per_layer=True),
    "DISTRIBUTED_INFERENCE": replace(
        _MODEL,
        backward=Backward.ABSENT,
        issue_input=Issue.NEVER,
        links=(Link.LAST_FORWARD_COLLECTIVE,),
    ),
}

#: SimAI's reading of the transformer policies: the input gradient's collective ends before the weight gradient begins.
#: The header is read by its labels.
SIMAI_POLICY = replace(_HYBRID_TRANSFORMER, wait_own_input=True)

_UPSTREAM_DLRM = replace(_HYBRID_DLRM, top_offset=0, span=Span.ALL)

#: The graphs that upstream's converter writes, its differences from the table above included.
UPSTREAM_POLICIES: dict[str, Policy] = {
    "MICRO": replace(POLICIES["MICRO"], micro_layers=None),
    "DATA": replace(_DATA, links=(Link.WEIGHT_COLLECTIVE,)),
    "MODEL": replace(_MODEL, links=(Link.WEIGHT_COMPUTE,), weight_span=Span.ALL),
    "HYBRID_DATA_MODEL": replace(_HYBRID_DATA_MODEL, span=Span.ALL, weight_span=Span.ALL),
    "HYBRID_MODEL_DATA": replace(_HYBRID_DATA_MODEL, span=Span.ALL, weight_span=Span.ALL),
    "HYBRID_DLRM": _UPSTREAM_DLRM,
    "HYBRID_DLRM_ENHANCED": _UPSTREAM_DLRM,
}
