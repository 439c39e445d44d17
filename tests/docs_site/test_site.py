"""The site: it builds without a warning, ships what it links to, and a mistake in a page ends the build."""

import importlib.util
import re
import shutil
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest

from chakra.cli.main import COMMANDS, cli

for needed in ("sphinx", "myst_parser", "furo", "sphinx_copybutton"):
    pytest.importorskip(needed, reason="the site needs the `docs` extra")

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "build_docs.py"
import cited_places  # noqa: E402

SPEC = importlib.util.spec_from_file_location("build_docs", TOOL)
assert SPEC is not None
assert SPEC.loader is not None
build_docs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(build_docs)


def build(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the tool."""
    return subprocess.run(
        [sys.executable, TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=ROOT
    )


@pytest.mark.slow
def test_the_site_is_whole(tmp_path: Path) -> None:
    """One test, because one build is enough for all of it."""
    site = tmp_path / "site"
    done = build(site)
    assert done.returncode == 0, done.stderr
    has_every_command_and_option(site)
    has_the_files_of_the_gallery(site)
    loads_nothing_from_elsewhere(site)
    groups_begin_with_what_they_are_for(site)
    code_leads_to_the_reference(site)
    pictures_can_be_enlarged(site)
    sections_and_rules_have_addresses(site)


def sections_and_rules_have_addresses(site: Path) -> None:
    """Whatever a comment may cite, by the number or the name that it cites; citations of docstrings lead there."""
    for page in {*cited_places.PAGES.values(), *cited_places.RULES.values()}:
        text = (site / f"{page}.html").read_text(encoding="utf-8")
        wanted = {cited_places.identifier(place) for place in cited_places.places(page)}
        assert len(wanted) > 10
        assert wanted - set(re.findall(r'\bid="([^"]+)"', text)) == set()
    text = (site / "api" / "astra_config.html").read_text(encoding="utf-8")
    assert 'href="../spec/replay-semantics.html#section-7-1">replay semantics, section 7.1</a>' in text


def has_every_command_and_option(site: Path) -> None:
    """The pages of commands name all that the commands take."""
    for name in COMMANDS:
        text = (site / "cli" / f"{name}.html").read_text(encoding="utf-8")
        context = click.Context(cli, info_name="chakra", **cli.context_settings)
        command = cli.get_command(context, name)
        assert command is not None
        assert [option for option in options(command, context) if option not in text] == []


def options(command: click.Command, parent: click.Context) -> list[str]:
    """Names of all options of a command and its sub-commands, but help."""
    context = click.Context(command, info_name=command.name, parent=parent)
    found = [
        name
        for item in command.get_params(context)
        if isinstance(item, click.Option) and not item.hidden and item.name != "help"
        for name in (*item.opts, *item.secondary_opts)
    ]
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            inner = command.get_command(context, sub)
            assert inner is not None
            found += options(inner, context)
    return found


def has_the_files_of_the_gallery(site: Path) -> None:
    """Pictures, reports and timelines are shipped as they are."""
    shipped = {path.name for path in (site / "gallery").iterdir()}
    assert {path.name for path in (ROOT / "docs" / "gallery").iterdir()} - {"README.md"} <= shipped


def loads_nothing_from_elsewhere(site: Path) -> None:
    """A reader without network sees all of it, and nobody learns of the reader."""

    class Loads(HTMLParser):
        """Addresses that a browser fetches by itself."""

        def __init__(self) -> None:
            super().__init__()
            self.found: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag != "a":
                self.found += [
                    v for k, v in attrs if k in ("src", "href") and v and "//" in v and "data:" not in v
                ]

    for page in site.rglob("*.html"):
        parser = Loads()
        parser.feed(page.read_text(encoding="utf-8"))
        assert parser.found == [], page


def text_of(page: Path) -> str:
    """What a reader sees of the article of a page."""
    article = page.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
    return unescape(re.sub(r"<[^>]+>", "", article))


def groups_begin_with_what_they_are_for(site: Path) -> None:
    """Description and list of sub-commands stand above the sub-commands; options that most share are said once."""
    for name in COMMANDS:
        context = click.Context(cli, info_name="chakra", **cli.context_settings)
        command = cli.get_command(context, name)
        if not isinstance(command, click.Group):
            continue
        text = text_of(site / "cli" / f"{name}.html")
        first = " ".join((command.help or "").split("\n\n")[0].split())
        subs = command.list_commands(click.Context(command, info_name=name, parent=context))
        places = [text.index(first), *(text.index(f"chakra {name} {sub}:") for sub in subs)]
        assert places == sorted(places)
        assert (
            places[-1]
            < text.index("Guide")
            < min(text.index(f"chakra {name} {sub}\N{PILCROW SIGN}") for sub in subs)
        )
    text = text_of(site / "cli" / "generate.html")
    assert text.count("--micro-batches INTEGER") == 1
    assert text.count("--widths") == 1
    assert text.index("Options of several") < text.index("--micro-batches INTEGER")


def code_leads_to_the_reference(site: Path) -> None:
    """Commands and public names in the text are links, but not to the place where they stand."""
    text = (site / "guides" / "migrating.html").read_text(encoding="utf-8")
    assert 'href="../cli/convert.html#chakra-convert-text"><code' in text
    assert 'href="../cli/replay.html"><code' in text
    text = (site / "api" / "replay.html").read_text(encoding="utf-8")
    assert 'class="reference internal" href="#chakra.replay.ReplayResult"' in text
    entry = text.partition('id="chakra.replay.ReplayResult"')[2].partition('id="chakra.replay.simulate"')[0]
    assert '#chakra.replay.ReplayResult"><code' not in entry
    assert '#chakra.replay.simulate"' in entry


def pictures_can_be_enlarged(site: Path) -> None:
    """Every picture of a page is a link; drawings for both themes are marked as such, others are not."""
    for page in ("guides/networks.html", "guides/collectives.html", "guides/concepts.html"):
        text = (site / page).read_text(encoding="utf-8").partition("<article")[2]
        assert len(re.findall(r"<img ", text)) == len(re.findall(r"<a [^>]*><img ", text)) > 0
    assert re.search(
        r'<img[^>]*class="adapts"[^>]*network_ring.svg', (site / "guides/networks.html").read_text()
    )
    assert not re.search(r"<img[^>]*adapts[^>]*concept_", (site / "guides/concepts.html").read_text())


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A small folder of pages with the site's configuration."""
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("_ext", "_static", "_templates"):
        shutil.copytree(ROOT / "docs" / name, docs / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "docs" / "conf.py", docs)
    (docs / "index.md").write_text("# Start\n\nSee the [file](../data.json) and the [folder](../folder).\n")
    (tmp_path / "data.json").write_text('{"a": 1}\n')
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x.bin").write_bytes(b"\0\1")
    return docs


def test_files_and_folders_of_the_repository_are_shipped(pages: Path, tmp_path: Path) -> None:
    done = build(tmp_path / "out", "--docs", pages)
    assert done.returncode == 0, done.stderr
    assert '>"a"<' in (tmp_path / "out" / "files" / "data.json.html").read_text()
    assert "x.bin" in (tmp_path / "out" / "files" / "folder" / "index.html").read_text()
    assert (tmp_path / "out" / "files" / "folder" / "x.bin").read_bytes() == b"\0\1"


@pytest.mark.parametrize(
    ("page", "text", "complaint"),
    [
        ("index.md", "[x](nothing.md)", "nothing.md"),
        ("index.md", "[x](../nothing.json)", "nothing.json"),
        ("index.md", "[x](#no-such-place)", "no-such-place"),
        ("index.md", "![x](nothing.svg)", "nothing.svg"),
        ("index.md", "the file <name>.et", "<name>"),
        ("index.md", "```{chakra-command} nothing\n```", "nothing"),
        ("orphan.md", "# Nobody lists me", "orphan"),
    ],
)
def test_a_mistake_in_a_page_ends_the_build(
    pages: Path, tmp_path: Path, page: str, text: str, complaint: str
) -> None:
    with (pages / page).open("a") as file:
        file.write(f"\n{text}\n")
    old = tmp_path / "out"
    old.mkdir()
    (old / "objects.inv").write_text("the site before")
    done = build(old, "--docs", pages)
    assert done.returncode != 0
    assert complaint in done.stderr
    assert (old / "objects.inv").read_text() == "the site before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.json", "docs", "folder", "out"]


def test_a_folder_that_is_no_site_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "work.txt").write_text("mine")
    done = build(tmp_path)
    assert done.returncode == 2
    assert "no site" in done.stderr
    assert (tmp_path / "work.txt").read_text() == "mine"


def test_the_check_of_built_pages_finds_broken_links(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">x</a><a href="b.html#gone">x</a><a href="c.html">x</a>'
        '<img src="d.png"><script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<p id="there">x</p><a href="https://example.org/">fine</a>')
    assert build_docs.problems(tmp_path) == [
        "a.html: no such place in the page: b.html#gone",
        "a.html: href leads nowhere: c.html",
        "a.html: src leads nowhere: d.png",
        "a.html: loads https://example.org/x.js",
    ]
