"""Running one point of a study: machine, workload, replay, metrics. Importable by workers anywhere."""

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from chakra.arguments import checked
from chakra.errors import ChakraError, ConfigError, UsageError
from chakra.et.memory_need import MemoryNeed, generated_totals, need_of
from chakra.et.operators import COUNTS
from chakra.generate.request.requests import REQUESTS
from chakra.io.digits import is_whole, whole_number
from chakra.io.files import read_raw
from chakra.io.readable import counted
from chakra.replay.config.key import UnfitError
from chakra.replay.config.keys import LOCAL_MEM_CAPACITY
from chakra.replay.config.model import capacity_bytes
from chakra.replay.parameters import SCALES
from chakra.sweep.named_files import files_named

if TYPE_CHECKING:
    from chakra.platforms.model import Platform
    from chakra.replay import ReplayResult
    from chakra.replay.results.pipeline import PipelineBubble

#: entries of the network section that a platform's network takes: dim<k>.<key>
DIM_KEYS = {"topology": "topology", "npus": "npus_count", "bandwidth": "bandwidth", "latency": "latency"}
#: options of `simulate` that a study may set
REPLAY_OPTIONS = {
    "backend", "compat", "queues_per_dim", "rendezvous", "comm_streams", "start", "ideal", *SCALES.values(),
}  # fmt: skip
#: endings of what a result depends on: modules, presets, measured rows
_SOURCES = (".py", ".yml", ".csv", ".json")
#: a point's sections (workload, network, system, replay, platform) and what they say
Merged: TypeAlias = Mapping[str, Any]


@cache
def program_hash() -> str:
    """Hash of the program's own sources and presets: results of another version are never taken for this one's."""
    import chakra
    import chakra.converters
    import chakra.replay
    import chakra.schemas

    digest = hashlib.sha256()
    packages = (chakra, chakra.converters, chakra.replay, chakra.schemas)
    for root in sorted({Path(folder) for package in packages for folder in package.__path__}):
        for path in sorted(path for path in root.rglob("*") if path.suffix in _SOURCES):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def point_key(merged: Merged, *, needs_memory: bool) -> str:
    """Name of a point's cache entry: hash of everything that its result depends on, contents of files included."""
    files: dict[str, str] = {}
    for path in files_named(merged):
        try:
            files[str(path)] = hashlib.sha256(read_raw(path)).hexdigest()
        except ChakraError:
            files[str(path)] = "missing"
    document = {"inputs": merged, "memory": needs_memory, "program": program_hash(), "files": files}
    text = json.dumps(document, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@checked
def run_point(
    merged: Merged,
    *,
    needs_memory: bool = False,
    document_from_s: float | None = None,
) -> dict[str, Any]:
    """Run one point.

    Parameters
    ----------
    merged
        The sections ``workload``, ``platform``, ``network``, ``system``, ``replay`` with all values in place.
    needs_memory
        Refuse a point whose peak memory exceeds the accelerator's.
    document_from_s
        Also return the replay's whole result document where the point took at least so many seconds: 0 always, None
        never.

    Returns
    -------
    dict
        ``status`` "ok" with ``metrics``, ``idle``, the reasons why some of the given values may change nothing,
        ``remarks``, what a reader should know of them, where there is something, and ``job``, what an interval of its
        step depends on, or ``no_job``, why it has none; "infeasible" (parameters that do not fit together; memory, with
        ``metrics`` of what it needs) or "failed", with a
        one-line ``reason``. Never raises for a bad point: the others of a study go on.
    """
    try:
        return _run(merged, needs_memory, math.inf if document_from_s is None else document_from_s)
    except _ShortOfMemoryError as error:
        return {"status": "infeasible", "reason": str(error), "metrics": error.metrics}
    except UsageError as error:
        return {"status": "infeasible", "reason": str(error)}
    except ChakraError as error:
        return {"status": "failed", "reason": str(error)}
    except (
        ArithmeticError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        MemoryError,
        OSError,
    ) as error:
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}


