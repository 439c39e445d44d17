"""Machines as values: numbers with their source and status, and what becomes of them in ASTRA-sim's files."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from chakra.arguments import check_fields, checked
from chakra.errors import ConfigError, UsageError
from chakra.io.limits import MAX_NPUS
from chakra.io.nearest import nearest
from chakra.io.readable import counted, verb
from chakra.platforms.fabric import Fabric, Inside
from chakra.platforms.keys import (
    ACCELERATOR,
    ACCELERATOR_KEYS,
    DIM_KEYS,
    DIMS,
    KIND,
    NOTE,
    NUMBER_KEYS,
    PLATFORM,
    PLATFORM_KEYS,
    TITLE,
    SourcedNumber,
    Status,
)
from chakra.replay.collectives.library.presets import names_with_parameters, preset_parameters
from chakra.replay.compute.presets import names_with_operator_times
from chakra.replay.config.key import Key, Required, UnfitError
from chakra.replay.config.model import Topology, capacity_bytes
from chakra.replay.config.section import Described

T = TypeVar("T")

#: GB/s of 10**9 bytes to GB/s of 2**30 bytes, the unit of network files
DECIMAL_TO_BINARY = 1e9 / (1 << 30)


@dataclass(frozen=True, slots=True)
class Number:
    """A value with where it comes from.

    ``links`` and ``link_gbps``, where given, are how a bandwidth is made up: their product is the value.

    Attributes
    ----------
    value
        The value, in the unit of its place.
    status
        How much it can be trusted.
    source
        Where it comes from.
    links
        Number of links.
    link_gbps
        Bandwidth of a link, 10^9 B/s.
    """

    value: float
    status: Status
    source: str
    links: float | None = None
    link_gbps: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One NPU: peak in 10^12 dense 16-bit operations/s, memory bandwidth in 10^9 B/s, capacity in 10^9 B.

    Attributes
    ----------
    name
        Name.
    peak
        10^12 dense 16-bit operations/s.
    bandwidth
        Memory bandwidth, 10^9 B/s.
    capacity
        Memory, 10^9 B.
    """

    name: str
    peak: Number
    bandwidth: Number
    capacity: Number

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def peak_tflops(self) -> float:
        """10^12 operations per second."""
        return self.peak.value

    @property
    def mem_gbps(self) -> float:
        """10^9 bytes per second."""
        return self.bandwidth.value

    @property
    def memory_bytes(self) -> int:
        """Capacity in bytes."""
        return capacity_bytes(self.capacity.value)


