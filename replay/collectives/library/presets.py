"""Costs of collective libraries that ship with the package (``chakra/presets/collectives``)."""

from functools import lru_cache
from importlib import resources

from chakra.errors import UsageError
from chakra.io.nearest import nearest
from chakra.io.yaml import parse_document
from chakra.replay.collectives.library.parameters import MachineParameters, parameters_from

_FOLDER = "presets/collectives"


@lru_cache(maxsize=1)
def names_with_parameters() -> tuple[str, ...]:
    """Machines whose costs ship with the package, sorted."""
    folder = resources.files("chakra").joinpath(_FOLDER)
    return tuple(sorted(e.name.removesuffix(".yml") for e in folder.iterdir() if e.name.endswith(".yml")))


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
    text = resources.files("chakra").joinpath(_FOLDER, f"{name}.yml").read_text(encoding="utf-8")
    return parameters_from(parse_document(text, f"{name}.yml"), name)
