"""Fitting the costs of a collective library to measured times.

One set of costs for a machine and collective, at most twelve numbers. What runs at each size follows from the library's
own tables, not from the measurements. Logarithms of times are compared, so that every size counts alike; measurements
that stand out count less (Huber); a weak pull towards plausible values keeps numbers in place that no measurement
reaches.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from chakra.arguments import check_fields, checked
from chakra.arrays import F64
from chakra.errors import ConversionError
from chakra.io.readable import counted, verb
from chakra.replay.collectives.library import (
    Communicator,
    Evidence,
    ExchangeCosts,
    MachineParameters,
    NetworkCosts,
    RingCosts,
)
from chakra.replay.collectives.library import published as table
from chakra.replay.collectives.library.choice import choose
from chakra.replay.collectives.library.cost import time_us
from chakra.replay.collectives.library.parameters import EXCHANGE, RING_KINDS
from chakra.replay.collectives.library.shape import Algorithm, Forced, Protocol
from chakra.replay.collectives.measured.nccl_log import Measurement
from chakra.replay.config.measured_constants import FitError
from chakra.replay.config.model import CollectiveKind

#: where errors of large collectives begin
LARGE_BYTES = 1 << 20
#: residuals (of logarithms) larger than this count less
_HUBER = 0.1
#: weight of the pull towards plausible values, against 1 of a measurement
_PULL = 0.03
#: weight of the pull that keeps rates of levels on a line (of logarithms)
_LEVEL_PULL = 0.1
_ROUNDS = 80
_LEAST_SIZES = 4
_NETWORK_START = {"latency_share": 1.1, "ll_share": 0.9, "simple_share": 1.0, "fill_us": 20.0}
_STEP = 1e-4


@dataclass(frozen=True, slots=True)
class FittedTime:
    """A measurement beside the model's time.

    Attributes
    ----------
    measurement
        What was measured.
    modelled_us
        The model's time, us.
    choice
        Algorithm and protocol that the model takes.
    """

    measurement: Measurement
    modelled_us: float
    choice: str

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def error(self) -> float:
        """Relative error: positive when the model is slower."""
        return self.modelled_us / self.measurement.time_us - 1


@dataclass(frozen=True, slots=True)
class Split:
    """Errors of measurements that a fit did not see.

    Attributes
    ----------
    name
        What was left out.
    times
        The measurements left out, with the model's time.
    """

    name: str
    times: tuple[FittedTime, ...]

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class LibraryFit:
    """Fitted costs of a machine, and how well they do.

    Attributes
    ----------
    machine
        The parameters, with evidence.
    times
        Each measurement with the model's time, in sample.
    splits
        Cross-validation: fits without part of the measurements, on that part.
    """

    machine: MachineParameters
    times: tuple[FittedTime, ...]
    splits: tuple[Split, ...]

    def __post_init__(self) -> None:
        check_fields(self)


@checked
def mean_error(times: Sequence[FittedTime], least_bytes: int = 0) -> float:
    """Mean of the absolute relative errors from ``least_bytes`` up; NaN where there are none.

    Parameters
    ----------
    times
        Measurements with the model's times.
    least_bytes
        Size from which they count.
    """
    errors = [abs(t.error) for t in times if t.measurement.size_bytes >= least_bytes]
    return float(np.mean(errors)) if errors else float("nan")


@checked
def fit_library(
    measurements: Sequence[Measurement],
    machine: MachineParameters,
    *,
    nodes: Communicator | None = None,
    source: str = "",
    validate: bool = True,
) -> LibraryFit:
    """Fit the costs of a collective library to measurements on one node, on several, or on both.

    Costs of a node come from measurements with at most as many ranks as a node has; what differs between nodes from
    the published latencies and bandwidths comes from the others.

    Parameters
    ----------
    measurements
        From :func:`~chakra.calibrate.read_log`: one or more collectives and numbers of ranks.
    machine
        How the library sees the machine; its costs are replaced where there are measurements.
    nodes
        How nodes are joined: `nic_gbps`, `nics`, `network_us` and `node_ranks` of communicators of several nodes; None:
        there are none.
    source
        Where the measurements come from, for the evidence.
    validate
        Fit again without part of the measurements, to see how far the model is from what it has not seen.

    Raises
    ------
    ConversionError
        A collective that the model has no costs for, more ranks than a node has without `nodes`, or too few sizes.
    """
    rows = [FitRow(row, communicator_of(row, machine, nodes)) for row in measurements]
    if not rows:
        raise ConversionError("no measurements to fit")
    fitted = _fitted(rows, machine)
    times = fitted_times(rows, fitted)
    evidence = Evidence(
        "fitted", source, tuple(sorted({row.ranks for row in measurements})),
        min(row.size_bytes for row in measurements), max(row.size_bytes for row in measurements), error_bands(times),
    )  # fmt: skip
    splits = tuple(_split(name, rows, keep, machine) for name, keep in _splits(rows)) if validate else ()
    return LibraryFit(replace(fitted, evidence=evidence), times, splits)


def error_bands(times: Sequence[FittedTime]) -> Mapping[CollectiveKind, FitError]:
    bands = {}
    for kind in dict.fromkeys(t.measurement.kind for t in times):
        own = [t for t in times if t.measurement.kind is kind]
        large = [t for t in own if t.measurement.size_bytes >= LARGE_BYTES]
        error = mean_error(large) if large else 0.0
        bands[kind] = FitError(len(own), mean_error(own), len(large), error)
    return bands


def communicator_of(row: Measurement, machine: MachineParameters, nodes: Communicator | None) -> Communicator:
    if row.ranks <= (nodes or machine).node_ranks:
        return Communicator(row.ranks, row.ranks)
    if nodes is None:
        raise ConversionError(
            f"{row.source}: {counted(row.ranks, 'rank')}, and a node of {machine.name} has {machine.node_ranks}: "
            "for several nodes "
            "the rate of a network port is needed"
        )
    if row.ranks % nodes.node_ranks:
        raise ConversionError(
            f"{row.source}: {counted(row.ranks, 'rank')} {verb(row.ranks, 'is', 'are')} no whole number of nodes of "
            f"{nodes.node_ranks}"
        )
    return replace(nodes, ranks=row.ranks)


def _splits(rows: Sequence["FitRow"]) -> list[tuple[str, Callable[[Measurement], bool]]]:
    """What cross-validation leaves out: every second size; each number of ranks where there are three or more."""
    sizes = sorted({row.measurement.size_bytes for row in rows})
    even = set(sizes[::2])
    splits: list[tuple[str, Callable[[Measurement], bool]]] = []
    if len(sizes) >= 2 * _LEAST_SIZES:
        splits.append(("every second size", lambda row: row.size_bytes in even))
    ranks = sorted({row.measurement.ranks for row in rows if row.comm.nodes == 1})
    if len(ranks) >= 3:
        splits += [(f"{counted(n, 'rank')}", _without(n)) for n in ranks]
    return splits


def _without(ranks: int) -> Callable[[Measurement], bool]:
    return lambda row: row.ranks != ranks


def _split(
    name: str, rows: Sequence["FitRow"], keep: Callable[[Measurement], bool], machine: MachineParameters
) -> Split:
    seen = [row for row in rows if keep(row.measurement)]
    kinds = {row.measurement.kind for row in seen}
    unseen = [row for row in rows if not keep(row.measurement) and row.measurement.kind in kinds]
    return Split(name, fitted_times(unseen, _fitted(seen, machine)))


@dataclass(frozen=True, slots=True)
class FitRow:
    """A measurement and the communicator that it was made on."""

    measurement: Measurement
    comm: Communicator


def _fitted(rows: Sequence[FitRow], machine: MachineParameters) -> MachineParameters:
    """The machine with fitted costs: of one node first, since the others rest on them."""
    for several in (False, True):
        part = [row for row in rows if (row.comm.nodes > 1) == several]
        for kind in dict.fromkeys(row.measurement.kind for row in part):
            own = [row for row in part if row.measurement.kind is kind]
            source = own[0].measurement.source
            if len({row.measurement.size_bytes for row in own}) < _LEAST_SIZES:
                raise ConversionError(
                    f"{source}: {kind.lower()}: fitting needs at least {_LEAST_SIZES} sizes"
                )
            fitted = (
                "network" if several and kind in RING_KINDS else "exchange" if kind is EXCHANGE else "ring"
            )
            if kind not in (*RING_KINDS, EXCHANGE) or (several and kind is EXCHANGE):
                raise ConversionError(
                    f"{source}: {kind.lower()} has no costs {'between nodes' if several else 'of its own'}"
                )
            machine = _Fit(machine, kind, own, fitted).machine()
    return machine


def fitted_times(rows: Sequence[FitRow], machine: MachineParameters) -> tuple[FittedTime, ...]:
    times = []
    for row in rows:
        kind, size = row.measurement.kind, row.measurement.size_bytes
        choice, prediction = choose(machine, kind, size, row.comm, Forced())
        time = time_us(kind, size, row.comm, machine, choice, prediction)
        times.append(FittedTime(row.measurement, time, str(choice)))
    return tuple(times)


def ring_start(machine: MachineParameters, kind: CollectiveKind) -> dict[str, float]:
    """Plausible values: the library's tables, scaled to what kernels take to start."""
    hop = {"nvlink": table.NVLINK_US, "pcie": table.PCIE_US, "fabric": table.FABRIC_US}[machine.links]
    ring = hop[Algorithm.RING]
    search = machine.search_gbps
    ll = min(table.CEILINGS[machine.generation].ll_gbps, search[0] / 2)
    start = {
        "launch_us": 6.0, "ll_hop_us": ring[Protocol.LL] * 1.4, "ll_rise": 0.2, "ll_gbps": ll,
        "simple_hop_us": ring[Protocol.SIMPLE] * 1.8, "simple_fill_us": 20.0, "copy_gbps": 2.5 * search[0],
    }  # fmt: skip
    start |= {f"simple_gbps {level}": rate for level, rate in enumerate(search)}
    if machine.ll128:
        start |= {"ll128_hop_us": ring[Protocol.LL128] * 1.4, "ll128_gbps": search[0] * 0.9}
    if machine.nvls_link_gbps and kind is CollectiveKind.ALL_REDUCE:
        start |= {"nvls_launch_us": 28.0, "nvls_gbps": 1.2 * search[0]}
    return start


