"""Options of one replay run, as one value."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chakra.arguments import check_fields, shown
from chakra.arrays import F64, AnyArray
from chakra.errors import UsageError
from chakra.io.readable import counted

#: `compat` of ASTRA-sim 1.0's cost model
OLD_MODEL = "astra-sim-1.0"
COMPAT_MODES = (None, "astra-sim", OLD_MODEL)
#: flows that share links max-min fairly
FLOW = "flow"
#: packets, by ns-3
NS3 = "ns3"
BACKENDS = ("unaware", "aware", FLOW, NS3)
STARTS = ("recorded", "aligned")
#: the backend of a network that another package simulates
OUTSIDE = "outside"
#: by the names that NCCL_ALGO and NCCL_PROTO take
COLLECTIVE_ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
COLLECTIVE_PROTOCOLS = ("LL", "LL128", "Simple")
ENGINES = ("auto", "phases", "messages")


class InputWarning(str):
    """A warning of input that contradicts itself: where warnings count (``--strict``), bad input and no threshold."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run is asked to do, beside its input files.

    Raises
    ------
    UsageError
        When a value is outside its range; the message names the option.
    """

    backend: str = "unaware"
    compat: str | None = None
    queues_per_dim: int = 1
    injection_scale: float = 1.0
    comm_scale: float = 1.0
    compute_scale: float = 1.0
    #: factors on the speed of the host and of the accelerator, where traces give durations
    host_speed: float = 1.0
    accelerator_speed: float = 1.0
    #: factors on the speed of kernels by family (or ``memory-bound``, or ``name:PATTERN``)
    kernel_speeds: tuple[tuple[str, float], ...] = ()
    #: another accelerator than the recorded one, and the recorded one where traces do not say it
    accelerator: str | None = None
    recorded_on: str | None = None
    rendezvous: bool = False
    #: collectives that an NPU may have in flight
    comm_streams: int = 1
    #: per-NPU factor on the duration of compute nodes, shape (npus,), or None
    npu_scale: F64 | None = None
    #: whether ranks start as far apart as they were recorded, or together; None: together where only recorded times count
    start: str | None = None
    #: measured times of collectives and matrix products in place of the models, by name: the system file's where empty
    measured: tuple[str, ...] = ()
    #: what a collective library is held to (NCCL_ALGO, NCCL_PROTO, NCCL_MAX_NCHANNELS): what the system file says where
    #: it is None
    collective_algorithm: str | None = None
    collective_protocol: str | None = None
    collective_channels: int | None = None
    #: which engine runs: "auto" picks the fastest exact one
    engine: str = "auto"
    #: compute at 100 % of the peak instead of by the machine's operator model
    ideal: bool = False
    #: simulate one NPU per class of equal NPUs
    fold: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if self.backend not in (*BACKENDS, OUTSIDE):
            raise UsageError(f"backend: {self.backend!r} is not one of {', '.join(BACKENDS)}")
        if self.compat not in COMPAT_MODES:
            raise UsageError(f"compat: {self.compat!r} is not one of None, 'astra-sim', 'astra-sim-1.0'")
        if self.compat is not None and self.backend in (FLOW, NS3):
            what = "flows" if self.backend == FLOW else "packets"
            raise UsageError(
                f"backend: ASTRA-sim has no {what}; compat {self.compat!r} is for 'unaware' and 'aware'"
            )
        if self.start is not None and self.start not in STARTS:
            raise UsageError(f"start: {self.start!r} is not one of {', '.join(STARTS)}")
        for name, words in (
            ("collective_algorithm", COLLECTIVE_ALGORITHMS),
            ("collective_protocol", COLLECTIVE_PROTOCOLS),
        ):
            word = getattr(self, name)
            if word is not None and word not in words:
                raise UsageError(f"{name}: {word!r} is not one of {', '.join(words)}")
        if self.collective_channels is not None and self.collective_channels < 1:
            raise UsageError(
                f"collective_channels: {self.collective_channels!r} is not a whole number of at least 1"
            )
        if self.engine not in ENGINES:
            raise UsageError(f"engine: {self.engine!r} is not one of {', '.join(ENGINES)}")
        for name in ("queues_per_dim", "comm_streams"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name}: {value!r} is not a whole number of at least 1")
        for name in ("injection_scale", "comm_scale", "compute_scale"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
                raise UsageError(f"{name}: {value!r} is not a number of at least 0")
        speeds = {name: getattr(self, name) for name in ("host_speed", "accelerator_speed")}
        for name, value in {
            **speeds,
            **{f"kernel-speed {name}": v for name, v in self.kernel_speeds},
        }.items():
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
                raise UsageError(f"{name}: {value!r} is not a number above 0")

    @property
    def held(self) -> dict[str, str | int]:
        """What these options hold a collective library to, by the names of the system file's keys."""
        given = {
            "collective-algorithm": self.collective_algorithm,
            "collective-protocol": self.collective_protocol,
            "collective-channels": self.collective_channels,
        }
        return {key: value for key, value in given.items() if value is not None}

    @property
    def astra(self) -> bool:
        """Whether ASTRA-sim's numbers are wanted, its known errors included."""
        return self.compat is not None


def npu_scales(npu_scale: object, npus: int) -> F64 | None:
    """Factors on compute durations, one per NPU, from what a caller gives; None stays None.

    Raises
    ------
    UsageError
        If it is anything but one factor of at least 0 for each NPU.
    """
    if npu_scale is None:
        return None
    given: AnyArray | None = npu_scale if isinstance(npu_scale, np.ndarray) else None
    if (
        isinstance(npu_scale, Sequence)
        and not isinstance(npu_scale, str | bytes)
        and all(
            isinstance(factor, int | float | np.number) and not isinstance(factor, bool)
            for factor in npu_scale
        )
    ):
        given = np.array(npu_scale, np.float64)
    if given is None or given.dtype.kind not in "iuf":
        raise UsageError(
            f"npu_scale: a list or array of one factor for each of {counted(npus, 'NPU')} is needed, not "
            f"{shown(npu_scale)}"
        )
    scale = given.astype(np.float64)
    if scale.shape != (npus,):
        raise UsageError(
            f"npu_scale: {counted(scale.size, 'factor')} for {counted(npus, 'NPU')}; give one per NPU"
        )
    if not np.isfinite(scale).all() or (scale < 0).any():
        raise UsageError("npu_scale: factors must be numbers of at least 0")
    return scale
