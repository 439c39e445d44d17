"""Running a scenario on the engine that fits."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from chakra.errors import UsageError
from chakra.replay.collectives.select import check_old_model
from chakra.replay.engines.choice import (
    fewest_events,
    why_again,
    why_every_npu,
    why_links,
    why_messages,
    why_not_on_network,
)
from chakra.replay.engines.outcome import RawRun
from chakra.replay.engines.phases.channels import UnfoldableError
from chakra.replay.engines.phases.engine import PhaseEngine
from chakra.replay.engines.scenario import Scenario
from chakra.replay.symmetry.classes import discrete

if TYPE_CHECKING:
    from chakra.replay.engines.messages.run import MessageRun

#: called with (nodes done, simulated ns); False ends the run
Progress = Callable[[int, int], bool]


def run_engine(scenario: Scenario, progress: Progress | None = None) -> RawRun:
    """Run the engine that fits.

    Raises
    ------
    ConfigError
        If the cost model of ASTRA-sim 1.0 is asked for where links are modelled.
    UsageError
        If an engine was asked for that cannot run this network.
    WorkloadError
        When NPUs meet in a collective with different kinds, sizes or dimensions.
    """
    options = scenario.options
    check_old_model(scenario.system, scenario.network, options)
    on_network = why_not_on_network(scenario)
    if on_network is not None and options.engine == "phases":
        raise UsageError(f"engine: 'phases' cannot run {scenario.network.source}: {on_network}")
    reason = why_every_npu(scenario)
    if reason is None and options.engine == "phases":
        on_network = why_links(scenario)
        if on_network is not None:
            raise UsageError(f"engine: 'phases' cannot run this exactly: {on_network}")
    if reason is None:
        reason = why_messages(scenario)
    if reason is not None:
        return _with_messages(_message_run(scenario), reason, progress)
    try:
        engine = PhaseEngine(scenario, scenario.classes)
    except UnfoldableError:
        engine = PhaseEngine(scenario, discrete(scenario.workload.npus))
    run = engine.run(progress)
    again = why_again(scenario, run)
    if again is not None and fewest_events(scenario) <= again[1]:
        messages = _message_run(scenario)
        if messages.work_estimate() <= again[1]:
            return _with_messages(messages, again[0], progress)
    return run


def _message_run(scenario: Scenario) -> "MessageRun":
    # most replays need no message: they start sooner without this engine, its networks and kernels
    from chakra.replay.engines.messages.run import MessageRun

    return MessageRun(scenario)


def _with_messages(messages: "MessageRun", reason: str, progress: Progress | None) -> RawRun:
    run = messages.run(progress)
    return replace(run, notes=(f"every message simulated: {reason}", *run.notes))
