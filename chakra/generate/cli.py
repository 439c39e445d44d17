"""Commands ``chakra generate transformer | moe | mlp | resnet | dlrm``."""

import json
from collections.abc import Callable
from dataclasses import MISSING, asdict, fields
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import rich_click as click

from chakra.errors import ThresholdError, UsageError
from chakra.generate.request import REQUESTS, Request, TransformerRequest
from chakra.streams import errors_on_terminal

#: what each parameter means, with its unit
HELP = {
    "tp": "Tensor-parallel ranks.",
    "cp": "Context-parallel ranks.",
    "ep": "Expert-parallel ranks (cut out of cp x dp).",
    "dp": "Data-parallel replicas.  [default: npus/(tp*cp*pp), or 1]",
    "pp": "Pipeline stages.",
    "vp": "Model chunks per pipeline stage (interleaved schedule).",
    "npus": "Ranks in all; dp follows.",
    "order": "Rank order, fastest axis first.",
    "micro_batch": "Sequences (samples, requests) per micro-batch and replica.",
    "micro_batches": "Micro-batches per step.  [default: 1]",
    "global_batch": "Sequences (samples) per step over all replicas, instead of micro-batches.",
    "dtype": "Element type of activations and weights: fp32, bf16, fp16, fp8.",
    "grad_dtype": "Element type of weight gradients.",
    "schedule": "Pipeline schedule.",
    "schedule_file": "CSV file with the schedule: a line per stage, cells such as F0, B0, I1, W1.",
    "recompute": "Activations computed again in the backward pass.",
    "zero": "ZeRO stage: 0 none, 1 optimizer, 2 gradients, 3 weights (FSDP).",
    "bucket_mb": "Size of gradient buckets, MB of 10^6 bytes.",
    "reshard": "ZeRO-3: gather weights again for the backward pass.",
    "reduce_once": "ZeRO-3: reduce gradients once a step, not once per micro-batch.",
    "prefetch": "ZeRO-3: layers gathered ahead.",
    "optimizer_bytes": "Bytes of optimizer state per parameter.",
    "optimizer_step": "End the step with the optimizer.",
    "overlap": "Communication beside computation.",
    "comm_order": "One chain of collectives per rank (program), or one per stream.",
    "fuse": "Merge operators that have no communication between them.",
    "peak_tflops": "Peak of the accelerator, 10^12 operations per second; with mem-gbps nodes carry durations.",
    "mem_gbps": "Device memory bandwidth, 10^9 bytes per second.",
    "matmul_efficiency": "Reachable share of the peak, 0 to 1.",
    "memory_efficiency": "Reachable share of the memory bandwidth, 0 to 1.",
    "launch_ns": "Fixed cost of every operator, ns.",
    "model": "Model preset (see --list-models).",
    "layers": "Layers.",
    "hidden": "Hidden width.",
    "heads": "Attention heads.",
    "kv_heads": "Key-value heads.",
    "head_dim": "Width of a head.",
    "ffn": "Feed-forward width.",
    "vocabulary": "Vocabulary size.",
    "gated": "Gated feed-forward (three matrices).",
    "experts": "Experts per MoE layer.",
    "experts_per_token": "Experts that each token visits.",
    "moe_ffn": "Width of one expert.",
    "shared_experts": "Experts that every token visits.",
    "seq": "Tokens per sequence (training) or prompt (inference).  [default: the model's]",
    "mode": "Training step, prefill, decode, or serve (prefill, then decode).",
    "decode_steps": "Tokens generated per request.",
    "sp": "Sequence parallelism along tp.",
    "regather": "With --sp: gather inputs again in the backward pass.",
    "context": "Kind of context parallelism.",
    "flash": "Fused attention without a matrix of scores in memory.",
    "causal": "Count only the unmasked half of attention.",
    "capacity": "MoE capacity factor.",
    "stage_layers": "Layers of each pipeline chunk, comma-separated.",
    "widths": "Widths, inputs first, comma-separated.",
    "image": "Side of the image, pixels.",
    "classes": "Number of classes.",
    "bottom": "Bottom MLP widths, comma-separated.",
    "top": "Top MLP widths, comma-separated.",
    "tables": "Embedding tables.",
    "rows": "Rows of all tables together.",
    "dim": "Width of embeddings.",
    "pooling": "Lookups per table and sample.",
}


