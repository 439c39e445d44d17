"""Constants of operator times of the presets: files beside the presets, of the same names."""

from collections.abc import Iterable

from chakra.arguments import checked
from chakra.platforms.preset_text import preset_text
from chakra.replay.compute import ComputeParameters, compute_parameters, compute_parameters_to
from chakra.replay.compute.presets import names_with_operator_times

__all__ = ["compute_parameters", "constants_text", "names_with_operator_times", "takes_operator_times"]

#: parameters of a generated workload that ask for a roofline with speeds of one's own
SPEEDS = frozenset({"peak-tflops", "mem-gbps", "matmul-efficiency", "memory-efficiency", "launch-ns"})


@checked
def takes_operator_times(platform: str, given: Iterable[str]) -> bool:
    """Whether a workload generated for a machine takes the times of its operator model.

    Parameters
    ----------
    platform
        Name of the preset.
    given
        Names of the parameters that its request gives: speeds or efficiencies mean a roofline.
    """
    names = {name.replace("_", "-") for name in given}
    return platform in names_with_operator_times() and not SPEEDS & names


@checked
def constants_text(parameters: ComputeParameters) -> str:
    """Constants as the YAML text of a preset.

    Parameters
    ----------
    parameters
        The constants.
    """
    return preset_text(
        (
            "constants of operator times; docs/guides/operator-times.md says what they mean",
            "us, 10^12 op/s and 10^9 B/s; errors are shares of measured times that were not fitted to",
        ),
        compute_parameters_to(parameters),
        lambda value: bool(value) and all(isinstance(entry, dict) for entry in value.values()),
    )
