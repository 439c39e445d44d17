"""Numbers of a machine and of a run that are changed by name, in what-if runs and in studies.

A study names one by section and key, as ``system.preferred-dataset-splits``: the key is that of the file, or of the
option of a replay. ``--what-if`` has shorter names for some, and takes those of studies and the bare keys, too.
"""

import re
from dataclasses import dataclass

from chakra.et.families import FAMILIES
from chakra.io.digits import whole_number
from chakra.io.nearest import nearest
from chakra.replay.config.key import Key
from chakra.replay.config.keys import (
    ACTIVE_CHUNKS,
    BANDWIDTH,
    ENDPOINT_DELAY,
    LATENCY,
    LOCAL_MEM_BW,
    LOCAL_MEM_CAPACITY,
    MEMORY_KEYS,
    NETWORK_KEYS,
    REMOTE_BANDWIDTH,
    REMOTE_LATENCY,
    SPLITS,
    SYSTEM_KEYS,
)
from chakra.replay.config.readers import Number, Rate, Whole
from chakra.replay.workload.kernel_speeds import MEMORY

#: sections of studies
NETWORK, SYSTEM, REPLAY, REMOTE = "network", "system", "replay", "memory"
#: what-if name of a factor -> option of a replay
SCALES = {
    "comm-scale": "comm_scale",
    "compute-scale": "compute_scale",
    "injection-scale": "injection_scale",
    "host.speed": "host_speed",
    "accelerator.speed": "accelerator_speed",
}
#: the arithmetic of an accelerator as a whole: the roofline's peak, and recorded kernels
FLOPS = "npu.flops"
#: speeds of kernels by family
KERNELS = "accelerator."
#: shorter names of keys
_SHORT = {
    ENDPOINT_DELAY.name: "system.endpoint-delay",
    ACTIVE_CHUNKS.name: "system.active-chunks",
    SPLITS.name: "system.splits",
    LOCAL_MEM_BW.name: "npu.hbm",
    LOCAL_MEM_CAPACITY.name: "npu.memory",
    REMOTE_LATENCY.name: "memory.latency",
    REMOTE_BANDWIDTH.name: "memory.bandwidth",
}
_DIM = re.compile(r"(?:network\.)?dim([0-9]{1,3})\.(bandwidth|latency)")
#: what of a dimension is no number that could be changed by a factor
_SHAPE = re.compile(r"(?:network\.)?dim[0-9]{1,3}\.(?:topology|npus(?:-count)?)")
#: a link as options name it, by its ends, or what they do to it
_LINK = re.compile(r"(?:fail-|slow-)?links?\b|[0-9]+-[0-9a-z]", re.IGNORECASE)
_UNITS = {key.name: key.unit for key in (BANDWIDTH, LATENCY)}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number that may be changed.

    Attributes
    ----------
    name
        As ``--what-if`` writes it.
    study
        As a study writes it; as `name` where no study has it.
    unit
        Unit of an absolute value.
    key
        The key of a system or memory file whose value it is, if it is one.
    """

    name: str
    study: str
    unit: str
    key: Key[object] | None = None

    @property
    def bare(self) -> str:
        """Key of a file or option of a replay, without the section; its name where it is neither."""
        section, _, key = self.study.partition(".")
        return key if section in (SYSTEM, REPLAY, REMOTE) else self.name

    @property
    def dimension(self) -> tuple[int, str] | None:
        """Number of a network dimension, and bandwidth or latency, if it is one of those."""
        found = _DIM.fullmatch(self.study)
        return (whole_number(found[1]), found[2]) if found else None


def _of_file(section: str, keys: tuple[Key[object], ...]) -> list[Parameter]:
    """The numbers of a file."""
    return [
        Parameter(_SHORT.get(key.name, f"{section}.{key.name}"), f"{section}.{key.name}", key.unit, key)
        for key in keys
        if isinstance(key.reader, Whole | Number | Rate)
    ]


#: every parameter but those of network dimensions
PARAMETERS = (
    Parameter(FLOPS, FLOPS, "TFLOPS"),
    *(Parameter(name, f"{REPLAY}.{option.replace('_', '-')}", "factor") for name, option in SCALES.items()),
    *(Parameter(f"{KERNELS}{name}", f"{KERNELS}{name}", "factor") for name in (MEMORY, *FAMILIES)),
    *_of_file(SYSTEM, SYSTEM_KEYS),
    *_of_file(REMOTE, (REMOTE_LATENCY, REMOTE_BANDWIDTH)),
)
#: by every name
_BY_NAME = {
    name: parameter for parameter in PARAMETERS for name in (parameter.name, parameter.study, parameter.bare)
}


def parameter_named(text: str) -> Parameter | None:
    """The parameter of a what-if name, a study's name, or the key of a file; None: there is none."""
    word = text.replace("_", "-")
    found = _DIM.fullmatch(word)
    if found:
        name = f"dim{whole_number(found[1])}.{found[2]}"
        return Parameter(name, f"{NETWORK}.{name}", _UNITS[found[2]])
    return _BY_NAME.get(word)


