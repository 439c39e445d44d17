"""Requests: one flat set of named parameters per kind of workload, for the command line, YAML files and sweeps alike."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, Self

from chakra.arguments import check_fields, checked
from chakra.errors import UsageError
from chakra.et.operators import ELEMENT_BITS
from chakra.generate.model.blocks import ContextParallel, TokenShape, TransformerOptions
from chakra.generate.model.build import balanced_stages, transformer_stages
from chakra.generate.model.classic import (
    DLRM,
    DlrmConfig,
    MlpConfig,
    dlrm_stages,
    mlp_stages,
    resnet50_stages,
)
from chakra.generate.model.compilation import compiled
from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.ir import PARTS, ElementTypes
from chakra.generate.model.layer_kinds import Feed, pattern_layers, read_layers
from chakra.generate.model.presets import SIZES, sized_transformer
from chakra.generate.model.routing import ExpertLoad, Experts, read_load
from chakra.generate.model.stage_model import StageModel
from chakra.generate.parallel import DEFAULT_ORDER, ParallelConfig
from chakra.generate.plan.compute import ComputeModel, OperatorTimes
from chakra.generate.plan.disaggregated import Decoding, plan_disaggregated
from chakra.generate.plan.inference import InferenceOptions, plan_inference
from chakra.generate.plan.options import Recompute, TrainingOptions, Zero
from chakra.generate.plan.template import EmitOptions, Stream
from chakra.generate.plan.training import StepPlan, plan_step
from chakra.generate.request.frameworks import framework, read_profile
from chakra.generate.request.parameters import MOST_SIZE, PARAMETERS, keys_of, read_parameter
from chakra.generate.schedule.pipeline import ScheduleKind, placed
from chakra.io.documents import document_text
from chakra.io.limits import MAX_GENERATED_NODES, MAX_GENERATED_NPUS
from chakra.io.nearest import nearest
from chakra.io.readable import counted
from chakra.replay.compute import compute_parameters
from chakra.replay.compute.frameworks import framework_changes

#: communication that computation can be made to wait for
EXPOSABLE = {"tp": Stream.LAYER, "dp": Stream.DATA, "pp": Stream.PIPELINE}
#: bytes per element by name
DTYPES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


class Mode(Enum):
    """What a transformer does."""

    TRAIN = "train"
    PREFILL = "prefill"
    DECODE = "decode"
    #: prefill, then decoding
    SERVE = "serve"
    #: prefill on some ranks, decoding on others
    DISAGGREGATED = "disaggregated"

    @property
    def prefills(self) -> bool:
        """Whether prompts are processed, which gives requests their first token."""
        return self in (Mode.PREFILL, Mode.SERVE, Mode.DISAGGREGATED)

    @property
    def decodes(self) -> bool:
        """Whether requests are given tokens after the first."""
        return self in (Mode.DECODE, Mode.SERVE, Mode.DISAGGREGATED)


#: modes that read a parameter, of those that ask for something that some modes do not have; those that say how it is
#: done (sizes of buckets, gathers ahead, types of gradients) mean nothing where it is not, in training, too
READ_IN: dict[str, tuple[Mode, ...]] = {
    **dict.fromkeys(
        (
            "schedule", "schedule_file", "paired", "recompute", "zero", "shard", "optimizer_bytes", "iterations",
            "freeze_encoder", "mtp",
        ),
        (Mode.TRAIN,),
    ),
    "decode_steps": (Mode.DECODE, Mode.SERVE, Mode.DISAGGREGATED),
    **dict.fromkeys(
        ("decode_tp", "decode_ep", "decode_dp", "decode_pp", "decode_batch"), (Mode.DISAGGREGATED,)
    ),
}  # fmt: skip


class Host(Enum):
    """Nodes for the host thread: none, one that runs ahead of its device, or one that waits for it before each pass."""

    NONE = "none"
    AHEAD = "ahead"
    SYNCHRONISED = "synchronised"


class CommOrder(Enum):
    """Collectives in one chain per rank, or in one per stream."""

    PROGRAM = "program"
    STREAM = "stream"


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
        Framework whose parameters `from_mapping` takes where none are given (`chakra.generate.FRAMEWORKS`), and whose
        operator times a replay takes.
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
        if given.get("framework"):
            profile = framework(str(given["framework"]))
            zero = given.get("zero", profile.values.get("zero"))
            usual = profile.values_at(zero if isinstance(zero, int) else 0)
            given = {**read_profile(usual, known), **given}
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
        exposed = set()
        for word in self.exposed.replace(",", " ").split():
            if word not in EXPOSABLE:
                raise UsageError(f"exposed {word!r} is not one of {', '.join(EXPOSABLE)}")
            exposed.add(EXPOSABLE[word])
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
        kept = frozenset(self.unquantised.replace(",", " ").split())
        for word in sorted(kept - set(PARTS)):
            raise UsageError(f"unquantised {word!r} is not one of {', '.join(PARTS)}")
        return ElementTypes(self.dtype, self.grad_dtype, self.matmul_dtype or "", kept)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerRequest(Request):
    """Parameters of a transformer workload.

    Attributes
    ----------
    model
        Preset; the sizes after it replace the preset's. ``""`` starts from nothing.
    layers ... shared_experts
        As in `TransformerConfig`.
    image, patch
        The same for images; the classes are the vocabulary.
    encoder_layers, encoder_seq
        Layers of the encoder, and tokens per sequence that it reads; other sizes are those of both.
    encoder_stages
        Pipeline stages that have the encoder's layers.
    images
        Images of a sequence, where the encoder is one of images.
    freeze_encoder
        The encoder is not trained: it has no gradients and no optimizer states.
    seq
        Tokens per sequence (training) or per prompt (inference); default: the preset's.
    mode
        train, prefill, decode, serve (prefill, then decode) or disaggregated (prefill and decode on ranks of their own).
    decode_steps
        Tokens per request in decode, serve and disaggregated.
    decode_tp, decode_ep, decode_dp, decode_pp
        Parallel degrees of the decode ranks of a disaggregated inference; None: those of the prefill ranks.
    decode_batch
        Requests that a decode replica decodes together; None: ``micro_batch``.
    sp
        Sequence parallelism along tp.
    regather, context, flash, causal, capacity, dispatch_domain
        As in `TransformerOptions`.
    expert_load, expert_seed, expert_load_file
        How often each expert is visited, where that is not even: ``zipf:EXPONENT``, with a seed that says which experts
        are the first ones, or a CSV file of shares.
    stage_layers
        Layers of each pipeline chunk.
    balance_stages
        Cut the layers so that the chunk with most matrix operations has least, instead of into even numbers.
    layer_file
        CSV file with the layers of a model whose layers are not all alike (`chakra.generate.model.layer_kinds`).
    layer_pattern
        The same by letters, each a mixer or a feed-forward alone, repeated to fill ``layers``.
    layers, hidden, heads, kv_heads, head_dim, ffn, vocabulary, gated
        Sizes that replace the preset's.
    experts, experts_per_token, moe_ffn, shared_experts, moe_latent
        The same for models with experts.
    mtp
        Modules of multi-token prediction.
    q_rank, kv_rank, rope_dim, value_dim
        The same for latent attention.
    window, full_every, sinks
        The same for sliding windows and sinks.
    inner, state_size, state_heads, state_groups, conv_width, chunk, dt_rank
        The same for state-space layers.
    """

    model: str = "gpt3-175b"
    layers: int | None = None
    layer_file: str | None = None
    layer_pattern: str | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn: int | None = None
    vocabulary: int | None = None
    gated: bool | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    moe_ffn: int | None = None
    shared_experts: int | None = None
    moe_latent: int | None = None
    mtp: int | None = None
    q_rank: int | None = None
    kv_rank: int | None = None
    rope_dim: int | None = None
    value_dim: int | None = None
    window: int | None = None
    full_every: int | None = None
    sinks: bool | None = None
    inner: int | None = None
    state_size: int | None = None
    state_heads: int | None = None
    state_groups: int | None = None
    conv_width: int | None = None
    chunk: int | None = None
    dt_rank: int | None = None
    image: int | None = None
    patch: int | None = None
    encoder_layers: int | None = None
    encoder_seq: int | None = None
    encoder_stages: int | None = None
    images: int | None = None
    freeze_encoder: bool = False
    seq: int | None = None
    mode: Mode = Mode.TRAIN
    decode_steps: int = 1
    decode_tp: int | None = None
    decode_ep: int | None = None
    decode_dp: int | None = None
    decode_pp: int | None = None
    decode_batch: int | None = None
    sp: bool = False
    regather: bool = True
    context: ContextParallel = ContextParallel.RING
    flash: bool = True
    causal: bool = False
    capacity: float = 1.0
    dispatch_domain: int = 0
    expert_load: str | None = None
    expert_seed: int | None = None
    expert_load_file: str | None = None
    stage_layers: tuple[int, ...] | None = None
    balance_stages: bool = False

    def _refuse_unread(self) -> None:
        """Refuse what is given and the mode does not read; what a framework's profile says of training is no request."""
        said: Mapping[str, object] = {}
        keys = {key.name: key for key in keys_of(type(self))}
        if self.framework:
            said = read_profile(framework(self.framework).values_at(self.zero), keys)
        for key in keys.values():
            modes = READ_IN.get(key.field, tuple(Mode))
            value = getattr(self, key.field)
            usual = value in (key.default, said.get(key.field, key.default))
            # what stands for "not given" is no other choice either
            if self.mode in modes or usual or str(value) == PARAMETERS[key.field].default_said:
                continue
            where = ", ".join(mode.value for mode in modes)
            raise UsageError(f"{key.name} is of mode {where}; mode {self.mode.value} does not read it")

    def chunks_per_stage(self) -> int:
        """Model chunks of each pipeline stage; schedules are of training.

        Raises
        ------
        UsageError
            Chunks, or a single stage, with a schedule that folds the pipeline.
        """
        return Request.chunks_per_stage(self) if self.mode is Mode.TRAIN else self.vp

    def config(self) -> TransformerConfig:
        """Model sizes: the preset with replacements.

        Raises
        ------
        UsageError
            Layers given by a file and by a pattern.
        """
        sizes = {key: getattr(self, key) for key in SIZES if getattr(self, key) is not None}
        if self.layer_pattern is not None:
            if self.layer_file is not None:
                raise UsageError(
                    "layer-file and layer-pattern both say what the layers are: give one of them"
                )
            sizes["kinds"] = pattern_layers(self.layer_pattern, self.layers)
        if self.layer_file is not None:
            sizes["kinds"] = read_layers(self.layer_file)
        return sized_transformer(
            self.model, sizes, self.seq, 0 if self.mode in (Mode.TRAIN, Mode.PREFILL) else self.decode_steps
        )

    @checked
    def prompt(self, model: TransformerConfig) -> int:
        """Tokens of a prompt: behind an encoder, whose source is what is asked, one that begins the answer.

        Parameters
        ----------
        model
            Sizes of the model.
        """
        return 1 if model.source_tokens and self.seq is None else model.sequence

    def layout(self) -> TransformerOptions:
        """Layout and kernels.

        Raises
        ------
        UsageError
            A capacity that is not a positive number.
        """
        if not 0 < self.capacity <= 1e6:
            raise UsageError(f"capacity must be a positive number, up to 10^6, not {self.capacity}")
        itemsize, grad_itemsize = self.itemsizes()
        return TransformerOptions(
            sp=self.sp and self.tp > 1, regather=self.regather, context=self.context, flash=self.flash,
            causal=self.causal, itemsize=itemsize, grad_itemsize=grad_itemsize, types=self.types(),
            capacity_factor=self.capacity, frozen_encoder=self.freeze_encoder,
            dispatch_domain=self.dispatch_domain,
        )  # fmt: skip

    def _load(self, model: TransformerConfig) -> ExpertLoad | None:
        """How experts are visited; None for evenly."""
        load = read_load(self.expert_load, self.expert_seed, self.expert_load_file)
        if load is None:
            return None
        if not model.has_experts:
            raise UsageError("expert-load is of experts, and the model has none")
        load.check_layers([model.at(layer).feed is Feed.MOE for layer in range(model.layers)])
        if self.capacity != 1.0:
            raise UsageError("expert-load says how many tokens each expert gets: capacity must be 1")
        if self.dispatch_domain:
            raise UsageError(
                "dispatch-domain counts tokens that visit experts evenly: it does not go with expert-load"
            )
        return load

    def _stage_layers(
        self, model: TransformerConfig, parallel: ParallelConfig, shape: TokenShape
    ) -> Sequence[int] | None:
        """Layers of each pipeline chunk, where they are given or balanced."""
        if not self.balance_stages:
            return self.stage_layers
        if self.stage_layers is not None or self.encoder_stages is not None:
            raise UsageError(
                "balance-stages says what every stage has: stage-layers and encoder-stages must not be given"
            )
        layout = replace(self.layout(), training=self.mode is Mode.TRAIN)
        return balanced_stages(model, parallel, shape, layout)

    def _places(self, stages: int) -> tuple[int, ...]:
        """Stages of the parts of the model where a schedule folds the pipeline; none where they follow each other."""
        if self.schedule is ScheduleKind.DUALPIPE and self.vp == 1:
            # a stage and its mirror have both parts: what these share exists once on either
            return tuple(min(part, stages - 1 - part) for part in range(stages))
        if self.schedule is ScheduleKind.DUALPIPEV:
            return tuple(stage for stage, _ in placed(self.schedule, stages).routes[0])
        return ()

    def _decoding(self, model: TransformerConfig, parallel: ParallelConfig) -> Decoding | None:
        """The decode ranks of a disaggregated inference; None in other modes, which have no options for them."""
        if self.mode is not Mode.DISAGGREGATED:
            return None
        degrees = {
            axis: getattr(parallel, axis) if getattr(self, f"decode_{axis}") is None else getattr(self, f"decode_{axis}")
            for axis in ("tp", "ep", "dp", "pp")
        }  # fmt: skip
        try:
            theirs = ParallelConfig(**degrees, order=self.order)
        except UsageError as error:
            raise UsageError(f"decode ranks: {error}") from None
        if theirs.world + parallel.world > MAX_GENERATED_NPUS:
            raise UsageError(
                f"{counted(theirs.world + parallel.world, 'NPU')} of both kinds; at most {MAX_GENERATED_NPUS} are "
                "generated"
            )
        requests = self.micro_batch if self.decode_batch is None else self.decode_batch
        sizes = None
        if self.balance_stages:
            # as of the first step; a longer context changes all layers alike
            shape = TokenShape(max(requests, 1), 1, self.prompt(model) + 1)
            sizes = self._stage_layers(model, theirs, shape)
        return Decoding(theirs, requests, self.decode_steps, sizes)

    def plan(self) -> StepPlan:
        """Plan a training step or an inference batch.

        Raises
        ------
        UsageError
            Parameters that do not fit together.
        """
        self._refuse_unread()
        if self.mode is Mode.DISAGGREGATED and self.npus is not None:
            # before degrees are compared with it: they are those of the prefill ranks
            raise UsageError(
                "npus would be those of both kinds of ranks, prefill and decode: give dp and decode-dp instead"
            )
        model, parallel = self.config(), self.parallel()
        decoding, load = self._decoding(model, parallel), self._load(model)
        if self.mode is not Mode.TRAIN:
            options = InferenceOptions(
                requests=self.micro_batch, micro_batches=self.batches(parallel), prompt=self.prompt(model),
                prefill=self.mode is not Mode.DECODE,
                decode_steps=0 if self.mode is Mode.PREFILL else self.decode_steps,
            )  # fmt: skip
            sizes = self._stage_layers(model, parallel, options.shapes()[0])
            given = (self.layout(), self.emit(), sizes, self.about("transformer"))
            if decoding is not None:
                return plan_disaggregated(
                    model, parallel, options, decoding, *given, compile_layers=self.compiled, load=load
                )
            return plan_inference(
                model, parallel, options, *given, compile_layers=self.compiled, load=load,
                encoder_stages=self.encoder_stages,
            )  # fmt: skip
        shape = TokenShape(self.micro_batch, model.sequence, model.sequence)
        layout, sizes = self.layout(), self._stage_layers(model, parallel, shape)
        places = self._places(parallel.pp)
        if load is None:
            stages = transformer_stages(
                model, parallel, shape, layout, sizes, encoder_stages=self.encoder_stages, places=places
            )
            return self._step([stages], parallel, "transformer")
        positions = [
            transformer_stages(model, parallel, shape, layout, sizes, Experts(load, position), places=places)
            for position in range(parallel.ep)
        ]
        return self._step(positions, parallel, "transformer", uneven=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpRequest(Request):
    """A perceptron: ``widths`` inputs first, then each dense layer's outputs.

    Attributes
    ----------
    widths
        Inputs, then each layer's outputs.
    """

    widths: tuple[int, ...] = (1024, 4096, 4096, 4096, 1024)

    def plan(self) -> StepPlan:
        """Plan a training step.

        Raises
        ------
        UsageError
            Sizes that are not positive, or degrees that do not fit.
        """
        parallel, sizes = self.parallel(), self.itemsizes()
        if self.micro_batch < 1:
            raise UsageError(f"micro-batch must be at least 1, not {self.micro_batch}")
        stages = mlp_stages(
            MlpConfig(self.widths), parallel, self.micro_batch, itemsize=sizes[0], grad_itemsize=sizes[1],
            types=self.types(),
        )  # fmt: skip
        return self._step([stages], parallel, "mlp")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResnetRequest(Request):
    """ResNet-50 on square images of ``image`` pixels a side, ``classes`` outputs.

    Attributes
    ----------
    image
        Pixels a side.
    classes
        Outputs.
    """

    image: int = 224
    classes: int = 1000

    def plan(self) -> StepPlan:
        """Plan a training step."""
        parallel, sizes = self.parallel(), self.itemsizes()
        stages = resnet50_stages(
            parallel,
            self.micro_batch,
            image=self.image,
            classes=self.classes,
            itemsize=sizes[0],
            grad_itemsize=sizes[1],
            types=self.types(),
        )
        return self._step([stages], parallel, "resnet")


@dataclass(frozen=True, slots=True, kw_only=True)
class DlrmRequest(Request):
    """DLRM: preset, with sizes that replace the preset's (as in `DlrmConfig`).

    Attributes
    ----------
    model
        Name of the preset.
    bottom, top
        Widths of the two perceptrons.
    tables, rows, dim
        Embedding tables, rows of all of them, and their width.
    pooling
        Lookups per table and sample.
    """

    model: str = "dlrm-criteo"
    bottom: tuple[int, ...] | None = None
    top: tuple[int, ...] | None = None
    tables: int | None = None
    rows: int | None = None
    dim: int | None = None
    pooling: int | None = None

    def config(self) -> DlrmConfig:
        """Model sizes.

        Raises
        ------
        UsageError
            An unknown preset, or sizes that do not fit together.
        """
        if self.model not in DLRM:
            hint = nearest(self.model, list(DLRM)) or f"; there are: {', '.join(DLRM)}"
            raise UsageError(f"no DLRM preset {self.model!r}{hint}")
        keys = ("bottom", "top", "tables", "rows", "dim", "pooling")
        return replace(
            DLRM[self.model], **{k: getattr(self, k) for k in keys if getattr(self, k) is not None}
        )

    def plan(self) -> StepPlan:
        """Plan a training step."""
        parallel, sizes = self.parallel(), self.itemsizes()
        stages = dlrm_stages(
            self.config(),
            parallel,
            self.micro_batch,
            itemsize=sizes[0],
            grad_itemsize=sizes[1],
            types=self.types(),
        )
        return self._step([stages], parallel, "dlrm")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeRequest(TransformerRequest):
    """A transformer with experts: the same parameters, another default."""

    model: str = "mixtral-8x7b"


REQUESTS: dict[str, type[Request]] = {
    "transformer": TransformerRequest,
    "moe": MoeRequest,
    "mlp": MlpRequest,
    "resnet": ResnetRequest,
    "dlrm": DlrmRequest,
}
