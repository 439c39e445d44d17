"""What tools that make files share: tables between comments of a page, and writing or checking what was made."""

import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def renewed(page: str, word: str, names: Collection[str], table: Callable[[str], str]) -> str:
    """A page with every table between ``<!-- word: NAME -->`` and ``<!-- end -->`` made anew.

    Ends the program if a name of the page is none of `names`.
    """

    def made(found: re.Match[str]) -> str:
        if found[2] not in names:
            sys.exit(f"<!-- {word}: {found[2]} --> is none of: {', '.join(names)}")
        return f"{found[1]}\n{table(found[2])}\n{found[3]}"

    return re.sub(rf"(<!-- {word}: (.*?) -->\n).*?(<!-- end -->)", made, page, flags=re.DOTALL)


def require_each_once(page: str, word: str, names: Collection[str]) -> None:
    """End the program unless a page has one place for each name."""
    for name in names:
        count = page.count(f"<!-- {word}: {name} -->\n")
        if count != 1:
            sys.exit(f"expected one place <!-- {word}: {name} -->, found {count}")


def write_or_check(made: Mapping[Path, str], script: str) -> None:
    """Write files, or with ``--check`` on the command line end the program if one differs from what is there."""
    if "--check" in sys.argv[1:]:
        wrong = [
            str(path.relative_to(ROOT))
            for path, text in made.items()
            if not path.is_file() or path.read_text(encoding="utf-8") != text
        ]
        if wrong:
            sys.exit(f"not in step: {', '.join(wrong)}; run python tools/{script}")
        return
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
