"""Costs of collective libraries that ship with the package (``chakra/presets/collectives``)."""

from functools import lru_cache

from chakra.errors import UsageError
from chakra.io.nearest import nearest
from chakra.io.shipped import shipped_document, shipped_names
from chakra.replay.collectives.library.parameters import MachineParameters, parameters_from

_FOLDER = "presets/collectives"


def names_with_parameters() -> tuple[str, ...]:
    """Machines whose costs ship with the package, sorted."""
    return shipped_names(_FOLDER)


@lru_cache(maxsize=64)
def preset_parameters(name: str) -> MachineParameters:
    """Costs of a machine.

    Raises
    ------
    UsageError
        None of that name ship with the package.
    """
    if name not in names_with_parameters():
        raise UsageError(
            f"no costs of a collective library for {name!r}{nearest(name, names_with_parameters())}; there are: "
            f"{', '.join(names_with_parameters())}"
        )
    return parameters_from(shipped_document(_FOLDER, name), name)
