"""What requests for every kind of workload have in common: degrees, batches, training, nodes, compute times."""

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Self, TypeVar

from chakra.arguments import check_fields, checked
from chakra.errors import UsageError
from chakra.et.operators import ELEMENT_BITS
from chakra.generate.model.compilation import compiled
from chakra.generate.model.ir import PARTS, ElementTypes
from chakra.generate.model.stage_model import StageModel
from chakra.generate.parallel import DEFAULT_ORDER, ParallelConfig
from chakra.generate.plan.compute import ComputeModel, OperatorTimes
from chakra.generate.plan.options import Recompute, TrainingOptions, Zero
from chakra.generate.plan.template import EmitOptions, Stream
from chakra.generate.plan.training import StepPlan, plan_step
from chakra.generate.request.frameworks import framework, read_profile
from chakra.generate.request.parameters import MOST_SIZE, keys_of, read_parameter
from chakra.generate.schedule.pipeline import ScheduleKind
from chakra.io.documents import document_text
from chakra.io.limits import MAX_GENERATED_NODES
from chakra.io.nearest import nearest
from chakra.replay.compute import compute_parameters
from chakra.replay.compute.frameworks import framework_changes

#: communication that computation can be made to wait for
EXPOSABLE = {"tp": Stream.LAYER, "dp": Stream.DATA, "pp": Stream.PIPELINE}
#: bytes per element by name
DTYPES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


class Host(Enum):
    """Nodes for the host thread: none, one that runs ahead of its device, or one that waits for it before each pass."""

    NONE = "none"
    AHEAD = "ahead"
    SYNCHRONISED = "synchronised"


class CommOrder(Enum):
    """Collectives in one chain per rank, or in one per stream."""

    PROGRAM = "program"
    STREAM = "stream"


_R = TypeVar("_R", bound="Request")


def fills_from_framework(request_type: type[_R]) -> type[_R]:
    """Let a request that names a framework take its parameters where none are given, whoever makes it.

    A class decorator over the dataclass: its own ``__init__`` no longer knows which fields were given.
    `dataclasses.replace` gives all of them, so that a request that is changed keeps the others.
    """
    made: Callable[..., None] = request_type.__init__

    @functools.wraps(made)
    def filled(self: _R, **given: Any) -> None:
        name = given.get("framework")
        if isinstance(name, str) and name:
            zero = given.get("zero", framework(name).values.get("zero"))
            usual = framework(name).values_at(zero if isinstance(zero, int) else 0)
            given = {**read_profile(usual, {key.name: key for key in keys_of(request_type)}), **given}
        made(self, **given)

    request_type.__init__ = filled  # type: ignore[assignment, method-assign]
    return request_type