if TYPE_CHECKING:
    _IntListBase = click.ParamType[tuple[int, ...]]
else:
    _IntListBase = click.ParamType  # a plain class before click 8.5


class IntList(_IntListBase):
    """Comma-separated whole numbers."""

    name = "n,n,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """Parse the text of an option."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(item) for item in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a comma-separated list of whole numbers", param, ctx)


def _option(name: str, hint: Any, default: Any) -> Any:
    flag = "--" + name.replace("_", "-")
    if get_origin(hint) in (Union, UnionType):
        hint = next(item for item in get_args(hint) if item is not type(None))
    shown = default is not None and default is not MISSING and default != ""
    common: dict[str, Any] = {"default": None, "help": HELP[name]}
    if shown:
        text = default.value if isinstance(default, Enum) else default
        if isinstance(default, tuple):
            text = ",".join(str(item) for item in default)
        common["help"] += f"  [default: {'on' if text is True else 'off' if text is False else text}]"
    if hint is bool:
        return click.option(f"{flag}/--no-{flag[2:]}", name, **common)
    if get_origin(hint) is tuple:
        return click.option(flag, name, type=IntList(), **common)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return click.option(flag, name, type=click.Choice([str(member.value) for member in hint]), **common)
    return click.option(flag, name, type=hint, **common)


def _command(kind: str, help_text: str) -> Any:
    request_type = REQUESTS[kind]

    def run(**options: Any) -> None:
        _run(kind, request_type, options)

    run.__doc__ = help_text
    command: Callable[..., Any] = run
    hints = get_type_hints(request_type)
    decorators = [
        click.option("-o", "--output", metavar="PREFIX", help="Write PREFIX.workload.json and its traces."),
        click.option(
            "--files",
            is_flag=True,
            help="Write one plain trace per rank and PREFIX.comm_groups.json instead.",
        ),
        click.option("--tensors", is_flag=True, help="Write activations for trackers of local memory."),
        click.option("--config", type=click.Path(), help="YAML file with parameters; options go before it."),
        click.option(
            "--platform", metavar="NAME", help="Machine preset whose accelerator gives nodes their durations."
        ),
        click.option(
            "--check", is_flag=True, help="Compare with the closed forms; exit code 4 if one fails."
        ),
        click.option(
            "--format",
            "shape",
            type=click.Choice(["text", "json"]),
            default="text",
            help="Form of the summary.",
        ),
        click.option("--quiet", is_flag=True, help="No summary."),
    ]
    if kind in ("transformer", "moe", "dlrm"):
        decorators.append(click.option("--list-models", is_flag=True, help="List model presets and stop."))
    decorators += [_option(item.name, hints[item.name], item.default) for item in fields(request_type)]
    for decorator in reversed(decorators):
        command = decorator(command)
    return click.command(name=kind, context_settings={"help_option_names": ["-h", "--help"]})(command)


def _run(kind: str, request_type: type[Request], options: dict[str, Any]) -> None:
    own = {item.name for item in fields(request_type)}
    given = {key: value for key, value in options.items() if key in own and value is not None}
    if options.get("list_models"):
        click.echo(_models(kind))
        return
    if options["config"]:
        given = {**_config(options["config"]), **given}
    if options["platform"]:
        given = {**accelerator_parameters(options["platform"]), **given}
    request = request_type.from_mapping(given)
    generate(kind, request, options)


def generate(kind: str, request: Request, options: dict[str, Any]) -> None:
    """Plan, check, write and describe one workload, as the options say."""
    from chakra.generate.tables import plan_text

    plan = request.plan()
    failed = _check(request, plan, err=options["shape"] == "json") if options["check"] else 0
    if options["output"]:
        _write(request, kind, plan, options)
    elif options["files"] or options["tensors"]:
        raise UsageError("--files and --tensors say how to write: give --output PREFIX too")
    if not options["quiet"]:
        click.echo(json.dumps(_document(plan), indent=1) if options["shape"] == "json" else plan_text(plan))
    if request.peak_tflops is None and options["output"]:
        click.echo(
            "note: nodes carry operations and bytes, no durations: replay with roofline-enabled, or give --platform",
            err=True,
        )
    if failed:
        raise ThresholdError(f"{failed} closed forms are not met")


