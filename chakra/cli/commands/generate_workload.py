"""Commands ``chakra generate transformer | moe | mlp | resnet | dlrm``, made from the parameters of each request."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import DecimalNumber, WholeNumber
from chakra.cli.support.progress import ProgressBar
from chakra.cli.support.quiet import hush
from chakra.errors import ThresholdError, UsageError
from chakra.generate.request.base import CommOrder, Request
from chakra.generate.request.parameters import Amount, Member, Size, Sizes, keys_of
from chakra.generate.request.requests import REQUESTS
from chakra.generate.request.transformers import TransformerRequest
from chakra.io.digits import signed_whole_number
from chakra.io.documents import document_text
from chakra.io.readable import counted, decimal_bytes_text, verb
from chakra.replay.config.key import Key
from chakra.replay.config.readers import Flag, Text

if TYPE_CHECKING:
    from chakra.et.memory_need import MemoryNeed
    from chakra.generate.model.config import TransformerConfig
    from chakra.generate.plan.training import StepPlan

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
            return tuple(signed_whole_number(item) for item in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a comma-separated list of whole numbers", param, ctx)


def _option(key: Key[object]) -> Any:
    flag, reader, default = f"--{key.name}", key.reader, key.default
    help_text = f"{key.meaning}."
    if key.default_said:
        help_text += f"  [default: {key.default_said}]"
    elif default is not None and default != "":
        text = default.value if isinstance(default, Enum) else default
        if isinstance(default, tuple):
            text = ",".join(str(item) for item in default)
        help_text += f"  [default: {'on' if text is True else 'off' if text is False else text}]"
    common: dict[str, Any] = {"default": None, "help": help_text}
    if isinstance(reader, Flag):
        return click.option(f"{flag}/--no-{key.name}", key.field, **common)
    if isinstance(reader, Member):
        return click.option(flag, key.field, type=click.Choice(reader.words), **common)
    kinds = {Sizes: IntList(), Size: WholeNumber(), Amount: DecimalNumber(), Text: str}
    return click.option(flag, key.field, type=kinds[type(reader)], **common)


def _command(kind: str, help_text: str) -> Any:
    request_type = REQUESTS[kind]

    def run(**options: Any) -> None:
        _run(kind, request_type, options)

    run.__doc__ = help_text
    command: Callable[..., Any] = run
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
            "--platform",
            metavar="MACHINE",
            help="A known machine, as chakra replay takes it, whose accelerator gives nodes their durations.",
        ),
        click.option(
            "--durations/--no-durations",
            default=None,
            help="With --platform: nodes carry durations, those of the operator times of its accelerator where they are "
            "known. Without, a replay on a machine makes them.  [default: on with --platform]",
        ),
        click.option("--ideal", is_flag=True, help="Durations at 100 % of the peak of --platform."),
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
        click.option(
            "-q",
            "--quiet",
            is_flag=True,
            is_eager=True,
            callback=hush,
            help="No messages on standard error, but that of a failure; with --output no summary in words either.",
        ),
    ]
    if kind in ("transformer", "moe", "dlrm"):
        decorators.append(click.option("--list-models", is_flag=True, help="List model presets and stop."))
    decorators += [_option(key) for key in keys_of(request_type)]
    for decorator in reversed(decorators):
        command = decorator(command)
    return click.command(cls=ChakraCommand, name=kind)(command)


def _run(kind: str, request_type: type[Request], options: dict[str, Any]) -> None:
    own = {item.name for item in fields(request_type)}
    given = {key: value for key, value in options.items() if key in own and value is not None}
    if options.get("list_models"):
        click.echo(_models(kind))
        return
    if options["config"]:
        given = {**_config(options["config"]), **given}
    if options["platform"] is None and (options["durations"] or options["ideal"]):
        raise UsageError("--durations and --ideal are of a machine: give --platform")
    if options["platform"] and options["durations"] is not False:
        given = {**durations_of(options["platform"], given, ideal=options["ideal"]), **given}
    request = request_type.from_mapping(given)
    generate(kind, request, options)


def generate(kind: str, request: Request, options: dict[str, Any]) -> None:
    """Plan, check, write and describe one workload, as the options say."""
    from chakra.et.memory_need import shortage_notes
    from chakra.generate.verify.tables import plan_text

    with ProgressBar("planning the workload", after_s=1.0):
        plan = request.plan()
    if options["platform"]:
        _fits(options["platform"], plan.world)
    need, capacity = _memory(plan, options["platform"])
    failed = _check(request, plan, err=options["shape"] == "json") if options["check"] else 0
    if options["output"]:
        _write(request, kind, plan, options)
    elif options["files"] or options["tensors"]:
        raise UsageError("--files and --tensors say how to write: give --output PREFIX too")
    if options["shape"] == "json":
        click.echo(document_text(_document(plan) | {"memory_need": need.document(capacity)}, indent=1))
    elif not (options["quiet"] and options["output"]):
        click.echo(plan_text(plan))
    for note in (*shortage_notes(need, capacity), *memory_notes(request, plan, need)):
        click.echo(f"note: {note}", err=True)
    if request.peak_tflops is None and request.operator_model is None and options["output"]:
        click.echo(
            "note: nodes say what they compute and carry no durations: replay with --platform or roofline-enabled, or "
            "give --platform here",
            err=True,
        )
    elif options["output"]:
        for note in speed_notes(request):
            click.echo(f"note: {note}", err=True)
    if options["output"] and isinstance(request, TransformerRequest):
        click.echo(f"note: {framework_note(request)}", err=True)
    if failed:
        raise ThresholdError(f"{counted(failed, 'closed form')} {verb(failed, 'is', 'are')} not met")


def _memory(plan: "StepPlan", platform: str | None) -> "tuple[MemoryNeed, int | None]":
    """What a rank of the fullest stage needs, and what a machine's accelerator has where one is named."""
    from chakra.generate.verify.step_totals import summarize
    from chakra.generate.verify.totals import memory_need
    from chakra.platforms import cluster

    capacity = cluster(platform, sized=False).accelerator.memory_bytes if platform else None
    return memory_need(summarize(plan)), capacity


