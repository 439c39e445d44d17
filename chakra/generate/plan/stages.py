"""Which layers each pipeline stage and chunk holds, and the templates of a stage's training step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from chakra.et.operators import Direction, Kernel, KernelKind
from chakra.generate.model.ir import Layer, OpKind, Weight, WeightGroup, Work
from chakra.generate.model.placement import joined
from chakra.generate.model.stage_model import StageModel
from chakra.generate.parallel import ParallelConfig
from chakra.generate.plan.options import Recompute, TrainingOptions, Zero
from chakra.generate.plan.passes import Kept, PassContext, backward, forward, weight_gradients
from chakra.generate.plan.template import EmitOptions, Outside, Stream, Template, TemplateBuilder, interleaved
from chakra.generate.schedule.pipeline import Action, Phase, Placement
from chakra.replay.config.model import CollectiveKind

#: group of the stages that hold copies of a tied embedding
EMBEDDING_GROUP = "embed"
#: group of two stages that hold the same parts of the model (DualPipe)
MIRROR_GROUP = "mirror"


@dataclass(slots=True)
class _Bucket:
    """Gradients of one group of weights that wait to be reduced."""

    group: WeightGroup
    ready: int = 0
    reduced: int = 0


@dataclass(slots=True)
class StageBuilder:
    """Makes the templates of one stage. Templates are kept by :meth:`template` and listed in ``templates``."""

    stage: int
    parallel: ParallelConfig
    model: StageModel
    training: TrainingOptions
    emit: EmitOptions
    placement: Placement
    templates: list[Template] = field(default_factory=list)
    _index: dict[tuple[Phase, int, bool], int] = field(default_factory=dict)
    _pairs: dict[tuple[int, int], int] = field(default_factory=dict)

    # ------------------------------------------------------------------ sizes

    @property
    def chunks(self) -> tuple[tuple[Layer, ...], ...]:
        """Layers of this stage by chunk."""
        return self.placement.layers(self.model.chunks, self.stage)

    @property
    def mirrored(self) -> bool:
        """Whether another stage has the same parts of the model."""
        return len(self.placement.routes) > 1

    def axes(self, group: WeightGroup) -> tuple[str, ...]:
        """Axes of more than one rank over which weights of this group are replicated."""
        return tuple(axis for axis in group.replica_axes() if self.parallel.axis_sizes[axis] > 1)

    def shard_axes(self, group: WeightGroup) -> tuple[str, ...]:
        """Axes of more than one rank over which ZeRO shards what belongs to weights of this group."""
        return self.parallel.sharding(group.replica_axes())

    def _elements(self, layer: Layer, group: WeightGroup) -> int:
        return sum(weight.elements for weight in layer.weights() if weight.group is group)

    @property
    def _lanes(self) -> int:
        """Tensors that can cross a boundary of the pipeline for a micro-batch, forward and backward."""
        return 4 if self.model.memory_bytes else 2

    def _context(
        self, builder: TemplateBuilder, phase: Phase, global_chunk: int, layer: int, memory: Sequence[int] = ()
    ) -> PassContext:  # fmt: skip
        # tags of ring exchanges lie above those of the pipeline; 64 operators a layer are plenty
        micro = self.training.passes
        boundaries = self._lanes * len(self.model.chunks)
        steps = max(1, self.parallel.cp - 1) * 64
        slot = (list(Phase).index(phase) * len(self.model.chunks) + global_chunk) * self.model.deepest + layer
        return PassContext(
            builder, self.parallel.axis_sizes, (boundaries + slot * steps) * micro, micro, memory
        )

    # ------------------------------------------------------------------ templates

    def template(self, action: Action, *, sync: bool) -> int:
        """Index of the template of an action; ``sync`` when its gradients are reduced."""
        phase = action.phase
        sync = sync and phase in (Phase.BACKWARD, Phase.WEIGHT)
        key = (phase, action.chunk, sync)
        if key not in self._index:
            builder = TemplateBuilder(self.emit)
            builder.host_does("passes")
            if phase is Phase.FORWARD:
                self._forward(builder, action.chunk)
            elif phase is Phase.WEIGHT:
                self._weights(builder, action.chunk, sync=sync)
            else:
                self._backward(builder, action.chunk, split=phase is Phase.INPUT, sync=sync)
            builder.flush_host()
            self._index[key] = len(self.templates)
            self.templates.append(builder.template)
        return self._index[key]

    def pair(self, forward: Action, backward: Action, *, sync: bool) -> int:
        """Index of the template of a forward and a backward beside each other."""
        key = self.template(forward, sync=False), self.template(backward, sync=sync)
        if key not in self._pairs:
            self._pairs[key] = len(self.templates)
            self.templates.append(
                interleaved(*(self.templates[index] for index in key), order=self.emit.order)
            )
        return self._pairs[key]

    def _global(self, chunk: int) -> int:
        """Number of the part of the model that a chunk is."""
        return self.placement.find(self.stage, chunk)[1]

    def _offset(self, chunk: int, step: int) -> int:
        """Distance in stages to the part after (1) or before (-1) a chunk's."""
        other = self.placement.beyond(self.stage, chunk, step)
        assert other is not None
        return other[0] - self.stage

    def _crosses(self, chunk: int, step: int) -> bool:
        """Whether the part after (1) or before (-1) a chunk's is on another stage.

        What stays on a stage needs no message: its passes compute one after the other.
        """
        other = self.placement.beyond(self.stage, chunk, step)
        return other is not None and other[0] != self.stage

    def _tag(self, boundary: int, direction: int) -> int:
        return (self._lanes * boundary + direction) * self.training.passes

    def _forward(self, builder: TemplateBuilder, chunk: int) -> None:
        layers, number = self.chunks[chunk], self._global(chunk)
        inputs: list[int] = []
        if self._crosses(chunk, -1):
            size = self.model.boundary_bytes(number - 1)
            offset = self._offset(chunk, -1)
            inputs = [self._receive(builder, "recv.forward", offset, size, self._tag(number - 1, 0))]
        memory = self._receive_memory(builder, chunk, "forward")
        if self.training.iterations > 1:
            builder.required = [Outside.STEP]
        kept = {Recompute.NONE: Kept.ALL, Recompute.SELECTIVE: Kept.NO_CORE, Recompute.FULL: Kept.INPUT}
        gathers = _Gathers(self, builder, layers)
        for i, layer in enumerate(layers):
            gathers.before(i)
            if layer.opens and self.model.memory_bytes:
                memory, inputs = inputs, []
            how = kept[self.training.recompute] if layer.recomputable else Kept.ALL
            context = self._context(builder, Phase.FORWARD, number, i, memory)
            inputs = forward(context, layer, inputs, kept=how)
        if self._crosses(chunk, 1):
            size = self.model.boundary_bytes(number)
            builder.send("send.forward", "pp", self._offset(chunk, 1), size, self._tag(number, 0), inputs)
        # with the output, not before: a send that waits for its receive would hold up the collectives of this pass
        self._send_memory(builder, chunk, "forward", [*memory, *inputs])

    def _receive_memory(self, builder: TemplateBuilder, chunk: int, way: str) -> list[int]:
        """The encoder's output, from the stage before, or (``way`` backward) its gradient, from the one after."""
        step = -1 if way == "forward" else 1
        boundary = self._global(chunk) + min(step, 0)
        if not self.model.carries_memory(boundary):
            return []
        tag, size = self._tag(boundary, 2 if step < 0 else 3), self.model.memory_bytes
        return [self._receive(builder, f"recv.{way}.encoder", self._offset(chunk, step), size, tag)]

    def _send_memory(self, builder: TemplateBuilder, chunk: int, way: str, nodes: list[int]) -> None:
        """The same on its way on."""
        step = 1 if way == "forward" else -1
        boundary = self._global(chunk) + min(step, 0)
        if self.model.carries_memory(boundary):
            tag, size = self._tag(boundary, 2 if step > 0 else 3), self.model.memory_bytes
            builder.send(f"send.{way}.encoder", "pp", self._offset(chunk, step), size, tag, nodes)

    def _receive(self, builder: TemplateBuilder, name: str, offset: int, size_bytes: int, tag: int) -> int:
        """A receive from a neighbouring stage, for which the host waits, and for all that the device has to do.

        One message of each kind is awaited ahead, as programs post the next receive together with a send: a stage that
        sends does not wait for what its neighbour computes in between.
        """
        index = builder.receive(name, "pp", offset, size_bytes, tag, ctrl=[Outside.POSTED])
        builder.host_waits(index, builder.last_compute)
        return index

    def _backward(self, builder: TemplateBuilder, chunk: int, *, split: bool, sync: bool) -> None:
        layers, number = self.chunks[chunk], self._global(chunk)
        training = self.training
        phase = Phase.INPUT if split else Phase.BACKWARD
        gradient: list[int] = []
        if self._crosses(chunk, 1) and self.model.returns_gradient(number):
            size = self.model.boundary_bytes(number)
            offset = self._offset(chunk, 1)
            gradient = [self._receive(builder, "recv.backward", offset, size, self._tag(number, 1))]
        of_memory = self._receive_memory(builder, chunk, "backward")
        builder.required = [Outside.FORWARD]
        trained = _trained(layers)
        back = [layer for _, layer in trained]
        gathers = _Gathers(self, builder, back) if training.reshard_after_forward else None
        buckets = self._buckets()
        for place, (i, layer) in enumerate(trained):
            if gathers:
                gathers.before(place)
            context = self._context(builder, phase, number, i)
            prefix = ""
            if training.recompute is Recompute.FULL and layer.recomputable:
                prefix = "recompute."
                again = self._context(builder, Phase.WEIGHT, number, i)
                forward(again, layer, [], prefix=prefix)
            gradient = backward(
                context, layer, gradient, split=split, prefix=prefix,
                selective=training.recompute is Recompute.SELECTIVE,
            )  # fmt: skip
            of_memory += context.memory_gradient
            if layer.opens and self.model.memory_bytes:
                # what all layers behind the encoder give back is what the encoder's backward begins with
                gradient, of_memory = of_memory, []
            if prefix and not split:
                builder.template.frees.append((builder.last_compute, f"{layer.name}.input"))
            if not split:
                self._layer_done(builder, layer, buckets, sync=sync)
        if self._crosses(chunk, -1) and self.model.returns_gradient(number - 1):
            size = self.model.boundary_bytes(number - 1)
            if not split:
                # a framework's backward returns, and its gradient is sent, when the weights' gradients are done too
                gradient = [*gradient, builder.last_compute]
                of_memory = [*of_memory, builder.last_compute]
            offset = self._offset(chunk, -1)
            builder.send("send.backward", "pp", offset, size, self._tag(number - 1, 1), gradient)
            self._send_memory(builder, chunk, "backward", [*of_memory, *gradient])
        if not split and sync and self._reduces_in_pass():
            # after the send, which other stages wait for
            self._flush(builder, buckets)

    def _weights(self, builder: TemplateBuilder, chunk: int, *, sync: bool) -> None:
        layers, number = self.chunks[chunk], self._global(chunk)
        builder.required = [Outside.INPUT]
        buckets = self._buckets()
        full = self.training.recompute is Recompute.FULL
        for i, layer in _trained(layers):
            prefix = "recompute." if full and layer.recomputable else ""
            weight_gradients(self._context(builder, Phase.WEIGHT, number, i), layer, prefix=prefix)
            if prefix:
                builder.template.frees.append((builder.last_compute, f"{layer.name}.input"))
            self._layer_done(builder, layer, buckets, sync=sync)
        if sync and self._reduces_in_pass():
            self._flush(builder, buckets)

    # ------------------------------------------------------------------ gradients

    def _buckets(self) -> dict[WeightGroup, _Bucket]:
        return {
            group: _Bucket(group)
            for group in WeightGroup.trained()
            if self.axes(group) or (self.mirrored and group.replica_axes())
        }

    def reduces_every_micro_batch(self) -> bool:
        """Whether every backward reduces its gradients, not only the last of the step."""
        training = self.training
        if training.zero is Zero.WEIGHTS:
            return not training.reduce_once
        return training.zero is Zero.GRADIENTS

    def _reduces_in_pass(self) -> bool:
        """Whether buckets are reduced within backward passes rather than after the last one.

        In a pipeline whose ranks have one chain of collectives, reductions would stand in the way of gradients that
        earlier stages wait for: there they begin when the stage's last backward is done.
        """
        if self.training.zero is Zero.GRADIENTS:
            return True
        return self._reduces_early()

    def _reduces_early(self) -> bool:
        """Whether a full bucket is reduced at once, while the backward pass goes on."""
        beside = not self.emit.blocks(Stream.DATA) and not self.mirrored
        return beside and (self.emit.order == "stream" or self.parallel.pp == 1)

    def unscattered_bytes(self) -> int:
        """Most bytes of gradients that are whole at once before ZeRO 2 or 3 scatters them.

        Of a layer (ZeRO-3); of a bucket and the layer that fills it (ZeRO-2), or of a whole chunk where buckets wait for
        the end of the pass. Gradients of one rank alone, and those that are added up whole, are none of them.
        """
        training = self.training
        if training.zero < Zero.GRADIENTS or training.adds_up_whole:
            return 0
        groups = [group for group in WeightGroup.trained() if self.shard_axes(group)]
        most = 0
        for chunk in self.chunks:
            sizes = [
                sum(self._elements(layer, group) for group in groups) * self.model.grad_itemsize
                for layer in chunk
            ]
            whole = sum(sizes)
            if training.zero is Zero.WEIGHTS:
                whole = max(sizes, default=0)
            elif self._reduces_early():
                whole = min(whole, max(sizes, default=0) + training.bucket_bytes)
            most = max(most, whole)
        return most

    def _layer_done(
        self, builder: TemplateBuilder, layer: Layer, buckets: dict[WeightGroup, _Bucket], *, sync: bool
    ) -> None:
        """Account a layer's gradients, and reduce what is complete: the layer (ZeRO-3) or full buckets."""
        if not sync:
            return
        for group, bucket in buckets.items():
            elements = self._elements(layer, group)
            if not elements:
                continue
            if self.training.zero is Zero.WEIGHTS:
                size = elements * self.model.grad_itemsize
                self._reduce(builder, f"{layer.name}.grads", group, size)
                continue
            bucket.ready += elements * self.model.grad_itemsize
            builder.reserve((bucket.ready - bucket.reduced) // self.training.bucket_bytes)
            while self._reduces_early() and bucket.ready - bucket.reduced >= self.training.bucket_bytes:
                self._reduce_bucket(builder, bucket, self.training.bucket_bytes)

    def _flush(self, builder: TemplateBuilder, buckets: dict[WeightGroup, _Bucket]) -> None:
        for bucket in buckets.values():
            builder.reserve((bucket.ready - bucket.reduced) // self.training.bucket_bytes)
            while bucket.ready > bucket.reduced:
                size = min(self.training.bucket_bytes, bucket.ready - bucket.reduced)
                self._reduce_bucket(builder, bucket, size)

    def _reduce_bucket(self, builder: TemplateBuilder, bucket: _Bucket, size_bytes: int) -> None:
        name = f"grads.bucket{bucket.reduced // self.training.bucket_bytes}"
        self._reduce(builder, name, bucket.group, size_bytes)
        bucket.reduced += size_bytes

    def _reduce(self, builder: TemplateBuilder, name: str, group: WeightGroup, size_bytes: int) -> None:
        """Sum gradients over all copies; with ZeRO each rank gets its shard, summed over the copies of the model."""
        steps = [(CollectiveKind.ALL_REDUCE, self.axes(group))]
        if self.training.zero is not Zero.NONE:
            steps = [
                (CollectiveKind.REDUCE_SCATTER, self.shard_axes(group)),
                (CollectiveKind.ALL_REDUCE, self.parallel.copies(group.replica_axes())),
            ]
        if self.mirrored:
            steps.append((CollectiveKind.ALL_REDUCE, (MIRROR_GROUP,)))
        after = builder.last_compute
        for kind, axes in steps:
            if not axes:
                continue
            scattered = kind is CollectiveKind.REDUCE_SCATTER
            if scattered:
                size_bytes = _padded(size_bytes, self.parallel.size(axes))
            title = f"{name}.{kind.lower()}"
            after = builder.collective(title, kind, joined(axes), size_bytes, [after], Stream.DATA)
            if scattered:
                size_bytes //= self.parallel.size(axes)

    # ------------------------------------------------------------------ end of the step

    def weights(self) -> list[Weight]:
        """All weights of this stage."""
        return [weight for chunk in self.chunks for layer in chunk for weight in layer.weights()]

    def tail(self) -> int | None:
        """Template of the end of the step: late reductions, the optimizer, gathering of updated parameters."""
        builder = TemplateBuilder(self.emit)
        training, zero = self.training, self.training.zero
        if zero < Zero.GRADIENTS and not self._reduces_in_pass():
            # in the order of the model, which stages that hold the same parts have alike
            for number in sorted(range(len(self.chunks)), key=self._global):
                buckets = self._buckets()
                for layer in self.chunks[number]:
                    for group, bucket in buckets.items():
                        bucket.ready += self._elements(layer, group) * self.model.grad_itemsize
                self._flush(builder, buckets)
        partial = self._held_gradients([weight for weight in self.weights() if weight.partial_tp])
        if partial and self.parallel.tp > 1:
            builder.collective(
                "grads.tp.all_reduce", CollectiveKind.ALL_REDUCE, "tp", partial * self.model.grad_itemsize,
                [builder.last_compute], Stream.DATA,
            )  # fmt: skip
        tied = self._tied_elements()
        if tied:
            builder.collective(
                "grads.embed.all_reduce", CollectiveKind.ALL_REDUCE, EMBEDDING_GROUP, tied * self.model.grad_itemsize,
                [builder.last_compute], Stream.DATA,
            )  # fmt: skip
        if training.optimizer_step:
            self._optimizer(builder)
        builder.flush_host()
        if not len(builder.template):
            return None
        self.templates.append(builder.template)
        return len(self.templates) - 1

    def _tied_elements(self) -> int:
        """Elements of a tied embedding that this stage shares with another stage."""
        if self.stage not in self.model.tied_stages(self.parallel.pp):
            return 0
        return self._held_gradients([weight for weight in self.weights() if weight.tied])

    def _held_gradients(self, weights: Sequence[Weight]) -> int:
        """Gradients of some weights that a rank has at the end of its passes: its shard from ZeRO 2 on."""
        whole = self.training.zero < Zero.GRADIENTS
        return sum(
            weight.elements
            if whole
            else -(-weight.elements // self.parallel.size(self.shard_axes(weight.group)))
            for weight in weights
        )

    def _optimizer(self, builder: TemplateBuilder) -> None:
        training = self.training
        held, experts = 0, 0
        for group in WeightGroup.trained():
            elements = sum(weight.elements for weight in self.weights() if weight.group is group)
            shards = self.parallel.size(self.shard_axes(group)) if training.zero else 1
            held += -(-elements // shards)
            experts += -(-elements // shards) if group is WeightGroup.EXPERT else 0
        if not held:
            return
        # Adam: read gradient and states, write states and weight; about twelve operations a parameter
        moved = self.model.grad_itemsize + 2 * training.optimizer_state_bytes + self.model.itemsize
        # the host reads the norm of the gradients, or whether they overflowed, before it issues the update
        builder.host_waits(builder.last_compute, *builder.pending_chains())
        builder.host_does("steps")
        builder.flush_host()
        builder.required = builder.pending_chains()
        what = Kernel(KernelKind.OPTIMIZER, held, moved * held, "fp32", Direction.UPDATE)
        work = Work(12 * held, moved * held, 12 * experts, moved * experts, what)
        update = builder.compute("optimizer", OpKind.OPTIMIZER, work, [])
        if training.zero in (Zero.OPTIMIZER, Zero.GRADIENTS):
            for group in WeightGroup.trained():
                self._gather_parameters(builder, group, update)

    def _gather_parameters(self, builder: TemplateBuilder, group: WeightGroup, update: int) -> None:
        axes = self.shard_axes(group)
        elements = sum(weight.elements for weight in self.weights() if weight.group is group)
        if not axes or not elements:
            return
        ranks = self.parallel.size(axes)
        total = _padded(elements, ranks) * self.model.itemsize
        bucket = _padded(self.training.bucket_bytes, ranks * self.model.itemsize)
        builder.reserve(total // bucket)
        for number, start in enumerate(range(0, total, bucket)):
            size = min(bucket, total - start) // ranks
            builder.template.last_step = builder.collective(
                f"params.bucket{number}.all_gather",
                CollectiveKind.ALL_GATHER,
                joined(axes),
                size,
                [update],
                Stream.DATA,
            )


class _Gathers:
    """ZeRO-3: gathers of layers' weights, some layers ahead of the computation."""

    def __init__(self, stage: StageBuilder, builder: TemplateBuilder, layers: Sequence[Layer]) -> None:
        self.stage, self.builder, self.layers = stage, builder, layers
        self.nodes: list[list[int]] = []
        self.active = stage.training.zero is Zero.WEIGHTS

    def before(self, index: int) -> None:
        """Gather what is due when layer ``index`` is about to run, and make it wait for its own weights."""
        if not self.active:
            return
        ahead = 0 if self.stage.emit.blocks(Stream.DATA) else self.stage.training.prefetch
        while len(self.nodes) < min(len(self.layers), index + ahead + 1):
            self.nodes.append(self._gather(self.layers[len(self.nodes)]))
        self.builder.required += self.nodes[index]

    def _gather(self, layer: Layer) -> list[int]:
        stage, nodes = self.stage, []
        for group in WeightGroup:
            axes = stage.shard_axes(group)
            elements = sum(weight.elements for weight in layer.weights() if weight.group is group)
            if axes and elements:
                ranks = stage.parallel.size(axes)
                size = _padded(elements, ranks) // ranks * stage.model.itemsize
                nodes.append(
                    self.builder.collective(
                        f"{layer.name}.params.all_gather", CollectiveKind.ALL_GATHER, joined(axes), size, [],
                        Stream.DATA, ctrl=[self.builder.last_compute],
                    )
                )  # fmt: skip
        return nodes


def _trained(layers: Sequence[Layer]) -> list[tuple[int, Layer]]:
    """Numbers and layers that a backward pass goes through, the last one first; frozen ones come before all others."""
    return [(i, layer) for i, layer in reversed(list(enumerate(layers))) if not layer.frozen]


def _padded(number: int, multiple: int) -> int:
    """``number`` rounded up to a multiple."""
    return -(-number // multiple) * multiple
