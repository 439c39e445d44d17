"""Costs of collective libraries of the presets: files beside the presets, of the same names."""

from chakra.arguments import checked
from chakra.platforms.preset_text import preset_text
from chakra.replay.collectives.library import MachineParameters, parameters_to
from chakra.replay.collectives.library.presets import names_with_parameters, preset_parameters

__all__ = ["collective_parameters", "names_with_parameters", "parameters_text"]


@checked
def collective_parameters(name: str) -> MachineParameters:
    """Costs of the collective library on a preset's machine.

    Parameters
    ----------
    name
        Name of the preset.

    Raises
    ------
    UsageError
        No such preset, or none with costs.
    """
    return preset_parameters(name)


@checked
def parameters_text(machine: MachineParameters) -> str:
    """Parameters as the YAML text of a preset.

    Parameters
    ----------
    machine
        The parameters.
    """
    return preset_text(
        (
            "costs of a collective library; docs/guides/collective-library.md says what they mean",
            "us and 10^9 B/s; errors are shares of the measured time, in sample",
        ),
        parameters_to(machine),
        lambda value: True,
    )
