"""What a platform file comes to: every key with the value in effect, its unit, default and origin."""

import os

from chakra.io.readable import counted, verb
from chakra.platforms.cluster import load_platform
from chakra.platforms.keys import ACCELERATOR, ACCELERATOR_KEYS, DIM_KEYS, DIMS, KIND, PLATFORM_KEYS, Status
from chakra.platforms.model import Number
from chakra.replay.config.key import Key, in_words, plain
from chakra.replay.config.values_in_effect import FileInEffect, ValueInEffect


def values_in_effect(path: str | os.PathLike[str]) -> FileInEffect:
    """Every key of a platform file.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    ConfigError
        As `load_platform`.
    """
    source = os.fspath(path)
    platform = load_platform(source)
    rows = [_row(key, platform, source) for key in PLATFORM_KEYS if key not in (ACCELERATOR, DIMS)]
    rows += [_row(key, platform.accelerator, source, f"{ACCELERATOR.name}.") for key in ACCELERATOR_KEYS]
    for k, dim in enumerate(platform.dims):
        rows += [_row(key, dim, source, f"{DIMS.name}[{k}].") for key in DIM_KEYS]
    assumed = sum(number.status is Status.ASSUMED for _, number in platform.numbers())
    notes = (
        f"{counted(platform.node_npus, 'NPU')} per machine",
        f"{counted(assumed, 'number')} {verb(assumed, 'is', 'are')} assumed: nobody published them",
    )
    return FileInEffect("platform", source, tuple(rows), notes)


def _row(key: Key[object], owner: object, source: str, prefix: str = "") -> ValueInEffect:
    """A row; a number says in its meaning how much it can be trusted and where it is from."""
    value, meaning = getattr(owner, key.field, None), key.meaning
    if isinstance(value, Number):
        meaning = f"{key.meaning}; {value.status}: {' '.join(value.source.split())}"
        value = value.value
    elif key.field == "npus" and value is None:
        value = "scale_out"
    absent = key is KIND or in_words(value) == "none"
    shown = plain(key.default if absent else value)
    return ValueInEffect.of(
        key,
        None if shown == "" else shown,
        "default" if absent else source,
        name=prefix + key.name,
        meaning=meaning,
    )
