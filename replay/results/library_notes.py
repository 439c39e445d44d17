"""What the times of collectives rest on, where a system file names a collective library."""

from collections.abc import Sequence

import numpy as np

from chakra.io.readable import counted, percent_text
from chakra.replay.collectives.library.in_effect import measured_collectives, why_no_library
from chakra.replay.collectives.library.shape import Forced
from chakra.replay.config.model import CollectiveKind, System
from chakra.replay.engines.scenario import Scenario


def library_notes(scenario: Scenario) -> list[str]:
    """That collectives take a library's times and how right those are, or why they do not."""
    system = scenario.system
    if system.collective_library is None:
        idle = _without_library(system)
        have = "has" if len(idle) == 1 else "have"
        return [f"{' and '.join(idle)} {have} no effect without collective-library"] if idle else []
    reason = why_no_library(system, scenario.network, scenario.options)
    if reason is not None:
        no_effect = f"collective-library {system.collective_library!r} has no effect: {reason}"
        measured, _ = measured_collectives(system, scenario.options)
        also = ["measured times"] if measured else []
        also += [f"--{key}" for key in scenario.options.held]
        also += _rate_keys(system)
        rest = f", nor {'has' if len(also) == 1 else 'have'} {' and '.join(also)}" if also else ""
        return [f"{no_effect}{rest}; collectives run the algorithms of {system.source}"]
    placed = scenario.plans.library
    if placed is None or not scenario.workload.has_collectives:
        return []
    machine, evidence = placed.machine, placed.machine.evidence
    bands = evidence.errors.values()
    error = (
        float(np.average([b.mean_error for b in bands], weights=[b.rows for b in bands])) if bands else None
    )
    how = (
        f", {evidence.status} with a mean error of {percent_text(error)}"
        if error is not None
        else f", {evidence.status}"
    )
    counts = "of the network file only bandwidths between nodes count for them"
    if placed.sends:
        counts = "their bytes travel as messages, which wait for others on links"
    if placed.slows:
        counts += (
            f"; beside each other computing runs at {placed.computing_rate:g} and a collective at "
            f"{placed.collective_rate:g} of its speed"
        )
    basis = _nodes_measured(evidence.ranks, machine.node_ranks)
    held = _held(placed.forced)
    if held and error is not None:
        basis += f", of what the library chooses and not of {held}"
    model = f"collectives take the times of {machine.library} on {machine.name}{how}{basis}; {counts}"
    if placed.measured is None:
        return [model]
    measured_note = _measured_note(placed.measured.name, placed.asked)
    if held and any(placed.asked.values()):
        measured_note += f"; they do not say what ran, so {held} is of no effect on them"
    return [*placed.measured.notes, measured_note, model]


def _nodes_measured(ranks: Sequence[int], node_ranks: int) -> str:
    """Whether an error is one of a single node's collectives."""
    if not ranks:
        return ""
    if max(ranks) <= node_ranks:
        return " (one node)"
    return f" ({', '.join(map(str, ranks))} ranks on nodes of {node_ranks})"


def _held(forced: Forced) -> str:
    """What a library is held to, in words; empty: nothing."""
    parts = ["/".join(str(part) for part in (forced.algorithm, forced.protocol) if part)]
    if forced.channels:
        parts.append("one channel" if forced.channels == 1 else f"{counted(forced.channels, 'channel')}")
    return " with ".join(part for part in parts if part)


def _rate_keys(system: System) -> list[str]:
    """The keys of speeds beside computing, where they are given."""
    full = system.computing_rate == system.collective_rate == 1
    return [] if full else ["overlap-computing-rate", "overlap-collective-rate"]


def _without_library(system: System) -> list[str]:
    """Keys of a system file that say something of a collective library, where it names none."""
    given = {
        "collective-costs": system.collective_costs,
        "collective-algorithm": system.collective_algorithm,
        "collective-protocol": system.collective_protocol,
        "collective-channels": system.collective_channels,
        "node-ports": system.node_ports,
        "network-plugin-latency": system.network_latency_us,
        "network-reduces": system.network_reduces,
    }
    return _rate_keys(system) + [key for key, value in given.items() if value]


def _measured_note(name: str, asked: dict[tuple[CollectiveKind, int, int], bool]) -> str:
    """Which of a run's different collectives (kind, bytes, ranks) were measured, and one that was not."""
    found = sum(asked.values())
    beyond = [
        f"{kind.lower()} of {size:,} bytes on {counted(ranks, 'rank')}"
        for (kind, size, ranks), one in sorted(asked.items())
        if not one
    ]
    rest = f"; the model takes what was not measured, such as {beyond[0]}" if beyond else ""
    return f"measured times of collectives: {found} of {len(asked)} different ones are those of {name}{rest}"
