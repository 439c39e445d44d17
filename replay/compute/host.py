"""Time of the host thread: a fixed time for everything that it issues.

    time = (forward + again) * forward_us + backward * backward_us + experts * expert_us + collectives * collective_us
         + messages * message_us + passes * pass_us + steps * step_us

Backward passes are issued by the library that recorded the forward pass, without the program's own layers between, so
that an operator costs less there.
"""

from chakra.et.operators import Host
from chakra.replay.compute.parameters import HostCosts


def host_us(operator: Host, costs: HostCosts) -> float:
    """Time of what the host does between two communications, us."""
    step = operator.steps * costs.step_us
    if costs.graphs:
        return step
    issued = (operator.forward + operator.again) * costs.forward_us + operator.backward * costs.backward_us
    issued += operator.experts * costs.expert_us
    told = operator.collectives * costs.collective_us + operator.messages * costs.message_us
    return issued + told + operator.passes * costs.pass_us + step
