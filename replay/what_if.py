"""What changes on another machine: one run as described, one with a few values changed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from chakra import __version__
from chakra.errors import UsageError
from chakra.et.memory_need import need_in_words
from chakra.io.digits import decimal_number
from chakra.io.readable import duration_text, percent_text, signed_percent_text
from chakra.replay.config.key import UnfitError
from chakra.replay.config.keys import ENDPOINT_DELAY, LOCAL_MEM_BW, REMOTE_BANDWIDTH
from chakra.replay.config.links import with_dims
from chakra.replay.config.memory import load_memory
from chakra.replay.config.model import Links, Memory, Network, System
from chakra.replay.config.network import load_network
from chakra.replay.config.readers import MOST_QUANTITY, Whole
from chakra.replay.config.system import load_system
from chakra.replay.networks.routes import dimensions_of_links
from chakra.replay.parameters import (
    FLOPS,
    KERNELS,
    REMOTE,
    SCALES,
    Parameter,
    near,
    no_number,
    parameter_named,
)
from chakra.replay.results.idle_values import why_idle
from chakra.replay.results.result import ReplayResult
from chakra.replay.workload.kernel_speeds import idle_speed_notes

SCHEMA = "chakra.replay.what_if/1"

M = TypeVar("M", System, Memory)


@dataclass(frozen=True, slots=True)
class Change:
    """A new value of a key, or a factor on the present one; the key is any name of a parameter, as the user wrote it."""

    key: str
    value: float
    relative: bool

    @property
    def parameter(self) -> Parameter:
        """What is changed.

        Raises
        ------
        UsageError
            When there is no such parameter.
        """
        found = parameter_named(self.key)
        if found is None:
            raise UsageError(f"--what-if: unknown key {self.key!r}{near(self.key)}")
        return found

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
        known = parameter_named(key)
        if known is None:
            raise UsageError(f"--what-if: {no_number(key) or f'unknown key {key!r}{near(key)}'}")
        if known.name in out:
            also = "" if key == known.name else f", also as {key}"
            raise UsageError(f"--what-if: {known.name} is given twice{also}")
        relative = value[-1:] in ("x", "X")
        try:
            number = decimal_number(value[:-1] if relative else value)
        except ValueError:
            number = math.nan
        if not 0 <= number <= MOST_QUANTITY:
            raise UsageError(
                f"--what-if: {key}: expected 2x or a number of at least 0 and at most {MOST_QUANTITY:g}, found {value!r}"
            )
        out[known.name] = Change(key, number, relative)
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
        parameter = change.parameter
        name, key = parameter.name, parameter.key
        if parameter.dimension is not None:
            self._change_dim(change, *parameter.dimension)
        elif name == FLOPS:
            self._change_flops(change)
        elif name == "accelerator.speed":
            self._change_accelerator(change)
        elif name in SCALES:
            self._scale(SCALES[name], change, positive=name == "host.speed")
        elif name.startswith(KERNELS):
            family = name.removeprefix(KERNELS)
            self.kernel_speeds[family] = _positive(change, change.of(self.kernel_speeds.get(family, 1.0)))
        elif parameter.study.startswith(f"{REMOTE}."):
            if self.memory is None:
                raise UsageError(f"--what-if: {change.key}: the run has no remote memory")
            # a bandwidth of 0 is none in a file, and no change of one
            self.memory = _replaced(self.memory, change, least=int(key is REMOTE_BANDWIDTH))
        else:
            if key is LOCAL_MEM_BW:
                if self.system.local_mem_bw_gbps == 0:
                    raise UsageError(
                        f"--what-if: {change.key}: the system file gives no local-mem-bw, so memory takes no time"
                    )
                _positive(change, change.of(self.system.local_mem_bw_gbps))
            self.system = _replaced(self.system, change)
            if key is ENDPOINT_DELAY:
                self.system = replace(self.system, endpoint_delay_given=True)

    def _change_flops(self, change: Change) -> None:
        """Faster arithmetic: the roofline's peak where it is on, and the durations that traces give for kernels."""
        peak = self.system.peak_perf_tflops
        if not change.relative and not peak:
            raise UsageError(
                f"--what-if: {change.key}: the system file gives no peak-perf; give a factor such as 2x"
            )
        factor = _positive(change, change.value if change.relative else change.value / (peak or 1.0))
        if self.system.roofline and peak:
            self.system = replace(self.system, peak_perf_tflops=_positive(change, change.of(peak)))
        self.scales["accelerator_speed"] = self.scales.get("accelerator_speed", 1.0) * factor

    def _change_accelerator(self, change: Change) -> None:
        """A faster accelerator: kernels' durations, and with the roofline its peak and its memory's bandwidth."""
        before = self.scales.get("accelerator_speed", 1.0)
        self._scale("accelerator_speed", change, positive=True)
        factor = self.scales["accelerator_speed"] / before
        system = self.system
        if system.roofline:
            peak = system.peak_perf_tflops
            self.system = replace(
                system,
                peak_perf_tflops=None if peak is None else peak * factor,
                local_mem_bw_gbps=system.local_mem_bw_gbps * factor,
            )

    def _scale(self, option: str, change: Change, *, positive: bool) -> None:
        value = change.of(self.scales.get(option, 1.0))
        self.scales[option] = _positive(change, value) if positive else value

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
        if self.network.links is not None:
            self._change_links(change, self.network.links, k, what)
            return
        dims = list(self.network.dims)
        if what == "bandwidth":
            value = _positive(change, change.of(dims[k].bandwidth_gibps))
            dims[k] = replace(dims[k], bandwidth_gibps=value)
        else:
            dims[k] = replace(dims[k], latency_ns=change.of(dims[k].latency_ns))
        self.network = replace(self.network, dims=tuple(dims))

    def _change_links(self, change: Change, links: Links, k: int, what: str) -> None:
        """A factor on the links of a dimension of a network given link by link."""
        own = dimensions_of_links(self.network, links) == k
        if not own.any():
            raise UsageError(
                f"--what-if: {change.key}: no link of {self.network.source} joins NPUs that differ in dimension {k} alone"
            )
        if not change.relative:
            raise UsageError(
                f"--what-if: {change.key}: the links are given one by one; give a factor on all of dimension {k}, such "
                f"as {change.key}=2x"
            )
        changed = []
        for link, mine in zip(links.links, own.tolist(), strict=True):
            if not mine:
                changed.append(link)
            elif what == "bandwidth":
                changed.append(
                    replace(link, bandwidth_gibps=_positive(change, change.of(link.bandwidth_gibps)))
                )
            else:
                changed.append(replace(link, latency_ns=change.of(link.latency_ns)))
        self.network = with_dims(replace(self.network, links=replace(links, links=tuple(changed))))


