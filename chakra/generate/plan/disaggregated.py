"""Prefill and decoding on ranks of their own: the cache of every request travels from the ones to the others.

Batches are numbered over all prefill replicas: replica q of Dp computes batches q, q + Dp, q + 2*Dp ... as its
micro-batches, and decode replica r of Dd takes in batches r, r + Dd ..., so many of them together as its own batches are
larger; it decodes one of its batches after the other, in a pipeline as many at once as there are stages. A prefill rank
sends the keys and values of its layers and heads to every decode rank that holds the same layers and heads, when the pass
of the chunk is done; the last stage also sends the first token. A decode rank begins the first step of a batch when all
that it needs has come.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

import numpy as np

from chakra.errors import UsageError
from chakra.generate.model.blocks import TransformerOptions
from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.layer_kinds import STATE_SPACE, Mixer
from chakra.generate.model.routing import ExpertLoad
from chakra.generate.model.stage_model import StageModel
from chakra.generate.parallel import ParallelConfig, RankLayout
from chakra.generate.plan.inference import TOKEN_BYTES, InferenceOptions, plan_inference
from chakra.generate.plan.template import CACHE_GROUP, TOKEN_GROUP, EmitOptions, TemplateBuilder, behind
from chakra.generate.plan.training import StagePlan, StepPlan, check_passes
from chakra.io.readable import counted, verb

#: what tells a rank of one side
_PLACE = ("pp", "tp", "dp")
#: batches whose caches a prefill rank holds: that which is computed and that which travels
_HELD_BATCHES = 2


@dataclass(frozen=True, slots=True)
class Decoding:
    """The decode ranks: their degrees, the requests of a batch, and the tokens that each request gets.

    ``layers_per_chunk`` are the layers of each stage; None: even numbers.
    """

    parallel: ParallelConfig
    requests: int
    steps: int
    layers_per_chunk: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """What one prefill rank sends to one decode rank for a batch.

    ``chunks`` are the global chunks of sender and receiver, ``ranks`` their tensor-parallel positions.
    """

    group: str
    chunks: tuple[int, int]
    ranks: tuple[int, int]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Posted:
    """A message of one rank: the distance to its peer, its tag, and the pass (micro-batch, global chunk) it is of."""

    group: str
    size_bytes: int
    offset: int
    tag: int
    micro_batch: int
    chunk: int


def cache_parts(model: TransformerConfig, ranks: tuple[int, int], prompt: int) -> list[tuple[int, int]]:
    """What a layer keeps of a sequence, as (number, elements) of parts that tensor parallelism hands out whole.

    Parts are key-value heads, one compressed vector, or the channels and the groups of a state-space layer's state;
    ``ranks`` are the tensor-parallel degrees of both sides, which split channels as finely as they need.
    """
    if model.mixer is Mixer.ATTENTION:
        kept = min(model.window or prompt, prompt)
        if model.latent:
            return [(1, (model.kv_rank + model.rope_dim) * kept)]
        return [(model.kv_heads, 2 * model.head_dim * kept)]
    if model.mixer not in STATE_SPACE:
        return []
    pieces = lcm(*ranks)
    parts = [(pieces, model.inner // pieces * (model.state_size + model.conv_width))]
    if model.mixer is Mixer.MAMBA2:
        parts.append((model.state_groups, 2 * model.state_size * model.conv_width))
    return parts


def held_parts(parts: int, ranks: int, rank: int) -> range:
    """Parts of a cache that a tensor-parallel rank holds; more ranks than parts hold copies."""
    if ranks >= parts:
        place = rank * parts // ranks
        return range(place, place + 1)
    return range(rank * parts // ranks, (rank + 1) * parts // ranks)


def messages(
    model: TransformerConfig,
    stages: tuple[StageModel, StageModel],
    ranks: tuple[int, int],
    requests: int,
    prompt: int,
) -> list[Message]:
    """Messages of one batch of ``requests``: caches by chunk and rank, and the first token.

    ``stages`` are the models of prefill and decode ranks, ``ranks`` their tensor-parallel degrees. Where several prefill
    ranks hold copies of a part, receivers take turns.
    """
    here, there = ([[layer.name for layer in chunk] for chunk in side.chunks] for side in stages)
    moved = {f"layer{index}": _pairs(model.at(index), ranks, prompt) for index in range(model.layers)}
    out = []
    for source, kept in enumerate(here):
        for target, wanted in enumerate(there):
            sizes: Counter[tuple[int, int]] = Counter()
            for name in kept:
                if name in wanted:
                    sizes += moved.get(name, Counter())
            out += [
                Message(CACHE_GROUP, (source, target), pair, elements * stages[0].itemsize * requests)
                for pair, elements in sorted(sizes.items())
            ]
    last = len(here) - 1
    out += [
        Message(
            TOKEN_GROUP, (last, 0), (rank * ranks[0] // ranks[1] % ranks[0], rank), requests * TOKEN_BYTES
        )
        for rank in range(ranks[1])
    ]
    return out


def _pairs(model: TransformerConfig, ranks: tuple[int, int], prompt: int) -> Counter[tuple[int, int]]:
    """Elements of a layer that a prefill rank sends to a decode rank, for a sequence."""
    sizes: Counter[tuple[int, int]] = Counter()
    for parts, elements in cache_parts(model, ranks, prompt):
        holders = [
            [[rank for rank in range(side) if part in held_parts(parts, side, rank)] for part in range(parts)]
            for side in ranks
        ]
        for senders, receivers in zip(*holders, strict=True):
            for turn, receiver in enumerate(receivers):
                sizes[senders[turn % len(senders)], receiver] += elements
    return sizes


def plan_disaggregated(
    model: TransformerConfig,
    parallel: ParallelConfig,
    options: InferenceOptions,
    decoding: Decoding,
    layout: TransformerOptions,
    emit: EmitOptions,
    layers_per_chunk: Sequence[int] | None = None,
    about: Mapping[str, object] | None = None,
    *,
    compile_layers: bool = False,
    load: ExpertLoad | None = None,
) -> StepPlan:
    """Prefill ranks of ``parallel`` degrees, and behind them decode ranks.

    Raises
    ------
    UsageError
        Batches that do not divide among the decode replicas, or sizes that do not divide.
    """
    if model.encoder is not None:
        raise UsageError(
            f"model {model.name}: keys and values of an encoder's output stay on the ranks that compute them: mode must "
            "be train, prefill, decode or serve"
        )
    if parallel.cp > 1 or decoding.parallel.cp > 1:
        raise UsageError(
            "prefill and decode ranks do not split the context: cp must be 1, a rank sends the caches of its heads whole"
        )
    batches = options.micro_batches * parallel.dp
    if decoding.requests % options.requests:
        raise UsageError(
            f"decode-batch ({decoding.requests}) must be a multiple of micro-batch ({options.requests}), the requests of "
            "a prefill"
        )
    together = decoding.requests // options.requests
    if batches % (together * decoding.parallel.dp):
        raise UsageError(
            f"{counted(batches, 'prefill batch')} (micro-batches*dp) must be a multiple of "
            f"{together * decoding.parallel.dp}, the "
            f"batches that {counted(decoding.parallel.dp, 'decode replica')} "
            f"{verb(decoding.parallel.dp, 'takes', 'take')} in at once "
            "(decode-batch/micro-batch each)"
        )
    check_passes(batches * (parallel.pp + decoding.parallel.pp * (decoding.steps + 1)))
    prefill = plan_inference(
        model, parallel, replace(options, prefill=True, decode_steps=0), layout, emit, layers_per_chunk,
        compile_layers=compile_layers, load=load,
    )  # fmt: skip
    decode = plan_inference(
        model, decoding.parallel,
        replace(
            options, requests=decoding.requests, prefill=False, decode_steps=decoding.steps,
            micro_batches=batches // (together * decoding.parallel.dp),
        ),
        layout, emit, decoding.layers_per_chunk, compile_layers=compile_layers, load=load,
    )  # fmt: skip
    exchange = _Exchange(model, prefill, decode, options, together)
    held = options.requests * min(options.micro_batches, _HELD_BATCHES)
    return replace(
        prefill,
        name="prefill",
        model=replace(prefill.model, cached_sequences=held),
        stages=tuple(_prefill_stages(exchange, emit)),
        about=about or {},
        beside=(replace(decode, name="decode", stages=tuple(_decode_stages(exchange, emit))),),
    )


class _Exchange:
    """Messages of all batches, from both sides (0: prefill, 1: decode)."""

    def __init__(
        self,
        model: TransformerConfig,
        prefill: StepPlan,
        decode: StepPlan,
        options: InferenceOptions,
        together: int,
    ) -> None:
        self.plans = prefill, decode
        self.together = together
        self.batches = options.micro_batches * prefill.parallel.dp
        self.messages = messages(
            model, (prefill.model, decode.model), (prefill.parallel.tp, decode.parallel.tp), options.requests,
            options.prompt,
        )  # fmt: skip
        self.first = 0, prefill.parallel.world
        self.coordinates = [RankLayout(plan.parallel).coordinates for plan in self.plans]
        self.places = [
            {
                place: rank
                for rank, place in enumerate(zip(*(axes[axis].tolist() for axis in _PLACE), strict=True))
            }
            for axes in self.coordinates
        ]

    def _rank(self, side: int, chunk: int, tp: int, replica: int) -> int:
        """Number of the rank of a side that holds a global chunk."""
        stage = chunk % self.plans[side].parallel.pp
        return self.first[side] + self.places[side][stage, tp, replica]

    def _tag(self, message: Message, batch: int) -> int:
        """Numbers the messages between two ranks: by chunks, then by the batches of both; tokens behind the caches."""
        sources, targets = (len(plan.model.chunks) for plan in self.plans)
        slot = message.chunks[0] * targets + message.chunks[1]
        if message.group == TOKEN_GROUP:
            slot = sources * targets
        return slot * self.batches + batch // lcm(*(plan.parallel.dp for plan in self.plans))

    def _posted(self, side: int, rank: int) -> tuple[_Posted, ...]:
        """Messages of a rank (its number within its side), in the order of its passes."""
        parallel = self.plans[side].parallel
        stage, tp, replica = (int(self.coordinates[side][axis][rank]) for axis in _PLACE)
        mine = [m for m in self.messages if m.chunks[side] % parallel.pp == stage and m.ranks[side] == tp]
        other, out = 1 - side, []
        for turn in range(self.batches // parallel.dp):
            batch = turn * parallel.dp + replica
            theirs = batch % self.plans[other].parallel.dp
            for message in mine:
                peer = self._rank(other, message.chunks[other], message.ranks[other], theirs)
                micro_batch = turn if side == 0 else turn // self.together
                offset = peer - self.first[side] - rank
                tag, chunk = self._tag(message, batch), message.chunks[side]
                out.append(_Posted(message.group, message.size_bytes, offset, tag, micro_batch, chunk))
        return tuple(out)

    def classes(self, side: int, stage: StagePlan) -> dict[tuple[_Posted, ...], list[int]]:
        """Ranks of a stage plan (numbers within their side) by their messages."""
        found: dict[tuple[_Posted, ...], list[int]] = {}
        ranks = np.flatnonzero(self.coordinates[side]["pp"] == stage.stage).tolist()
        for rank in ranks if stage.ranks is None else stage.ranks:
            found.setdefault(self._posted(side, rank), []).append(rank)
        return found


def _prefill_stages(exchange: _Exchange, emit: EmitOptions) -> Iterator[StagePlan]:
    """Prefill: behind the pass of a chunk its messages."""
    plan = exchange.plans[0]
    for stage in plan.stages:
        for posted, ranks in exchange.classes(0, stage).items():
            templates, stamps = list(stage.templates), []
            due: dict[tuple[int, int], list[_Posted]] = {}
            for one in posted:
                due.setdefault((one.micro_batch, one.chunk), []).append(one)
            for stamp in stage.stamps:
                stamps.append(stamp)
                # there is one template for each chunk
                chunk = stamp.template * plan.parallel.pp + stage.stage
                sent = due.get((stamp.micro_batch, chunk))
                if sent:
                    builder = TemplateBuilder(emit)
                    for one in sent:
                        builder.send(
                            f"{one.group}.send", one.group, one.offset, one.size_bytes, one.tag - one.micro_batch,
                            [builder.last_compute],
                        )  # fmt: skip
                    builder.flush_host()
                    stamps.append(replace(stamp, template=len(templates), token=-1))
                    templates.append(builder.template)
            yield replace(stage, templates=tuple(templates), stamps=tuple(stamps), ranks=tuple(ranks))


def _decode_stages(exchange: _Exchange, emit: EmitOptions) -> Iterator[StagePlan]:
    """Decoding: before a batch's first step what it needs; batches one after the other, as many at once as stages."""
    plan = exchange.plans[1]
    batches, stages = plan.training.micro_batches, plan.parallel.pp
    for stage in plan.stages:
        for posted, ranks in exchange.classes(1, stage).items():
            templates, stamps = list(stage.templates), list(stage.stamps)
            due: dict[int, list[_Posted]] = {}
            for one in posted:
                due.setdefault(one.micro_batch, []).append(one)
            for micro_batch, needed in due.items():
                builder = TemplateBuilder(emit)
                for one in needed:
                    builder.receive(
                        f"{one.group}.recv", one.group, one.offset, one.size_bytes, one.tag - micro_batch
                    )
                # the first stamps are those of the first step, a micro-batch each
                first = stamps[micro_batch]
                stamps[micro_batch] = replace(first, template=len(templates))
                templates.append(behind(builder.template, templates[first.template]))
            order = [
                stamps[step * batches + batch]
                for begin in range(0, batches, stages)
                for step in range(len(stamps) // batches)
                for batch in range(begin, min(begin + stages, batches))
            ]
            yield replace(stage, templates=tuple(templates), stamps=tuple(order), ranks=tuple(ranks))
