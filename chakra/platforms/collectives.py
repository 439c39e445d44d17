"""Costs of collective libraries of the presets: files beside the presets, of the same names."""

import json

from chakra.arguments import checked
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
    lines = [
        "# costs of a collective library; docs/guides/collective-library.md says what they mean",
        "# us and 10^9 B/s; errors are shares of the measured time, in sample",
    ]
    for key, value in parameters_to(machine).items():
        if isinstance(value, dict):
            lines.append(f"{key}:")
            lines += [f"  {inner}: {_flow(entry)}" for inner, entry in value.items()]
        else:
            lines.append(f"{key}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _flow(value: object) -> str:
    """A value on one line: JSON is YAML, without quotes around the keys of a map."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value)
