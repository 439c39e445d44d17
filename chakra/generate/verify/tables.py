"""A plan's totals as tables for people, with units."""

from collections.abc import Sequence
from dataclasses import replace

from chakra.alignment import aligned
from chakra.generate.plan.training import StepPlan
from chakra.generate.verify.step_totals import StageSummary, summarize, total_matmul_flops, total_parameters
from chakra.io.readable import count_text, counted, counted_text


def plan_text(plan: StepPlan) -> str:
    """Totals of a plan, a line per stage, and the traffic of one rank of each stage that differs."""
    stages = summarize(plan)
    steps = plan.training.iterations
    span = "one step" if steps == 1 else counted(steps, "step")
    lines = [
        *(_size(part) for part in plan.parts),
        f"parameters {total_parameters(plan):.4e}, matrix FLOPs of all ranks {total_matmul_flops(plan):.6e}",
        "",
        _stage_table(stages),
        "",
        f"bytes per collective, one rank of the stage, {span}",
        _traffic_table(stages),
    ]
    return "\n".join(lines)


def _size(plan: StepPlan) -> str:
    """NPUs and degrees of a part of a workload."""
    p, steps = plan.parallel, plan.training.iterations
    degrees = " x ".join(
        f"{axis} {p.axis_sizes[axis]}" for axis in ("tp", "cp", "dp", "pp") if p.axis_sizes[axis] > 1
    )
    batches = counted_text(plan.training.micro_batches, "micro-batch")
    size = f"{counted_text(p.world, 'NPU')} ({degrees or 'one rank'}), {batches}"
    size += f", {counted(steps, 'step')}" if steps > 1 else ""
    return f"{plan.name + ': ' if plan.name else ''}{size}, {counted(p.pp, 'pipeline stage')}"


def _distinct(stages: Sequence[StageSummary]) -> list[StageSummary]:
    """One line for ranks of a stage that differ only in whom they exchange messages with.

    Where experts are not visited evenly, the expert-parallel positions of a stage that have least and most to compute.
    """
    found: dict[StageSummary, int] = {}
    for stage in stages:
        key = replace(stage, ranks=0)
        found[key] = found.get(key, 0) + stage.ranks
    out = [replace(stage, ranks=ranks) for stage, ranks in found.items()]
    by_work: dict[tuple[str, int], list[StageSummary]] = {}
    for stage in sorted(out, key=lambda one: one.matmul_flops):
        by_work.setdefault((stage.part, stage.stage), []).append(stage)
    shown: list[StageSummary] = []
    for stages_alike in by_work.values():
        if stages_alike[0].position is None:
            shown += stages_alike
        else:
            least, most = stages_alike[0], stages_alike[-1]
            shown += [least] if least.matmul_flops == most.matmul_flops else [least, most]
    return [stage for stage in out if stage in shown]


def _stage_table(stages: Sequence[StageSummary]) -> str:
    # keys and values, or states, of inference
    caches = any(s.memory.cache for s in stages)
    header = (
        "stage", "layers", "ranks", "nodes", "parameters", "matrix TFLOP", "other Gop", "HBM traffic GB", "states GB",
        "activations GB", *(["cache GB"] * caches), "peak GB",
    )  # fmt: skip
    rows = [
        (
            s.title, s.layers or "-", count_text(s.ranks), count_text(s.nodes), f"{s.parameters:.4e}",
            *(f"{figure:,.3f}" for figure in _figures(s, caches=caches)),
        )
        for s in _distinct(stages)
    ]  # fmt: skip
    return aligned(header, rows)


def _figures(stage: StageSummary, *, caches: bool) -> tuple[float, ...]:
    """Operations and bytes of a rank of a stage, in the units of the table; the memory's parts add up to the peak."""
    memory = stage.memory
    held = (memory.states, memory.activations + memory.transient, *([memory.cache] * caches), memory.total)
    return (
        stage.matmul_flops / 1e12,
        stage.other_ops / 1e9,
        *(size / 1e9 for size in (stage.memory_traffic_bytes, *held)),
    )


def _traffic_table(stages: Sequence[StageSummary]) -> str:
    header = ("stage", "group", "kind", "members", "calls", "MB in", "MB sent (ring)")
    rows: list[tuple[str, ...]] = []
    previous: tuple[object, ...] | None = None
    for s in _distinct(stages):
        if (s.part, s.traffic) == previous:
            continue
        previous = s.part, s.traffic
        rows += [
            (
                s.title, t.group, t.kind, count_text(t.members), count_text(t.calls), f"{t.size_bytes / 1e6:,.3f}",
                f"{t.sent_bytes / 1e6:,.3f}",
            )
            for t in s.traffic
        ]  # fmt: skip
    return aligned(header, rows) if rows else "none"