@fills_from_framework
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Parameters that every kind of workload has.

    Attributes
    ----------
    tp, cp, ep, dp, pp, vp
        Parallel degrees (vp: chunks per pipeline stage).
    npus
        Number of ranks; when given, dp follows as npus / (tp*cp*pp), or is checked against it.
    order
        Rank order, fastest axis first.
    iterations
        Training steps one after the other; None: one.
    shard
        ZeRO shards over this many data-parallel ranks (with cp), a divisor of dp; shards are copied across the others
        (hybrid sharding). None: over all.
    micro_batch
        Sequences, samples or requests per micro-batch and replica.
    micro_batches
        Micro-batches per step; or give ``global_batch`` = micro_batch * micro_batches * dp.
    dtype, grad_dtype
        Element types of activations and weights, and of weight gradients.
    schedule, schedule_file, paired, zero, bucket_mb, reshard, reduce_once, prefetch, optimizer_bytes, optimizer_step
        As in `TrainingOptions`; bucket in MB of 10^6 bytes.
    matmul_dtype
        Element type of the operands of linear layers where it is another than ``dtype`` (fp8, mxfp8, nvfp4).
    unquantised
        Parts of a transformer whose products stay in ``dtype`` all the same, any of head (the output matrix) and mtp.
    overlap
        Communication beside computation.
    exposed
        With ``overlap``: communication that computation waits for all the same, any of tp (with cp, ep), dp, pp.
    host
        Nodes for the host thread that issues operators.
    graphs
        Passes are recorded graphs that the host launches as one operator each (CUDA graphs); needs a host thread.
    compiled
        Memory-bound operators that follow each other are one kernel, as a compiler makes it (torch.compile).
    framework
        Framework whose parameters are taken where none are given (`chakra.generate.request.frameworks.FRAMEWORKS`), and
        whose operator times a replay takes.
    comm_order, fuse
        As in `EmitOptions`.
    peak_tflops, mem_gbps, matmul_efficiency, memory_efficiency, launch_ns
        When peak (10^12 operations/s) and memory bandwidth (10^9 bytes/s) are given, nodes carry durations.
    operator_model
        Preset whose operator times nodes carry as durations, instead of those of the peak.
    global_batch
        Sequences, samples or requests per step over all replicas.
    recompute
        Activations that the backward pass computes again.
    """

    framework: str | None = None
    tp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int | None = None
    pp: int = 1
    vp: int = 1
    npus: int | None = None
    order: str = DEFAULT_ORDER
    micro_batch: int = 1
    micro_batches: int | None = None
    global_batch: int | None = None
    dtype: str = "bf16"
    grad_dtype: str = "fp32"
    matmul_dtype: str | None = None
    unquantised: str = ""
    schedule: ScheduleKind = ScheduleKind.ONE_F_ONE_B
    schedule_file: str | None = None
    paired: bool = False
    recompute: Recompute = Recompute.NONE
    zero: int = 0
    bucket_mb: float = 40.0
    reshard: bool = True
    reduce_once: bool = False
    prefetch: int = 1
    optimizer_bytes: int = 12
    optimizer_step: bool = True
    shard: int | None = None
    iterations: int | None = None
    overlap: bool = True
    exposed: str = ""
    host: Host = Host.NONE
    graphs: bool = False
    compiled: bool = False
    comm_order: CommOrder = CommOrder.PROGRAM
    fuse: bool = False
    peak_tflops: float | None = None
    mem_gbps: float | None = None
    matmul_efficiency: float = 1.0
    memory_efficiency: float = 1.0
    launch_ns: int = 0
    operator_model: str | None = None

    def __post_init__(self) -> None:
        """Refuse values of other types and sizes that no machine holds, before anything is built from them."""
        check_fields(self)
        for key in keys_of(type(self)):
            read_parameter(key, getattr(self, key.field))
        work = math.prod(
            max(getattr(self, name, None) or 1, 1)
            for name in ("layers", "micro_batches", "decode_steps", "iterations")
        )
        if work > MAX_GENERATED_NODES:
            raise UsageError(
                f"layers x micro-batches x decode-steps x iterations are {work}; at most {MAX_GENERATED_NODES} are "
                "generated"
            )

    @classmethod
    @checked
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """A request from plain values (YAML, JSON); ``-`` and ``_`` are the same in names.

        Raises
        ------
        UsageError
            An unknown name (with the nearest known one) or a value of the wrong kind.
        """
        known = {key.name: key for key in keys_of(cls)}
        given = {}
        for name, value in values.items():
            key = known.get(str(name).replace("_", "-"))
            if key is None:
                hint = nearest(str(name).replace("_", "-"), known)
                raise UsageError(f"unknown parameter {name!r}{hint}")
            given[key.field] = read_parameter(key, value)
        made: Callable[..., Self] = cls
        return made(**given)

    def parallel(self) -> ParallelConfig:
        """Parallel degrees; dp worked out from ``npus`` when only that is given.

        Raises
        ------
        UsageError
            npus that the other degrees do not divide, or that contradicts dp; shards without ZeRO.
        """
        dp = self.dp
        for axis in ("tp", "cp", "pp"):
            if getattr(self, axis) < 1:
                raise UsageError(f"{axis} must be at least 1, not {getattr(self, axis)}")
        rest = self.tp * self.cp * self.pp
        if self.npus is not None:
            if self.npus < 1 or self.npus % rest:
                raise UsageError(f"npus ({self.npus}) must be a multiple of tp*cp*pp = {rest}")
            if dp is not None and dp * rest != self.npus:
                raise UsageError(f"tp*cp*dp*pp = {dp * rest}, but npus is {self.npus}")
            dp = self.npus // rest
        if self.shard is not None and not self.zero:
            raise UsageError("shard says over how many ranks ZeRO shards: it needs zero 1, 2 or 3")
        return ParallelConfig(
            tp=self.tp,
            cp=self.cp,
            ep=self.ep,
            dp=1 if dp is None else dp,
            pp=self.pp,
            vp=self.chunks_per_stage(),
            order=self.order,
            shard=self.shard,
        )

    def chunks_per_stage(self) -> int:
        """Model chunks of each pipeline stage: ``vp``, or two where a schedule folds the pipeline.

        Raises
        ------
        UsageError
            Chunks, or a single stage, with such a schedule.
        """
        if self.schedule is not ScheduleKind.DUALPIPEV:
            return self.vp
        if self.vp > 1:
            raise UsageError("dualpipev has two chunks on each stage already: vp must be 1")
        if self.pp == 1:
            raise UsageError("dualpipev folds a pipeline: pp must be at least 2")
        return 2

    @checked
    def batches(self, parallel: ParallelConfig) -> int:
        """Micro-batches per step.

        Raises
        ------
        UsageError
            A global batch that does not divide, or one that contradicts ``micro_batches``.
        """
        if self.micro_batch < 1:
            raise UsageError(f"micro-batch must be at least 1, not {self.micro_batch}")
        if self.global_batch is None:
            return 1 if self.micro_batches is None else self.micro_batches
        share = self.micro_batch * parallel.dp
        if self.global_batch < 1 or self.global_batch % share:
            raise UsageError(
                f"global batch ({self.global_batch}) must be a multiple of micro-batch*dp = {share}"
            )
        if self.micro_batches is not None and self.micro_batches * share != self.global_batch:
            raise UsageError(
                f"micro-batch*micro-batches*dp = {self.micro_batches * share}, but global batch is {self.global_batch}"
            )
        return self.global_batch // share

    @checked
    def training(self, parallel: ParallelConfig) -> TrainingOptions:
        """Options of the training step.

        Raises
        ------
        UsageError
            A value out of range.
        """
        if not 0 <= self.zero <= 3:
            raise UsageError(f"zero must be 0, 1, 2 or 3, not {self.zero}")
        schedule = self.schedule
        if self.vp > 1 and schedule is ScheduleKind.ONE_F_ONE_B:
            # interleaving is 1F1B with several chunks per stage
            schedule = ScheduleKind.INTERLEAVED
        return TrainingOptions(
            micro_batches=self.batches(parallel), schedule=schedule, schedule_file=self.schedule_file, paired=self.paired,
            recompute=self.recompute, zero=Zero(self.zero), bucket_bytes=int(min(self.bucket_mb, MOST_SIZE) * 1_000_000),
            reshard_after_forward=self.reshard, reduce_once=self.reduce_once, prefetch=self.prefetch,
            optimizer_state_bytes=self.optimizer_bytes, optimizer_step=self.optimizer_step,
            iterations=1 if self.iterations is None else self.iterations,
        )  # fmt: skip

    def emit(self) -> EmitOptions:
        """How operators become nodes.

        Raises
        ------
        UsageError
            Only one of peak and memory bandwidth, or values out of range.
        """
        if (self.peak_tflops is None) != (self.mem_gbps is None):
            raise UsageError("peak-tflops and mem-gbps go together: give both or none")
        if self.operator_model is not None:
            if self.peak_tflops is not None:
                raise UsageError("operator-model and peak-tflops both give durations: give one of them")
            changes = framework_changes(self.framework, self.operator_model) if self.framework else None
            return self._emit(OperatorTimes(compute_parameters(self.operator_model, changes)))
        compute: ComputeModel | None = None
        if self.peak_tflops is not None and self.mem_gbps is not None:
            compute = ComputeModel(
                self.peak_tflops * 1e12, self.mem_gbps * 1e9, self.matmul_efficiency, self.memory_efficiency,
                self.launch_ns,
            )  # fmt: skip
        return self._emit(compute)

    def _emit(self, compute: ComputeModel | OperatorTimes | None) -> EmitOptions:
        if self.graphs and self.host is Host.NONE:
            raise UsageError(
                "graphs change what the host launches, and there is no host: give host, or a framework that has one"
            )
        exposed = {EXPOSABLE[word] for word in _words("exposed", self.exposed, EXPOSABLE)}
        return EmitOptions(
            self.overlap, self.comm_order.value, self.fuse, compute, frozenset(exposed), self.host.value, self.graphs
        )  # fmt: skip

    def itemsizes(self) -> tuple[int, int]:
        """Bytes per element of activations and weights, and of gradients.

        Raises
        ------
        UsageError
            An unknown element type.
        """
        for what, name in (("dtype", self.dtype), ("grad-dtype", self.grad_dtype)):
            if name not in DTYPES:
                raise UsageError(f"{what} {name!r} is not one of {', '.join(DTYPES)}")
        return DTYPES[self.dtype], DTYPES[self.grad_dtype]

    def types(self) -> ElementTypes:
        """Names of the element types.

        Raises
        ------
        UsageError
            An unknown element type of matrix products, or an unknown part of a model.
        """
        if self.matmul_dtype and self.matmul_dtype not in ELEMENT_BITS:
            raise UsageError(f"matmul-dtype {self.matmul_dtype!r} is not one of {', '.join(ELEMENT_BITS)}")
        kept = _words("unquantised", self.unquantised, PARTS)
        return ElementTypes(self.dtype, self.grad_dtype, self.matmul_dtype or "", frozenset(kept))

    @checked
    def about(self, kind: str) -> dict[str, Any]:
        """What the manifest records: the kind of workload and every parameter that is not None."""
        values = {
            key: value.value if isinstance(value, Enum) else value for key, value in asdict(self).items()
        }
        return {
            "workload": kind,
            "parameters": {key: value for key, value in values.items() if value is not None},
        }

    @checked
    def facts(self, kind: str) -> dict[str, str]:
        """The same as metadata of a trace, by which a replay knows what was generated: texts, the parameters as JSON."""
        return {
            "workload": kind,
            "parameters": document_text(self.about(kind)["parameters"], sort_keys=True),
        }

    def _step(
        self, models: Sequence[StageModel], parallel: ParallelConfig, kind: str, *, uneven: bool = False
    ) -> StepPlan:
        """Plan a step of a model; ``uneven``: of the models of all expert-parallel positions."""
        if self.compiled:
            models = [compiled(stages, parallel.axis_sizes) for stages in models]
        positions = models if uneven else ()
        return plan_step(
            models[0], parallel, self.training(parallel), self.emit(), self.about(kind), positions
        )

    def plan(self) -> StepPlan:
        """Plan the workload.

        Raises
        ------
        UsageError
            Parameters that do not fit together.
        """
        raise NotImplementedError


def _words(what: str, text: str, known: Collection[str]) -> list[str]:
    """Words with commas or spaces between them, each one that is known."""
    words = text.replace(",", " ").split()
    for word in words:
        if word not in known:
            raise UsageError(f"{what} {word!r} is not one of {', '.join(known)}")
    return words
