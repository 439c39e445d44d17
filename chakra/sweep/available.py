"""Metrics that points of a study can have: what it ranks by, draws or compares must be among them."""

from chakra.accuracy.rates import rates_of
from chakra.errors import UsageError
from chakra.et.operators import COUNTS
from chakra.generate.request.requests import REQUESTS
from chakra.generate.request.transformers import Mode, TransformerRequest
from chakra.generate.verify.totals import counts_of
from chakra.platforms import cluster
from chakra.replay.config.keys import LOCAL_MEM_CAPACITY
from chakra.replay.results.serving import ServingTimes
from chakra.sweep.expressions import expression
from chakra.sweep.given import keys_of, plain, values_of
from chakra.sweep.metrics import METRICS
from chakra.sweep.study import Study

#: metrics of every point
_ALWAYS = frozenset({"step_ms", "exposed_ms", "npus"})
#: metrics of points with pipelines
_OF_PIPELINES = frozenset({"bubble_share", "ideal_bubble_share"})


def check_metrics(study: Study) -> None:
    """Refuse a study that asks for a metric that none of its points has, before any of them runs.

    Parameters
    ----------
    study
        The study; its names and values are known to be right.

    Raises
    ------
    UsageError
        Naming the key, the metric, and the metrics that there are.
    """
    there = available(study)
    constraints = (f"constraints: {text!r}" for text in study.constraints)
    asked = [
        ("objective", {study.objective}),
        ("pareto", set(study.pareto)),
        *zip(
            constraints,
            (
                expression(text, f"{study.source}: constraints").names & METRICS.keys()
                for text in study.constraints
            ),
            strict=True,
        ),
    ]
    given = study.names({parameter.name: None for parameter in study.parameters})
    for key, names in asked:
        for name in sorted(names - there - given.keys()):
            listed = ", ".join(metric for metric in METRICS if metric in there)
            raise UsageError(f"{key}: no point of this study has {name}; its points have {listed}")


def available(study: Study) -> set[str]:
    """Metrics that some point of a study can have, if it runs.

    Parameters
    ----------
    study
        The study.
    """
    machine = bool(values_of(study, "platform"))
    price = None if study.price is None else 1.0
    peak = 1.0 if machine else None
    found = {*_ALWAYS, "memory_gb"}
    if machine or _tells_capacity(study):
        found.add("memory_share")
    if _has_fabrics(study):
        found |= {"switches", "cables"}
    if machine and "dim0.npus" in set(keys_of(study, "network")):
        found.add("paid_npus")
    if "files" in set(keys_of(study, "workload")):
        written = dict.fromkeys(COUNTS, 1.0)  # by generate, of any mode
        rates = [
            rates_of(written, 1, 1, peak_tflops=peak, price=price, serving=_served(mode)) for mode in Mode
        ]
        return found.union(_OF_PIPELINES, *rates)
    framework = any(values_of(study, "workload.framework"))
    for kind in values_of(study, "workload.kind") or ["transformer"]:
        request = REQUESTS[str(kind)]
        for mode in values_of(study, "workload.mode") or [Mode.TRAIN.value]:
            does = Mode(str(mode))
            training = does is Mode.TRAIN
            totals = dict.fromkeys(counts_of(request, does), 1.0)
            serving = None if training else _served(does)
            found |= rates_of(totals, 1, 1, peak_tflops=peak, price=price, serving=serving).keys()
            if _has_pipelines(study):
                found |= {"bubble_share"} if does.decodes else _OF_PIPELINES
            if machine and framework and training and issubclass(request, TransformerRequest):
                found |= {"step_low_ms", "step_high_ms"}
    return found


def _has_fabrics(study: Study) -> bool:
    """Whether some platform is of switches with some ports, or a network is a file, which may say what it is built of."""
    files = [*values_of(study, "network.file"), *values_of(study, "network")]
    return any(not isinstance(value, dict) for value in files) or any(
        cluster(str(words), sized=False).fabric is not None for words in values_of(study, "platform")
    )


def _has_pipelines(study: Study) -> bool:
    """Whether some generated point can have several stages."""
    return any(value != 1 for key in ("pp", "decode-pp") for value in values_of(study, f"workload.{key}"))


def _served(mode: Mode) -> ServingTimes:
    """Times that the requests of a mode have, whatever they are."""
    divided = mode is Mode.DISAGGREGATED
    return ServingTimes(
        first_ns=1 if mode.prefills else None,
        token_ns=1.0 if mode.decodes else None,
        half_ns=1 if divided else None,
        decode_ns=1 if mode.decodes and not divided else None,
        steps=1,
    )


def _tells_capacity(study: Study) -> bool:
    """Whether a system, given or varied, may say how much memory an NPU has."""
    files = any(not isinstance(value, dict) for value in values_of(study, "system")) or values_of(
        study, "system.file"
    )
    named = {plain(key) for key in keys_of(study, "system")}
    return bool(files) or LOCAL_MEM_CAPACITY.name in named
