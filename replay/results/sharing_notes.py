"""What times of networks given link by link leave out, where no message waits for another."""

from typing import Final

from chakra.replay.engines.scenario import Scenario

#: as a note of a result and of a study
NOT_SHARED: Final = (
    "messages on links never wait for each other on backend unaware, so that times have nothing of what ports, uplinks "
    "and oversubscription cost; flow and aware share links"
)


def sharing_notes(scenario: Scenario) -> list[str]:
    """That the links of a network of switches are not shared; nothing for building blocks, whose links only messages
    of one NPU share, and where links are shared."""
    links = scenario.network.links
    if (
        scenario.options.backend != "unaware"
        or links is None
        or links.dimension_ordered
        or not links.vertices
    ):
        return []
    return [NOT_SHARED]
