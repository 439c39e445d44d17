"""Which machine a row names: a preset, how many NPUs share an inner network, and the port of an NPU."""

import re
from dataclasses import dataclass, replace
from typing import Any

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.digits import decimal_number, is_whole, whole_number
from chakra.io.readable import counted, verb
from chakra.platforms import Platform, load_platform
from chakra.platforms.cluster import with_fabric
from chakra.replay.compute import compute_parameters
from chakra.replay.compute.in_effect import BASE

#: what tables call an accelerator -> preset; the first that matches
_PRESETS = (
    (re.compile(r"\bgb300\b", re.I), "gb300-nvl72"),
    (re.compile(r"\bgb200\b", re.I), "gb200-nvl72"),
    (re.compile(r"\bb300\b", re.I), "hgx-b300"),
    (re.compile(r"\bb200\b", re.I), "hgx-b200"),
    (re.compile(r"\bh200\b", re.I), "hgx-h200"),
    (re.compile(r"\bh100\b", re.I), "hgx-h100"),
    (re.compile(r"(?<![a-z0-9])a100", re.I), "dgx-a100"),
)
#: accelerators of a preset's kind with other memory: bandwidth in 10^9 B/s by the data sheet
_MEMORIES = ((re.compile(r"a100.{0,6}40 ?gb", re.I), 1555.0),)
_NOT_MODELLED = (
    (re.compile(r"\btpu\b", re.I), "the sharding of a TPU recipe lies in the recipe, not in the row"),
)
#: shares of these types' peaks, which a base of an older generation lacks, are those of its nearest type
_NEAREST = {"fp8": "bf16", "nvfp4": "fp8"}
_PER_NODE = re.compile(r"([0-9]{1,9})\s*Gb/s per node", re.I)
_PORTS_PER_NODE = re.compile(r"([0-9]{1,9})x\s*([0-9]{1,9})\s*Gb/s per node", re.I)
_PER_GPU = re.compile(r"([0-9]{1,9})\s*Gb/s per GPU", re.I)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of a row.

    Attributes
    ----------
    preset
        Name of the preset.
    npus
        NPUs of the job.
    fabric
        Rate of an NPU's port in Gb/s where the row prints it, else None.
    mem_gbps
        Memory bandwidth, 10^9 B/s, where it is not the preset's.
    surfaces
        Preset whose operator times are taken at the peaks of this machine, instead of its own
        (`chakra.accuracy.ahead`).
    """

    preset: str
    npus: int
    fabric: float | None = None
    mem_gbps: float | None = None
    surfaces: str | None = None

    def platform(self) -> Platform:
        """The platform with its size.

        Jobs that are no whole number of machines of an NVLink domain larger than a node (72 NPUs) are laid out on the
        largest equal parts of domains: 256 NPUs are 4 x 64.

        Raises
        ------
        UsageError
            No arrangement of that many NPUs.
        """
        platform = load_platform(self.preset)
        if self.fabric is not None:
            platform = with_fabric(platform, f"{self.fabric:g}G")
        if self.mem_gbps is not None:
            bandwidth = replace(platform.accelerator.bandwidth, value=self.mem_gbps)
            platform = replace(platform, accelerator=replace(platform.accelerator, bandwidth=bandwidth))
        node = platform.node_npus
        if self.npus > node and self.npus % node:
            part = max(size for size in range(1, node + 1) if self.npus % size == 0)
            if 2 * part <= node:
                raise UsageError(
                    f"{counted(self.npus, 'NPU')} {verb(self.npus, 'is', 'are')} no whole number of machines of "
                    f"{node} or of more than half of one"
                )
            platform = platform.used_in_part(part)
        return platform.sized(self.npus)


def read_machine(hardware: str, nodes: str, gpus_per_node: str, network: str) -> Machine | str:
    """The machine of a row, or why it cannot be told."""
    for pattern, why in _NOT_MODELLED:
        if pattern.search(hardware):
            return why
    preset = next((name for pattern, name in _PRESETS if pattern.search(hardware)), None)
    if preset is None:
        return f"no machine preset for {hardware!r}"
    if not nodes or not gpus_per_node:
        return "number of nodes or of accelerators a node is not printed"
    for name, text in (("nodes", nodes), ("gpus_per_node", gpus_per_node)):
        if not is_whole(text, 6) or not whole_number(text):
            return f"{name} is no whole number from 1 to 999999: {text!r}"
    per_node, npus = whole_number(gpus_per_node), whole_number(nodes) * whole_number(gpus_per_node)
    memory = next((gbps for pattern, gbps in _MEMORIES if pattern.search(hardware)), None)
    return Machine(preset, npus, _fabric(network, per_node), memory)


def _fabric(network: str, per_node: int) -> float | None:
    if found := _PORTS_PER_NODE.search(network):
        return whole_number(found[1]) * whole_number(found[2]) / per_node
    if found := _PER_NODE.search(network):
        return whole_number(found[1]) / per_node
    if found := _PER_GPU.search(network):
        return decimal_number(found[1])
    return None


@checked
def surfaces_at(base: str, machine: str) -> dict[str, Any]:
    """The operator model of a machine, if only `base` had been measured: a map for a system file.

    Parameters
    ----------
    base
        Preset whose efficiencies, floors and shapes of surfaces are taken.
    machine
        Preset whose peaks, memory bandwidth and compute units are taken: figures of data sheets.

    Raises
    ------
    UsageError
        A preset without operator times.
    """
    known, target = compute_parameters(base), compute_parameters(machine)
    matmul: dict[str, dict[str, float]] = {}
    for name, costs in target.matmul.items():
        matmul[name] = {"peak_tflops": costs.peak_tflops}
        if name not in known.matmul:
            like = _NEAREST.get(name, "bf16")
            shares = known.matmul.get(like, known.matmul["bf16"])
            # bytes of a cast follow from the type, and are fitted to nothing
            matmul[name] |= {"efficiency": shares.efficiency, "cast_bytes": costs.cast_bytes}
    return {BASE: base, "units": target.units, "memory": {"gbps": target.memory.gbps}, "matmul": matmul}
