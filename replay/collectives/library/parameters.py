"""What was measured on a machine: at most twelve numbers for a collective, and what the library sees of the machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from chakra.arguments import check_fields, checked
from chakra.errors import ConfigError
from chakra.io.digits import decimal_number
from chakra.io.readable import counted, verb
from chakra.replay.collectives.library.published import Generation
from chakra.replay.config.measured_constants import FitError, instance_of
from chakra.replay.config.model import CollectiveKind

#: collectives that have measured costs of their own; the others follow from these
RING_KINDS = (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
EXCHANGE = CollectiveKind.ALL_TO_ALL


@dataclass(frozen=True, slots=True)
class RingCosts:
    """Costs of a collective that runs as a ring, or reduced in the switch (NVLS).

    None: the machine never runs that protocol. Twelve numbers at most: machines whose bandwidth has several levels
    (PCIe) have neither LL128 nor NVLS.

    Attributes
    ----------
    launch_us
        Launch and synchronisation of the kernel, us.
    ll_hop_us
        A step with the LL protocol, us.
    ll_rise
        By what share LL takes longer once a step fills all threads of a channel.
    ll_gbps
        Bandwidth of LL once all channels are full, 10^9 B/s.
    ll128_hop_us, ll128_gbps
        The same of LL128.
    simple_hop_us
        A step with the Simple protocol that is not hidden behind moving data, us.
    simple_fill_us
        Start of the stream of the Simple protocol, us.
    simple_gbps
        Bandwidth of a link with Simple, 10^9 B/s, one for each level of the machine.
    copy_gbps
        Rate at which a rank's own part is copied beside it, 10^9 B/s.
    nvls_launch_us, nvls_gbps
        Start and bus bandwidth of NVLS.
    """

    launch_us: float
    ll_hop_us: float
    ll_rise: float
    ll_gbps: float
    simple_hop_us: float
    simple_fill_us: float
    simple_gbps: tuple[float, ...]
    copy_gbps: float
    ll128_hop_us: float | None = None
    ll128_gbps: float | None = None
    nvls_launch_us: float | None = None
    nvls_gbps: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        _positive(self)


@dataclass(frozen=True, slots=True)
class ExchangeCosts:
    """Costs of grouped sends and receives between all pairs (all-to-all).

    Attributes
    ----------
    launch_us
        Launch and synchronisation of the kernel, us.
    peer_us
        For each further peer, us.
    spread_us
        What a message that fills the channels of its peer adds, us.
    fill_us
        Start of the streams of large messages, us.
    gbps
        Bandwidth of a rank's port, 10^9 B/s, one for each level of the machine.
    copy_gbps
        Rate at which a rank's own part is copied, 10^9 B/s.
    """

    launch_us: float
    peer_us: float
    spread_us: float
    fill_us: float
    gbps: tuple[float, ...]
    copy_gbps: float

    def __post_init__(self) -> None:
        check_fields(self)
        _positive(self)


@dataclass(frozen=True, slots=True)
class NetworkCosts:
    """How a network between nodes differs from what the library publishes.

    Attributes
    ----------
    latency_share
        Latencies, in units of the published ones.
    ll_share, simple_share
        Bandwidth with LL and LL128, and with Simple, in units of what the library predicts.
    fill_us
        Start of the streams of large collectives, us.
    """

    latency_share: float
    ll_share: float
    simple_share: float
    fill_us: float

    def __post_init__(self) -> None:
        check_fields(self)
        _positive(self)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What parameters rest on.

    Attributes
    ----------
    status
        ``fitted`` (to measurements of this machine), ``assumed`` (of another) or ``published`` (the library's own).
    source
        The measurements.
    ranks
        Numbers of ranks that were measured.
    min_bytes, max_bytes
        Sizes that were measured.
    errors
        In sample, by collective.
    """

    status: Literal["fitted", "assumed", "published"]
    source: str
    ranks: tuple[int, ...] = ()
    min_bytes: int = 0
    max_bytes: int = 0
    errors: Mapping[CollectiveKind, FitError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class MachineParameters:
    """A machine as a collective library finds it, with measured costs.

    Attributes
    ----------
    name
        Name, for messages.
    library
        ``nccl`` or ``rccl``.
    generation
        Row of the library's tables.
    links
        What joins the ranks of a node: ``nvlink`` (through NVSwitch), ``pcie`` or ``fabric`` (a mesh of Infinity Fabric,
        whose bandwidths are those of a whole node).
    node_ranks
        Ranks of a node.
    levels
        Largest numbers of ranks for which a bandwidth holds, ascending; the last is that of the node.
    search_gbps
        What the library's topology search finds for a ring, 10^9 B/s, one for each level.
    channels
        Channels of a ring.
    nvls_link_gbps
        A rank's bandwidth into switches that reduce, 10^9 B/s; 0: they don't.
    ll128
        Whether the library uses LL128 on this machine.
    host
        Maker of the processors, for the ceilings of LL between nodes: ``intel`` or ``amd``.
    rings
        Costs of all-reduce, all-gather and reduce-scatter.
    exchange
        Costs of all-to-all.
    evidence
        What the costs rest on.
    networks
        Of collectives on several nodes, where a cluster was measured; the others run as the library publishes.
    """

    name: str
    library: Literal["nccl", "rccl"]
    generation: Generation
    links: Literal["nvlink", "pcie", "fabric"]
    node_ranks: int
    levels: tuple[int, ...]
    search_gbps: tuple[float, ...]
    channels: int
    nvls_link_gbps: float
    ll128: bool
    host: Literal["intel", "amd"]
    rings: Mapping[CollectiveKind, RingCosts]
    exchange: ExchangeCosts | None
    evidence: Evidence
    networks: Mapping[CollectiveKind, NetworkCosts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        for name, least in (("node_ranks", 1), ("channels", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{self.name}: {name} must be at least {least}, not {getattr(self, name)}")
        if not 0 <= self.nvls_link_gbps < float("inf"):
            raise ConfigError(
                f"{self.name}: nvls_link_gbps must be a number of at least 0, not {self.nvls_link_gbps}"
            )
        if not all(0 < rate < float("inf") for rate in self.search_gbps):
            raise ConfigError(
                f"{self.name}: search_gbps must be numbers above 0, not {list(self.search_gbps)}"
            )
        if not self.levels or list(self.levels) != sorted(set(self.levels)) or self.levels[0] < 1:
            raise ConfigError(
                f"{self.name}: levels must be whole numbers above 0 in ascending order, not {list(self.levels)}"
            )
        if len(self.search_gbps) != len(self.levels):
            raise ConfigError(
                f"{self.name}: {counted(len(self.levels), 'level')} {verb(len(self.levels), 'needs', 'need')} as "
                "many values of search_gbps"
            )
        for kind in RING_KINDS:
            if kind in self.rings and len(self.rings[kind].simple_gbps) != len(self.levels):
                raise ConfigError(
                    f"{self.name}: {kind}: {counted(len(self.levels), 'level')} "
                    f"{verb(len(self.levels), 'needs', 'need')} as many values of simple_gbps"
                )
        if self.exchange and len(self.exchange.gbps) != len(self.levels):
            raise ConfigError(
                f"{self.name}: {EXCHANGE}: {counted(len(self.levels), 'level')} "
                f"{verb(len(self.levels), 'needs', 'need')} as many values of gbps"
            )

    def level(self, ranks: int) -> int:
        """Index of the level that ``ranks`` ranks of a node reach."""
        return next((i for i, most in enumerate(self.levels) if ranks <= most), len(self.levels) - 1)


def _positive(costs: RingCosts | ExchangeCosts | NetworkCosts) -> None:
    for entry in fields(costs):
        value = getattr(costs, entry.name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and not 0 < number < float("inf"):
                raise ConfigError(f"{entry.name} must be a number above 0, not {number!r}")


_COSTS = {**dict.fromkeys(RING_KINDS, RingCosts), EXCHANGE: ExchangeCosts}
_PLAIN = (
    "library", "generation", "links", "node_ranks", "levels", "search_gbps", "channels", "nvls_link_gbps", "ll128",
    "host",
)  # fmt: skip


@checked
def parameters_to(machine: MachineParameters) -> dict[str, Any]:
    """Parameters as plain data for JSON or YAML; :func:`parameters_from` reads it.

    Parameters
    ----------
    machine
        The parameters.
    """
    document: dict[str, Any] = {key: _plain(getattr(machine, key)) for key in _PLAIN}
    evidence = machine.evidence
    document["status"] = evidence.status
    document["source"] = evidence.source
    if evidence.ranks:
        document["ranks"] = list(evidence.ranks)
        document["bytes"] = [evidence.min_bytes, evidence.max_bytes]
    costs: dict[CollectiveKind, RingCosts | ExchangeCosts] = dict(machine.rings)
    if machine.exchange:
        costs[EXCHANGE] = machine.exchange
    for kind, values in costs.items():
        entry = {f.name: _plain(getattr(values, f.name)) for f in fields(values)}
        entry = {key: value for key, value in entry.items() if value is not None}
        band = evidence.errors.get(kind)
        if band:
            entry["error"] = {f.name: _plain(getattr(band, f.name)) for f in fields(band)}
        document[kind.value.lower()] = entry
    if machine.networks:
        document["network"] = {
            kind.value.lower(): {f.name: _plain(getattr(costs, f.name)) for f in fields(costs)}
            for kind, costs in machine.networks.items()
        }
    return document


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return decimal_number(f"{value:.4g}")
    return str(value) if isinstance(value, Generation) else value


@checked
def parameters_from(document: Mapping[str, Any], name: str) -> MachineParameters:
    """Parameters from plain data.

    Parameters
    ----------
    document
        As :func:`parameters_to` gives it.
    name
        Name of the machine, for messages.

    Raises
    ------
    ConfigError
        A key that is not known or missing, or a value that does not fit.
    """
    rest = dict(document)
    plain = {key: _taken(rest, key, name) for key in _PLAIN}
    status, source = _taken(rest, "status", name), _taken(rest, "source", name)
    ranks, sizes = rest.pop("ranks", ()), rest.pop("bytes", (0, 0))
    networks = _networks(rest.pop("network", {}), name)
    costs: dict[CollectiveKind, Any] = {}
    errors: dict[CollectiveKind, FitError] = {}
    for kind, made in _COSTS.items():
        entry = rest.pop(kind.value.lower(), None)
        if entry is None:
            continue
        if not isinstance(entry, Mapping):
            raise ConfigError(f"{name}: {kind.value.lower()} is a map of costs, not {entry!r}")
        entry = dict(entry)
        where = f"{name}: {kind.value.lower()}"
        band = entry.pop("error", None)
        if band is not None:
            errors[kind] = instance_of(FitError, band, f"{where}: error")
        costs[kind] = instance_of(made, entry, where)
    if rest:
        raise ConfigError(
            f"{name}: {sorted(map(str, rest))[0]!r} is not a key of the parameters of a collective library"
        )
    try:
        smallest, largest = sizes
    except (TypeError, ValueError):
        raise ConfigError(f"{name}: bytes is a list of two sizes, not {sizes!r}") from None
    evidence = instance_of(
        Evidence,
        {
            "status": status, "source": source, "ranks": ranks, "min_bytes": smallest, "max_bytes": largest,
            "errors": errors,
        },
        name,
    )  # fmt: skip
    exchange = costs.pop(EXCHANGE, None)
    whole = {**plain, "name": name, "rings": costs, "exchange": exchange, "evidence": evidence}
    whole["networks"] = networks
    return instance_of(MachineParameters, whole, name)


def _networks(document: Any, name: str) -> dict[CollectiveKind, NetworkCosts]:
    if not isinstance(document, Mapping):
        raise ConfigError(f"{name}: network is a map of collectives, not {document!r}")
    kinds = {kind.value.lower(): kind for kind in RING_KINDS}
    for key in document:
        if key not in kinds:
            raise ConfigError(f"{name}: network: {key!r} is not one of {', '.join(kinds)}")
    return {
        kinds[key]: instance_of(NetworkCosts, entry, f"{name}: network: {key}")
        for key, entry in document.items()
    }


def _taken(rest: dict[str, Any], key: str, name: str) -> Any:
    if key not in rest:
        raise ConfigError(f"{name}: {key!r} is missing from the parameters of a collective library")
    return rest.pop(key)
