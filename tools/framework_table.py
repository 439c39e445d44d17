"""Write the tables of frameworks in docs/reference/frameworks.md from their profiles and constants.

python tools/framework_table.py            rewrite the tables
python tools/framework_table.py --check    fail if they are not in step
"""

from pathlib import Path

from made_files import renewed, require_each_once, write_or_check

from chakra.generate.request.frameworks import FRAMEWORKS
from chakra.replay.compute.frameworks import framework_document, frameworks_with_times

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "frameworks.md"


def profiles(_: str) -> str:
    """Parameters of every profile, and why they are so."""
    lines = ["| profile | parameter | value | why |", "|---|---|---|---|"]
    for framework in FRAMEWORKS.values():
        mark = "" if framework.validated else " (not validated)"
        told = [(field, value, framework.facts[field]) for field, value in framework.values.items()]
        told += [(field, value, f"with `--zero 0`: {why}") for field, (value, why) in framework.whole.items()]
        for field, value, why in told:
            shown = ("yes" if value else "no") if isinstance(value, bool) else value
            if isinstance(shown, float):
                shown = f"{shown:,.0f}" if shown == int(shown) else f"{shown:,.1f}"
            shown = shown or ("none" if shown == "" else 0)
            lines.append(f"| `{framework.name}`{mark} | `--{field.replace('_', '-')}` | {shown} | {why} |")
    return "\n".join(lines)


def constants(_: str) -> str:
    """Constants of every program, as its file has them."""
    lines = ["| profile | on | constants |", "|---|---|---|"]
    for name in frameworks_with_times():
        document = framework_document(name)
        parts = [("all machines", document.get("operators") or {}), *(document.get("machines") or {}).items()]
        for where, families in parts:
            told = "; ".join(
                f"{family}: " + ", ".join(f"{key} {value:g}" for key, value in values.items())
                if isinstance(values, dict)
                else f"{family} {values:g}"
                for family, values in families.items()
            )
            lines.append(f"| `{name}` | {where} | {told} |")
    return "\n".join(lines)


TABLES = {"profiles": profiles, "constants": constants}


def main() -> None:
    """Run the command."""
    page = PAGE.read_text(encoding="utf-8")
    require_each_once(page, "frameworks", TABLES)
    made = renewed(page, "frameworks", TABLES, lambda name: TABLES[name](name))
    write_or_check({PAGE: made}, "framework_table.py")


if __name__ == "__main__":
    main()
