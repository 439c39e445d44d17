"""Random systems whose switches carry collectives out, with groups that a switch joins."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from replay_strategies import KINDS, Setting, settings_of_systems

BY_SWITCH = KINDS[:3]


def rows_of_dimension(npus_count: Sequence[int], dim: int) -> list[list[int]]:
    """NPUs that differ in one dimension only, a list for each row."""
    stride = 1
    for size in npus_count[:dim]:
        stride *= size
    total = stride * npus_count[dim]
    for size in npus_count[dim + 1 :]:
        total *= size
    firsts = [i for i in range(total) if i // stride % npus_count[dim] == 0]
    return [[first + k * stride for k in range(npus_count[dim])] for first in firsts]


@st.composite
def switched_settings(draw: st.DrawFn) -> Setting:
    """A random system with at least one Switch, in which `inNetwork` runs, also on groups of its rows."""
    setting = draw(settings_of_systems())
    shape = setting.network["npus_count"]
    chosen = draw(st.integers(0, len(shape) - 1))
    topology = list(setting.network["topology"])
    topology[chosen] = "Switch"
    can = ["reduces" if name == "Switch" else "plain" for name in topology]
    network: dict[str, Any] = {**setting.network, "topology": topology, "switches": can}
    grouped = draw(st.booleans())
    if grouped:  # a list of one name serves groups, and the first dimension
        topology[0] = "Switch"
        network["switches"] = ["reduces" if name == "Switch" else "plain" for name in topology]
    system = dict(setting.system)
    for kind in BY_SWITCH:
        key = f"{kind}-implementation"
        names = ["ring" if name.startswith("double") else name for name in system[key]]
        for k, name in enumerate(topology):
            if name == "Switch" and (k == chosen or draw(st.booleans())):
                names[k] = "inNetwork"
        system[key] = ["inNetwork"] if grouped else names
    rows = rows_of_dimension(shape, chosen) if grouped else []
    if rows and len(rows[0]) > 3 and draw(st.booleans()):
        rows = [part for row in rows for part in (row[1::2], row[::2])]
    groups = {str(k + 1): list(draw(st.permutations(row))) for k, row in enumerate(rows)}
    return replace(setting, network=network, system=system, groups=groups)