#: what others call the host and the accelerator -> words of ours that stand in front of a parameter
_OTHERS = {
    **dict.fromkeys(("gpu", "device", "cuda", "hip", "tpu"), ("accelerator", "npu")),
    **dict.fromkeys(("accelerator", "npu"), ("npu", "accelerator")),
    "cpu": ("host",),
}


def near(text: str) -> str:
    """What an unknown name was probably meant for, or what there is; for the end of a message.

    ``gpu.speed`` is the accelerator's, though it looks more like the host's.
    """
    head, dot, rest = text.replace("_", "-").lower().partition(".")
    meant = [f"{ours}.{rest}" for ours in _OTHERS.get(head, ()) if dot]
    for name in meant:
        if (found := parameter_named(name)) is not None:
            return f"; did you mean '{found.name}'?"
    dims = [f"{start}dim0.{what}" for start in ("", f"{NETWORK}.") for what in _UNITS]
    listed = ", ".join([*dims[: len(_UNITS)], *map(_with_key, PARAMETERS)])
    return nearest(text, [*dims, *_BY_NAME]) or f"; there are {listed}"


def _with_key(parameter: Parameter) -> str:
    """The name, with the key of a file where that is another word: ``npu.hbm (local-mem-bw)``."""
    own = parameter.key is None or parameter.name.endswith(f".{parameter.key.name}")
    return parameter.name if own else f"{parameter.name} ({parameter.bare})"


def no_number(text: str) -> str:
    """For a key of a file that holds no number: what to do instead of changing it by a factor; empty for other words."""
    word = text.replace("_", "-")
    if _LINK.match(word):
        return (
            f"{text} is of a single link, and numbers of whole dimensions are changed here; replay with "
            "--slow-link A-B=X or --fail-link A-B and without, each "
            "with --format json, and compare the results (chakra compare)"
        )
    if _SHAPE.fullmatch(word):
        return (
            f"{text} makes another network, and only numbers can be changed here; replay both networks and compare the "
            "results (chakra compare), or vary the network in a study (chakra sweep)"
        )
    section, dot, rest = word.partition(".")
    for kind, keys in ((SYSTEM, SYSTEM_KEYS), (REMOTE, MEMORY_KEYS), (NETWORK, NETWORK_KEYS)):
        bare = rest if dot and section == kind else word
        key = next((key for key in keys if key.name.replace("_", "-") == bare), None)
        if key is None or key.name in _UNITS or parameter_named(bare) is not None:
            continue
        study = f", or vary {SYSTEM}.{key.name} in a study (chakra sweep)" if kind == SYSTEM else ""
        return (
            f"{text} is a key of the {kind} file, but no single number, and only numbers can be changed here; "
            f"change the file{study}"
        )
    return ""