def _run(merged: Merged, needs_memory: bool, document_from_s: float) -> dict[str, Any]:
    from chakra.accuracy.interval import Interval, Job, NothingNear, interval_of
    from chakra.accuracy.rates import counts_of, rates_of
    from chakra.accuracy.replayed import interval_document, replay_job
    from chakra.replay import simulate
    from chakra.replay.results.serving import serving_times

    begun = time.monotonic()
    platform = _platform(merged)
    metrics: dict[str, Any] = {}
    workload, plan_metrics, need, timed = _workload(merged["workload"], platform, merged["replay"])
    metrics.update(plan_metrics)
    network, system = machine(merged, metrics.get("npus"))
    capacity = _capacity(system)
    if needs_memory and (need is not None or capacity is None):
        _require_memory(need, capacity)
    asked = any(key == "file" or str(key).startswith("roofline") for key in merged["system"])
    if timed and not asked:
        # generated nodes carry durations (with the efficiencies asked for); the machine's own roofline has none
        system["roofline-enabled"] = 0
    options = {key.replace("-", "_"): value for key, value in merged["replay"].items()}
    unknown = sorted(set(options) - REPLAY_OPTIONS)
    if unknown:
        raise ConfigError(
            f"unknown replay option {unknown[0]!r}; there are: {', '.join(sorted(REPLAY_OPTIONS))}"
        )
    made = workload() if callable(workload) else workload
    result = simulate(made, system, network, **options)
    if need is None:  # files tell it once they are read
        need = result.memory_need
        if needs_memory:
            _require_memory(need, capacity)
    step_ns = int(result.finish_ns.max())
    totals = {name: metrics.pop(name) for name in COUNTS if name in metrics} or counts_of(result)
    steps = totals.get("iterations", 1)
    metrics["npus"] = int(result.npus)
    links = result.network.links
    if links is not None and links.built_of is not None:
        metrics |= {"switches": links.built_of.all_switches, "cables": links.built_of.cables}
    metrics["step_ms"] = step_ns / 1e6 / steps
    metrics["exposed_ms"] = float(result.exposed_comm_ns.max()) / 1e6 / steps
    metrics |= _bubble_metrics(result.pipeline)
    job = replay_job(result)
    interval = interval_of(job) if isinstance(job, Job) else job
    if isinstance(interval, Interval):
        metrics["step_low_ms"], metrics["step_high_ms"] = (
            factor * metrics["step_ms"] for factor in (interval.low, interval.high)
        )
    metrics |= _memory_metrics(need, capacity)
    price = price_of(merged, platform)
    rates = rates_of(
        totals,
        step_ns,
        metrics["npus"],
        paid_npus=_paid_npus(merged, platform, metrics["npus"]),
        peak_tflops=platform.accelerator.peak_tflops if platform else None,
        price=price,
        serving=serving_times(result),
    )
    metrics.update(rates)
    out: dict[str, Any] = {"status": "ok", "metrics": metrics, "idle": _idle(merged, result)}
    if remarks := _remarks(merged, result):
        out["remarks"] = remarks
    if isinstance(job, Job):
        out["job"] = asdict(job)
    elif isinstance(job, NothingNear):
        out["no_job"] = job.reason
    if time.monotonic() - begun >= document_from_s:
        out["document"] = result.to_dict()
        if job is not None:
            out["document"]["interval"] = interval_document(job, step_ns)
        if rates:
            out["document"]["rates"] = rates
    return out


def _idle(merged: Merged, result: "ReplayResult") -> dict[str, str]:
    """Why given values of the machine and of the replay may change nothing, by parameter."""
    from chakra.replay.results.idle_values import why_idle

    given = [
        f"{section}.{key}"
        for section in ("network", "system", "replay")
        for key in merged[section]
        if key != "file"
    ]
    reasons = {name: why_idle(name.replace("_", "-"), result) for name in given}
    return {name: reason for name, reason in reasons.items() if reason}


def _remarks(merged: Merged, result: "ReplayResult") -> list[str]:
    """What a reader of the metrics should know: warnings, notes, why collectives are faster than their links.

    Of a generated workload a study says itself whose times computation takes and what fits; of traces in files only the
    replay knows.
    """
    from chakra.replay.results.formatting import why_stars

    stars = why_stars(result.collectives, result.options.backend)
    notes = result.notes if "files" in merged["workload"] else []
    return [*result.warnings, *notes, *(f"a collective is{star.removeprefix('*')}" for star in stars)]


def _capacity(system: Mapping[str, Any]) -> int | None:
    """Bytes of an NPU's memory, as the system says; None where it does not."""
    value = system.get(LOCAL_MEM_CAPACITY.name)
    try:
        given = None if value is None else LOCAL_MEM_CAPACITY.reader.read(value)
        return None if given is None else capacity_bytes(given)
    except UnfitError as unfit:
        raise ConfigError(f"system: key '{LOCAL_MEM_CAPACITY.name}' {unfit.told(value)}") from None


