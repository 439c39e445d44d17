"""A plan's totals as tables for people, with units."""

from collections.abc import Sequence

from chakra.alignment import aligned
from chakra.generate.plan.training import StepPlan
from chakra.generate.verify.step_totals import StageSummary, summarize, total_matmul_flops, total_parameters


def plan_text(plan: StepPlan) -> str:
    """Totals of a plan, a line per stage, and the traffic of one rank of each stage that differs."""
    p = plan.parallel
    stages = summarize(plan)
    degrees = " x ".join(
        f"{axis} {p.axis_sizes[axis]}" for axis in ("tp", "cp", "dp", "pp") if p.axis_sizes[axis] > 1
    )
    steps = plan.training.iterations
    size = f"{p.world} NPUs ({degrees or 'one rank'}), {plan.training.micro_batches} micro-batches"
    size += f", {steps} steps" if steps > 1 else ""
    lines = [
        f"{size}, {len(stages)} pipeline stages",
        f"parameters {total_parameters(plan):.4e}, matrix FLOPs of all ranks {total_matmul_flops(plan):.6e}",
        "",
        _stage_table(stages),
        "",
        f"bytes per collective, one rank of the stage, {'one step' if steps == 1 else f'{steps} steps'}",
        _traffic_table(stages),
    ]
    return "\n".join(lines)


def _stage_table(stages: Sequence[StageSummary]) -> str:
    header = (
        "stage", "ranks", "nodes", "parameters", "matrix TFLOP", "other Gop", "HBM traffic GB", "states GB",
        "activations GB", "peak GB",
    )  # fmt: skip
    rows = [
        (
            str(s.stage), str(s.ranks), str(s.nodes), f"{s.parameters:.4e}", f"{s.matmul_flops / 1e12:.3f}",
            f"{s.other_ops / 1e9:.3f}", f"{s.memory_traffic_bytes / 1e9:.3f}", f"{s.memory.states / 1e9:.3f}",
            f"{(s.memory.activations + s.memory.transient) / 1e9:.3f}", f"{s.memory.total / 1e9:.3f}",
        )
        for s in stages
    ]  # fmt: skip
    return aligned(header, rows)


def _traffic_table(stages: Sequence[StageSummary]) -> str:
    header = ("stage", "group", "kind", "members", "calls", "MB in", "MB sent (ring)")
    rows: list[tuple[str, ...]] = []
    previous: tuple[object, ...] | None = None
    for s in stages:
        if s.traffic == previous:
            continue
        previous = s.traffic
        rows += [
            (
                str(s.stage), t.group, t.kind, str(t.members), str(t.calls), f"{t.size_bytes / 1e6:.3f}",
                f"{t.sent_bytes / 1e6:.3f}",
            )
            for t in s.traffic
        ]  # fmt: skip
    return aligned(header, rows) if rows else "none"
