"""System files: scheduling, algorithms, compute and memory model of every NPU (replay semantics, section 1.3)."""

from typing import Any

from chakra.arguments import checked
from chakra.errors import ConfigError
from chakra.io.nearest import nearest
from chakra.io.shown import describe
from chakra.io.yaml import read_entries
from chakra.replay.config.algorithms import algorithm_names, canonical
from chakra.replay.config.files import Source
from chakra.replay.config.keys import SYSTEM_KEYS
from chakra.replay.config.model import CollectiveKind, SharedBus, System
from chakra.replay.config.section import Section

_NAMES = [key.name for key in SYSTEM_KEYS]
#: collective -> stem of its keys
IMPLEMENTATION_KEYS = {
    CollectiveKind.ALL_REDUCE: "all-reduce-implementation",
    CollectiveKind.ALL_GATHER: "all-gather-implementation",
    CollectiveKind.REDUCE_SCATTER: "reduce-scatter-implementation",
    CollectiveKind.ALL_TO_ALL: "all-to-all-implementation",
}

POLICIES = ("LIFO", "FIFO", "EXPLICIT")
OPTIMIZATIONS = ("baseline", "localBWAware")
INTER_DIMENSION = {
    "ascending": "ascending",
    "baseline": "ascending",
    "roundRobin": "roundRobin",
    "offlineGreedy": "offlineGreedy",
    "themis": "offlineGreedy",
    "offlineGreedyFlex": "offlineGreedyFlex",
    "themisFlex": "offlineGreedyFlex",
}
INTRA_DIMENSION = {
    "FIFO": "FIFO",
    "RG": "RG",
    "smallestFirst": "smallestFirst",
    "SCF": "smallestFirst",
    "lessRemainingPhaseFirst": "lessRemainingPhaseFirst",
}


@checked
def load_system(src: Source | System, *, compat: str | None = None) -> System:
    """Read a system description.

    Parameters
    ----------
    src
        path of a JSON file, a dict with the same keys, or a System
    compat
        "astra-sim": read as ASTRA-sim HEAD does (C14: any value but the number 0 switches on, unknown keys
        and the scheduling keys of 1.0 are ignored); "astra-sim-1.0": a list may be one text joined by ``_``

    Raises
    ------
    ConfigError
        naming file and key

    Examples
    --------
    >>> load_system({"preferred-dataset-splits": 4, "all-reduce-implementation": ["ring"]}).splits
    4
    """
    if isinstance(src, System):
        return src
    section = Section.of(src, kind="system", compat=compat)
    section.refuse_unknown(_NAMES)
    as_head = section.as_head
    roofline = section.switch("roofline-enabled")
    peak = _peak(section, roofline)
    if section.given("boost-mode") and not as_head:
        section.switch("boost-mode")
    scheduling = ("ascending", "FIFO")
    if not as_head:
        scheduling = (
            section.word("inter-dimension-scheduling", "ascending", INTER_DIMENSION),
            section.word("intra-dimension-scheduling", "FIFO", INTRA_DIMENSION),
        )
    per_node = section.text("per-node-custom-implementation", "")
    return System(
        scheduling_policy=section.word(
            "scheduling-policy", "LIFO", dict(zip(POLICIES, POLICIES, strict=True))
        ),
        collective_optimization=section.word(
            "collective-optimization", "baseline", dict(zip(OPTIMIZATIONS, OPTIMIZATIONS, strict=True))
        ),
        endpoint_delay_ns=section.integer("endpoint-delay", 10, unit="ns"),
        endpoint_delay_given=section.given("endpoint-delay"),
        active_chunks=section.integer("active-chunks-per-dimension", 1, minimum=1),
        splits=section.integer("preferred-dataset-splits", 1, minimum=1),
        implementations=_implementations(section, joined=compat == "astra-sim-1.0"),
        custom=_custom(section),
        per_node_custom=per_node or None,
        local_mem_bw_gbps=section.number("local-mem-bw", 0.0, unit="GB/s"),
        peak_perf_tflops=peak,
        roofline=roofline,
        trace_enabled=section.switch("trace-enabled"),
        replay_only=section.switch("replay-only"),
        track_local_mem=section.switch("track-local-mem"),
        local_mem_trace_filename=section.text("local-mem-trace-filename", "local_mem_trace"),
        shared_bus=_shared_bus(section),
        local_reduction_delay=section.integer("local-reduction-delay", 1),
        inter_dimension_scheduling=scheduling[0],
        intra_dimension_scheduling=scheduling[1],
        source=section.source,
    )


