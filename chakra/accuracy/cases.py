"""From a row's columns to what is generated and replayed: workload, machine and framework. One rule for every row."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from chakra.accuracy.machines import Machine, read_machine
from chakra.accuracy.models import MTP_MODULES, Model, model_flops, read_model
from chakra.accuracy.table import Measured
from chakra.accuracy.words import DEGREES, MEMORIES, RATES, TIMES, metric_of, precision_of, unknown_word
from chakra.arguments import checked
from chakra.errors import ChakraError
from chakra.generate.model.presets import transformer
from chakra.generate.plan.options import Recompute
from chakra.generate.request.transformers import TransformerRequest
from chakra.io.digits import decimal_number, is_whole, whole_number
from chakra.io.readable import counted

T = TypeVar("T")

#: signs of a source that name a family, and of a reason why a row is not read
MAX_FAMILY, MAX_REASON = 80, 400
#: seconds that a step may have taken
LEAST_SECONDS, MOST_SECONDS = 1e-9, 1e9

_TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_MEMORY_UNITS = {"gib": float(1 << 30), "gb": 1e9, "mib": float(1 << 20), "mb": 1e6}
#: families that are printed apart by element type, and models with state-space layers apart from others
_BY_PRECISION = ("Megatron-Bridge", "DGX Cloud")


class Quantity(StrEnum):
    """What a row measured, in the unit in which it is compared."""

    STEP = "step time"
    STATES = "memory of weights and optimizer"
    ACTIVATIONS = "memory of activations"


@dataclass(frozen=True, slots=True)
class Case:
    """A row that can be predicted.

    Attributes
    ----------
    row
        The row.
    family
        Rows of one source, kind of machine and precision, as the scoreboard groups them.
    model
        Name of the model.
    framework
        Name of the framework profile.
    machine
        The machine.
    request
        The workload.
    quantity
        What is compared.
    measured
        Seconds of a step, or bytes.
    """

    row: Measured
    family: str
    model: str
    framework: str
    machine: Machine
    request: TransformerRequest
    quantity: Quantity
    measured: float


@dataclass(frozen=True, slots=True)
class Unread:
    """A row that cannot be predicted, and why.

    Attributes
    ----------
    row
        The row.
    family
        Its family.
    reason
        Why it cannot.
    """

    row: Measured
    family: str
    reason: str


#: source or path -> family of the scoreboard; the first that matches. Other sources are families of their own name
_FAMILIES = (
    (re.compile(r"ground_truth_multi"), "vTrain, several nodes"),
    (re.compile(r"ground_truth_single"), "vTrain, one node"),
    (re.compile(r"2205\.05198"), "Selene"),
    (re.compile(r"llm-foundry"), "llm-foundry"),
    (re.compile(r"dgxc"), "DGX Cloud"),
    (re.compile(r"Megatron-Bridge"), "Megatron-Bridge"),
    (re.compile(r"Ultra-Scale|nanotron"), "nanotron"),
    (re.compile(r"NVIDIA/Megatron-LM"), "Megatron-Core"),
    (re.compile(r"torchtitan"), "torchtitan"),
    (re.compile(r"tpu-recipes|maxtext"), "MaxText"),
)
#: what a row says of its framework, looked for in source, path, parallelism and notes; the first that matches
_FRAMEWORKS = (
    (re.compile(r"vTrain|2205\.05198|2104\.04473"), "megatron-2022"),
    (re.compile(r"nanotron"), "nanotron"),
    (re.compile(r"torchtitan|fsdp ?2", re.I), "fsdp2"),
    (re.compile(r"maxtext|tpu-recipes", re.I), "maxtext"),
    (re.compile(r"FSDP FULL_SHARD|llm-foundry|fsdp ?1", re.I), "fsdp1"),
    (re.compile(r"megatron|nemo|dgxc", re.I), "megatron"),
)
#: in which type a source says that gradients are added up, where that is not the framework's own
_GRADIENTS = (
    # 18 bytes a parameter: 2 of the weight, 4 of its gradient, 12 of the optimizer (12 L h^2 parameters in its Figure 1)
    (re.compile(r"2205\.05198"), "fp32"),
    # grad_reduce_in_fp32 is off in what all of its performance recipes share
    (re.compile(r"Megatron-Bridge"), "bf16"),
)
#: releases of Megatron-Bridge whose recipes record whole steps of mixtures of experts in MXFP8 as graphs (full_iteration;
#: earlier ones record parts of a layer, which spare the host little), and exchange tokens with experts beside another
#: micro-batch's computation (overlap_moe_expert_parallel_comm). Those of models with state-space layers do neither
_RECORDED = re.compile(r'Megatron-Bridge.*release "26\.0[6-9]')
#: whose recipes send tokens to experts by a library that sends each once to a node or rank (DeepEP, HybridEP): all but
#: GPT-OSS's, of which those on H100 and B200 send a copy for each expert
_ONCE = re.compile(r"Megatron-Bridge (?!.*GPT.OSS)", re.I)
#: releases of Megatron-Bridge whose recipes in MXFP8 compute the output matrix in 8 bits, too (fp8_output_proj)
_HEAD_IN_8_BITS = re.compile(r'Megatron-Bridge.*release "26\.0[6-9].*(?:deepseek|gpt.oss)', re.I)
#: releases of Megatron-Bridge with modules of multi-token prediction where their rows do not say it: 25.11 tells rows
#: with and without them apart, and 25.09 has the workload of those without
_AHEAD = re.compile(r'Megatron-Bridge.*release "2[6-9]\.')
#: whose recipes say which layers every chunk of the pipeline has (set_deepseek_v3_pipeline_model_parallel_layout)
_LAID_OUT = re.compile(r"Megatron-Bridge .*deepseek", re.I)
_DEGREE = re.compile(rf"\b({'|'.join(DEGREES)})=?([0-9]{{1,9}})\b", re.I)
#: sequence parallelism; nanotron's tensor parallelism has it in this mode
_SEQUENCE = re.compile(r"\bsp\b|seqsel|sequence parallel|\breduce_scatter\b", re.I)
_RECOMPUTE = (
    (re.compile(r"recompute=none|activation checkpointing=False", re.I), Recompute.NONE),
    (re.compile(r"recompute=(?:sel|seqsel)|selective recomputation", re.I), Recompute.SELECTIVE),
    (
        re.compile(r"recompute=full|full recomputation|activation checkpointing(?:=True| on)", re.I),
        Recompute.FULL,
    ),
)


class _UnfitRowError(Exception):
    """A row that cannot be read; the text says why."""


@checked
def read_case(row: Measured, *, framework: str | None = None) -> Case | Unread:
    """What is generated and replayed for a row, or why nothing can be.

    Parameters
    ----------
    row
        A row.
    framework
        Name of a framework profile instead of the one that the row names.
    """
    precision = precision_of(row.precision)
    family = _family(row, precision)
    if family == "nanotron":
        family = f"nanotron, {'chosen' if _is_chosen(row) else 'others'}"
    try:
        machine = _known(read_machine(row.hardware, row.nodes, row.gpus_per_node, row.network))
        if unread := unknown_word(row):
            raise _UnfitRowError(unread)
        model = _known(read_model(row.workload_model))
        name = framework or _framework(row)
        request = _request(row, model, machine, name, precision)
        quantity, measured = _measured(row, request, machine.npus)
        if quantity is Quantity.STEP and not LEAST_SECONDS <= measured <= MOST_SECONDS:
            raise _UnfitRowError(f"the measured value makes a step of {measured:.3g} s")
        check_plan(request)
        shards, replicas = _degrees(row).get("fsdp", 0), request.parallel().dp * request.parallel().cp
        if shards > 1 and shards != replicas:
            raise _UnfitRowError(
                f"shards of {shards} of {counted(replicas, 'replica')} (hybrid sharding) are not read"
            )
    except (_UnfitRowError, ChakraError) as error:
        reason = str(error)
        return Unread(row, family, reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]} ...")
    return Case(row, family, model.name, name, machine, request, quantity, measured)


def _is_chosen(row: Measured) -> bool:
    """Rows of nanotron that the scoreboard counts: a rule on the configuration alone.

    No pipeline, tensor parallelism inside a node (tp of at most 8), and micro-batches of 8,192 tokens or more. The others
    are bound by the host, by its pipeline's synchronous messages or by tensor parallelism across nodes; they are counted
    beside.
    """
    degrees = _degrees(row)
    if not (is_whole(row.micro_batch, 18) and is_whole(row.sequence, 18)):
        return False
    tokens = whole_number(row.micro_batch) * whole_number(row.sequence)
    return degrees.get("pp", 1) == 1 and degrees.get("tp", 1) <= 8 and tokens >= 8192


def _degrees(row: Measured) -> dict[str, int]:
    return {key.lower(): int(number) for key, number in _DEGREE.findall(row.parallelism)}


def check_plan(request: TransformerRequest) -> None:
    """Refuse degrees and sizes that do not fit together, without planning the step."""
    parallel = request.parallel()
    request.batches(parallel)
    request.config()


def _known(found: T | str) -> T:
    if isinstance(found, str):
        raise _UnfitRowError(found)
    return found


def _first(table: Iterable[tuple[re.Pattern[str], T]], text: str) -> T | None:
    return next((meaning for pattern, meaning in table if pattern.search(text)), None)


def _family(row: Measured, precision: str | None) -> str:
    source = f"{row.source} {row.source_path_or_id}"
    # one line of signs that can be printed
    own = "".join(sign for sign in " ".join(row.source.split()) if sign.isprintable())
    name = _first(_FAMILIES, source) or own[:MAX_FAMILY] or "unnamed source"
    if name in _BY_PRECISION and precision:
        model = read_model(row.workload_model)
        if isinstance(model, Model) and transformer(str(model.values["model"])).has_states:
            name = f"{name} Mamba"
        kind = {"bf16": "BF16", "fp16": "FP16", "nvfp4": "NVFP4"}.get(precision, "FP8")
        name = f"{name} {kind}"
    return name


def _framework(row: Measured) -> str:
    if row.framework:
        return row.framework
    text = "; ".join((row.source, row.source_path_or_id, row.parallelism, row.notes))
    if told := re.search(r"framework=([\w-]+)", text):
        return told[1]
    name = _first(_FRAMEWORKS, text)
    if name is None:
        raise _UnfitRowError("no framework is named in the column framework, source, parallelism or notes")
    return name


def _number(text: str, what: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text):
        raise _UnfitRowError(f"{what} is not printed" if not text else f"{what} is no whole number: {text!r}")
    return whole_number(text)


def _request(
    row: Measured, model: Model, machine: Machine, framework: str, precision: str | None
) -> TransformerRequest:
    if precision is None:
        raise _UnfitRowError(f"precision: no {row.precision!r}")
    degrees = _degrees(row)
    values: dict[str, object] = dict(model.values)
    values |= {key: degrees[key] for key in ("tp", "pp", "cp", "vp", "ep", "dp") if key in degrees}
    values["npus"] = machine.npus
    values["seq"] = _number(row.sequence, "sequence length")
    values["micro_batch"] = _number(row.micro_batch, "micro-batch")
    values["global_batch"] = _number(row.global_batch, "global batch")
    values |= _types(row, precision)
    config = transformer(str(model.values["model"]))
    experts = bool(config.experts)
    if _SEQUENCE.search(f"{row.parallelism} {row.notes}"):
        values["sp"] = True
    recipe = f"{row.source} {row.source_path_or_id} {row.workload_model}"
    if experts and _ONCE.search(recipe):
        values["dispatch_domain"] = _domain(machine, degrees)
    if experts and not config.has_states and precision == "mxfp8" and _RECORDED.search(recipe):
        values |= {"graphs": True, "compiled": True, "paired": True}
    if _LAID_OUT.search(recipe):
        chunks = degrees.get("pp", 1) * degrees.get("vp", 1)
        values["stage_layers"] = _recipe_layers(config.layers, chunks)
    if modules := _predictors(recipe, str(model.values["model"])):
        values["mtp"] = modules
    if precision == "mxfp8" and _HEAD_IN_8_BITS.search(recipe):
        values["unquantised"] = ""
    elif modules and config.has_states:
        # keep_mtp_spec_in_bf16
        values["unquantised"] = "head mtp"
    if framework == "megatron" and degrees.get("tp", 1) > 1 and experts:
        # Megatron-Core does not train experts with tp otherwise
        values["sp"] = True
    if degrees.get("fsdp"):
        values["zero"] = 3
    elif "zero" in degrees:
        values["zero"] = degrees["zero"]
    recompute = _first(_RECOMPUTE, row.notes)
    if recompute is not None:
        values["recompute"] = recompute
    return TransformerRequest.from_mapping({"framework": framework, **values})


def _predictors(recipe: str, model: str) -> int:
    """Modules of multi-token prediction of a row's job: as its name says, or as Megatron-Bridge's recipes have it."""
    modules = MTP_MODULES.get(model, 0)
    if said := re.search(r"\(w/(o?) mtp\)", recipe, re.I):
        return 0 if said[1] else modules
    return modules if _AHEAD.search(recipe) else 0


def _recipe_layers(layers: int, chunks: int) -> tuple[int, ...]:
    """Layers of each chunk in recipes that leave the last one, which has the loss, less: what is over, the first one has.

    >>> _recipe_layers(61, 16)
    (4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1)
    """
    each = -(-layers // chunks)
    sizes = [each] * chunks
    over = each * chunks - layers
    for place in (-1, *range(chunks - 1)):
        taken = min(over, sizes[place])
        sizes[place] -= taken
        over -= taken
    return tuple(sizes)


def _domain(machine: Machine, degrees: Mapping[str, int]) -> int:
    """Expert-parallel ranks that share a copy of a token: those of a node where ep spans several, else each by itself."""
    inside = degrees.get("tp", 1) * degrees.get("cp", 1)
    here, ep = (machine.platform().dims[0].npus or 1) // inside, degrees.get("ep", 1)
    return here if 1 < here < ep and ep % here == 0 else 1


def _types(row: Measured, precision: str) -> dict[str, object]:
    """Element types of products and of gradients."""
    types: dict[str, object] = {}
    if precision in ("bf16", "fp16", "fp32"):
        types["dtype"] = precision
    else:
        types |= {"dtype": "bf16", "matmul_dtype": precision}
    if gradients := _first(_GRADIENTS, f"{row.source} {row.source_path_or_id}"):
        types["grad_dtype"] = gradients
    if re.search(r"MP mode=PURE", row.notes):
        types["grad_dtype"] = precision
    elif re.search(r"MP mode=DEFAULT|fp32 gradient accumulation True", row.notes):
        types["grad_dtype"] = "fp32"
    return types


def _measured(row: Measured, request: TransformerRequest, npus: int) -> tuple[Quantity, float]:
    try:
        value = decimal_number(row.value)
    except ValueError:
        raise _UnfitRowError(f"the measured value is no number: {row.value!r}") from None
    if not 0 < value < float("inf"):
        raise _UnfitRowError(f"the measured value must be above 0 and finite, not {row.value}")
    batch = request.global_batch or 0
    metric, each = metric_of(row.metric)
    unit, each_unit = metric_of(row.unit)
    if metric in MEMORIES and unit in _MEMORY_UNITS:
        kind = Quantity.ACTIVATIONS if "activation" in metric else Quantity.STATES
        return kind, value * _MEMORY_UNITS[unit]
    if metric in TIMES and unit in _TIME_UNITS:
        return Quantity.STEP, value * _TIME_UNITS[unit]
    shares = npus if each or each_unit else 1
    if metric in ("tokens/s", "throughput") and unit == "tokens/s":
        return Quantity.STEP, batch * (request.seq or 0) / (value * shares)
    if metric != "tokens/s" and metric in RATES and unit in ("tflop/s", "tflops"):
        return Quantity.STEP, model_flops(request, batch) / (value * 1e12 * shares)
    raise _UnfitRowError(
        f"metric {row.metric!r} in {row.unit!r} is not read: times are in s, ms or us, "
        "memory in GiB, GB, MiB or MB, rates in tokens/s or TFLOP/s"
    )
