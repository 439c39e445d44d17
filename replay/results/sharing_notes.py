"""What is told of networks given link by link: what failed or is slow, and what times leave out."""

from typing import Final

from chakra.io.readable import count_text, figure_text
from chakra.replay.config.model import Network
from chakra.replay.engines.scenario import Scenario

#: as a note of a result and of a study
NOT_SHARED: Final = (
    "messages on links never wait for each other on backend unaware, so that times have nothing of what ports, uplinks "
    "and oversubscription cost; flow and aware share links"
)

#: the same where links have failed
AROUND: Final = (
    "messages that go around failed links never wait for others on backend unaware, so that times have nothing of what "
    "the links around cost that both share; flow and aware share links"
)
#: most that one switch chip made in 2025 switches, Gb/s: Broadcom Tomahawk 6 (BCM78910, BCM78914: 1,024 lanes of 100 Gb/s
#: or 512 of 200 Gb/s; press release "Broadcom Ships Tomahawk 6: World's First 102.4 Tbps Switch", June 2025,
#: https://www.stocktitan.net/news/AVGO/broadcom-ships-tomahawk-6-world-s-first-102-4-tbps-03pst300noc4.html)
CHIP_GBPS: Final = 102_400


def port_notes(ports: int, port_gbps: float) -> list[str]:
    """That no single chip has the ports of a fabric's switches; nothing where some has.

    Parameters
    ----------
    ports
        Ports of a switch.
    port_gbps
        Rate of a port, 10^9 bits per second.
    """
    if ports * port_gbps <= CHIP_GBPS:
        return []
    return [
        (
            f"a switch of {count_text(ports)} ports of {figure_text(port_gbps)} Gb/s is more than one chip "
            f"({CHIP_GBPS / 1000:g} Tb/s in 2025): it is several in a box, whose inside this network does not have"
        )
    ]


def fault_notes(network: Network) -> list[str]:
    """Which links have failed, and which are slow."""
    faults = network.faults
    if faults is None:
        return []
    failed = [f"failed: {', '.join(faults.failed)}"] if faults.failed else []
    slow = ", ".join(f"{name} ({factor:g} times its bandwidth)" for name, factor in faults.slow)
    return ["links " + "; ".join([*failed, *([f"slow: {slow}"] if slow else [])])]


def sharing_notes(scenario: Scenario) -> list[str]:
    """That links are not shared, of a network of switches or around failed ones, and that no chip has as many ports.

    The first is of no building blocks, whose links only messages of one NPU share, nor of backends that share links.
    """
    links = scenario.network.links
    if links is None:
        return []
    parts = links.built_of
    built = [] if parts is None else port_notes(parts.ports, parts.port_gbps)
    if scenario.options.backend != "unaware":
        return built
    if not links.dimension_ordered and links.vertices:
        return [NOT_SHARED, *built]
    return [AROUND, *built] if links.faults and links.faults.failed else built
