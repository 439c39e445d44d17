"""What changes on another machine: one run as described, one with a few values changed."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from chakra import __version__
from chakra.errors import UsageError
from chakra.et.families import FAMILIES
from chakra.io.digits import decimal_number, whole_number
from chakra.io.nearest import nearest
from chakra.replay.config.key import Key, UnfitError
from chakra.replay.config.keys import (
    ACTIVE_CHUNKS,
    ENDPOINT_DELAY,
    LOCAL_MEM_BW,
    REMOTE_BANDWIDTH,
    REMOTE_LATENCY,
    SPLITS,
)
from chakra.replay.config.links import with_dims
from chakra.replay.config.memory import load_memory
from chakra.replay.config.model import LinkTopology, Memory, Network, System
from chakra.replay.config.network import load_network
from chakra.replay.config.readers import MOST_QUANTITY
from chakra.replay.config.system import load_system
from chakra.replay.results.result import ReplayResult
from chakra.replay.workload.kernel_speeds import MEMORY

SCHEMA = "chakra.replay.what_if/1"

M = TypeVar("M", System, Memory)

#: whole numbers of a system or a memory file, which say what is right for them
_OF_SYSTEM = {
    "system.endpoint-delay": ENDPOINT_DELAY,
    "system.active-chunks": ACTIVE_CHUNKS,
    "system.splits": SPLITS,
}
_OF_MEMORY = {"memory.latency": REMOTE_LATENCY, "memory.bandwidth": REMOTE_BANDWIDTH}
_WHOLE = _OF_SYSTEM | _OF_MEMORY

#: key -> unit of an absolute value
KEYS = {
    "npu.flops": "TFLOPS",
    "accelerator.speed": "factor",
    **{f"accelerator.{name}": "factor" for name in (MEMORY, *FAMILIES)},
    "host.speed": "factor",
    "npu.hbm": LOCAL_MEM_BW.unit,
    **{name: key.unit for name, key in _WHOLE.items()},
    "comm-scale": "factor",
    "compute-scale": "factor",
    "injection-scale": "factor",
}
_DIM = re.compile(r"dim([0-9]{1,3})\.(bandwidth|latency)")


@dataclass(frozen=True, slots=True)
class Change:
    """A new value of a key, or a factor on the present one."""

    key: str
    value: float
    relative: bool

    def of(self, now: float) -> float:
        """The value that takes the place of `now`."""
        return now * self.value if self.relative else self.value

    def __str__(self) -> str:
        return f"{self.key}={self.value:g}{'x' * self.relative}"


def parse_changes(text: str) -> tuple[Change, ...]:
    """Changes of a text such as ``dim1.bandwidth=2x,npu.flops=1.5x,system.endpoint-delay=0``.

    Raises
    ------
    UsageError
        When a key is unknown or given twice, or a value is not a number of at least 0.
    """
    out: dict[str, Change] = {}
    for part in text.split(","):
        key, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or not key:
            raise UsageError(
                f"--what-if: expected KEY=VALUE such as dim0.bandwidth=2x, found {part.strip()!r}"
            )
        if key not in KEYS and not _DIM.fullmatch(key):
            names = ["dim0.bandwidth", "dim0.latency", *KEYS]
            raise UsageError(
                f"--what-if: unknown key {key!r}{nearest(key, names) or '; there are ' + ', '.join(names)}"
            )
        if key in out:
            raise UsageError(f"--what-if: {key} is given twice")
        relative = value[-1:] in ("x", "X")
        try:
            number = decimal_number(value[:-1] if relative else value)
        except ValueError:
            number = math.nan
        if not 0 <= number <= MOST_QUANTITY:
            raise UsageError(
                f"--what-if: {key}: expected 2x or a number of at least 0 and at most {MOST_QUANTITY:g}, found {value!r}"
            )
        out[key] = Change(key, number, relative)
    return tuple(out.values())


@dataclass(slots=True)
class Machine:
    """What changes apply to: the machine, and the scales among the options of `simulate`."""

    network: Network
    system: System
    memory: Memory | None
    scales: dict[str, float] = field(default_factory=dict)
    kernel_speeds: dict[str, float] = field(default_factory=dict)

    def change(self, change: Change) -> None:
        """Apply one change.

        Raises
        ------
        UsageError
            When the machine has no such value, or the new one is out of range.
        """
        key = change.key
        dim = _DIM.fullmatch(key)
        if dim:
            self._change_dim(change, whole_number(dim[1]), dim[2])
        elif key == "npu.flops":
            self._change_flops(change)
        elif key == "accelerator.speed":
            self._change_accelerator(change)
        elif key.startswith("accelerator."):
            family = key.removeprefix("accelerator.")
            self.kernel_speeds[family] = _positive(change, change.of(self.kernel_speeds.get(family, 1.0)))
        elif key == "host.speed":
            self._speed("host_speed", change)
        elif key in ("comm-scale", "compute-scale", "injection-scale"):
            name = key.replace("-", "_")
            self.scales[name] = change.of(self.scales.get(name, 1.0))
        elif key in _OF_MEMORY:
            if self.memory is None:
                raise UsageError(f"--what-if: {key}: the run has no remote memory")
            # a bandwidth of 0 is none in a file, and no change of one
            least = int(_OF_MEMORY[key] is REMOTE_BANDWIDTH)
            self.memory = _replaced(self.memory, _OF_MEMORY[key], change, least)
        elif key == "npu.hbm":
            if self.system.local_mem_bw_gbps == 0:
                raise UsageError(
                    f"--what-if: {key}: the system file gives no local-mem-bw, so memory takes no time"
                )
            bandwidth = _positive(change, change.of(self.system.local_mem_bw_gbps))
            self.system = replace(self.system, local_mem_bw_gbps=bandwidth)
        else:
            self.system = _replaced(self.system, _OF_SYSTEM[key], change)
            if _OF_SYSTEM[key] is ENDPOINT_DELAY:
                self.system = replace(self.system, endpoint_delay_given=True)

    def _change_flops(self, change: Change) -> None:
        """Faster arithmetic: the roofline's peak where it is on, and the durations that traces give for kernels."""
        peak = self.system.peak_perf_tflops
        if not change.relative and not peak:
            raise UsageError(
                "--what-if: npu.flops: the system file gives no peak-perf; give a factor such as 2x"
            )
        factor = _positive(change, change.value if change.relative else change.value / (peak or 1.0))
        if self.system.roofline and peak:
            self.system = replace(self.system, peak_perf_tflops=_positive(change, change.of(peak)))
        self.scales["accelerator_speed"] = self.scales.get("accelerator_speed", 1.0) * factor

    def _change_accelerator(self, change: Change) -> None:
        """A faster accelerator: kernels' durations, and with the roofline its peak and its memory's bandwidth."""
        before = self.scales.get("accelerator_speed", 1.0)
        self._speed("accelerator_speed", change)
        factor = self.scales["accelerator_speed"] / before
        system = self.system
        if system.roofline:
            peak = system.peak_perf_tflops
            self.system = replace(
                system,
                peak_perf_tflops=None if peak is None else peak * factor,
                local_mem_bw_gbps=system.local_mem_bw_gbps * factor,
            )

    def _speed(self, name: str, change: Change) -> None:
        self.scales[name] = _positive(change, change.of(self.scales.get(name, 1.0)))

    def _change_dim(self, change: Change, k: int, what: str) -> None:
        if k >= len(self.network.dims):
            raise UsageError(
                f"--what-if: {change.key}: the network has dimensions 0 to {len(self.network.dims) - 1}"
            )
        if self.network.outside is not None:
            raise UsageError(
                f"--what-if: {change.key}: {self.network.source} is simulated by another package, which decides what its "
                "dimensions do"
            )
        links = self.network.links
        if links is not None:
            single = self.network.dims[k].topology is LinkTopology.LINKS and len(self.network.dims) == 1
            if not (single and change.relative):
                raise UsageError(
                    f"--what-if: {change.key}: the links are given one by one; only a factor on all links of a network "
                    "of one dimension can be applied"
                )
            changed = []
            for link in links.links:
                if what == "bandwidth":
                    value = _positive(change, change.of(link.bandwidth_gibps))
                    changed.append(replace(link, bandwidth_gibps=value))
                else:
                    changed.append(replace(link, latency_ns=change.of(link.latency_ns)))
            self.network = with_dims(replace(self.network, links=replace(links, links=tuple(changed))))
            return
        dims = list(self.network.dims)
        if what == "bandwidth":
            value = _positive(change, change.of(dims[k].bandwidth_gibps))
            dims[k] = replace(dims[k], bandwidth_gibps=value)
        else:
            dims[k] = replace(dims[k], latency_ns=change.of(dims[k].latency_ns))
        self.network = replace(self.network, dims=tuple(dims))