def exchange_start(machine: MachineParameters) -> dict[str, float]:
    search = machine.search_gbps
    start = {"launch_us": 7.0, "peer_us": 0.3, "spread_us": 6.0, "fill_us": 10.0, "copy_gbps": 3 * search[0]}
    return start | {f"gbps {level}": 0.8 * rate for level, rate in enumerate(search)}


class _Fit:
    """Costs of one collective: their logarithms, fitted to logarithms of times."""

    def __init__(
        self, machine: MachineParameters, kind: CollectiveKind, rows: Sequence[FitRow], fitted: str
    ) -> None:
        self._machine, self._kind, self._fitted = machine, kind, fitted
        start = {
            "network": lambda: _NETWORK_START,
            "exchange": lambda: exchange_start(machine),
            "ring": lambda: ring_start(machine, kind),
        }[fitted]()
        self._names = list(start)
        #: a level that no measurement reaches lies between the others, or goes on as they do
        self._levels = [i for i, name in enumerate(self._names) if "gbps " in name]
        self._rows = []
        for row in rows:
            size = row.measurement.size_bytes
            self._rows.append((size, row.comm, *choose(machine, kind, size, row.comm, Forced())))
        self._measured = np.log([row.measurement.time_us for row in rows])
        self._start = np.log(list(start.values()))
        self._solution = solved(self._start, self._residuals)

    def machine(self) -> MachineParameters:
        """The machine with the fitted costs."""
        return self._with(self._solution)

    def _with(self, logs: F64) -> MachineParameters:
        values = dict(zip(self._names, map(float, np.exp(logs)), strict=True))
        if self._fitted == "network":
            networks = {**self._machine.networks, self._kind: NetworkCosts(**values)}
            return replace(self._machine, networks=networks)
        levels = len(self._machine.levels)
        name = "gbps" if self._kind is EXCHANGE else "simple_gbps"
        rates = tuple(values.pop(f"{name} {level}") for level in range(levels))
        if self._kind is EXCHANGE:
            return replace(self._machine, exchange=ExchangeCosts(**values, gbps=rates))
        costs = RingCosts(**values, simple_gbps=rates)
        return replace(self._machine, rings={**self._machine.rings, self._kind: costs})

    def _residuals(self, logs: F64) -> F64:
        machine = self._with(logs)
        times = [
            time_us(self._kind, size, comm, machine, choice, prediction)
            for size, comm, choice, prediction in self._rows
        ]
        return np.concatenate((np.log(times) - self._measured, _LEVEL_PULL * np.diff(logs[self._levels], 2)))


