"""Configurations of ASTRA-sim 1.0 to those of 2.0: network JSON to YAML, system text to JSON.

Source: replay semantics, section 7.1. A network file of 1.0 gives each dimension a number of links per
NPU, which 2.0 folds into the bandwidth; a system file is a list of ``key: value`` lines whose algorithm lists
are one word joined by ``_``.
"""

import os

from chakra.arguments import checked
from chakra.converters.astra_config._common import ConvertedConfig, key_lines, read_text
from chakra.converters.astra_config.network import (
    OldDimension,
    OldNetwork,
    congestion_network,
    is_old_network,
    json_object,
    network_file,
    old_network,
    read_old_network,
)
from chakra.converters.astra_config.system import system_file
from chakra.errors import ConfigError
from chakra.io.files import TEXT_WORKLOAD, kind_of

__all__ = [
    "ConvertedConfig",
    "OldDimension",
    "OldNetwork",
    "convert_config",
    "is_old_network",
    "read_old_network",
]


@checked
def convert_config(path: str | os.PathLike[str]) -> ConvertedConfig:
    """Convert a network or system file of ASTRA-sim 1.0; which it is shows in its content.

    Parameters
    ----------
    path
        Network file (JSON) or system file (text) of 1.0.

    Raises
    ------
    ConfigError
        Naming file, line or key, and what would be right.
    """
    source = os.fspath(path)
    text = read_text(path)
    if text.lstrip().startswith(("{", "[")):
        return network_file(old_network(json_object(text, source), source))
    if kind_of(text[:4096].encode()) == TEXT_WORKLOAD:
        raise ConfigError(f"{source}: is a text workload; `chakra convert text` converts it")
    lines = key_lines(text, source)
    keys = [key for _, key, _ in lines]
    if "topology" in keys and ("npus_count" in keys or "npus-count" in keys):
        return network_file(congestion_network(text, source))
    if "num-npus" in keys or "num-packages" in keys:
        raise ConfigError(
            f"{source}: is a description for the Garnet network simulator, which has no counterpart; write "
            f"a network file with "
            f"topology, npus_count, bandwidth and latency"
        )
    return system_file(lines, source)
