"""Fitting a collective library to recordings: few sizes, often one number of ranks.

Twelve numbers for each collective cannot be told from a handful of sizes. So two numbers are fitted for the whole
machine, by what share its latencies and its bandwidths differ from those of a machine with known costs (a preset, or
the library's published tables), and two more for its network. As all collectives share them, collectives that were
never recorded follow too, and a fit without one of them can be held against it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chakra.arguments import checked
from chakra.arrays import F64
from chakra.calibrate.library_fit import (
    FitRow,
    LibraryFit,
    Split,
    communicator_of,
    error_bands,
    exchange_start,
    fit_library,
    fitted_times,
    ring_start,
    solved,
)
from chakra.errors import ConversionError
from chakra.replay.collectives.library import (
    Communicator,
    Evidence,
    ExchangeCosts,
    MachineParameters,
    NetworkCosts,
    RingCosts,
)
from chakra.replay.collectives.library.choice import choose
from chakra.replay.collectives.library.cost import time_us
from chakra.replay.collectives.library.parameters import EXCHANGE, RING_KINDS
from chakra.replay.collectives.library.shape import Forced
from chakra.replay.collectives.measured.nccl_log import Measurement

#: sizes of a collective from which its own costs can be told
OWN_SIZES = 8
#: weight of shares being away from 1: rows scatter by 10 %, and machines differ from what is known by about 40 %
_PULL = 0.25
#: where the streams of several nodes start at once
_NO_FILL_US = 1e-3


@checked
def fit_recorded(
    measurements: Sequence[Measurement],
    machine: MachineParameters,
    *,
    nodes: Communicator | None = None,
    source: str = "",
) -> LibraryFit:
    """Fit a library to the collectives of a recording.

    With eight sizes or more of every collective as :func:`~chakra.calibrate.library_fit.fit_library`; else two numbers
    for the machine, and two for its network. Either way each collective is also predicted by a fit to the others.

    Parameters
    ----------
    measurements
        From :func:`~chakra.calibrate.recordings.read_recordings`.
    machine
        A machine with costs, or without: the library's published ones are taken.
    nodes
        How nodes are joined, as for `fit_library`.
    source
        Where the measurements come from, for the evidence.

    Raises
    ------
    ConversionError
        A collective that the model has no costs for, or more ranks than a node has without `nodes`.
    """
    rows = [FitRow(row, communicator_of(row, machine, nodes)) for row in measurements]
    if not rows:
        raise ConversionError("no measurements to fit")
    for row in rows:
        if row.measurement.kind not in (*RING_KINDS, EXCHANGE):
            raise ConversionError(f"{row.measurement.source}: {row.measurement.kind.lower()} has no costs")
    kinds = dict.fromkeys(row.measurement.kind for row in rows)
    sizes = {kind: {r.measurement.size_bytes for r in rows if r.measurement.kind is kind} for kind in kinds}
    known = machine_with_costs(machine)
    unseen = []
    for kind in kinds if len(kinds) > 1 else ():
        seen = [row for row in rows if row.measurement.kind is not kind]
        left = [row for row in rows if row.measurement.kind is kind]
        unseen.append(Split(kind.lower(), fitted_times(left, _shared(seen, known))))
    if all(len(found) >= OWN_SIZES for found in sizes.values()):
        fit = fit_library(measurements, machine, nodes=nodes, source=source)
        return replace(fit, splits=(*fit.splits, *unseen))
    fitted = _shared(rows, known)
    times = fitted_times(rows, fitted)
    evidence = Evidence(
        "fitted", f"{source}; latencies and bandwidths of {machine.name}, scaled" if source else machine.name,
        tuple(sorted({row.ranks for row in measurements})), min(row.size_bytes for row in measurements),
        max(row.size_bytes for row in measurements), error_bands(times),
    )  # fmt: skip
    return LibraryFit(replace(fitted, evidence=evidence), times, (*_size_split(rows, known), *unseen))


def _size_split(rows: Sequence[FitRow], known: MachineParameters) -> list[Split]:
    sizes = sorted({row.measurement.size_bytes for row in rows})
    even = set(sizes[::2])
    if len(sizes) < 4:
        return []
    seen = [row for row in rows if row.measurement.size_bytes in even]
    left = [row for row in rows if row.measurement.size_bytes not in even]
    return [Split("every second size", fitted_times(left, _shared(seen, known)))]


@checked
def machine_with_costs(machine: MachineParameters) -> MachineParameters:
    """The machine, with costs as the library publishes them for collectives that have none.

    Parameters
    ----------
    machine
        Any machine.
    """
    rings = dict(machine.rings)
    for kind in RING_KINDS:
        if kind not in rings:
            values = ring_start(machine, kind)
            rates = tuple(values.pop(f"simple_gbps {level}") for level in range(len(machine.levels)))
            rings[kind] = RingCosts(**values, simple_gbps=rates)
    exchange = machine.exchange
    if exchange is None:
        values = exchange_start(machine)
        rates = tuple(values.pop(f"gbps {level}") for level in range(len(machine.levels)))
        exchange = ExchangeCosts(**values, gbps=rates)
    return replace(machine, rings=rings, exchange=exchange)


def _shared(rows: Sequence[FitRow], known: MachineParameters) -> MachineParameters:
    """The machine with latencies and bandwidths scaled by common shares: of one node first, then of the network."""
    for several in (False, True):
        own = [row for row in rows if (row.comm.nodes > 1) == several]
        if own:
            known = _scaled_to(own, known, several)
    return known


def _scaled_to(rows: Sequence[FitRow], known: MachineParameters, several: bool) -> MachineParameters:
    asked = []
    for row in rows:
        kind, size = row.measurement.kind, row.measurement.size_bytes
        asked.append((kind, size, row.comm, *choose(known, kind, size, row.comm, Forced())))
    measured = np.log([row.measurement.time_us for row in rows])
    make = _networked if several else _scaled

    def residuals(logs: F64) -> F64:
        machine = make(known, *map(float, np.exp(logs)))
        times = [time_us(kind, size, comm, machine, choice, made) for kind, size, comm, choice, made in asked]
        return np.asarray(np.log(times) - measured)

    return make(known, *map(float, np.exp(solved(np.zeros(2), residuals, _PULL))))


def _scaled(machine: MachineParameters, latency: float, rate: float) -> MachineParameters:
    """Costs of a node with latencies and bandwidths in units of what they were."""

    def one(name: str, value: float | None) -> float | None:
        share = rate if name.endswith("gbps") else 1.0 if name == "ll_rise" else latency
        return None if value is None else value * share

    rings = {}
    for kind, costs in machine.rings.items():
        plain = {name: one(name, getattr(costs, name)) for name in _RING_COSTS}
        rates = tuple(value * rate for value in costs.simple_gbps)
        rings[kind] = replace(costs, **plain, simple_gbps=rates)  # type: ignore[arg-type]
    exchange = machine.exchange
    if exchange is not None:
        plain = {name: one(name, getattr(exchange, name)) for name in _EXCHANGE_COSTS}
        rates = tuple(value * rate for value in exchange.gbps)
        exchange = replace(exchange, **plain, gbps=rates)  # type: ignore[arg-type]
    return replace(machine, rings=rings, exchange=exchange)


_RING_COSTS = (
    "launch_us", "ll_hop_us", "ll_gbps", "simple_hop_us", "simple_fill_us", "copy_gbps", "ll128_hop_us", "ll128_gbps",
    "nvls_launch_us", "nvls_gbps",
)  # fmt: skip
_EXCHANGE_COSTS = ("launch_us", "peer_us", "spread_us", "fill_us", "copy_gbps")


def _networked(machine: MachineParameters, latency: float, rate: float) -> MachineParameters:
    """A network whose latencies and bandwidths are in units of the published ones."""
    costs = NetworkCosts(latency, rate, rate, _NO_FILL_US)
    return replace(machine, networks=dict.fromkeys(RING_KINDS, costs))
