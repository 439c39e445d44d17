"""The Pareto front of two metrics, and its picture."""

from collections.abc import Sequence
from pathlib import Path

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.files import atomic_bytes
from chakra.io.readable import counted
from chakra.sweep.metrics import METRICS
from chakra.sweep.store import Outcome
from chakra.sweep.study import Study


@checked
def front(study: Study, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Good points that no other beats in one of the study's two Pareto metrics without losing in the other.

    Ordered by the first metric, best first; points with equal metrics are all kept, in the order of the study, as nothing
    tells which of them to take.

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points.
    """
    first, second = study.pareto
    signs = [-1.0 if METRICS[name] else 1.0 for name in study.pareto]
    good = [o for o in outcomes if o.ok and first in o.metrics and second in o.metrics]
    order = sorted(good, key=lambda o: (signs[0] * o.metrics[first], signs[1] * o.metrics[second]))
    kept: list[Outcome] = []
    best, beside = float("inf"), float("inf")
    for outcome in order:
        at, value = signs[0] * outcome.metrics[first], signs[1] * outcome.metrics[second]
        if value < best or (value == best and at == beside):
            kept.append(outcome)
            best, beside = value, at
    return kept


@checked
def plot(study: Study, outcomes: Sequence[Outcome], path: str | Path) -> Path:
    """Draw all good points and the front as SVG, PDF or PNG (by the suffix).

    Parameters
    ----------
    study
        The study.
    outcomes
        Outcomes of its points.
    path
        File whose suffix says the format.

    Raises
    ------
    UsageError
        matplotlib is not installed (the ``plot`` extra).
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("a Pareto plot needs matplotlib: pip install 'chakra-replay[plot]'") from None
    path = Path(path)
    kind = path.suffix.lstrip(".").lower() or "svg"
    if kind not in FigureCanvasAgg.get_supported_filetypes():
        known = ", ".join(sorted(FigureCanvasAgg.get_supported_filetypes()))
        raise UsageError(f"{path}: no picture's suffix; the name must end in one of {known}")
    first, second = study.pareto
    good = [o for o in outcomes if o.ok and first in o.metrics and second in o.metrics]
    best = front(study, outcomes)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.scatter(
        [o.metrics[first] for o in good], [o.metrics[second] for o in good], s=18, facecolors="none", edgecolors="0.45",
        label=f"{counted(len(good), 'point')}",
    )  # fmt: skip
    axes.plot(
        [o.metrics[first] for o in best], [o.metrics[second] for o in best], "o-", color="black", markersize=5,
        drawstyle="steps-post", label=f"front ({len(best)})",
    )  # fmt: skip
    axes.set_xlabel(label(first))
    axes.set_ylabel(label(second))
    axes.set_title(study.name)
    axes.grid(visible=True, color="0.9")
    axes.legend()
    # matplotlib names the parts of an SVG by chance unless it has a salt.
    with rc_context({"svg.hashsalt": "chakra"}), atomic_bytes(path) as file:
        figure.savefig(
            file,
            format=kind,
            metadata={"Date": None} if kind == "svg" else None,
        )
    return path


def label(metric: str) -> str:
    """Metric with its unit, for axes and headings."""
    return {
        "step_ms": "step [ms]",
        "step_low_ms": "90 % from [ms]",
        "step_high_ms": "90 % to [ms]",
        "exposed_ms": "exposed communication [ms]",
        "bubble_share": "pipeline bubble [of step]",
        "ideal_bubble_share": "ideal bubble [of step]",
        "memory_gb": "peak memory [GB]",
        "memory_share": "peak memory [of an NPU's]",
        "samples_per_s": "samples/s",
        "tokens_per_s": "tokens/s",
        "tokens_per_s_per_npu": "tokens/s per NPU",
        "ttft_ms": "first token [ms]",
        "tpot_ms": "time per token [ms]",
        "decode_tokens_per_s": "tokens/s decoding",
        "steady_samples_per_s": "steady samples/s",
        "steady_tokens_per_s": "steady tokens/s",
        "mfu": "MFU [of peak]",
        "hfu": "HFU [of peak]",
        "npus": "NPUs",
        "paid_npus": "NPUs paid for",
        "switches": "switches",
        "cables": "cables",
        "cost_per_hour": "cost/h",
        "cost_per_step": "cost/step",
        "cost_per_million_tokens": "cost/million tokens",
        "steady_cost_per_million_tokens": "steady cost/million tokens",
    }[metric]
