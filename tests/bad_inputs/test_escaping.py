# ruff: noqa: E501 - names
"""Names that are markup, terminal commands or bidirectional tricks stay text in every output."""

import contextlib
import html.parser
import io
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import pygraphviz
import pytest
from cases import COLL, COMP, GOOD, META, attr, framed, node

from chakra.cli.main import run

HOSTILE = (
    "<script>alert(1)</script>", "</script><img src=x onerror=alert(1)>", "\"'`&<>", "a\nb\rc", "\x1b[31mred\x1b[0m\x07",
    "\u202eevil\u2066", "nul\0", "]]>-->", "{{7*7}}${x}", 'label="x"]; evil [', "\u2028line", "\x9bc1", "javascript:alert(1)", "[red]rich[/red]",
)  # fmt: skip
#: what no terminal or page may get raw: control characters, line separators, bidirectional controls
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def job(folder: Path, names: tuple[str, ...]) -> None:
    """Traces of two ranks whose nodes, groups, attributes and tensors have these names, and a result of theirs."""
    nodes = []
    for i, name in enumerate(names):
        inputs = {"values": name, "shapes": name, "types": name}
        deps = {"data_deps": [2 * i]} if i else {}
        extra = attr("op_schema", string_val=name)
        nodes.append(node(2 * i + 1, COMP, extra, name=name, duration_micros=5, inputs=inputs, **deps))
        nodes.append(
            node(
                2 * i + 2, COLL, attr("comm_type", int64_val=0), attr("comm_size", int64_val=64),
                attr("pg_name", string_val=name), name=name, data_deps=[2 * i + 1],
            )
        )  # fmt: skip
    files = GOOD | {f"w.{rank}.et": framed(META, *nodes) for rank in (0, 1)}
    files["g.json"] = json.dumps({name: [0, 1] for name in names})
    for file, content in files.items():
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    command = [
        "replay",
        "-w",
        "w",
        "-s",
        "s.json",
        "-n",
        "n.yml",
        "-g",
        "g.json",
        "--format",
        "json",
        "--nodes",
    ]
    (folder / "r.json").write_text(said(folder, *command)[1], encoding="utf-8")


def said(folder: Path, *args: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in a folder."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(args))
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    job(folder, HOSTILE)
    return folder


@pytest.fixture(scope="module")
def benign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benign")
    job(folder, tuple(f"name{i}" for i in range(len(HOSTILE))))
    return folder


class _Page(html.parser.HTMLParser):
    """Elements of a page that can run something, and the attributes that can."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img", "iframe", "object", "embed", "link", "style", "base", "meta", "form"):
            self.found[tag] += 1
        for name, value in attrs:
            if name.startswith("on") or (value or "").strip().lower().startswith("javascript:"):
                self.found[f"{tag} {name}={value}"] += 1


@pytest.mark.parametrize(
    "args",
    [
        ("report", "r.json", "-o", "out.html"),
        ("report", "r.json", "r.json", "--name", "<script>alert(1)</script>", "-o", "out.html"),
        ("visualize", "w.0.et", "out.html"),
    ],
)
def test_pages_run_nothing_of_a_name(hostile: Path, benign: Path, args: tuple[str, ...]) -> None:
    pages = []
    for folder in (hostile, benign):
        code, _, err = said(folder, *args)
        assert code == 0, err
        pages.append((folder / "out.html").read_text(encoding="utf-8"))
    assert _Page(pages[0]).found == _Page(pages[1]).found
    assert "<script>alert" not in pages[0]
    assert "<img src=x" not in pages[0]
    assert not FORBIDDEN.search(pages[0])
    assert "alert(1)" in pages[0]  # the names are there


def test_svg_is_xml_without_scripts(hostile: Path) -> None:
    code, _, err = said(hostile, "visualize", "w.0.et", "out.svg")
    assert code == 0, err
    text = (hostile / "out.svg").read_text(encoding="utf-8")
    assert not FORBIDDEN.search(text)
    tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(text).iter()}
    assert not tags & {"script", "foreignObject", "image", "img"}
    attributes = {
        name.rpartition("}")[2] for element in ET.fromstring(text).iter() for name in element.attrib
    }
    assert not [name for name in attributes if name == "href" or name.startswith("on")]
    assert "alert(1)" in "".join(ET.fromstring(text).itertext())


def test_dot_keeps_names_as_labels(hostile: Path, benign: Path) -> None:
    graphs = []
    for folder in (hostile, benign):
        code, _, err = said(folder, "visualize", "w.0.et", "out.dot")
        assert code == 0, err
        text = (folder / "out.dot").read_text(encoding="utf-8")
        assert not FORBIDDEN.search(text)
        graphs.append(pygraphviz.AGraph(string=text))
    assert sorted(graphs[0].nodes()) == sorted(graphs[1].nodes())
    assert sorted(graphs[0].edges()) == sorted(graphs[1].edges())


def test_graphml_is_read_back(hostile: Path, benign: Path) -> None:
    graphs = []
    for folder in (hostile, benign):
        code, _, err = said(folder, "visualize", "w.0.et", "out.graphml")
        assert code == 0, err
        assert not FORBIDDEN.search((folder / "out.graphml").read_text(encoding="utf-8"))
        graphs.append(nx.read_graphml(folder / "out.graphml"))
    assert set(graphs[0].nodes) == set(graphs[1].nodes)
    names = {str(value) for _, data in graphs[0].nodes(data=True) for value in data.values()}
    assert any("<script>alert(1)</script>" in name for name in names)


def test_timelines_are_read_back(hostile: Path, perfetto_trace: Any) -> None:
    code, _, err = said(hostile, "timeline", "r.json", "out.json")
    assert code == 0, err
    text = (hostile / "out.json").read_text(encoding="utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f]", text)
    names = {event.get("name") for event in json.loads(text)["traceEvents"]}
    assert set(HOSTILE) <= names
    code, _, err = said(hostile, "timeline", "r.json", "out.pftrace")
    assert code == 0, err
    trace = perfetto_trace.FromString((hostile / "out.pftrace").read_bytes())
    known = {entry.name for packet in trace.packet for entry in packet.interned_data.event_names}
    assert set(HOSTILE) <= known


@pytest.mark.parametrize(
    "args",
    [
        ("info", "w.0.et"),
        ("report", "r.json"),
        ("replay", "-w", "w", "-s", "s.json", "-n", "n.yml", "-g", "g.json"),
        ("replay", "-w", "w", "-s", "s.json", "-n", "n.yml", "-g", "g.json", "--format", "json", "--nodes"),
        ("replay", "-w", "w", "-s", "s.json", "-n", "n.yml"),  # an error: the groups are unknown
        ("validate", "w"),
        ("check-config", "g.json"),
        ("jsonize", "w.0.et"),
    ],
)
def test_terminals_get_no_commands(hostile: Path, args: tuple[str, ...]) -> None:
    code, out, err = said(hostile, *args)
    assert code in (0, 2)
    assert "script" in out + err or args[0] == "replay"
    for line in (out + err).split("\n"):
        assert not FORBIDDEN.search(line), line


@pytest.mark.parametrize("name", ["\x1b[2J.et", "a\nb.et", "\u202eet.", "<script>.et"])
def test_errors_about_files_are_one_printable_line(tmp_path: Path, name: str) -> None:
    for command in ("info", "replay"):
        args = [name] if command == "info" else ["-w", name, "-s", name, "-n", name]
        code, out, err = said(tmp_path, command, *args)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert err[:-1].isprintable()
