"""What a replay says of its job, for an interval: the generator's parameters in the traces, and the machine."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from chakra.accuracy.interval import MACHINES, SHARE, Interval, Job, NothingNear, interval_of
from chakra.accuracy.measured_machine import unlike_accelerator, unlike_network
from chakra.arguments import checked
from chakra.errors import ChakraError
from chakra.et.attributes import metadata_text
from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.layer_kinds import Mixer
from chakra.generate.model.presets import SIZES, sized_transformer
from chakra.generate.request.frameworks import FRAMEWORKS
from chakra.replay.config.model import System
from chakra.replay.options import BACKENDS, RunOptions
from chakra.replay.results.compute_notes import generated_at_speed, generated_with
from chakra.replay.results.result import ReplayResult

#: options that scale times or take them from elsewhere: no measured row was replayed with them
_SCALES = (
    "injection_scale", "comm_scale", "compute_scale", "host_speed", "accelerator_speed", "kernel_speeds",
    "accelerator", "npu_scale", "rendezvous", "comm_streams", "collective_algorithm", "collective_protocol",
    "collective_channels",
)  # fmt: skip
#: fields of a system that scale times or change what a library does: none is set where rows were predicted
_SYSTEM = (
    "collective_algorithm", "collective_protocol", "collective_channels", "collective_times", "operator_times",
    "node_ports", "network_latency_us", "network_reduces", "computing_rate", "collective_rate",
    "shared_bus",
)  # fmt: skip
#: kinds of generated workloads of which steps were measured
_KINDS = ("transformer", "moe")
_OF_KINDS = "no step of a model whose layers are of different kinds, or have no attention, was measured"


@checked
def replay_interval(result: ReplayResult) -> Interval | NothingNear | None:
    """Between which factors of a replay's time a measured one is expected, or why nothing measured is near.

    Parameters
    ----------
    result
        From `chakra.replay.simulate`.

    Returns
    -------
    Interval | NothingNear | None
        None for what is no generated workload on a machine with a peak, under ``compat``, and for a partial run.
    """
    job = replay_job(result)
    return interval_of(job) if isinstance(job, Job) else job


@checked
def replay_job(result: ReplayResult) -> Job | NothingNear | None:
    """The job of a replay whose time was predicted as measured rows were, or why none was measured.

    Parameters
    ----------
    result
        From `chakra.replay.simulate`.

    Returns
    -------
    Job | NothingNear | None
        None for what is no generated workload on a machine with a peak, under ``compat``, and for a partial run.
    """
    if not result.is_prediction:
        return None
    traces = result.workload.traces
    parameters = generated_with(traces[0])
    kind = metadata_text(traces[0].metadata, "workload") or ""
    reason = (
        _other_job(kind, parameters, result.npus)
        or _other_machine(result, parameters, timed=generated_at_speed(traces[0]))
        or _other_options(result.options)
    )
    if reason is not None:
        return NothingNear(reason)
    try:
        model = sized_transformer(
            str(parameters.get("model", "")),
            {name: parameters[name] for name in SIZES if name in parameters},
            _sequence(parameters),
        )
    except (ChakraError, TypeError):
        return NothingNear("the sizes of the model cannot be told")
    if model.patch:
        return NothingNear("no step of a vision model was measured")
    if model.encoder is not None:
        return NothingNear("no step of a model with an encoder was measured")
    if model.kinds or model.mixer is not Mixer.ATTENTION:
        return NothingNear(_OF_KINDS)
    return _job(result, parameters, model)


@checked
def interval_document(job: Job | NothingNear, time_ns: int) -> dict[str, Any]:
    """A job's interval as plain data, with the times that it gives.

    Parameters
    ----------
    job
        From `replay_job`.
    time_ns
        The predicted time, ns.
    """
    found = interval_of(job) if isinstance(job, Job) else job
    if isinstance(found, NothingNear):
        nothing = dict.fromkeys(("low_ns", "high_ns", "family", "rows", "job"))
        return {"share": SHARE, **nothing, "differs": [], "reason": found.reason}
    return {
        "share": SHARE,
        "low_ns": round(found.low * time_ns),
        "high_ns": round(found.high * time_ns),
        "family": found.family,
        "rows": found.rows,
        "differs": list(found.differs),
        "reason": None,
        "job": asdict(job) if isinstance(job, Job) else None,
    }


def _job(result: ReplayResult, parameters: Mapping[str, Any], model: TransformerConfig) -> Job:
    return Job(
        str(result.system.operator_model),
        parameters.get("framework"),
        str(parameters.get("matmul_dtype") or parameters.get("dtype")),
        result.npus,
        model.matrix_parameters,
        tp=_degree(parameters, "tp"),
        cp=_degree(parameters, "cp"),
        ep=_degree(parameters, "ep"),
        pp=_degree(parameters, "pp"),
        experts=bool(model.experts),
        micro_batch=_degree(parameters, "micro_batch"),
    )


def _sequence(parameters: Mapping[str, Any]) -> int | None:
    value = parameters.get("seq")
    return value if isinstance(value, int) else None


def _degree(parameters: Mapping[str, Any], name: str) -> int:
    value = parameters.get(name, 1)
    return value if isinstance(value, int) else 1


def _other_job(kind: str, parameters: Mapping[str, Any], npus: int) -> str | None:
    """Why the workload is none of which steps were measured."""
    if kind not in _KINDS:
        return f"no step of a workload of the kind {kind!r} was measured"
    if parameters.get("layer_file") or parameters.get("layer_pattern"):
        return _OF_KINDS
    if parameters.get("mode", "train") != "train":
        return "no inference was measured"
    if _degree(parameters, "iterations") > 1:
        return "no several steps were measured together"
    if any(parameters.get(name) not in (None, "uniform") for name in ("expert_load", "expert_load_file")):
        return "no step with experts of unequal load was measured"
    for name, what in (("dualpipe", "DualPipe"), ("dualpipev", "DualPipeV")):
        if parameters.get("schedule") == name:
            return f"no step of {what} was measured"
    recorded = (("graphs", "recorded graphs"), ("compiled", "compiled layers"), ("paired", "paired passes"))
    for name, what in recorded:
        if parameters.get(name):
            return f"too few steps with {what} were measured"
    profile = FRAMEWORKS.get(str(parameters.get("framework")))
    if profile is not None and not profile.validated:
        return f"no step was measured with {profile.name}"
    shares = _degree(parameters, "tp") * _degree(parameters, "cp") * _degree(parameters, "pp")
    if npus != parameters.get("npus", shares * _degree(parameters, "dp")):
        return "the traces were changed after they were generated"
    return None


def _other_machine(result: ReplayResult, parameters: Mapping[str, Any], *, timed: bool) -> str | None:
    """Why the times are not those that a preset gives."""
    system = result.system
    if system.operator_model is None:
        return "computation is timed by a peak, and no step was measured on such a machine"
    if result.options.ideal or (timed and "operator_model" not in parameters):
        return "computation is timed by a peak, not by the operator model"
    if timed and parameters["operator_model"] != system.operator_model:
        return f"the workload was generated with the times of {parameters['operator_model']}"
    if system.replay_only:
        return "replay-only takes the traces' times"
    if result.npus > 1 and system.collective_library is None:
        return "collectives do not take a library's times"
    if result.network.faults is not None:
        return "links have failed or are slow, and no step was measured on such a network"
    usual = System()
    for name in _SYSTEM:
        if getattr(system, name) != getattr(usual, name):
            return f"the system has another {name.replace('_', ' ')} than measured rows"
    if result.npus > 1 and system.collective_costs != system.operator_model:
        return "collectives take other costs than those of the machine of the operator times"
    if result.options.backend != BACKENDS[0] or result.network.outside is not None:
        return (
            f"contention is simulated, and measured rows were predicted without it (--backend {BACKENDS[0]})"
        )
    if system.operator_model not in MACHINES:
        return None
    return unlike_accelerator(system, system.operator_model) or unlike_network(
        result.network, system.operator_model
    )


def _other_options(options: RunOptions) -> str | None:
    """An option with which no measured row was predicted."""
    if options.measured:
        return "measured times are in use (--measured), and no measured step was predicted with them"
    usual = RunOptions()
    for name in _SCALES:
        value = getattr(options, name)
        # an array of factors has no truth value
        if value is not None if name == "npu_scale" else value != getattr(usual, name):
            return f"the replay has another {name.replace('_', '-')} than measured rows"
    return None
