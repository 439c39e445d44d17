"""What a network answers before a run, so that an engine need not simulate every message.

An engine asks these questions and knows no network; a network that is added answers them here. What is asked during a
run stands in `chakra.replay.engines.kernels.network` (compiled) and `chakra.replay.networks.interface` (outside).
"""

from typing import Protocol

from chakra.errors import UsageError
from chakra.replay.collectives.plan import FLAT, Phase
from chakra.replay.config.model import Network
from chakra.replay.networks.closed_forms import has_closed_form, queued_duration
from chakra.replay.options import BACKENDS, FLOW, OUTSIDE

#: why messages of collectives are simulated one by one on single links
LINK_BY_LINK = "the network is given link by link"


class EarlyAnswers(Protocol):
    """What a network answers before a run."""

    def why_no_classes(self) -> str | None:
        """Why each NPU must be simulated with each of its messages, or None if classes of equal NPUs may be used."""

    def shares_links(self) -> bool:
        """Whether messages may slow each other down. If not, a phase needs no closed form: delays say all."""

    def why_no_closed_form(self, phase: Phase) -> str | None:
        """Why `duration_ns` does not know a phase of all NPUs that start together, alone; None if it does."""

    def duration_ns(self, phase: Phase, endpoint_ns: int, reduce_bytes_per_s: float) -> int | None:
        """Time of a phase whose members start together and share no link with anybody, ns.

        None if it follows from the delays of its messages, which the engine adds up itself.
        """


class Delays:
    """Building blocks, or single links, without contention."""

    def why_no_classes(self) -> str | None:
        """Equal NPUs have equal delays."""
        return None

    def shares_links(self) -> bool:
        """Messages never meet."""
        return False

    def why_no_closed_form(self, phase: Phase) -> str | None:
        """Not needed."""
        return None

    def duration_ns(self, phase: Phase, endpoint_ns: int, reduce_bytes_per_s: float) -> int | None:
        """It follows from the delays."""
        return None


class Queues:
    """Building blocks whose links serve one message after the other."""

    def __init__(self, network: Network) -> None:
        self._dims = network.dims

    def why_no_classes(self) -> str | None:
        """Equal NPUs have equal links."""
        return None

    def shares_links(self) -> bool:
        """Messages wait for each other."""
        return True

    def why_no_closed_form(self, phase: Phase) -> str | None:
        """A flat ring over several dimensions, and algorithms whose messages share links of the dimension."""
        if phase.view == FLAT and len(self._dims) > 1:
            return "a flat ring crosses dimensions"
        dim = self._dims[0 if phase.view == FLAT else phase.view]
        if has_closed_form(phase, dim):
            return None
        return f"{phase.algorithm.name} shares links of a {dim.topology.value} dimension"

    def duration_ns(self, phase: Phase, endpoint_ns: int, reduce_bytes_per_s: float) -> int | None:
        """By the closed forms."""
        dim = self._dims[0 if phase.view == FLAT else phase.view]
        return queued_duration(phase, dim, endpoint_ns, reduce_bytes_per_s)


class EveryMessage:
    """A network on which every message is simulated.

    Parameters
    ----------
    why
        What is so about it.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def why_no_classes(self) -> str | None:
        """Always."""
        return self._why

    def shares_links(self) -> bool:
        """Perhaps."""
        return True

    def why_no_closed_form(self, phase: Phase) -> str | None:
        """There is none."""
        return self._why

    def duration_ns(self, phase: Phase, endpoint_ns: int, reduce_bytes_per_s: float) -> int | None:
        """There is none to ask for."""
        raise ValueError(f"no phase has a closed form: {self._why}")


def early_answers(network: Network, backend: str) -> EarlyAnswers:
    """Who answers for a network under a backend."""
    if network.outside is None and backend == FLOW:
        return EveryMessage("flows share links")
    if network.outside is not None:
        return EveryMessage(f"network {network.outside.name!r} is simulated outside the engine")
    if backend != "aware":
        return Delays()
    return EveryMessage(LINK_BY_LINK) if network.links is not None else Queues(network)


def backend_on(network: Network, backend: str) -> str:
    """The backend that runs a network.

    Raises
    ------
    UsageError
        If one was asked for that does not fit it.
    """
    if network.outside is None:
        if backend == OUTSIDE:
            raise UsageError(
                f"backend: {OUTSIDE!r} is for networks that another package simulates, not {network.source}"
            )
        return backend
    if backend not in (BACKENDS[0], OUTSIDE):
        raise UsageError(
            f"backend: {network.source} is simulated by another package, which decides how transfers share links; "
            f"{backend!r} is not for it"
        )
    return OUTSIDE
