"""`chakra compare --backends`: one workload on two backends, as text, JSON and a page."""

import json
from pathlib import Path
from typing import Any

import pytest

from chakra.builder import TraceBuilder, Workload
from chakra.cli.main import run as chakra
from chakra.compare.backends import backends_document, backends_html, backends_text
from chakra.replay import compare_backends

N, SIZE = 6, 1 << 18
NETWORK: dict[str, Any] = {"topology": ["Switch"], "npus_count": [N], "bandwidth": [50], "latency": [500]}
SYSTEM = {
    "all-gather-implementation": ["ring"],
    "all-to-all-implementation": ["direct"],
    "preferred-dataset-splits": 1,
}


def workload() -> Workload:
    """Two all-gathers and an all-to-all, which all queue or are stored and forwarded on aware."""
    made = Workload(N)

    def program(b: TraceBuilder) -> None:
        first = b.collective("all_gather", size_bytes=SIZE)
        second = b.collective("all_to_all", size_bytes=N * SIZE, after=first)
        b.collective("all_gather", size_bytes=SIZE, after=second)

    made.run(program)
    return made


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of a run, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    workload().write(str(tmp_path / "run"))
    Path("system.json").write_text(json.dumps(SYSTEM), encoding="utf-8")
    Path("network.yml").write_text(json.dumps(NETWORK), encoding="utf-8")
    return ["-w", "run", "-s", "system.json", "-n", "network.yml"]


def test_the_document_is_the_functions(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert chakra(["compare", "--backends", "unaware,aware", *files, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = compare_backends(workload(), SYSTEM, NETWORK, first="unaware", second="aware")
    assert document == json.loads(json.dumps(backends_document(found)))
    assert document["difference_ns"] == document["step_ns"][1] - document["step_ns"][0] > 0
    assert document["finish_ns"] == found.finish_ns.tolist()
    sums = [
        sum(row["time_ns"][k] for row in document["collectives"]) for k in range(2)
    ]  # the collectives follow each other
    assert sums == document["step_ns"]


def test_the_text_puts_what_differs_most_first(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """All of a kind, group and size are a row: stored and forwarded, N - 1 messages of two rings wait longer than one
    all-to-all's N - 2 at a port."""
    assert chakra(["compare", "--backends", "unaware, aware", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("unaware ")
    assert ", aware " in lines[0]
    rows = [line.split() for line in lines if line.startswith("ALL_")]
    assert [(row[0], row[2], row[5]) for row in rows] == [("ALL_GATHER", "6", "2"), ("ALL_TO_ALL", "6", "1")]
    found = compare_backends(workload(), SYSTEM, NETWORK, first="unaware", second="aware")
    assert "... and 1 more" in backends_text(found, rows=1)


def test_backends_that_agree_are_said_to() -> None:
    network = NETWORK | {"topology": ["FullyConnected"]}
    found = compare_backends(workload(), SYSTEM, network, first="unaware", second="aware")
    assert "each NPU ends at the same ns on both" in backends_text(found)
    assert "NPU 0 ends last on both" in backends_text(found)


def test_a_page_and_a_file(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert chakra(["compare", "--backends", "aware,flow", *files, "-o", "page.html"]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("<tr>") > N
    assert "ALL_TO_ALL" in page
    assert "wrote page.html" in capsys.readouterr().err
    assert chakra(["compare", "--backends", "aware,flow", *files, "-o", "found.json"]) == 0
    assert json.loads(Path("found.json").read_text(encoding="utf-8"))["backends"] == ["aware", "flow"]
    assert capsys.readouterr().out == ""


def test_group_names_are_text_on_the_page() -> None:
    made = Workload(N)
    name = made.add_group(list(range(3)), name="<b>&")
    made.run(
        lambda b: (
            b.collective("all_gather", size_bytes=SIZE, group=name)
            if b.rank < 3
            else b.compute(duration_ns=1)
        )
    )
    found = compare_backends(made, SYSTEM, NETWORK, first="aware", second="flow")
    assert "<b>&" in backends_text(found)
    assert "&lt;b&gt;&amp;" in backends_html(found)
    assert "<b>" not in backends_html(found)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "two runs are compared"),
        ("a", "two runs are compared"),
        ("a b -w run", "--workload goes with --backends"),
        ("a b --long-run", "--long-run goes with --backends"),
        ("--backends aware,flow --long-run RUN", "--long-run is for ns3"),
        ("--backends aware", "two different ones of"),
        ("--backends aware,aware RUN", "two different ones of"),
        ("--backends aware,flow,unaware RUN", "found 'aware,flow,unaware'; compare others in another run"),
        ("--backends aware,flo RUN", "found 'aware,flo'"),
        ("--backends aware,flow", "which workload? -w PREFIX"),
        ("a --backends aware,flow RUN", "leave a out"),
        ("--backends aware,flow --rank 1 RUN", "--rank is for two runs"),
        ("--backends aware,flow -w run -s system.json", "Missing option '-n'"),
        ("--backends aware,flow RUN -o other.yml", "unknown suffix"),
        ("--backends aware,flow RUN -o system.json", "would overwrite an input"),
    ],
)
def test_what_does_not_go_together(
    files: list[str], line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    assert chakra(["compare", *line.replace("RUN", " ".join(files)).split()]) == 2
    assert message in capsys.readouterr().err
    assert before == {path.name: path.read_bytes() for path in Path().iterdir()}
