"""Write the tables of docs/reference/configuration.md from the keys that the readers know.

python tools/config_reference.py            rewrite the tables
python tools/config_reference.py --check    fail if they are not in step
"""

from dataclasses import dataclass, replace
from pathlib import Path

from made_files import renewed, require_each_once, write_or_check

from chakra.generate.request.requests import REQUESTS
from chakra.platforms.keys import ACCELERATOR_KEYS, DIM_KEYS, NUMBER_KEYS, PLATFORM_KEYS
from chakra.replay.config.key import Key
from chakra.replay.config.keys import (
    LINK_FIELDS,
    LINK_KEYS,
    MEMORY_KEYS,
    NETWORK_KEYS,
    PLUGIN_KEYS,
    SYSTEM_KEYS,
)
from chakra.replay.config.packet_keys import PACKET_KEYS
from chakra.sweep.keys import RANGE_KEYS, STUDY_KEYS, WORKLOAD_KEYS, workload_keys

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "configuration.md"


@dataclass(frozen=True, slots=True)
class Table:
    """Keys of a file or of a part of it, and the function that reads them."""

    keys: tuple[Key[object], ...]
    reader: str


def _kinds() -> tuple[Key[object], ...]:
    """Parameters of all kinds of generated workloads; the meaning says which kinds have them."""
    rows: dict[tuple[str, str], Key[object]] = {}
    having: dict[tuple[str, str], list[str]] = {}
    for kind in REQUESTS:
        for key in workload_keys(kind):
            row = (key.name, key.default_in_words)
            rows[row] = key
            having.setdefault(row, []).append(kind)
    return tuple(
        key
        if len(having[row]) == len(REQUESTS)
        else replace(key, meaning=f"{key.meaning} ({', '.join(having[row])})")
        for row, key in rows.items()
    )


TABLES = {
    "network": Table(NETWORK_KEYS, "chakra.replay.config.load_network"),
    "links": Table(LINK_KEYS, "chakra.replay.config.load_network"),
    "link fields": Table(LINK_FIELDS, "chakra.replay.config.load_network"),
    "packets": Table(PACKET_KEYS, "chakra.replay.config.load_network"),
    "plugin": Table(PLUGIN_KEYS, "chakra.replay.config.load_network"),
    "system": Table(SYSTEM_KEYS, "chakra.replay.config.load_system"),
    "memory": Table(MEMORY_KEYS, "chakra.replay.config.load_memory"),
    "study": Table(STUDY_KEYS, "chakra.sweep.study.load_study"),
    "range": Table(RANGE_KEYS, "chakra.sweep.space.parameter_from"),
    "workload": Table((*WORKLOAD_KEYS, *_kinds()), "chakra.generate.request.base.Request.from_mapping"),
    "platform": Table(PLATFORM_KEYS, "chakra.platforms.load_platform"),
    "accelerator": Table(ACCELERATOR_KEYS, "chakra.platforms.load_platform"),
    "dim": Table(DIM_KEYS, "chakra.platforms.load_platform"),
    "number": Table(NUMBER_KEYS, "chakra.platforms.load_platform"),
}


def rendered_table(table: Table) -> str:
    """A Markdown table of keys, and who reads them."""
    compat = any(key.compat for key in table.keys)
    head = ["key", "value", "unit", "default", "meaning"] + ['read by `compat="astra-sim"`'] * compat
    rows = [head, ["---"] * len(head)]
    for key in table.keys:
        row = [f"`{key.name}`", key.allowed, key.unit, key.default_in_words, key.meaning]
        rows.append(row + [key.compat or "alike"] * compat)
    lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", f"Read by `{table.reader}`."]) + "\n"


def _cell(text: str) -> str:
    """Text of a cell; <w> and <Name> are no HTML."""
    return text.replace("|", "\\|").replace("<", "\\<")


def main() -> None:
    """Rewrite or check the page."""
    page = PAGE.read_text(encoding="utf-8")
    require_each_once(page, "keys", TABLES)
    made = renewed(page, "keys", TABLES, lambda name: rendered_table(TABLES[name]))
    write_or_check({PAGE: made}, "config_reference.py")


if __name__ == "__main__":
    main()