def solved(start: F64, residuals_of: Callable[[F64], F64], pull: float = _PULL) -> F64:
    """Logarithms of costs that bring residuals (of logarithms of times) near 0 and stay near ``start``.

    Levenberg-Marquardt, plainly, as there are few unknowns; ``pull`` weighs being away from ``start``, against 1 of a
    residual.
    """

    def cost_of(residuals: F64, logs: F64) -> float:
        size = np.abs(residuals)
        huber = np.where(size < _HUBER, size**2, 2 * _HUBER * size - _HUBER**2)
        return float(huber.sum() + pull**2 * ((logs - start) ** 2).sum())

    logs: F64 = start.copy()
    damping = 1e-2
    residuals = residuals_of(logs)
    cost = cost_of(residuals, logs)
    unit = np.eye(len(logs))
    for _ in range(_ROUNDS):
        slopes = np.array([(residuals_of(logs + _STEP * e) - residuals) / _STEP for e in unit]).T
        weights = np.minimum(1, _HUBER / np.maximum(np.abs(residuals), 1e-12))[:, None]
        normal = (slopes * weights).T @ slopes + pull**2 * unit
        gradient = (slopes * weights).T @ residuals + pull**2 * (logs - start)
        for _ in range(8):
            step = np.clip(np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient), -1, 1)
            following = residuals_of(logs + step)
            lower = cost_of(following, logs + step)
            if lower < cost:
                break
            damping *= 4
        else:
            return logs
        damping /= 3
        done = cost - lower < 1e-7 * cost
        logs, residuals, cost = logs + step, following, lower
        if done:
            return logs
    return logs
