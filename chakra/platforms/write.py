"""Writing a platform as ASTRA-sim's files: ``PREFIX.network.yml`` and ``PREFIX.system.json``."""

from pathlib import Path
from typing import TYPE_CHECKING

from chakra.arguments import checked
from chakra.io.documents import document_text
from chakra.io.files import atomic_text, expect_prefix, expect_writable
from chakra.io.readable import number_text
from chakra.io.yaml_text import entry_text
from chakra.platforms.model import Platform

if TYPE_CHECKING:
    from chakra.replay.config.model import Network


def network_text(platform: Platform) -> str:
    """Network file with the source and status of every number as comments."""
    return network_with_text(platform)[1]


def network_with_text(platform: Platform) -> "tuple[Network, str]":
    """The network, and its file with the source and status of every number as comments."""
    from chakra.replay.config.network import dump_network, load_network

    lines = [
        f"# {platform.title}",
        "# bandwidth in GB/s of 2^30 bytes per link and direction, latency in ns per hop",
    ]
    if platform.note:
        lines.append(f"# note: {' '.join(platform.note.split())}")
    for name, number in platform.numbers():
        if name.startswith("dim"):
            lines.append(
                f"# {name}: {number_text(number.value)} ({number.status}: {' '.join(number.source.split())})"
            )
    document = platform.network()
    network = load_network(document)
    if network.links is not None:
        return network, "\n".join(lines) + "\n" + dump_network(network)
    for key, values in document.items():
        lines.append(entry_text(key, values))
    return network, "\n".join(lines) + "\n"


@checked
def write_platform(platform: Platform, prefix: str | Path) -> tuple[Path, Path]:
    """Write the network and the system file; returns their paths.

    Parameters
    ----------
    platform
        A machine whose scale-out dimension has a size.
    prefix
        Files are ``PREFIX.network.yml`` and ``PREFIX.system.json``.

    Raises
    ------
    UsageError
        A path that cannot be written, or a prefix that is empty or names a folder.
    """
    prefix = expect_prefix(prefix)
    network, system = (
        prefix.parent / f"{prefix.name}.network.yml",
        prefix.parent / f"{prefix.name}.system.json",
    )
    expect_writable((network, system))
    with atomic_text(network) as file:
        file.write(network_text(platform))
    with atomic_text(system) as file:
        file.write(document_text(platform.system(), indent=2) + "\n")
    return network, system