class _ShortOfMemoryError(UsageError):
    """A point that needs more memory than an NPU has."""

    def __init__(self, short: str, metrics: dict[str, float]) -> None:
        super().__init__(short)
        self.metrics = metrics


def _bubble_metrics(found: "PipelineBubble | None") -> dict[str, float]:
    """Shares of the step that a point's pipelines wait, as they are known; nothing of a point without pipelines."""
    if found is None:
        return {}
    shares = {"bubble_share": found.share, "ideal_bubble_share": found.ideal_share}
    return {name: share for name, share in shares.items() if share is not None}


def _memory_metrics(need: MemoryNeed | None, capacity: int | None) -> dict[str, float]:
    """What a point needs of an NPU's memory, as far as that is known."""
    if need is None:
        return {}
    found = {"memory_gb": need.peak_bytes / 1e9}
    return found if capacity is None else found | {"memory_share": need.peak_bytes / capacity}


@checked
def memory_of(merged: Merged) -> dict[str, float]:
    """What a point needs of an NPU's memory, which is known before it runs; nothing of traces in files.

    Parameters
    ----------
    merged
        As `run_point` takes it.

    Returns
    -------
    dict
        ``memory_gb``, and ``memory_share`` where the NPU's memory is known.

    Raises
    ------
    ConfigError, UsageError
        Parameters that do not fit together.
    """
    platform = _platform(merged)
    _, plan_metrics, need, _ = _workload(merged["workload"], platform, merged["replay"])
    _, system = machine(merged, plan_metrics.get("npus"))
    return _memory_metrics(need, _capacity(system))


def _require_memory(need: MemoryNeed | None, capacity: int | None) -> None:
    """Refuse a point that needs more memory than an NPU has, by the rule by which a replay notes it."""
    if need is None or capacity is None:
        raise ConfigError(
            f"the memory constraint needs a generated workload, and a platform or a system with {LOCAL_MEM_CAPACITY.name}"
        )
    if short := need.shortage(capacity):
        raise _ShortOfMemoryError(short, _memory_metrics(need, capacity))


def price_of(merged: Merged, platform: "Platform | None") -> float | None:
    """What an NPU of a point costs in an hour: by its platform's words, else by its machine; None without a price.

    Raises
    ------
    UsageError
        Prices by machine, none of them this point's.
    """
    price = merged.get("price")
    if not isinstance(price, Mapping):
        return None if price is None else float(price)
    words = "files" if platform is None else str(merged.get("platform", platform.name))
    prices = {same_words(name): value for name, value in price.items()}
    for name in (words, "files" if platform is None else platform.name):
        if same_words(name) in prices:
            return float(prices[same_words(name)])
    raise UsageError(
        f"cost-per-npu-hour: no price for {words}; there are prices for {', '.join(sorted(price))}"
    )


def same_words(words: str) -> str:
    """A platform in words as it is compared with others: one space between words, in small letters."""
    return " ".join(words.lower().split())


def _platform(merged: Merged) -> "Platform | None":
    from chakra.platforms import cluster

    words = merged.get("platform")
    return None if words is None else cluster(words, sized=False)


