"""Device memory that a rank of a generated workload needs, against what the machine's NPUs have.

The generator computes the need of every stage (`chakra.generate.verify.memory`) and writes that of the fullest one beside
the totals of the step; what a replay, a study and the generator say of it comes from here.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chakra.et.operators import TOTALS
from chakra.io.readable import decimal_bytes_text, percent_text, printable

if TYPE_CHECKING:
    from chakra.et.trace import Trace

#: key of the totals
MEMORY = "memory"
#: what a need is made of, in the order in which it is told
_PARTS = ("states", "activations", "transient", "cache")
#: no need of a rank is larger
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes that a rank of the fullest stage needs at its peak.

    Attributes
    ----------
    stage
        The stage, as the generator's tables name it: its number, behind the part of the workload where it has several;
        empty where there is one stage.
    states
        Weights, gradients and optimizer states.
    activations
        The most that passes keep for each other.
    transient
        What recomputation, gathering and gradients before they are scattered hold for a while on top.
    cache
        Keys and values of inference.
    """

    stage: str
    states: int
    activations: int
    transient: int
    cache: int

    @property
    def peak_bytes(self) -> int:
        """Sum of all parts."""
        return self.states + self.activations + self.transient + self.cache

    def fact(self) -> dict[str, str | int]:
        """As the totals of a generated step hold it."""
        return {"stage": self.stage, **{name: getattr(self, name) for name in _PARTS}}

    def fits(self, capacity_bytes: int) -> bool:
        """Whether an NPU's memory of that size holds it."""
        return self.peak_bytes <= capacity_bytes

    def document(self, capacity_bytes: int | None) -> dict[str, str | int | float | None]:
        """Peak, stage and parts beside the capacity of an NPU and the share of it, None where no capacity is known."""
        return {
            "peak_bytes": self.peak_bytes,
            "stage": self.stage,
            **{f"{name}_bytes": getattr(self, name) for name in _PARTS},
            "capacity_bytes": capacity_bytes,
            "share": None if capacity_bytes is None else self.peak_bytes / capacity_bytes,
        }

    @property
    def split(self) -> str:
        """The parts that are there, in words."""
        parts = {name: getattr(self, name) for name in _PARTS}
        return ", ".join(f"{name} {decimal_bytes_text(size)}" for name, size in parts.items() if size)

    def shortage(self, capacity_bytes: int | None) -> str | None:
        """That a rank needs more than an NPU has, in words; None where it fits, or no capacity is known."""
        if capacity_bytes is None or self.fits(capacity_bytes):
            return None
        return (
            f"a rank{_of_stage(self.stage)} ({self.split}) needs {decimal_bytes_text(self.peak_bytes)} of "
            f"memory, the accelerator has {decimal_bytes_text(capacity_bytes)}"
        )


def shortage_notes(need: MemoryNeed | None, capacity_bytes: int | None) -> list[str]:
    """A note where a job does not fit in memory: its times are those of a machine that had enough."""
    short = None if need is None else need.shortage(capacity_bytes)
    return [] if short is None else [f"the job does not fit: {short}; times are as if it had enough"]


def need_entry(need: MemoryNeed | None, capacity_bytes: int | None) -> dict[str, object]:
    """The key ``memory_need`` of a result's document; nothing where no need is known."""
    return {} if need is None else {"memory_need": need.document(capacity_bytes)}


def need_in_words(document: Mapping[str, object]) -> str:
    """What `MemoryNeed.document` says, in a line: the need, the share of the capacity, and the stage."""
    peak, capacity, share = (document.get(key) for key in ("peak_bytes", "capacity_bytes", "share"))
    text = decimal_bytes_text(peak) if isinstance(peak, int) else "unknown"
    if isinstance(capacity, int) and isinstance(share, int | float):
        text += f" of {decimal_bytes_text(capacity)} ({percent_text(share)})"
    fits = "" if not isinstance(share, int | float) or share <= 1 else ": does not fit"
    stage = _of_stage(str(document.get("stage", "")))
    return f"{text}, {'a' if stage else 'each'} rank{stage}{fits}"


def _of_stage(stage: str) -> str:
    """Which stage it is, where there are several."""
    return f" of stage {printable(stage)}" if stage else ""


def generated_totals(traces: Sequence["Trace"], npus: int) -> Mapping[str, object]:
    """Totals that the generator wrote into the traces of as many ranks; empty for others."""
    metadata = traces[0].metadata if traces else None
    attributes = () if metadata is None else metadata.attr
    text = next((item.string_val for item in attributes if item.name == TOTALS), "")
    try:
        totals = json.loads(text)
    except ValueError:
        return {}
    return totals if isinstance(totals, dict) and totals.get("npus") == npus else {}


def need_of(totals: Mapping[str, object]) -> MemoryNeed | None:
    """What totals say of memory; None if nothing, or nothing that can be."""
    found = totals.get(MEMORY)
    if not isinstance(found, dict) or not isinstance(found.get("stage"), str):
        return None
    given = [found.get(name) for name in _PARTS]
    parts = [part for part in given if type(part) is int and 0 <= part <= _MOST]
    return MemoryNeed(found["stage"], *parts) if len(parts) == len(given) else None
