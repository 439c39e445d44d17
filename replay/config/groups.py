"""Communicator-group files: name -> ranks in ring order (replay semantics, section 1.5; C18, C22)."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from chakra.arguments import checked
from chakra.io.digits import signed_whole_number
from chakra.io.readable import counted
from chakra.io.shown import describe
from chakra.replay.config.files import Source
from chakra.replay.config.key import Schema, UnfitError
from chakra.replay.config.section import Section

#: what C++'s stoi reads at the start of a group's name
_LEADING_INTEGER = re.compile(r"\s*([-+]?[0-9]+)")


@checked
def load_groups(
    src: Source | None, *, compat: str | None = None, npus: int | None = None
) -> dict[str, tuple[int, ...]]:
    """Read communicator groups; None and the exact text ``empty`` mean that there are none.

    Parameters
    ----------
    src
        path of a JSON file, or a dict name -> ranks; their order is the order of the group's logical ring
    compat
        "astra-sim": a path that contains ``empty`` means none (C22), and a name counts by its leading integer
        (C18), so that "7b" is group "7"; a name without one keeps its text: ASTRA-sim has no answer there
    npus
        number of NPUs, if known: ranks must be below it

    Returns
    -------
    dict
        name -> ranks

    Raises
    ------
    ConfigError
        naming file and group; "" and "0" are refused, because those names mean all ranks

    Examples
    --------
    >>> load_groups({"tp": [0, 1], "2": [1, 0]})
    {'tp': (0, 1), '2': (1, 0)}
    """
    if src is None:
        return {}
    if not isinstance(src, Mapping):
        path = os.fspath(src)
        if path == "empty" or (compat == "astra-sim" and "empty" in path):
            return {}
    section = Section.of(src, kind="groups", compat=compat)
    found: dict[str, tuple[int, ...]] = {}
    # ASTRA-sim walks the keys in sorted order: of two names with one integer the later one stays
    for key in sorted(section.entries, key=str) if section.as_head else section.entries:
        found[_name(section, key)] = _ranks(section, key, npus)
    return found


def _name(section: Section, key: object) -> str:
    """The name under which a group is looked up."""
    if not isinstance(key, str):
        if isinstance(key, bool) or not isinstance(key, int):
            raise section.error(key, "must be a text: it is a group's name")
        key = str(key)
    if section.as_head and (match := _LEADING_INTEGER.match(key)):
        number = signed_whole_number(match[1])
        if number <= 0:
            raise section.error(key, "is not a group's name: ASTRA-sim's groups are numbered from 1")
        return str(number)
    if key in ("", "0"):
        raise section.error(key, "cannot be defined: this name stands for the group of all ranks")
    return key


def _ranks(section: Section, key: object, npus: int | None) -> tuple[int, ...]:
    """The ranks of one group."""
    value = section.entries[key].value
    try:
        ranks = GROUPS.read_ranks(value)
    except UnfitError as unfit:
        raise section.error(key, unfit.told(value)) from None
    beyond = next((rank for rank in ranks if npus is not None and rank >= npus), None)
    if beyond is not None and npus is not None:
        raise section.error(
            key, f"has rank {beyond}, but the network has {counted(npus, 'NPU')} (0 to {npus - 1})"
        )
    return ranks


@dataclass(frozen=True, slots=True)
class Groups:
    """What a groups file holds: names of groups, and the ranks of each."""

    def read_ranks(self, value: object) -> tuple[int, ...]:
        """The ranks of one group; raises `UnfitError`."""
        if not isinstance(value, (list, tuple)) or not value:
            raise UnfitError("must be a list of ranks")
        seen: set[int] = set()
        for rank in value:
            if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
                raise UnfitError("must be a list of ranks (whole numbers from 0)", f"{describe(rank)} in it")
            if rank in seen:
                raise UnfitError(f"has rank {rank} twice", "")
            seen.add(rank)
        return tuple(value)

    def schema(self) -> Schema:
        """Lists of ranks by name; the names of the group of all ranks are taken."""
        ranks: Schema = {
            "type": "array",
            "items": {"type": "integer", "minimum": 0},
            "minItems": 1,
            "uniqueItems": True,
        }
        return {
            "type": "object",
            "propertyNames": {"not": {"enum": ["", "0"]}},
            "additionalProperties": ranks,
        }


GROUPS = Groups()