def machine(merged: Merged, npus: int | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Network and system of a point, as files' paths or plain dicts.

    Raises
    ------
    ConfigError, UsageError
        Parameters that the machine does not have.
    """
    from chakra.io.yaml import read_entries
    from chakra.replay.config.files import read_json

    network_given, system_given = dict(merged["network"]), dict(merged["system"])
    words = merged.get("platform")
    network: dict[str, Any]
    system: dict[str, Any]
    network_file, system_file = network_given.pop("file", None), system_given.pop("file", None)
    if words is not None:
        platform = _machines_in_use(words, npus, network_given.get("dim0.npus"))
        network, system = platform.network(), platform.system()
    elif network_file is None or system_file is None:
        raise ConfigError("without a platform, network and system must be files")
    if network_file is not None:
        network = {key: entry.value for key, entry in read_entries(network_file).items()}
    if system_file is not None:
        known = {key: system[key] for key in (LOCAL_MEM_CAPACITY.name,) if words is not None}
        system = known | {str(key): entry.value for key, entry in read_json(system_file).items()}
    for name, value in network_given.items():
        dim, _, key = str(name).partition(".")
        if not dim.startswith("dim") or not is_whole(dim[3:], 9) or key not in DIM_KEYS:
            raise ConfigError(
                f"network.{name}: must be dim<k>.<{'|'.join(DIM_KEYS)}>, such as dim1.bandwidth"
            )
        if DIM_KEYS[key] not in network:
            raise ConfigError(f"network.{name}: the network is given link by link, without {DIM_KEYS[key]!r}")
        k, column = whole_number(dim[3:]), list(network[DIM_KEYS[key]])
        if k >= len(column):
            raise ConfigError(f"network.{name}: the network has {counted(len(column), 'dimension')}")
        if key == "npus" and "links" in network and value != column[k]:
            raise ConfigError(
                f"network.{name}: the network is given link by link, for {column[k]} here; {value!r} does not change it"
            )
        column[k] = value
        network[DIM_KEYS[key]] = column
    system.update({str(key).replace("_", "-"): value for key, value in system_given.items()})
    return network, system


def _machines_in_use(words: str, npus: int | None, part: object) -> "Platform":
    """The machines of a platform in words, with `part` NPUs of each in use where they have more.

    Raises
    ------
    ConfigError, UsageError
        Words that are not understood, and numbers of NPUs that do not fit them.
    """
    from chakra.platforms import cluster
    from chakra.platforms.cluster import counted_npus

    whole = cluster(words, sized=False)
    if type(part) is not int or not _is_larger(whole, part):
        return cluster(words, npus)
    used = whole.used_in_part(part)
    if counted_npus(words) is None:
        return used.sized(npus)
    if npus is not None and npus != used.node_npus:
        raise UsageError(
            f"{words!r} has {counted(used.node_npus, 'NPU')} with {part} of each machine in use, not {npus}"
        )
    return used


def _is_larger(platform: "Platform", npus: int) -> bool:
    """Whether machines have more NPUs in their innermost dimension than are to be in use."""
    inner = platform.dims[0].npus
    return inner is not None and 1 <= npus < inner


def _paid_npus(merged: Merged, platform: "Platform | None", npus: int) -> int | None:
    """NPUs of a point's machines, of which it uses a part by the study's own words; None where it has no such words.

    Spare NPUs are paid for: nobody else has them.
    """
    part = merged["network"].get("dim0.npus")
    inner = None if platform is None else platform.dims[0].npus
    if platform is None or type(part) is not int or inner is None:
        return None
    return npus // part * inner if _is_larger(platform, part) else npus


def _workload(
    section: Mapping[str, object], platform: "Platform | None", replay: Mapping[str, object]
) -> tuple[Any, dict[str, Any], MemoryNeed | None, bool]:
    """A workload (or a function that makes it, called only when the point is run), what its plan tells, what it needs.

    And whether its computes were timed when it was generated.
    """
    from chakra.platforms.compute import takes_operator_times
    from chakra.replay.prepare import workload_facts

    given = dict(section)
    files = given.pop("files", None)
    if files is not None:
        if given:
            raise ConfigError(
                f"workload: {sorted(given)[0]!r} goes with a generated workload, not with files"
            )
        npus, timed = workload_facts(str(files))
        known = {} if npus is None else {"npus": npus}
        if str(files).endswith(".json"):
            from chakra.et.manifest import read_manifest

            manifest = read_manifest(str(files))
            return manifest, known, need_of(generated_totals(manifest.traces, manifest.npus)), timed
        return files, known, None, timed
    kind = given.pop("kind", "transformer")
    if kind not in REQUESTS:
        raise ConfigError(f"workload.kind: {kind!r} is not one of {', '.join(REQUESTS)}")
    if platform is not None:
        names = {str(key).replace("-", "_") for key in given}
        # durations are made where they are replayed, if the machine has operator times and these count there
        modelled = not (replay.get("ideal") or replay.get("compat")) and takes_operator_times(
            platform.name, names
        )
        if not modelled and not names & {"peak_tflops", "mem_gbps"}:
            given["peak-tflops"] = platform.accelerator.peak_tflops
            given["mem-gbps"] = platform.accelerator.mem_gbps
    request = REQUESTS[kind].from_mapping(given)
    plan = request.plan()
    from chakra.generate.plan.training import build_workload
    from chakra.generate.verify.totals import totals_of

    totals = totals_of(request, plan)
    # a replay's interval and rates depend on them
    facts = {**request.facts(str(kind)), **totals.fact()}
    return (
        (lambda: build_workload(plan, names=False, metadata=facts)),
        dict[str, Any](totals.counts),
        totals.memory,
        True,
    )
