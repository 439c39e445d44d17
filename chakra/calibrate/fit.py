"""Fitting latency, bandwidth and endpoint delay to measured collective times."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from chakra.arguments import checked
from chakra.arrays import F64
from chakra.calibrate.cost import CostModel, modelled_ns, terms
from chakra.errors import ConversionError, UsageError
from chakra.replay.collectives.measured.nccl_log import Measurement

#: residuals larger than this share of the measured time count less (Huber's weights)
_HUBER = 0.05
_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Residual:
    """A measurement beside the fitted model's time.

    Attributes
    ----------
    measurement
        What was measured.
    modelled_us
        The model's time, us.
    """

    measurement: Measurement
    modelled_us: float

    @property
    def error(self) -> float:
        """Relative error: positive when the model is slower."""
        return self.modelled_us / self.measurement.time_us - 1


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted parameters and how well they do.

    ``bandwidth_gibps`` is in GB/s of 2^30 bytes as network files have it, ``bandwidth_gbps`` decimal.
    ``delay_fitted`` is false where the measurements cannot tell endpoint delay from latency.

    Attributes
    ----------
    ranks
        Members of the measured collectives; the size of the dimension.
    latency_ns
        Latency of a hop, ns.
    bandwidth_gibps
        Bandwidth of a link, GB/s of 2^30 B/s.
    endpoint_delay_ns
        Endpoint delay, ns.
    delay_fitted
        Whether the endpoint delay comes from the measurements.
    residuals
        Each measurement with the model's time.
    model
        What was assumed: topology, algorithm, splits.
    held_out_error
        Mean of the absolute relative errors of every second size under a fit to the others; None where there are fewer
        than four sizes.
    """

    ranks: int
    latency_ns: float
    bandwidth_gibps: float
    endpoint_delay_ns: int
    delay_fitted: bool
    residuals: tuple[Residual, ...]
    model: CostModel
    held_out_error: float | None = None

    @property
    def bandwidth_gbps(self) -> float:
        """GB/s of 10^9 bytes."""
        return self.bandwidth_gibps * (1 << 30) / 1e9

    @property
    def mean_error(self) -> float:
        """Mean of the absolute relative errors."""
        return float(np.mean([abs(r.error) for r in self.residuals]))

    @property
    def geometric_mean_error(self) -> float:
        """Geometric mean of the absolute relative errors (at least 10^-6 each), as ASTRA-sim's comparison uses."""
        return float(np.exp(np.mean([np.log(max(abs(r.error), 1e-6)) for r in self.residuals])))

    def network(self) -> dict[str, list[object]]:
        """The network file's lists, one dimension."""
        return {
            "topology": [self.model.topology.value],
            "npus_count": [self.ranks],
            "bandwidth": [round(self.bandwidth_gibps, 6)],
            "latency": [round(self.latency_ns, 3)],
        }


def _weighted_solution(matrix: F64, target: F64, free: Sequence[int]) -> F64:
    """Non-negative least squares over the ``free`` columns by active set: few unknowns, so plainly."""
    active = list(free)
    solution = np.zeros(matrix.shape[1])
    while active:
        part = np.linalg.lstsq(matrix[:, active], target, rcond=None)[0]
        if (part >= 0).all():
            solution[active] = part
            break
        active.pop(int(np.argmin(part)))
    return solution


def _sources(measurements: Sequence[Measurement]) -> str:
    """The beginning of a message: the logs that the measurements come from."""
    names = list(dict.fromkeys(m.source.rsplit(": line ", 1)[0] for m in measurements))
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "") + (": " if names else "")


@checked
def calibrate(
    measurements: Sequence[Measurement], model: CostModel, *, endpoint_delay_ns: int | None = None
) -> Calibration:
    """Fit a one-dimensional network to measurements.

    Relative errors are minimised (each size counts alike), with less weight on measurements that stand out.

    Parameters
    ----------
    measurements
        From :func:`~chakra.calibrate.read_log`, of one or more collectives and numbers of ranks.
    model
        Topology, algorithm and chunks that the replay will use.
    endpoint_delay_ns
        Keep the endpoint delay at this value instead of fitting it. Fitting needs measurements with different numbers of
        steps: two collectives, or two numbers of ranks; otherwise 10 ns (the simulators' default) are kept.

    Returns
    -------
    Calibration
        For the largest number of ranks among the measurements.

    Raises
    ------
    UsageError
        A negative endpoint delay.
    ConversionError
        Fewer than two sizes, or times that do not grow with size.
    """
    if endpoint_delay_ns is not None and endpoint_delay_ns < 0:
        raise UsageError(f"endpoint_delay_ns: {endpoint_delay_ns} is not a whole number of at least 0")
    if len({(m.kind, m.size_bytes) for m in measurements}) < 2:
        raise ConversionError(f"{_sources(measurements)}calibration needs measurements of at least two sizes")
    fitted = _fit(measurements, model, endpoint_delay_ns)
    return replace(fitted, held_out_error=_held_out_error(measurements, model, endpoint_delay_ns))


