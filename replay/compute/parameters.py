"""Constants of operator times: of an accelerator, and of the program that runs it."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal

from chakra.arguments import check_fields, checked
from chakra.errors import ConfigError
from chakra.et.operators import ELEMENT_BITS, KernelKind
from chakra.io.digits import decimal_number
from chakra.io.nearest import nearest
from chakra.replay.config.measured_constants import FitError, instance_of


def _check_range(owner: Any, least: Mapping[str, float]) -> None:
    """Numbers are finite and above 0, or at least as given."""
    for item in fields(owner):
        value = getattr(owner, item.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        low = least.get(item.name)
        if not ((value > 0 if low is None else value >= low) and value < float("inf")):
            what = "above 0" if low is None else f"of at least {low:g}"
            raise ConfigError(f"{item.name} must be a number {what}, not {value!r}")


def _check_shares(owner: Any, *names: str) -> None:
    for name in names:
        if getattr(owner, name) > 1:
            raise ConfigError(f"{name} is a share, at most 1, not {getattr(owner, name)!r}")


def _check_names(what: str, given: Mapping[str, object], known: list[str]) -> None:
    for name in given:
        if name not in known:
            hint = nearest(name, known) or f"; there are {', '.join(known)}"
            raise ConfigError(f"{what}: {name!r} is not known{hint}")


@dataclass(frozen=True, slots=True)
class MatmulCosts:
    """Matrix products of one element type (`chakra.replay.compute.matmul`).

    Attributes
    ----------
    peak_tflops
        Dense peak of the data sheet, 10^12 operations/s.
    efficiency
        Reachable share of it with long k.
    memory_efficiency
        Reachable share of the memory's bandwidth.
    launch_us
        Time of an empty product, us.
    fill_k
        Steps of k that filling and draining a tile's pipeline costs.
    small_tile
        Penalty of tiles below 256 x 128.
    split_k
        Bandwidth of adding the parts of a split k up, in units of the memory's.
    cast_bytes
        Bytes moved for each activation, or gradient of one, to bring it into this type: read in 16 bits, written as it is
        and transposed for the gradient of the weights.
    """

    peak_tflops: float
    efficiency: float
    memory_efficiency: float
    launch_us: float
    fill_k: float = 0.0
    small_tile: float = 0.0
    split_k: float = 1.0
    cast_bytes: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self)
        _check_range(self, least=dict.fromkeys(("fill_k", "small_tile", "launch_us", "cast_bytes"), 0.0))
        _check_shares(self, "efficiency", "memory_efficiency")


@dataclass(frozen=True, slots=True)
class MemoryCosts:
    """Kernels that memory bounds.

    Attributes
    ----------
    gbps
        Bandwidth of the data sheet, 10^9 B/s.
    efficiency
        Reachable share of it.
    floor_us
        Least time of a kernel, us: start, and a first access.
    """

    gbps: float
    efficiency: float
    floor_us: float

    def __post_init__(self) -> None:
        check_fields(self)
        _check_range(self, least={"floor_us": 0.0})
        _check_shares(self, "efficiency")


@dataclass(frozen=True, slots=True)
class AttentionCosts:
    """Attention.

    Attributes
    ----------
    fused_forward, fused_backward
        Share of the peak that fused kernels (FlashAttention) reach with long sequences.
    tile
        Queries, and keys of a window, of a tile of the fused kernels.
    least_head
        Size of a head below which fused kernels are no faster: exponentials, one a pair of query and key, bound them.
    unfused_passes, unfused_backward_passes
        How often the scores are read or written beside the products themselves (scaling, mask, softmax).
    dropout_passes
        The same of a dropout mask on them.
    """

    fused_forward: float
    fused_backward: float
    tile: int = 128
    least_head: int = 0
    unfused_passes: float = 2.0
    unfused_backward_passes: float = 3.0
    dropout_passes: float = 2.5

    def __post_init__(self) -> None:
        check_fields(self)
        _check_range(
            self,
            least=dict.fromkeys(
                ("least_head", "unfused_passes", "unfused_backward_passes", "dropout_passes"), 0.0
            ),
        )
        _check_shares(self, "fused_forward", "fused_backward")


@dataclass(frozen=True, slots=True)
class HostCosts:
    """What the host thread takes for what it issues, and the gaps between kernels.

    The host runs ahead of the device: a step is bound by the host where it takes longer to issue than the device to run.
    Workloads say what the host does in nodes of its own (`chakra.et.operators.Host`); without them it costs nothing.

    Attributes
    ----------
    forward_us, backward_us
        For each operator of a forward pass (first or again), and of a backward pass, us.
    expert_us
        For each matrix product of one expert, on top of the operator's, us: libraries launch them, and what their element
        type needs beside, one by one.
    collective_us, message_us
        For each collective, and each send or receive, us.
    pass_us
        For each pass of a micro-batch through a stage, us.
    step_us
        For each step, between the last gradient and the optimizer, us.
    gap_us
        Idle time of the device between two kernels, us.
    graphs
        Whether a step is one recorded graph (CUDA graphs), so that the host costs nothing within it but ``step_us``.
    """

    forward_us: float = 0.0
    backward_us: float = 0.0
    expert_us: float = 0.0
    collective_us: float = 0.0
    message_us: float = 0.0
    pass_us: float = 0.0
    step_us: float = 0.0
    gap_us: float = 0.0
    graphs: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        _check_range(self, least={item.name: 0.0 for item in fields(self) if item.name != "graphs"})


@dataclass(frozen=True, slots=True)
class SystolicArray:
    """Systolic arrays of an accelerator (`chakra.replay.compute.systolic`).

    Attributes
    ----------
    rows, columns
        Multipliers of one array.
    arrays
        Number of arrays.
    clock_ghz
        Clock, 10^9 cycles/s.
    stationary
        What stays in the array: ``weight``, ``input`` or ``output``.
    overlapped
        Whether the next fold is loaded while one runs.
    """

    rows: int
    columns: int
    arrays: int
    clock_ghz: float
    stationary: Literal["weight", "input", "output"] = "weight"
    overlapped: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        _check_range(self, least={})

    @property
    def peak_tflops(self) -> float:
        """10^12 operations/s of all multipliers."""
        return 2 * self.rows * self.columns * self.arrays * self.clock_ghz / 1e3


@dataclass(frozen=True, slots=True)
class ComputeParameters:
    """An accelerator, and the program that runs it, as operator times depend on them.

    Attributes
    ----------
    name
        Name, for messages.
    accelerator
        Name of the accelerator.
    units
        Compute units (streaming multiprocessors, cores).
    matmul
        Matrix products by element type.
    memory, attention, host
        The other families.
    systolic
        Systolic arrays, which then compute the products; None: compute units that take tiles.
    kernels
        Factor on the bytes of memory-bound operators, by kind (`chakra.et.operators.KernelKind`): 2 where a program needs
        two passes over what could be one.
    contention
        Factor on all compute.
    status
        ``fitted`` (to measurements of this accelerator), ``ceiling`` (its best product is measured, how times depend on
        the shape is another's), ``datasheet`` (peaks, and the shares of another) or ``assumed``.
    source
        The measurements.
    errors
        Of matrix products, by element type, on rows that were not fitted to.
    """

    name: str
    accelerator: str
    units: int
    matmul: Mapping[str, MatmulCosts]
    memory: MemoryCosts
    attention: AttentionCosts
    host: HostCosts = HostCosts()
    systolic: SystolicArray | None = None
    kernels: Mapping[str, float] = field(default_factory=dict)
    contention: float = 1.0
    status: Literal["fitted", "ceiling", "datasheet", "assumed"] = "assumed"
    source: str = ""
    errors: Mapping[str, FitError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.units < 1:
            raise ConfigError(f"units must be at least 1, not {self.units}")
        if not 0 < self.contention < float("inf"):
            raise ConfigError(f"contention must be a number above 0, not {self.contention!r}")
        _check_names("matmul", self.matmul, list(ELEMENT_BITS))
        _check_names("kernels", self.kernels, [kind.value for kind in KernelKind])
        for kind, factor in self.kernels.items():
            if not 0 < factor < float("inf"):
                raise ConfigError(f"kernels: {kind} must be a number above 0, not {factor!r}")

    def at(self, peak_tflops: float | None, mem_gbps: float | None) -> "ComputeParameters":
        """The same machine with another peak (10^12 op/s of 16-bit products) and memory bandwidth (10^9 B/s)."""
        changed = self
        own = self.matmul.get("bf16")
        if peak_tflops and own and peak_tflops != own.peak_tflops:
            factor = peak_tflops / own.peak_tflops
            matmul = {
                name: replace(costs, peak_tflops=costs.peak_tflops * factor)
                for name, costs in self.matmul.items()
            }
            changed = replace(changed, matmul=matmul)
        if mem_gbps and mem_gbps != self.memory.gbps:
            changed = replace(changed, memory=replace(self.memory, gbps=mem_gbps))
        return changed


# ------------------------------------------------------------------------------------------------------ as plain data

_PARTS: dict[str, type[Any]] = {
    "memory": MemoryCosts,
    "attention": AttentionCosts,
    "host": HostCosts,
    "systolic": SystolicArray,
}
#: the element type whose costs stand for what those of others leave out
FIRST_TYPE = "bf16"
_TABLES: dict[str, type[Any] | None] = {"matmul": MatmulCosts, "kernels": None, "errors": FitError}


@checked
def compute_parameters_to(parameters: ComputeParameters) -> dict[str, Any]:
    """Constants as plain data for JSON or YAML; :func:`compute_parameters_from` reads it.

    Parameters
    ----------
    parameters
        The constants.
    """
    document: dict[str, Any] = {}
    for item in fields(ComputeParameters):
        value = getattr(parameters, item.name)
        if item.name == "name" or (item.default is not MISSING and value == item.default) or value == {}:
            continue
        if item.name in _PARTS:
            value = _plain(value)
        elif isinstance(value, Mapping):
            value = {name: _plain(entry) for name, entry in value.items()}
        document[item.name] = value
    shared = document["matmul"].get(FIRST_TYPE, {})
    for element, costs in document["matmul"].items():
        if element != FIRST_TYPE:
            document["matmul"][element] = {key: v for key, v in costs.items() if v != shared.get(key)}
    return document


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return decimal_number(f"{value:.4g}") if abs(value) > 1e-6 else 0.0
    if isinstance(value, (int, str)):
        return value
    return {
        item.name: _plain(getattr(value, item.name))
        for item in fields(value)
        if item.default is MISSING or getattr(value, item.name) != item.default
    }


@checked
def compute_parameters_from(document: Mapping[str, Any], name: str) -> ComputeParameters:
    """Constants from plain data.

    Parameters
    ----------
    document
        As :func:`compute_parameters_to` gives it.
    name
        Name of the machine, for messages.

    Raises
    ------
    ConfigError
        A key that is not known or missing, or a value that does not fit.
    """
    values: dict[str, Any] = {"name": name}
    known = [item.name for item in fields(ComputeParameters) if item.name != "name"]
    for key, value in document.items():
        if key not in known:
            raise ConfigError(f"{name}: {key!r} is not one of {', '.join(known)}{nearest(str(key), known)}")
        if key in _PARTS:
            value = instance_of(_PARTS[key], value, f"{name}: {key}")
        elif key in _TABLES:
            value = _table(key, value, name)
        values[key] = value
    return instance_of(ComputeParameters, values, name)


def _table(key: str, value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name}: {key} must be a map, not {value!r}")
    kind = _TABLES[key]
    if kind is None:
        return dict(value)
    shared = value.get(FIRST_TYPE)
    if key == "matmul" and isinstance(shared, Mapping):
        value = {name: {**shared, **v} if isinstance(v, Mapping) else v for name, v in value.items()}
    return {entry: instance_of(kind, inner, f"{name}: {key}: {entry}") for entry, inner in value.items()}


def changed(parameters: ComputeParameters, changes: Mapping[str, Any], where: str) -> ComputeParameters:
    """Constants with some of them replaced, by the keys of their documents, at any depth.

    Raises
    ------
    ConfigError
        A key that is not known, or a value that does not fit.
    """
    document = compute_parameters_to(parameters)
    return compute_parameters_from(merged(document, changes), where)


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Maps at any depth, the second's entries in the place of the first's."""
    out = dict(base)
    for key, value in changes.items():
        old = out.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = merged(old, value)
        out[key] = value
    return out
