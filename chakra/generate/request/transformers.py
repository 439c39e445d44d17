"""Requests for transformers, dense and with experts: sizes of the model, what they do, layers of stages, inference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.generate.model.blocks import ContextParallel, TokenShape, TransformerOptions
from chakra.generate.model.build import balanced_stages, transformer_stages
from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.layer_kinds import Feed, pattern_layers, read_layers
from chakra.generate.model.presets import SIZES, sized_transformer
from chakra.generate.model.routing import ExpertLoad, Experts, read_load
from chakra.generate.parallel import ParallelConfig
from chakra.generate.plan.disaggregated import Decoding, plan_disaggregated
from chakra.generate.plan.inference import InferenceOptions, plan_inference
from chakra.generate.plan.training import StepPlan
from chakra.generate.request.base import Request, fills_from_framework
from chakra.generate.request.frameworks import framework, read_profile
from chakra.generate.request.parameters import PARAMETERS, keys_of
from chakra.generate.schedule.pipeline import ScheduleKind, placed
from chakra.io.limits import MAX_GENERATED_NPUS
from chakra.io.readable import counted


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


@fills_from_framework
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
        modules = [any(one.feed is Feed.MOE for one in model.mtp_layers())] * model.mtp
        load.check_layers([*(model.at(layer).feed is Feed.MOE for layer in range(model.layers)), *modules])
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


@fills_from_framework
@dataclass(frozen=True, slots=True, kw_only=True)
class MoeRequest(TransformerRequest):
    """A transformer with experts: the same parameters, another default."""

    model: str = "mixtral-8x7b"