def _write(request: Request, kind: str, plan: Any, options: dict[str, Any]) -> None:
    from chakra import __version__
    from chakra.generate.files import write_plain, write_shared
    from chakra.generate.training import build_workload

    metadata: dict[str, str | int] = {
        "generator": f"chakra {__version__}",
        "workload": kind,
        "parameters": json.dumps(request.about(kind)["parameters"], sort_keys=True),
    }
    workload = build_workload(plan, tensors=options["tensors"], metadata=metadata)
    total = workload.n_npus if options["files"] else len(workload.traces)
    with progress_bar("writing traces", total) as advance:
        path = (write_plain if options["files"] else write_shared)(workload, options["output"], advance)
    click.echo(f"wrote {path} and {total} traces", err=True)


class progress_bar:  # noqa: N801 - used as a function
    """A progress bar on standard error when that is a terminal, else nothing."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total = what, total
        self._bar: Any = None

    def __enter__(self) -> Callable[[int], None]:
        if errors_on_terminal():
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True))
            self._bar.start()
            task = self._bar.add_task(self.what, total=self.total)
            return lambda done: self._bar.update(task, completed=done)
        return lambda done: None

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()


def _check(request: Request, plan: Any, *, err: bool) -> int:
    """Number of closed forms that the workload misses; the table goes to standard error beside a document."""
    from chakra.generate.tables import aligned
    from chakra.generate.verify import check_step

    if not isinstance(request, TransformerRequest):
        raise UsageError("--check knows the closed forms of transformers only")
    checks = check_step(request, plan)
    rows = [
        (
            check.name,
            f"{check.expected:,.0f}",
            f"{check.found:,.0f}",
            check.unit or "-",
            "ok" if check.passed else "WRONG",
        )
        for check in checks
    ]
    text = aligned(("closed form", "expected", "generated", "unit", ""), rows)
    click.echo(f"{text}\n", err=err)
    return sum(not check.passed for check in checks)


def _document(plan: Any) -> dict[str, Any]:
    from chakra.generate.summary import summarize, total_matmul_flops, total_parameters

    return {
        "schema": "chakra.generate.summary/1",
        "npus": plan.parallel.world,
        "parameters": total_parameters(plan),
        "matmul_flops": total_matmul_flops(plan),
        "workload": plan.about.get("workload"),
        "parameters_given": plan.about.get("parameters", {}),
        "stages": [{**asdict(stage), "memory_total_bytes": stage.memory.total} for stage in summarize(plan)],
    }


def _models(kind: str) -> str:
    from chakra.generate.closed import parameters
    from chakra.generate.models.classic import DLRM
    from chakra.generate.models.config import TRANSFORMERS
    from chakra.generate.tables import aligned

    if kind == "dlrm":
        rows = [(m.name, f"{m.tables}", f"{m.rows * m.dim / 1e9:.2f}e9") for m in DLRM.values()]
        return aligned(("model", "tables", "table parameters"), rows)
    models = [m for m in TRANSFORMERS.values() if kind != "moe" or m.experts]
    rows2 = [
        (
            m.name,
            str(m.layers),
            str(m.hidden),
            str(m.heads),
            str(m.experts),
            f"{parameters(m) / 1e9:.2f}e9",
            m.source,
        )
        for m in models
    ]
    return aligned(("model", "layers", "hidden", "heads", "experts", "parameters", "source"), rows2)


def _config(path: str) -> dict[str, Any]:
    from chakra.platforms.yaml import read_yaml

    document = read_yaml(Path(path))
    if not isinstance(document, dict):
        raise UsageError(f"{path}: must be a map of parameters")
    return {str(key).replace("-", "_"): value for key, value in document.items()}


def accelerator_parameters(name: str) -> dict[str, Any]:
    """Peak and memory bandwidth of a machine preset, as request parameters."""
    from chakra.platforms import load_platform

    accelerator = load_platform(name).accelerator
    return {"peak_tflops": accelerator.peak_tflops, "mem_gbps": accelerator.mem_gbps}


transformer = _command("transformer", "Training step or inference of a decoder-only transformer.")
moe = _command("moe", "Mixture-of-experts transformer (default Mixtral 8x7B); same options as transformer.")
mlp = _command("mlp", "Training step of a multi-layer perceptron.")
resnet = _command("resnet", "Training step of ResNet-50.")
dlrm = _command("dlrm", "Training step of a recommendation model.")
