"""Write the tables of docs/reference/configuration.md from the keys that the readers know.

python tools/config_reference.py            rewrite the tables
python tools/config_reference.py --check    fail if they are not in step
"""

import re
import sys
from pathlib import Path

from chakra.replay.config.keys import MEMORY_KEYS, NETWORK_KEYS, SYSTEM_KEYS, Key

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "configuration.md"
TABLES = {"network": NETWORK_KEYS, "system": SYSTEM_KEYS, "memory": MEMORY_KEYS}


def table(keys: tuple[Key, ...]) -> str:
    """A Markdown table of keys."""
    rows = [
        ("key", "unit", "default", "meaning", 'read by `compat="astra-sim"`'),
        ("---",) * 5,
        *((f"`{key.name}`", key.unit, key.default, key.meaning, key.compat or "alike") for key in keys),
    ]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in rows)


def rendered(page: str) -> str:
    """The page with every table between its `<!-- keys: NAME -->` and `<!-- end -->` renewed."""
    for name, keys in TABLES.items():
        pattern = re.compile(rf"(<!-- keys: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        page, count = pattern.subn(lambda m, keys=keys: m[1] + "\n" + table(keys) + "\n" + m[2], page)
        if count != 1:
            sys.exit(f"{PAGE.name}: expected one place for the table of {name} keys, found {count}")
    return page


def main() -> None:
    """Rewrite or check the page."""
    page = PAGE.read_text(encoding="utf-8")
    new = rendered(page)
    if "--check" in sys.argv[1:]:
        if new != page:
            sys.exit(f"{PAGE.name} is not in step: run python tools/config_reference.py")
        return
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
