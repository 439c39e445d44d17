"""Words of a row that no rule reads: found and named, so that none is left out in silence."""

import re
from collections.abc import Iterable

from chakra.accuracy.table import Measured
from chakra.io.nearest import nearest

#: degrees of a layout, with their number: ``tp8``, ``tp=8``; ``NA`` where a source says that there is none
DEGREES = ("tp", "pp", "cp", "vp", "ep", "dp", "fsdp", "zero")
_DEGREE = re.compile(rf"({'|'.join(DEGREES)})=?([0-9]{{1,9}}|na)", re.I)
#: words of a layout that stand by themselves. Those of the second line are nanotron's (its modes of tensor parallelism,
#: and its engine of pipelines), of the third those of tables that print no layout, but where it lies
_SWITCHES = (
    "sp", "fsdp", "full_shard", "1f1b",
    "reduce_scatter", "all_reduce", "pp_engine", "oneforwardonebackward",
    "distributed", "optimizer", "sequence", "parallel",
)  # fmt: skip
_ELSEWHERE = re.compile(r"recipe|readme", re.I)
#: names of element types as tables write them -> the one that a workload has
PRECISIONS = {
    "bf16": "bf16", "bfloat16": "bf16", "amp_bf16": "bf16", "fp16": "fp16", "float16": "fp16", "amp_fp16": "fp16",
    "fp32": "fp32", "float32": "fp32", "fp8": "fp8", "fp8-cs": "fp8", "fp8-ds": "fp8", "fp8-hybrid": "fp8",
    "fp8-mx": "mxfp8", "mxfp8": "mxfp8", "fp4": "nvfp4", "nvfp4": "nvfp4",
}  # fmt: skip
#: what a row may have measured, as its metric says: of a whole job, or of one accelerator
TIMES = ("step time", "iteration time", "training step time", "time per step", "time per iteration")
RATES = ("tokens/s", "throughput", "tflop/s", "tflops")
_EACH = ("/gpu", "/chip", "/device", " per gpu", " per chip", " per device")
MEMORIES = ("activation memory per gpu", "parameter+optimizer memory per gpu")
#: sizes of a model in parentheses after its name
SIZES = ("layers", "hidden", "heads", "kv", "ffn", "vocab")
#: what stands in parentheses after a published model's name
_VARIANTS = ("w/ mtp", "w/o mtp", "dropless", "tokendrop")
#: switches with a value that are read from the notes, and their values
_NOTED = {
    "recompute": ("none", "sel", "selective", "seqsel", "full"),
    "activation checkpointing": ("false", "true"),
}
_RATE = re.compile(r"[0-9]\s*[GMT]i?B(?:it)?(?:/s|ps)", re.I)
_READ_RATE = re.compile(r"[0-9]+\s*Gb/s per (?:node|GPU)", re.I)


def precision_of(text: str) -> str | None:
    """Element type of the matrix products that the column `precision` names, or None; parentheses do not count.

    >>> precision_of("FP8-CS (FP8-MX)"), precision_of("bf61")
    ('fp8', None)
    """
    return PRECISIONS.get(text.partition("(")[0].strip().lower())


def metric_of(text: str) -> tuple[str, bool]:
    """What the column `metric` names, in lower case, and whether it is of each accelerator rather than of all.

    >>> metric_of("tokens/s per GPU"), metric_of("Step time")
    (('tokens/s', True), ('step time', False))
    """
    name = " ".join(text.lower().split())
    for end in _EACH:
        if name.endswith(end) and name.removesuffix(end) in RATES:
            return name.removesuffix(end), True
    return name, False


def unknown_word(row: Measured) -> str | None:
    """The first word of a row that no rule reads, as a reason not to predict the row; None where all are read."""
    return (
        _of_layout(row.parallelism)
        or _of_choice("precision", row.precision, precision_of(row.precision), PRECISIONS)
        or _of_metric(row.metric)
        or _of_model(row.workload_model)
        or _of_notes(row.notes)
        or _of_network(row.network)
    )


def _of_layout(text: str) -> str | None:
    if _ELSEWHERE.search(text):
        return None
    given: dict[str, str] = {}
    for word in re.split(r"[\s,;+]+", text.strip()):
        if degree := _DEGREE.fullmatch(word):
            if given.setdefault(degree[1].lower(), word) != word:
                return f"parallelism: {given[degree[1].lower()]} and {word} contradict each other"
            continue
        if not word or word.lower() in _SWITCHES:
            continue
        # a misspelt degree is compared without its number
        letters = re.sub(r"[=0-9]+$", "", word.lower())
        hint = nearest(letters, (*DEGREES, *_SWITCHES)) or f"; known: {_listed(DEGREES, 'N')}, sp"
        return f"parallelism: no word {word!r}{hint}"
    return None


def _of_choice(column: str, text: str, meaning: str | None, known: Iterable[str]) -> str | None:
    if not text:
        return f"{column} is not printed"
    if meaning is not None:
        return None
    return f"{column}: no {text!r}{nearest(text, known) or f'; known: {_listed(known)}'}"


def _of_metric(text: str) -> str | None:
    name, _ = metric_of(text)
    known = (*TIMES, *RATES, *MEMORIES)
    return _of_choice("metric", text, name if name in known else None, known)


def _of_model(text: str) -> str | None:
    """A part of the parentheses behind a model's name that is neither a size with its number nor known."""
    given: dict[str, str] = {}
    for part in ",".join(re.findall(r"\(([^)]*)", text)).split(","):
        plain = " ".join(part.lower().split())
        found = re.fullmatch(r"(\w+) [0-9]{1,12}(?:\.0)?(?: default)?", plain)
        if found and found[1] in SIZES and given.setdefault(found[1], plain) != plain:
            return f"workload_model: {given[found[1]]!r} and {plain!r} contradict each other"
        if not plain or plain in _VARIANTS or (found and found[1] in SIZES):
            continue
        hint = nearest(found[1] if found else plain, SIZES) or f"; sizes: {_listed(SIZES)}"
        return f"workload_model: {part.strip()!r} is not read, write 'layers 24, hidden 1024'{hint}"
    return None


def _of_notes(text: str) -> str | None:
    for name, values in _NOTED.items():
        for value in re.findall(rf"\b{name}\s*=\s*([\w-]*)", text, re.I):
            if value.lower() not in values:
                return f"notes: {name} is one of {_listed(values)}, not {value!r}"
    return None


def _of_network(text: str) -> str | None:
    outside = re.sub(r"\([^)]*\)", "", text)
    if _RATE.search(outside) and not _READ_RATE.search(text):
        return (
            f"network: the rate in {text!r} is not read; write '400 Gb/s per GPU' or '8x 400 Gb/s per node'"
        )
    return None


def _listed(words: Iterable[str], end: str = "") -> str:
    return ", ".join(word + end for word in words)
