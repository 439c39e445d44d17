"""Build the documentation site: ``python tools/build_docs.py [OUT]``, by default into ``site/``.

Warnings are errors, so a broken link, a reference to nothing and a page that no list names end the build with exit
code 1; the pages that were built are then read once more: every link and picture in them must exist in the site, and
nothing may be loaded from elsewhere. Needs the ``docs`` extra; works without network. An old site is replaced only by
a good one.
"""

import argparse
import importlib.util
import re
import shutil
import sys
import tempfile
import time
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
#: pages of the gallery are made by chakra and have links of their own only
NOT_OURS = ("gallery", "_static")


def build(docs: Path, out: Path, doctrees: Path) -> int:
    """Run Sphinx; returns its exit code."""
    from sphinx.cmd.build import main as sphinx

    options = ["-b", "html", "-E", "-q", "-n", "-W", "--keep-going", "-d", str(doctrees)]
    return sphinx([*options, str(docs), str(out)])


def problems(site: Path) -> list[str]:
    """Links and pictures of the built pages that lead nowhere, and whatever a page would load from elsewhere."""
    texts = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    anchors = {path: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for path, text in texts.items()}
    found = []
    for path, text in sorted(texts.items()):
        name = path.relative_to(site)
        if name.parts[0] in NOT_OURS and name.name != "README.html":
            continue
        for tag, attribute, raw in re.findall(r'<(\w+)\b[^>]*?\b(href|src)="([^"]*)"', text):
            url = urlsplit(unescape(raw))
            if url.scheme or url.netloc:
                if tag != "a" and url.scheme != "data":
                    found.append(f"{name}: loads {raw}")
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if not target.is_file():
                found.append(f"{name}: {attribute} leads nowhere: {raw}")
            elif url.fragment and tag == "a" and unquote(url.fragment) not in anchors.get(target, ()):
                found.append(f"{name}: no such place in the page: {raw}")
    return found


def main() -> int:
    """Build, check, put in place."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "site", help="folder of the site [site]")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages [docs]")
    arguments = parser.parse_args()
    out: Path = arguments.out.resolve()
    if out.exists() and any(out.iterdir()) and not (out / "objects.inv").is_file():
        print(f"{out} holds something that is no site; remove it or name another folder", file=sys.stderr)
        return 2
    if importlib.util.find_spec("sphinx") is None:
        print("the site needs Sphinx: pip install -e '.[docs]'", file=sys.stderr)
        return 2
    start = time.monotonic()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".site-") as folder:
        new = Path(folder) / "site"
        if code := build(arguments.docs, new, Path(folder) / "doctrees"):
            return code
        if wrong := problems(new):
            print("\n".join(wrong), file=sys.stderr)
            return 1
        (new / ".buildinfo").unlink(missing_ok=True)
        if out.exists():
            shutil.rmtree(out)
        new.rename(out)
    pages = sum(1 for _ in out.rglob("*.html"))
    print(f"{out}: {pages} pages in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