def _peak(section: Section, roofline: bool) -> float | None:
    """Peak rate in TFLOP/s. A roofline without its two bounds is refused; ASTRA-sim takes 0 and goes on."""
    given = section.given("peak-perf")
    peak = section.number("peak-perf", 0.0, above_zero=not section.as_head, unit="TFLOP/s") if given else None
    if roofline and not section.as_head:
        if peak is None:
            raise section.error("peak-perf", "is missing: 'roofline-enabled' needs it (TFLOP/s)")
        if section.number("local-mem-bw", 0.0) == 0:
            raise section.error("local-mem-bw", "must be above 0 (GB/s): 'roofline-enabled' needs it")
    return peak


def _shared_bus(section: Section) -> SharedBus | None:
    """The bus if it is switched on; its numbers are checked in any case."""
    bus = SharedBus(
        latency=int(section.single("L")),
        overhead=int(section.single("o")),
        gap=int(section.single("g")),
        gap_per_byte=section.single("G"),
    )
    if section.as_head:
        on = section.integer("model-shared-bus", 0, minimum=-(2**31)) == 1
    else:
        on = section.switch("model-shared-bus")
    return bus if on else None


def _implementations(section: Section, *, joined: bool) -> dict[CollectiveKind, tuple[str, ...]]:
    """Algorithm names per collective. ASTRA-sim misses an empty list only when such a collective runs."""
    found: dict[CollectiveKind, tuple[str, ...]] = {}
    for kind, key in IMPLEMENTATION_KEYS.items():
        if not section.given(key):
            continue
        value = section.entries[key].value
        if joined and isinstance(value, str):
            value = value.split("_")
        if isinstance(value, str):
            shown = ", ".join(f'"{part}"' for part in value.split("_"))
            raise section.error(
                key, f"must be a list of algorithms, one per dimension, such as [{shown}], found a text"
            )
        names = (
            value
            if joined and isinstance(value, list)
            else section.items(key, "algorithms, one per dimension")
        )
        if names:
            found[kind] = tuple(_algorithm(section, key, name) for name in names)
        elif not section.as_head:
            raise section.error(
                key, "is an empty list: name an algorithm per dimension, or leave the key out"
            )
    return found


def _algorithm(section: Section, key: str, name: Any) -> str:
    """The canonical name of an algorithm: windows without leading zeros."""
    if isinstance(name, str):
        try:
            found = canonical(name, as_head=section.as_head)
        except ValueError as error:
            raise section.error(key, f"has {describe(name)}: {error}") from None
        if found is not None:
            return found
    known = algorithm_names(as_head=section.as_head)
    hint = nearest(name, known) if isinstance(name, str) else ""
    raise section.error(
        key,
        f"has {describe(name)}, which is not an algorithm{hint or '; known are ' + ', '.join(known)}"
        " (direct and oneDirect may end in a window, such as direct4)",
    )


def _custom(section: Section) -> dict[CollectiveKind, str]:
    """Prefix of the custom algorithm's traces, per collective."""
    found: dict[CollectiveKind, str] = {}
    for kind, stem in IMPLEMENTATION_KEYS.items():
        key = f"{stem}-custom"
        if not section.given(key):
            continue
        value = section.entries[key].value
        if (
            not isinstance(value, (list, tuple))
            or len(value) != 1
            or not isinstance(value[0], str)
            or not value[0]
        ):
            shown = f"a list of {len(value)}" if isinstance(value, (list, tuple)) else describe(value)
            raise section.error(
                key,
                f"must be a list with exactly one path prefix, which serves all dimensions, found {shown}",
            )
        found[kind] = value[0]
    return found


@checked
def load_per_node_custom(path: str) -> dict[int, str]:
    """Read the YAML map node id -> path prefix of `per-node-custom-implementation` (sections 1.3 and 4.6).

    Parameters
    ----------
    path
        The YAML file.

    Raises
    ------
    ConfigError
        naming file, line and key
    """
    found: dict[int, str] = {}
    for key, entry in read_entries(path).items():
        if isinstance(key, bool) or not isinstance(key, int) or key < 0:
            raise ConfigError(f"{path}:{entry.line}: key '{key}' must be a node id (a whole number from 0)")
        if not isinstance(entry.value, str) or not entry.value:
            raise ConfigError(
                f"{path}:{entry.line}: key '{key}' must map to a path prefix, found {describe(entry.value)}"
            )
        found[key] = entry.value
    return found
