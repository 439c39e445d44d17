"""Constants of operator times of the presets: files beside the presets, of the same names."""

import json

from chakra.arguments import checked
from chakra.replay.compute import ComputeParameters, compute_parameters, compute_parameters_to
from chakra.replay.compute.presets import names_with_operator_times

__all__ = ["compute_parameters", "constants_text", "names_with_operator_times"]


@checked
def constants_text(parameters: ComputeParameters) -> str:
    """Constants as the YAML text of a preset.

    Parameters
    ----------
    parameters
        The constants.
    """
    lines = [
        "# constants of operator times; docs/guides/operator-times.md says what they mean",
        "# us, 10^12 op/s and 10^9 B/s; errors are shares of measured times that were not fitted to",
    ]
    for key, value in compute_parameters_to(parameters).items():
        if isinstance(value, dict) and value and all(isinstance(entry, dict) for entry in value.values()):
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