def _held_out_error(
    measurements: Sequence[Measurement], model: CostModel, endpoint_delay_ns: int | None
) -> float | None:
    """Mean error of every second size under a fit that has not seen them."""
    sizes = sorted({m.size_bytes for m in measurements})
    seen = set(sizes[::2])
    if len(sizes) < 4:
        return None
    try:
        fitted = _fit([m for m in measurements if m.size_bytes in seen], model, endpoint_delay_ns)
    except ConversionError:
        return None
    others = [m for m in measurements if m.size_bytes not in seen]
    return float(np.mean([abs(fitted_residual(fitted, m).error) for m in others]))


def fitted_residual(fitted: Calibration, measurement: Measurement) -> Residual:
    """A measurement beside the time that fitted parameters give it."""
    m = measurement
    time_ns = modelled_ns(
        fitted.model, m.kind, m.ranks, m.size_bytes, latency_ns=fitted.latency_ns,
        bytes_per_ns=fitted.bandwidth_gbps, endpoint_delay_ns=fitted.endpoint_delay_ns,
    )  # fmt: skip
    return Residual(m, time_ns / 1000)


def _fit(measurements: Sequence[Measurement], model: CostModel, endpoint_delay_ns: int | None) -> Calibration:
    rows = [terms(model, m.kind, m.ranks, m.size_bytes) for m in measurements]
    times = np.array([m.time_us * 1000 for m in measurements])
    # unknowns: endpoint delay, latency, 1/beta
    matrix = np.array([[row.delay, row.latency, row.bytes] for row in rows])
    known = np.array([row.known_ns for row in rows])
    identifiable = len({(row.delay, row.latency) for row in rows}) > 1
    fit_delay = endpoint_delay_ns is None and identifiable
    delay = 10 if endpoint_delay_ns is None else endpoint_delay_ns
    target = times - known
    free = [0, 1, 2]
    if not fit_delay:
        target = target - matrix[:, 0] * delay
        free = [1, 2]
    solution = _robust(matrix, target, times, free)
    if fit_delay:
        # whole nanoseconds in the system file: round it, then fit the other two again
        delay = round(float(solution[0]))
        solution = _robust(matrix, times - known - matrix[:, 0] * delay, times, [1, 2])
    if solution[2] <= 0:
        raise ConversionError(
            f"{_sources(measurements)}the measured times do not grow with size: no bandwidth can be fitted"
        )
    latency, bytes_per_ns = float(solution[1]), float(1 / solution[2])
    residuals = tuple(
        Residual(
            m,
            modelled_ns(
                model, m.kind, m.ranks, m.size_bytes,
                latency_ns=latency, bytes_per_ns=bytes_per_ns, endpoint_delay_ns=delay,
            ) / 1000,
        )
        for m in measurements
    )  # fmt: skip
    return Calibration(
        max(m.ranks for m in measurements),
        latency,
        bytes_per_ns * 1e9 / (1 << 30),
        delay,
        fit_delay,
        residuals,
        model,
    )


def _robust(matrix: F64, target: F64, times: F64, free: Sequence[int]) -> F64:
    """Iteratively reweighted least squares on relative residuals with Huber's weights."""
    weights = np.ones(len(times))
    solution = np.zeros(matrix.shape[1])
    for _ in range(_ROUNDS):
        scale = weights / times
        following = _weighted_solution(matrix * scale[:, None], target * scale, free)
        if np.allclose(following, solution, rtol=1e-12, atol=0):
            break
        solution = following
        relative = np.abs(matrix[:, free] @ solution[free] - target) / times
        weights = np.sqrt(np.minimum(1.0, _HUBER / np.maximum(relative, 1e-12)))
    return solution