def _replaced(machine: M, change: Change, least: int = 0) -> M:
    """The machine with another value of a key, within the bounds that files keep.

    Raises
    ------
    UsageError
        When the file gives no value to multiply, or the new one is out of range.
    """
    key = change.parameter.key
    assert key is not None
    now = getattr(machine, key.field)
    if now is None and change.relative:
        raise UsageError(
            f"--what-if: {change}: {machine.source} gives no {key.name}; give a value in {key.unit}"
        )
    value = change.of(now or 0.0)
    if isinstance(key.reader, Whole) and value != int(value) and not change.relative:
        raise UsageError(f"--what-if: {change}: expected a whole number of {key.unit}")
    try:
        number = key.reader.read(value)
    except UnfitError:
        number = -1
    if not isinstance(number, int | float) or number < least:
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
    """A run and its change.

    Attributes
    ----------
    changes
        What was changed.
    base, changed
        The run as described, and the changed one.
    notes
        Changes that changed nothing, with the reason; why the step does not follow its parts; then what a reader of the
        changed run should know and the run as described does not say. A line each.
    """

    changes: tuple[Change, ...]
    base: ReplayResult
    changed: ReplayResult
    notes: tuple[str, ...] = ()

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
                    "key": c.parameter.name,
                    "value": c.value,
                    "relative": c.relative,
                    "unit": "" if c.relative else c.parameter.unit,
                }
                for c in self.changes
            ],
            "step": entry(*rows[0][1:]),
            "account": {f"{name}_ns": entry(before, after) for name, before, after in rows[1:]},
            "finish_ns": {"before": self.base.finish_ns.tolist(), "after": self.changed.finish_ns.tolist()},
            **self._memory_need(),
            "notes": list(self.notes),
            "base_notes": list(self.base.notes),
            "warnings": list(dict.fromkeys([*self.base.warnings, *self.changed.warnings])),
        }

    def _memory_need(self) -> dict[str, Any]:
        """What a rank needs of an NPU's memory before and after, where it is known."""
        if self.base.memory_need is None:
            return {}
        before, after = (
            self.base.memory_need.document(run.system.local_mem_capacity_bytes)
            for run in (self.base, self.changed)
        )
        return {"memory_need": {"before": before, "after": after}}

    def _memory_in_words(self) -> list[str]:
        """The same as a line of text."""
        found = [
            "; changed: ".join(dict.fromkeys(need_in_words(need) for need in both.values()))
            for both in self._memory_need().values()
        ]
        return [f"memory: {text}" for text in found]

    def to_text(self) -> str:
        """The comparison as a table."""
        both = set(self.changed.notes)
        lines = [f"what if {', '.join(map(str, self.changes))}", ""]
        lines.append(f"{'':12}{'before':>14}{'after':>14}{'change':>14}{'':>10}")
        for name, before, after in self.rows():
            share = signed_percent_text((after - before) / before) if before else "-"
            change = round(after - before)
            times = duration_text(round(before)), duration_text(round(after))
            moved = f"{'+' if change >= 0 else ''}{duration_text(change)}"
            lines.append(f"{name:12}{times[0]:>14}{times[1]:>14}{moved:>14}{share:>10}")
        lines += [
            "",
            "step: finish of the last NPU; the parts below are means over the NPUs and add up to their finish",
            *_cpu_in_words(self.base, self.changed),
            *self._memory_in_words(),
            *(f"{'note' if note in both else 'note, before'}: {note}" for note in self.base.notes),
            *(f"note: {note}" for note in self.notes),
        ]
        return "\n".join(lines) + "\n"