def _fits(words: str, ranks: int) -> None:
    """Refuse a machine whose words count other NPUs than the workload has ranks, as its replay would."""
    from chakra.platforms.cluster import counted_npus

    npus = counted_npus(words)
    if npus is not None and npus != ranks:
        raise UsageError(
            f"--platform: {words!r} has {counted(npus, 'NPU')}, and the workload {counted(ranks, 'rank')}; --npus sets "
            "how many ranks there are, and words without a number of machines fit any"
        )


def framework_note(request: Request) -> str:
    """Whose program the workload is."""
    from chakra.generate.request.frameworks import FRAMEWORKS, framework

    if request.framework is None:
        return (
            "no framework's program: every parameter is the generator's own default, and the host costs nothing; "
            f"--framework is one of {', '.join(FRAMEWORKS)}"
        )
    profile = framework(request.framework)
    proven = "" if profile.validated else "; not compared with measurements"
    return f"the program is that of {profile.title}{proven}"


def speed_notes(request: Request) -> list[str]:
    """What a reader of durations should know: where they are those of an accelerator at its peak."""
    if request.operator_model is not None:
        return [f"computation is timed by the operator times of {request.operator_model}"]
    speeds = {"matmul_efficiency": "peak FLOP/s", "memory_efficiency": "memory bandwidth"}
    full = [name for name in speeds if getattr(request, name) == 1]
    if not full:
        return []
    what = " and ".join(speeds[name] for name in full)
    flags = " and ".join(f"--{name.replace('_', '-')}" for name in full)
    return [
        f"computation is timed at 100 % of {what}, which no machine reaches: set {flags} (a share, such as 0.6)"
    ]


def memory_notes(request: Request, plan: "StepPlan", need: "MemoryNeed") -> list[str]:
    """Where choices that are to save memory do not, and what would.

    Parameters
    ----------
    request
        What was planned.
    plan
        Its plan.
    need
        What a rank of the fullest stage needs.
    """
    from chakra.generate.plan.options import Recompute, Zero
    from chakra.generate.verify.memory import stage_memory

    def peak_of(other: "StepPlan") -> int:
        return max(stage_memory(other, stage).total for stage in other.stages)

    notes = []
    if request.zero == Zero.GRADIENTS and request.comm_order is CommOrder.PROGRAM:
        # which gradients are whole at once is known of a plan alone
        saved = peak_of(replace(request, comm_order=CommOrder.STREAM).plan())
        if saved < need.peak_bytes:
            notes.append(
                "--zero 2 keeps the gradients of a chunk whole until the end of its pass, because with --comm-order "
                f"program they are not reduced before: a rank needs {decimal_bytes_text(need.peak_bytes)}, and with "
                f"--comm-order stream {decimal_bytes_text(saved)}"
            )
    kept = replace(plan, training=replace(plan.training, recompute=Recompute.NONE))
    if request.recompute is Recompute.SELECTIVE and peak_of(kept) <= need.peak_bytes:
        notes.append(
            "--recompute selective saves no memory and computes attention twice: fused attention keeps no scores; "
            "--recompute none, or full"
        )
    return notes


