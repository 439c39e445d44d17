"""Words of the text workload format and the values that a file holds.

The format is that of ASTRA-sim 1.0: a policy, a layer count and one record a layer. Times are plain numbers
whose unit the file does not say; sizes are bytes per NPU.
"""

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum


class CommWord(StrEnum):
    """Words for what is communicated after a compute."""

    NONE = "NONE"
    ALL_REDUCE = "ALLREDUCE"
    ALL_TO_ALL = "ALLTOALL"
    ALL_GATHER = "ALLGATHER"
    REDUCE_SCATTER = "REDUCESCATTER"
    ALL_REDUCE_ALL_TO_ALL = "ALLREDUCEALLTOALL"


#: Collectives that a word stands for, in the order in which they run; values are Chakra's
#: ``CollectiveCommType``.
COLLECTIVES: dict[str, tuple[tuple[CommWord, int], ...]] = {
    CommWord.NONE: (),
    CommWord.ALL_REDUCE: ((CommWord.ALL_REDUCE, 0),),
    CommWord.ALL_TO_ALL: ((CommWord.ALL_TO_ALL, 6),),
    CommWord.ALL_GATHER: ((CommWord.ALL_GATHER, 2),),
    CommWord.REDUCE_SCATTER: ((CommWord.REDUCE_SCATTER, 7),),
    CommWord.ALL_REDUCE_ALL_TO_ALL: ((CommWord.ALL_REDUCE, 0), (CommWord.ALL_TO_ALL, 6)),
}


class Phase(StrEnum):
    """The part of a training pass that a node belongs to; values are used in node names."""

    FORWARD = "FWD"
    RECOMPUTE = "FWD_RECOMPUTE"
    INPUT_GRADIENT = "BWD_IG"
    WEIGHT_GRADIENT = "BWD_WG"


@dataclass(frozen=True, slots=True)
class Step:
    """One compute of a layer and the communication that follows it."""

    #: in the unit of the file
    time: int
    #: a `CommWord`; any word in a file read as upstream's converter reads it
    word: str
    #: bytes per NPU
    size_bytes: int
    #: group that the word names (SimAI): ``EP`` or ``DP_EP``; "" is the phase's own
    group: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """One record of the file.

    Attributes
    ----------
    name
        Name of the layer.
    forward, input_gradient, weight_gradient
        The three steps.
    update_time
        Time of the weight update, in the file's unit.
    policy
        Parallelism of this layer, where the workload mixes several.
    """

    name: str
    forward: Step
    input_gradient: Step
    weight_gradient: Step
    #: delay after each collective of the layer, in the unit of the file
    update_time: int = 0
    #: the layer's own policy word (HYBRID_CUSTOMIZED only)
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """What the header of a SimAI (AICB) file says of the job; its rows are one pipeline stage's.

    Attributes
    ----------
    tp, ep, pp
        Ranks of a tensor-parallel and of an expert-parallel group, and pipeline stages.
    all_gpus
        Ranks of the whole job; None where the header does not say it.
    micro_batches
        Micro-batches of the step, all of which the rows already hold.
    pp_comm_bytes
        Bytes of a message between stages, which no row holds.
    """

    tp: int
    ep: int = 1
    pp: int = 1
    all_gpus: int | None = None
    micro_batches: int = 1
    pp_comm_bytes: int = 0

    @property
    def stage(self) -> int | None:
        """Ranks of one stage; None where the header does not say it."""
        return None if self.all_gpus is None else self.all_gpus // self.pp


@dataclass(frozen=True, slots=True)
class TextWorkload:
    """What a text workload says.

    Attributes
    ----------
    source
        File, for messages.
    policy
        Parallelism policy, as written.
    layers
        The layers, first to last.
    initiators
        Layers whose backward pass begins with a recomputation.
    """

    source: str
    policy: str
    layers: tuple[Layer, ...]
    #: the layer count of the file's header; differs from ``len(layers)`` only in files read as upstream reads
    #: them
    header_count: int
    #: index of the last bottom layer (HYBRID_DLRM, HYBRID_DLRM_ENHANCED)
    last_bottom_layer: int | None = None
    #: NPUs that share one model replica (HYBRID_TRANSFORMER and its variant)
    model_parallel: int | None = None
    #: layers whose inputs are kept, and layers whose backward pass begins with a recomputation
    checkpoints: frozenset[int] = frozenset()
    initiators: frozenset[int] = frozenset()
    #: the job, where the header is SimAI's
    layout: Layout | None = None
    #: the file's text, kept for provenance
    text: str = ""

    def recomputations(self) -> dict[int, int]:
        """For every initiating layer the checkpoint at or below it from which its recomputation starts."""
        kept = sorted(self.checkpoints)
        return {layer: kept[bisect_right(kept, layer) - 1] for layer in self.initiators}