def _cpu_in_words(base: ReplayResult, changed: ReplayResult) -> list[str]:
    """What the row of the host is, where it changes."""
    # without work of the accelerator the host's is what computes
    hides = bool(base.account["compute_ns"].any())
    if not hides or np.array_equal(base.account["cpu_ns"], changed.account["cpu_ns"]):
        return []
    return [
        "cpu: only the host is busy; no kernel, transfer or wait for a peer hides it. It grows where those become shorter"
    ]


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
    scales = {name: float(options.pop(name)) for name in SCALES.values() if name in options}
    speeds = dict(options.pop("kernel_speeds", None) or {})
    files = (
        load_network(network, compat=compat),
        load_system(system, compat=compat),
        None if memory is None else load_memory(memory, compat=compat),
    )

    def run(changes: tuple[Change, ...]) -> ReplayResult:
        machine = Machine(*files, dict(scales), dict(speeds))
        for change in changes:
            machine.change(change)
        return play(
            workload, machine.system, machine.network, memory=machine.memory, compat=compat,
            kernel_speeds=machine.kernel_speeds, **options, **machine.scales,
        )  # fmt: skip

    base, changed = run(()), run(parsed)
    said = (*_idle(parsed, base, changed, run), *_unmoved(base, changed), *_new_notes(base, changed))
    return WhatIf(parsed, base, changed, said)


def _idle(
    changes: tuple[Change, ...],
    base: ReplayResult,
    changed: ReplayResult,
    run: Callable[[tuple[Change, ...]], ReplayResult],
) -> list[str]:
    """Changes that change no time, with the reason.

    Of several, one that there is a reason to suspect is replayed by itself.
    """
    nothing = _same(base, changed)
    said = []
    for change in changes:
        reason = "it leaves the value as it is" if change.relative and change.value == 1 else None
        reason = reason or why_idle(change.parameter.study, base)
        if nothing or (reason and len(changes) > 1 and _same(base, run((change,)))):
            said.append(f"{change} changed nothing: {reason or 'no time of this run depends on it'}")
    return said


def _same(base: ReplayResult, changed: ReplayResult) -> bool:
    """Whether two runs take the same times in all that is compared."""
    return np.array_equal(base.finish_ns, changed.finish_ns) and all(
        np.array_equal(values, changed.account[name]) for name, values in base.account.items()
    )


#: row of the account -> what an NPU does that spends its time there
_SPENDS = {
    "compute_ns": "computes",
    "cpu_ns": "waits for its host",
    "transfer_ns": "waits for transfers",
    "waiting_ns": "waits for other NPUs",
    "memory_ns": "waits for remote memory",
    "idle_ns": "has nothing that is ready",
}
#: A change of a part is told where the step changes by less than this share of it ...
_FOLLOWS = 0.5
#: ... and the part by at least this share of the step.
_TOLD = 0.001


def _unmoved(base: ReplayResult, changed: ReplayResult) -> list[str]:
    """What decides the step, where a part of it changes and the step does not follow."""
    before, after = int(base.finish_ns.max(initial=0)), int(changed.finish_ns.max(initial=0))
    parts = {name: float((changed.account[name] - values).mean()) for name, values in base.account.items()}
    most = max(parts, key=lambda name: abs(parts[name]))
    if abs(parts[most]) < max(_TOLD * before, 1) or abs(after - before) >= _FOLLOWS * abs(parts[most]):
        return []
    last = int(np.argmax(changed.finish_ns))
    account = {name: int(values[last]) for name, values in changed.account.items()}
    longest = max(account, key=lambda name: account[name])
    share = percent_text(account[longest] / max(after, 1))
    part = f"{most.removesuffix('_ns')} {parts[most] / 1e6:+,.3f} ms"
    step = f"the step only {(after - before) / 1e6:+,.3f} ms"
    return [f"{part}, but {step}: NPU {last}, the last, {_SPENDS[longest]} for {share} of its time"]


def _new_notes(base: ReplayResult, changed: ReplayResult) -> list[str]:
    """What a reader of the changed run should know, without what holds for both and what `_idle` says."""
    known = [*base.notes, *idle_speed_notes(changed.workload.traces, changed.scenario.options)]
    return [note for note in changed.notes if note not in known]
