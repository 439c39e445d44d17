"""What a platform file comes to: every key with the value in effect, its unit, default and origin."""

import os

from chakra.platforms.cluster import load_platform
from chakra.platforms.keys import ACCELERATOR_KEYS, DIM_KEYS, PLATFORM_KEYS
from chakra.platforms.model import Number, Platform
from chakra.replay.config.keys import Key
from chakra.replay.config.values_in_effect import Explanation, Row


def explain_platform(path: str | os.PathLike[str]) -> Explanation:
    """Explain a platform file; raises ConfigError as `load_platform` does."""
    source = os.fspath(path)
    platform = load_platform(source)
    rows = [
        _row(key, value, source)
        for key, value in zip(PLATFORM_KEYS, _values(platform), strict=True)
        if key.name not in ("accelerator", "dims")
    ]
    accelerator = platform.accelerator
    numbers = (accelerator.peak, accelerator.bandwidth, accelerator.capacity)
    for key, value in zip(ACCELERATOR_KEYS, (accelerator.name, *numbers), strict=True):
        rows.append(_row(key, value, source, "accelerator."))
    for k, dim in enumerate(platform.dims):
        for key, value in zip(
            DIM_KEYS, (dim.topology.value, dim.npus or "scale_out", dim.bandwidth, dim.latency), strict=True
        ):
            rows.append(_row(key, value, source, f"dims[{k}]."))
    assumed = sum(number.status.value == "assumed" for _, number in platform.numbers())
    notes = [
        f"{platform.node_npus} NPUs per machine",
        f"{assumed} numbers are assumed: nobody published them",
    ]
    return Explanation("platform", source, tuple(rows), tuple(notes))


def _values(platform: Platform) -> tuple[object, ...]:
    return platform.name, platform.title, "machine", platform.note or None, None, None


def _row(key: Key, value: object, source: str, prefix: str = "") -> Row:
    """A row; a number says in its meaning how much it can be trusted and where it is from."""
    given, meaning = value, key.meaning
    if isinstance(value, Number):
        given, meaning = value.value, f"{key.meaning}; {value.status}: {' '.join(value.source.split())}"
    absent = value is None or (key.name == "kind")
    return Row(
        prefix + key.name, given, key.unit, key.default, "default" if absent else source, meaning, key.allowed
    )