@dataclass(frozen=True, slots=True)
class PlatformDim:
    """One network dimension; bandwidth per NPU (per link on rings and full meshes) and direction, in 10^9 B/s.

    ``npus`` None is the scale-out dimension, whose size the cluster decides.

    Attributes
    ----------
    topology
        How the positions are joined.
    npus
        Size; None for the scale-out dimension.
    bandwidth
        10^9 B/s.
    latency
        Latency of a hop, ns.
    """

    topology: Topology
    npus: int | None
    bandwidth: Number
    latency: Number

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Platform:
    """A machine, or a cluster of machines once the scale-out dimension has a size.

    Attributes
    ----------
    name
        Name, as `load_platform` takes it.
    title
        What it is.
    accelerator
        The NPU.
    dims
        Network dimensions, dimension 0 first.
    note
        What a user should know.
    source
        File, for messages.
    fabric
        The scale-out network switch by switch, where the words ask for it; else it is the last dimension.
    """

    name: str
    title: str
    accelerator: Accelerator
    dims: tuple[PlatformDim, ...]
    note: str = ""
    source: str = "<platform>"
    fabric: Fabric | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def node_npus(self) -> int:
        """NPUs of one machine (all fixed dimensions)."""
        total = 1
        for dim in self.dims:
            total *= dim.npus or 1
        return total

    def numbers(self) -> Iterator[tuple[str, Number]]:
        """Every number with its name and unit."""
        yield "peak-tflops [10^12 op/s]", self.accelerator.peak
        yield "mem-gbps [10^9 B/s]", self.accelerator.bandwidth
        yield "memory-gb [10^9 B]", self.accelerator.capacity
        for k, dim in enumerate(self.dims):
            yield f"dim{k} bandwidth [10^9 B/s]", dim.bandwidth
            yield f"dim{k} latency [ns]", dim.latency

    @checked
    def sized(self, npus: int | None = None, *, machines: int | None = None) -> "Platform":
        """The platform with ``npus`` NPUs (or ``machines`` machines) in all.

        Without either it is one machine. A partial machine is cut from its innermost dimension when that alone is large
        enough; whole machines fill the scale-out dimension.

        Raises
        ------
        UsageError
            A number that no arrangement gives; the message says which do.
        """
        node = self.node_npus
        if machines is not None:
            npus = machines * node
        wanted = node if npus is None else npus
        if wanted < 1:
            raise UsageError(f"{self.name}: a machine has at least 1 NPU, not {wanted}")
        if npus is None and wanted == 1:
            raise UsageError(f"{self.name}: one machine is one NPU; say how many")
        if wanted > MAX_NPUS:
            raise UsageError(f"{self.name}: {counted(wanted, 'NPU')}; a network has at most {MAX_NPUS}")
        scale_out = [dim for dim in self.dims if dim.npus is None]
        fixed = [dim for dim in self.dims if dim.npus is not None]
        if wanted < node or not scale_out:
            return replace(self, dims=self._cut(fixed, wanted), fabric=None)
        if wanted % node:
            raise UsageError(
                f"{self.name}: {counted(wanted, 'NPU')} {verb(wanted, 'is', 'are')} no whole number of machines of "
                f"{node}; {self._what_fits(wanted)}"
            )
        dims = tuple(replace(dim, npus=wanted // node) if dim.npus is None else dim for dim in self.dims)
        fabric = self.fabric if dims[-1].npus != 1 else None
        return replace(self, dims=tuple(dim for dim in dims if dim.npus != 1) or dims[:1], fabric=fabric)

    def _what_fits(self, wanted: int) -> str:
        """Numbers of NPUs that are whole machines, and how many NPUs of each machine give the wanted one."""
        node = self.node_npus
        text = f"{wanted // node * node} and {(wanted // node + 1) * node} are"
        part = max(size for size in range(1, node + 1) if wanted % size == 0)
        if part == 1 or sum(dim.npus is not None for dim in self.dims) != 1:
            return text
        return f"{text}, and a study takes {part} of each machine's with network: {{dim0.npus: {part}}}"

    @checked
    def used_in_part(self, npus: int) -> "Platform":
        """The platform with `npus` NPUs of each machine in use; the others are spare.

        Parameters
        ----------
        npus
            NPUs in use of the innermost dimension.

        Raises
        ------
        UsageError
            More than there are, or none.
        """
        inner = self.dims[0]
        if inner.npus is not None and not 1 <= npus <= inner.npus:
            raise UsageError(f"{self.name}: {npus} of the {inner.npus} NPUs of dimension 0 cannot be in use")
        return replace(self, dims=(replace(inner, npus=npus), *self.dims[1:]))

    def _cut(self, fixed: list[PlatformDim], wanted: int) -> tuple[PlatformDim, ...]:
        """Innermost dimensions that together have ``wanted`` NPUs; the last may be used in part."""
        left = wanted
        kept: list[PlatformDim] = []
        for dim in fixed:
            size = min(left, dim.npus or 1)
            if left % size:
                break
            if size > 1 or not kept:
                kept.append(replace(dim, npus=size))
            left //= size
        if left != 1:
            raise UsageError(
                f"{self.name} has {counted(self.node_npus, 'NPU')} and no scale-out network: "
                f"{counted(wanted, 'NPU')} cannot be laid out on it"
            )
        return tuple(kept)

    # ------------------------------------------------------------------ ASTRA-sim's files

    def network(self) -> dict[str, Any]:
        """The network file: four lists (bandwidth in GB/s of 2^30 bytes), or every link of a fabric of switches.

        Raises
        ------
        UsageError
            More machines than the fabric's switches can join.
        """
        if any(dim.npus is None for dim in self.dims):
            return self.sized().network()
        if self.fabric is not None:
            *inside, outside = self.dims
            network = self.fabric.network(
                [
                    Inside(
                        dim.topology,
                        dim.npus or 1,
                        round(dim.bandwidth.value * DECIMAL_TO_BINARY, 6),
                        dim.latency.value,
                    )
                    for dim in inside
                ],
                outside.npus or 1,
                rate_gibps=round(outside.bandwidth.value * DECIMAL_TO_BINARY, 6),
                latency_ns=outside.latency.value,
            )
            return Described(self.title, network)
        network = {
            "topology": [dim.topology.value for dim in self.dims],
            "npus_count": [dim.npus for dim in self.dims],
            "bandwidth": [round(dim.bandwidth.value * DECIMAL_TO_BINARY, 6) for dim in self.dims],
            "latency": [dim.latency.value for dim in self.dims],
        }
        return Described(self.title, network)

    def system(self, **changes: Any) -> dict[str, Any]:
        """A system file for this machine: algorithms that fit the dimensions, roofline with the accelerator's numbers.

        ``changes`` replace or add keys; underscores stand for dashes. Algorithms: direct on full meshes,
        halving-doubling on switches with a power of two, else ring; all-to-all pairwise (``direct1``), because unlimited
        direct sends to all peers at once without sharing the port on the contention-free backend.
        """
        dims = self.dims if all(dim.npus for dim in self.dims) else self.sized().dims
        reduce = [_algorithm(dim) for dim in dims]
        document: dict[str, Any] = {
            "scheduling-policy": "LIFO",
            "endpoint-delay": 10,
            "active-chunks-per-dimension": 1,
            "preferred-dataset-splits": 4,
            "all-reduce-implementation": reduce,
            "all-gather-implementation": reduce,
            "reduce-scatter-implementation": reduce,
            "all-to-all-implementation": ["direct1"] * len(dims),
            "collective-optimization": "localBWAware",
            "local-mem-bw": self.accelerator.mem_gbps,
            "peak-perf": self.accelerator.peak_tflops,
            "local-mem-capacity": self.accelerator.capacity.value,
            "roofline-enabled": 1,
        }
        if self.name in names_with_parameters():
            document |= {
                "collective-library": preset_parameters(self.name).library,
                "collective-costs": self.name,
            }
        if self.name in names_with_operator_times():
            document["operator-model"] = self.name
        for key, value in changes.items():
            document[key.replace("_", "-")] = value
        return Described(self.title, document)


def _algorithm(dim: PlatformDim) -> str:
    if dim.topology is Topology.FULLY_CONNECTED:
        return "direct"
    size = dim.npus or 1
    if dim.topology is Topology.SWITCH and size > 2 and size & (size - 1) == 0:
        return "halvingDoubling"
    return "ring"


def _refuse_unknown(document: Mapping[object, object], keys: Iterable[Key[object]], where: str) -> None:
    names = [key.name for key in keys]
    for name in document:
        if name not in names:
            hint = nearest(str(name), names) or f"; there are {', '.join(names)}"
            raise ConfigError(f"{where}: unknown key {name!r}{hint}")


def _fields(document: Mapping[object, object], keys: Iterable[Key[object]], where: str) -> dict[str, Any]:
    """Every value of a map by its field; a number with its source is read with its place in its messages."""
    keys = tuple(keys)
    _refuse_unknown(document, keys, where)
    return {
        key.field: number_from(
            document.get(key.name), f"{where}.{key.name}", above_zero=key.reader.above_zero
        )
        if isinstance(key.reader, SourcedNumber)
        else _value(document, key, where)
        for key in keys
    }


def _value(document: Mapping[object, object], key: Key[T], where: str) -> T:
    value = document.get(key.name)
    if key.name not in document and not isinstance(key.default, Required):
        return key.default
    try:
        return key.reader.read(value)
    except UnfitError as unfit:
        raise ConfigError(f"{where}: {key.name} {unfit.told_plainly(value)}") from None


def number_from(value: object, where: str, *, above_zero: bool = False) -> Number:
    """A number of a preset file: ``{value, status, source}``.

    Raises
    ------
    ConfigError
        No value, status or source, or links that do not make up the value.
    """
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be {{value: ..., status: ..., source: ...}}, not {value!r}")
    number = Number(**_fields(value, NUMBER_KEYS, where))
    if above_zero and number.value <= 0:
        raise ConfigError(f"{where}: must be above 0")
    _check_links(number, where)
    return number


def _check_links(number: Number, where: str) -> None:
    """Links make up the value."""
    links, link_gbps, amount = number.links, number.link_gbps, number.value
    if links is not None and link_gbps is not None and abs(links * link_gbps - amount) > 1e-6 * amount:
        raise ConfigError(
            f"{where}: {links:g} links of {link_gbps:g} make {links * link_gbps:g}, not {amount:g}"
        )


def platform_from(document: object, source: str) -> Platform:
    """A platform from a preset document.

    Raises
    ------
    ConfigError
        Anything missing or wrong, with the key.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"{source}: must be a map with 'name', 'accelerator' and 'dims'")
    _refuse_unknown(document, PLATFORM_KEYS, source)
    name, title, _, note = (_value(document, key, source) for key in (PLATFORM, TITLE, KIND, NOTE))
    accelerator = _accelerator_from(_value(document, ACCELERATOR, source), source)
    dims = tuple(
        _dim_from(dim, f"{source}: {DIMS.name}[{k}]") for k, dim in enumerate(_value(document, DIMS, source))
    )
    _check_scale_out(dims, source)
    return Platform(name, title, accelerator, dims, note, source)


def _accelerator_from(value: Mapping[object, object], source: str) -> Accelerator:
    return Accelerator(**_fields(value, ACCELERATOR_KEYS, f"{source}: {ACCELERATOR.name}"))


def _check_scale_out(dims: tuple[PlatformDim, ...], source: str) -> None:
    """What a cluster decides is the size of the outermost dimension."""
    if any(dim.npus is None for dim in dims[:-1]):
        raise ConfigError(f"{source}: only the last dimension may be 'scale_out'")


def _dim_from(dim: object, where: str) -> PlatformDim:
    if not isinstance(dim, dict):
        raise ConfigError(f"{where}: must be a map with 'topology', 'npus', 'gbps' and 'latency_ns'")
    return PlatformDim(**_fields(dim, DIM_KEYS, where))