def _write(request: Request, kind: str, plan: Any, options: dict[str, Any]) -> None:
    from chakra import __version__
    from chakra.generate.plan.training import build_workload
    from chakra.generate.verify.totals import totals_of
    from chakra.generate.write import write_plain, write_shared

    metadata: dict[str, str | int] = {
        "generator": f"chakra {__version__}",
        **request.facts(kind),
        **totals_of(request, plan).fact(),
    }
    workload = build_workload(plan, tensors=options["tensors"], metadata=metadata)
    total = workload.npus if options["files"] else len(workload.traces)
    write = write_plain if options["files"] else write_shared
    with ProgressBar("writing traces", total) as bar:
        path = write(workload, options["output"], (lambda done: bar.show(completed=done)) if bar else None)
    click.echo(f"wrote {path} and {counted(total, 'trace')}", err=True)


def _check(request: Request, plan: Any, *, err: bool) -> int:
    """Number of closed forms that the workload misses; the table goes to standard error beside a document."""
    from chakra.alignment import aligned
    from chakra.generate.verify.check import check_step, why_no_flops

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
    reason = why_no_flops(request, plan)
    note = f"note: matrix FLOPs are not compared: {reason}\n" if reason else ""
    click.echo(f"{text}\n{note}", err=err)
    return sum(not check.passed for check in checks)


def _document(plan: Any) -> dict[str, Any]:
    from chakra.generate.verify.step_totals import summarize, total_matmul_flops, total_parameters

    return {
        "schema": "chakra.generate.summary/1",
        "npus": plan.world,
        "parameters": total_parameters(plan),
        "matmul_flops": total_matmul_flops(plan),
        "workload": plan.about.get("workload"),
        "parameters_given": plan.about.get("parameters", {}),
        "stages": [{**asdict(stage), "memory_total_bytes": stage.memory.total} for stage in summarize(plan)],
    }


def _models(kind: str) -> str:
    from chakra.alignment import aligned
    from chakra.generate.model.classic import DLRM
    from chakra.generate.model.presets import TRANSFORMERS
    from chakra.generate.verify.closed_forms import parameters

    if kind == "dlrm":
        rows = [(m.name, f"{m.tables}", f"{m.rows * m.dim / 1e9:.2f}e9") for m in DLRM.values()]
        return aligned(("model", "tables", "table parameters"), rows)
    models = [m for m in TRANSFORMERS.values() if kind != "moe" or m.has_experts]
    rows2 = [
        (
            m.name,
            f"{m.encoder.layers}+{m.layers}" if m.encoder else str(m.layers),
            str(m.hidden),
            _span(m, "heads"),
            _span(m, "experts"),
            f"{parameters(m) / 1e9:.2f}e9",
            m.source,
        )
        for m in models
    ]
    return aligned(("model", "layers", "hidden", "heads", "experts", "parameters", "source"), rows2)


def _span(model: "TransformerConfig", size: str) -> str:
    """A size of a model's layers, from the least to the most."""
    found = sorted({getattr(one, size) for one in model.variants()})
    return str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def _config(path: str) -> dict[str, Any]:
    from chakra.io.yaml import read_document

    document = read_document(Path(path))
    if not isinstance(document, dict):
        raise UsageError(f"{path}: must be a map of parameters")
    return {str(key).replace("-", "_"): value for key, value in document.items()}


def durations_of(words: str, given: Mapping[str, Any], *, ideal: bool = False) -> dict[str, Any]:
    """Request parameters by which nodes carry durations of a machine in words: its operator times, or its peak.

    A request that gives speeds or efficiencies of its own means the roofline.
    """
    from chakra.platforms import cluster
    from chakra.platforms.compute import takes_operator_times

    platform = cluster(words, sized=False)
    if not ideal and takes_operator_times(platform.name, list(given)):
        return {"operator_model": platform.name}
    accelerator = platform.accelerator
    return {"peak_tflops": accelerator.peak_tflops, "mem_gbps": accelerator.mem_gbps}


transformer = _command(
    "transformer",
    "Training step or inference of a transformer (text, sound or images), a state-space model or a hybrid.",
)
moe = _command("moe", "Mixture-of-experts transformer (default Mixtral 8x7B); same options as transformer.")
mlp = _command("mlp", "Training step of a multi-layer perceptron.")
resnet = _command("resnet", "Training step of ResNet-50.")
dlrm = _command("dlrm", "Training step of a recommendation model.")