def _replaced(machine: M, key: Key[int], change: Change, least: int = 0) -> M:
    """The machine with another value of a key, within the bounds that files keep."""
    value = change.of(getattr(machine, key.field))
    if value != int(value) and not change.relative:
        raise UsageError(f"--what-if: {change}: expected a whole number of {key.unit}")
    try:
        number = key.reader.read(value)
    except UnfitError:
        number = -1
    if number < least:
        raise UsageError(f"--what-if: {change}: gives {value:g}, out of range")
    values: dict[str, Any] = {key.field: number}
    return replace(machine, **values)


def _positive(change: Change, value: float) -> float:
    if not 0 < value <= MOST_QUANTITY:
        raise UsageError(
            f"--what-if: {change}: gives {value:g}, expected more than 0 and at most {MOST_QUANTITY:g}"
        )
    return value


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A run and its change."""

    changes: tuple[Change, ...]
    base: ReplayResult
    changed: ReplayResult

    def rows(self) -> list[tuple[str, float, float]]:
        """Name, ns before and ns after: the step (the last NPU's finish), then each account, mean over NPUs."""
        runs = (self.base, self.changed)
        before, after = (float(run.finish_ns.max(initial=0)) for run in runs)
        rows = [("step", before, after)]
        for name in self.base.account:
            first, second = (float(run.account[name].mean()) for run in runs)
            rows.append((name.removesuffix("_ns"), first, second))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """The comparison as a document of schema `chakra.replay.what_if/1`; all times in ns."""
        rows = self.rows()

        def entry(before: float, after: float) -> dict[str, float | None]:
            ratio = after / before if before else None
            return {"before_ns": before, "after_ns": after, "change_ns": after - before, "ratio": ratio}

        return {
            "schema": SCHEMA,
            "version": __version__,
            "changes": [
                {
                    "key": c.key,
                    "value": c.value,
                    "relative": c.relative,
                    "unit": "" if c.relative else _unit(c.key),
                }
                for c in self.changes
            ],
            "step": entry(*rows[0][1:]),
            "account": {f"{name}_ns": entry(before, after) for name, before, after in rows[1:]},
            "finish_ns": {"before": self.base.finish_ns.tolist(), "after": self.changed.finish_ns.tolist()},
            "warnings": list(dict.fromkeys([*self.base.warnings, *self.changed.warnings])),
        }

    def to_text(self) -> str:
        """The comparison as a table."""
        lines = [f"what if {', '.join(map(str, self.changes))}", ""]
        lines.append(f"{'':12}{'before ns':>20}{'after ns':>20}{'change ns':>20}{'change':>10}")
        for name, before, after in self.rows():
            share = f"{100 * (after - before) / before:+.1f} %" if before else "-"
            lines.append(f"{name:12}{before:20,.0f}{after:20,.0f}{after - before:+20,.0f}{share:>10}")
        lines += [
            "",
            "step: finish of the last NPU; the parts below are means over the NPUs and add up to their finish",
        ]
        return "\n".join(lines) + "\n"


def _unit(key: str) -> str:
    dim = _DIM.fullmatch(key)
    if dim:
        return "GB/s of 2^30 B/s" if dim[2] == "bandwidth" else "ns"
    return KEYS[key]


def what_if(
    workload: Any,
    system: Any,
    network: Any,
    changes: str | tuple[Change, ...],
    *,
    memory: Any = None,
    compat: str | None = None,
    **options: Any,
) -> WhatIf:
    """Replay twice, as described and changed.

    Parameters
    ----------
    workload, system, network, memory, compat, options
        As `chakra.replay.simulate` takes them.
    changes
        A text for `parse_changes`, or what that returned.

    Raises
    ------
    ChakraError
        as `simulate` and `parse_changes` do
    """
    from chakra.replay.api import simulate

    play: Callable[..., ReplayResult] = simulate
    parsed = parse_changes(changes) if isinstance(changes, str) else changes
    scales = ("comm_scale", "compute_scale", "injection_scale", "host_speed", "accelerator_speed")
    machine = Machine(
        load_network(network, compat=compat),
        load_system(system, compat=compat),
        None if memory is None else load_memory(memory, compat=compat),
        {name: float(options.pop(name)) for name in scales if name in options},
        dict(options.pop("kernel_speeds", None) or {}),
    )

    def run() -> ReplayResult:
        machine_files = (machine.system, machine.network)
        return play(
            workload, *machine_files, memory=machine.memory, compat=compat, kernel_speeds=dict(machine.kernel_speeds),
            **options, **machine.scales,
        )  # fmt: skip

    base = run()
    for change in parsed:
        machine.change(change)
    return WhatIf(parsed, base, run())
