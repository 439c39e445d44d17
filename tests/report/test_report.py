"""Reports: one page a run, a comparison, text for a terminal."""

import base64
import copy
import hashlib
import itertools
import json
import re
import xml.etree.ElementTree as ET
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from report_sample import sample

from chakra.builder import Handle, TraceBuilder, Workload
from chakra.cli.commands.report import command
from chakra.errors import UsageError
from chakra.replay import simulate
from chakra.report import essence, report_html, run_of
from chakra.report.charts import round_ticks
from chakra.report.excerpt import excerpt, representatives
from chakra.report.npu_groups import npu_groups
from chakra.report.side_by_side import collectives_table, dimensions_table
from chakra.report.tables import (
    answer,
    collectives,
    critical_path,
    dimensions,
    headline,
    links,
    operators,
    path_by_operator,
)

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Balanced(HTMLParser):
    """Collects text and attributes, and checks that every element is closed where it should be."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.text: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    assert parser.stack == []
    return parser


def test_a_page_has_every_part_and_loads_nothing() -> None:
    page = report_html([run_of(sample(), "run one")])
    found = parsed(page)
    headings = [attrs.get("id") for tag, attrs in found.tags if tag == "h2"]
    assert headings == [
        "account", "collectives", "network", "links", "critical-path", "operators", "memory", "timeline", "corrections",
        "inputs",
    ]  # fmt: skip
    text = " ".join(" ".join(found.text).split())
    for words in (
        "900 µs (900,000 ns)",
        "tp <0>",
        "16.80",
        "96.0 %",
        "31.0 %",
        "C3 all-to-all hops",
        "looks like bits",
        "LIFO",
    ):
        assert words in text
    assert not any(tag in ("link", "img", "iframe") for tag, _ in found.tags)
    # its own script, admitted by its hash, and the data that it reads
    assert [attrs.get("type") for tag, attrs in found.tags if tag == "script"] == ["application/json", None]
    policy = next(attrs["content"] for tag, attrs in found.tags if "http-equiv" in attrs)
    script = page[page.rindex("<script>") + len("<script>") : page.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in (policy or "")
    assert not re.search(r"(?:src|href)=|url\(\s*['\"]?http|@import", page)
    assert len(page) < 100_000


def test_remarks_of_tables_end_with_one_full_stop() -> None:
    """A page with messages and collectives, whose tables have remarks below them."""
    work = Workload(2)
    work.builder(0).send(1, size_bytes=1 << 20, tag=1)
    work.builder(1).recv(0, size_bytes=1 << 20, tag=1)
    network = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
    result = simulate(work, {"preferred-dataset-splits": 1}, network)
    page = report_html([run_of(result.to_dict(), "messages")])
    [remark] = re.findall(r'<p class="small">(All transfers[^<]*)</p>', page)
    assert remark.endswith("no part of the run&#39;s time.")


def test_a_page_begins_with_an_answer_and_folds_keys_away() -> None:
    document = sample() | {"interval": dict(INTERVAL)}
    page = report_html([run_of(document, "run")])
    first = page[page.index("<h1>") :]
    assert first.index('class="answer"') < first.index('class="facts"')
    said = answer(run_of(document, "run"))
    assert said.startswith("The run takes 900 µs on 4 NPUs; measured, it would take 2 ms to 5 ms with 90 %. ")
    assert answer(run_of(document | {"partial": True}, "run")).startswith("The run was ended after 900 µs")
    assert "<details><summary>What was run, key by key" in page
    assert "<details><summary>The first nodes of the path, one by one" in page


@pytest.mark.parametrize("end", [0, 1, 7, 9, 10, 999, 995_449_570, 10**18 + 1])
def test_ticks_are_round_equally_far_apart_and_few(end: int) -> None:
    ticks = round_ticks(end)
    steps = {b - a for a, b in itertools.pairwise(ticks)}
    assert ticks[0] == 0
    assert ticks[-1] <= end
    assert len(ticks) <= 9
    assert end < 2 or len(ticks) >= 3
    assert len(steps) <= 1
    assert all(str(step).rstrip("0") in ("1", "2", "5") for step in steps)


def test_counting_numbers_fold_and_names_stay() -> None:
    names = [
        "F12 layer3.fc1",
        "B0 layer11.fc2.dgrad",
        "grads.bucket7.all_reduce",
        "aten::mm",
        "grads 4",
        "conv2d",
    ]
    document = sample()
    document["critical_path"] = [
        {"name": name, "kind": "GPU", "npu": 0, "node": k, "issue_ns": k, "finish_ns": k + 1}
        for k, name in enumerate(names)
    ]
    found = {row[0] for row in path_by_operator(run_of(document, "run")).rows}
    assert found == {
        "F# layer#.fc1", "B# layer#.fc2.dgrad", "grads.bucket#.all_reduce", "aten::mm", "grads #", "conv2d",
    }  # fmt: skip


def test_the_path_by_operator_adds_up_to_the_simulated_time() -> None:
    """A pipeline of layers on two NPUs: every ns of the path is in one row, and layers share rows."""
    job = Workload(2)
    for rank in range(2):
        builder = job.builder(rank)
        last: Handle | None = None
        for layer in range(12):
            after = () if last is None else (last,)
            last = builder.compute(f"layer {layer} forward", duration_ns=1000 + 100 * rank, after=after)
            last = builder.collective("all_reduce", size_bytes=1 << 16, name=f"grads {layer}", after=(last,))
    network = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
    result = simulate(job, {"all-reduce-implementation": ["ring"]}, network)
    run = run_of(json.loads(json.dumps(result.to_dict(nodes=True))), "run")
    rows = path_by_operator(run).rows
    names = {row[0] for row in rows}
    assert {"layer # forward", "grads #"} <= names
    assert len(rows) <= 3
    assert sum(float(row[4].removesuffix(" %")) for row in rows) == pytest.approx(100, abs=0.2)
    every = {row[0]: row for row in operators(run).rows}
    assert every["layer # forward"][2] == every["grads #"][2] == "24"
    assert every["layer # forward"][3] == "25.2 µs"  # 12 layers of 1 and of 1.1 us


def test_a_path_that_is_longer_than_its_list_is_told_in_full() -> None:
    """5,001 nodes of 10 ns and as many of 30 ns on one NPU; the document lists 10,000 of the 10,002."""
    builder = TraceBuilder(0, 1)
    last: Handle | None = None
    for number in range(5001):
        last = builder.compute(f"layer{number}.a", duration_ns=10, after=() if last is None else (last,))
        last = builder.compute(f"layer{number}.b", duration_ns=30, after=(last,))
    network = {"topology": ["Ring"], "npus_count": [1], "bandwidth": [50], "latency": [500]}
    run = run_of(simulate([builder.build()], {}, network).to_dict(), "run")
    assert path_by_operator(run).rows == [
        ("layer#.b", "compute", "5,001", "150 µs", "75.0 %"),
        ("layer#.a", "compute", "5,001", "50.01 µs", "25.0 %"),
    ]
    assert "The largest part of its critical path: layer#.b, 150 µs (75.0 %)" in answer(run)
    assert critical_path(run, 200).omitted == 10_002 - 200


def test_what_an_earlier_document_does_not_list_of_the_path_is_not_called_idle() -> None:
    document = sample()
    document["critical_path"] = [
        {"name": "late", "kind": "GPU", "npu": 0, "node": 1, "issue_ns": 400_000, "finish_ns": 500_000}
    ]
    run = run_of(document, "run")
    assert {row[0]: row[3] for row in path_by_operator(run).rows} == {
        "before the first node that the result lists": "400 µs", "late": "100 µs"
    }  # fmt: skip
    assert "critical path" not in answer(run)


def test_a_last_member_of_an_earlier_document_takes_no_time_from_what_follows() -> None:
    """NPU 0 came last to `met` and ended it at 400 us, NPU 1 at 200 us, where the chain goes on."""
    document = sample()
    document["critical_path"] = [
        {"name": name, "kind": kind, "npu": npu, "node": 1, "issue_ns": issue * 1000, "finish_ns": finish * 1000}
        for name, kind, npu, issue, finish in (
            ("late", "GPU", 0, 0, 100), ("met", "COMM", 0, 100, 400), ("met", "COMM", 1, 50, 200),
            ("after", "GPU", 1, 200, 500),
        )
    ]  # fmt: skip
    assert {row[0]: row[3] for row in path_by_operator(run_of(document, "run")).rows} == {
        "late": "100 µs", "met": "100 µs", "after": "300 µs"
    }  # fmt: skip


def test_exposed_communication_says_what_is_waiting_for_a_stage_that_computes() -> None:
    """Stage 1 waits 50 us for stage 0 to compute, then 1 MiB takes 500 ns and 1 MiB / 50 GiB/s = 19,531 ns."""
    job = Workload(2)
    first, second = job.builder(0), job.builder(1)
    first.send(1, size_bytes=1 << 20, after=(first.compute("stage 0", duration_ns=50_000),))
    second.compute("stage 1", duration_ns=10_000, after=(second.recv(0, size_bytes=1 << 20),))
    network = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
    result = simulate(job, {"all-reduce-implementation": ["ring"]}, network)
    assert result.account["waiting_ns"].tolist() == [0, 50_000]
    assert result.account["transfer_ns"].tolist() == [20_031, 20_031]
    assert "waiting           no data moves: the peer has not come yet" in str(result)
    text = essence(run_of(result.to_dict(), "run"))
    assert "70.03 µs at most, NPU 1 (87.5 %): 20.03 µs moving data, 50 µs waiting for peers" in text
    assert "Waiting for peers: no data moves" in text


def test_runs_of_a_study_are_named_by_what_differs(tmp_path: Path) -> None:
    for place, platform in enumerate(("hgx-h100", "hgx-b200")):
        document = {**sample(slow=place), "design": {"platform": platform, "workload.tp": "8"}}
        (tmp_path / f"{place}0f3.json").write_text(json.dumps(document))
    page = tmp_path / "page.html"
    files = sorted(map(str, tmp_path.glob("*.json")))
    result = CliRunner().invoke(command, [*files, "-o", str(page)])
    assert result.exit_code == 0, result.output
    text = " ".join(parsed(page.read_text()).text)
    assert "platform hgx-h100" in text
    assert "platform hgx-b200" in text
    assert "workload.tp" not in text
    assert "00f3" not in text


def test_mean_bars_have_the_shares_of_the_report() -> None:
    """Two NPUs end at 1,000 and 500 ns and compute for 600 and 300: 60 % of all time, though 45 % of the last finish."""
    account = {"compute_ns": [600, 300], "transfer_ns": [400, 200]}
    document = {**sample(2, 0), "finish_ns": [1000, 500], "exposed_comm_ns": [400, 200], "account": account}
    run = run_of(document, "run")
    assert "60.0 % of all NPUs' time" in essence(run)
    page = report_html([run, run])
    assert "run: compute 450 ns (60.0 %)" in page
    assert "run: transfer 300 ns (40.0 %)" in page


def test_the_total_of_collectives_is_not_that_of_the_longest() -> None:
    """100 collectives take 2 ms in all, of which they wait 0.5 ms; the row shows the longest, of 0.25 ms."""
    document = sample()
    row = document["collectives"][1]
    row |= {"count": 100, "total_ns": 2_000_000, "total_transfer_ns": 1_500_000, "bound_ns": 7_500}
    run = run_of(document, "run")
    (shown,) = [cells for cells in collectives(run).rows if cells[0] == "ALL_GATHER"]
    assert shown[7:10] == ("2 ms", "20 µs", "5 µs")
    assert shown[-1] == "50.0 %"
    page = report_html([run, run])
    assert re.search(r"ALL_GATHER</td>\s*<td[^>]*>2 ms", page)


def test_the_account_bars_add_up_to_the_finish() -> None:
    page = report_html([run_of(sample(slow=1), "x")])
    chart = re.search(r"<svg[^>]*><title>Where each NPU&#39;s time went</title>.*?</svg>", page, re.DOTALL)
    assert chart
    rows: dict[str, float] = {}
    for rect in ET.fromstring(chart[0].replace("&nbsp;", " ")).iter("{http://www.w3.org/2000/svg}rect"):
        rows[rect.get("y", "")] = rows.get(rect.get("y", ""), 0) + float(rect.get("width", "0"))
    assert len(rows) == 2  # NPU 1, and the three others alike
    assert all(abs(width - 700) < 0.1 for width in rows.values())


def test_black_and_white_every_part_of_the_account_has_its_own_pattern() -> None:
    from chakra.report.charts import LOOKS, patterns

    drawn = re.findall(r'<pattern id="p-(\w+)".*?</pattern>', str(patterns()))
    assert drawn == list(LOOKS)
    # Without its colours, each look is still unlike the others: another pattern, or plain dark or light.
    grey = {
        key: (path, int(fill[1:3], 16) * 3 + int(fill[3:5], 16) * 6 + int(fill[5:7], 16) > 1600)
        for key, (fill, _, path) in LOOKS.items()
    }
    assert len(set(grey.values())) == len(grey)


def test_a_hundred_thousand_npus_are_a_page() -> None:
    n = 100_000
    base = np.arange(n) % 7
    document = {
        "finish_ns": (1000 + base).tolist(),
        "exposed_comm_ns": base.tolist(),
        "account": {"compute_ns": [1000] * n, "waiting_ns": base.tolist()},
    }
    run = run_of(document, "big")
    groups, left_out = npu_groups(run)
    assert len(groups) == 7
    assert left_out == 0
    assert groups[0].label == "NPU 0, 7, 14, …"
    assert groups[0].row_label(24) == "NPU 0, 7, 14, … (14,286)"
    assert len(report_html([run])) < 60_000
    document["finish_ns"] = list(range(n))
    groups, left_out = npu_groups(run_of(document, "big"))
    assert len(groups) == 24
    assert left_out == n - 24
    assert {groups[0].finish_ns, groups[-1].finish_ns} == {0, n - 1}


def test_bars_of_a_pipeline_say_their_stages() -> None:
    """NPUs of a stage in words; of several alike, the first two; none where one is not told."""
    document = sample(6, slow=5) | {"stages": ["0", "1", "2", "3", "decode 0", "decode 1"]}
    run = run_of(document, "run")
    labels = [group.row_label(60) for group in npu_groups(run)[0]]
    assert labels == ["stages 0, 1, …: NPU 0-4 (5)", "stage decode 1: NPU 5"]
    text = " ".join(parsed(report_html([run])).text)
    assert all(label in text for label in labels)
    assert "rank 5, stage decode 1 compute" in text
    document["stages"][5] = None
    assert [group.stage for group in npu_groups(run_of(document, "run"))[0]] == ["stages 0, 1, …", ""]
    for stages in (["0"] * 5, "0", [0] * 6):
        assert {group.stage for group in npu_groups(run_of(document | {"stages": stages}, "run"))[0]} == {""}


def test_a_comparison_shows_speedup_and_only_inputs_that_differ() -> None:
    other = sample()
    other["finish_ns"] = [450_000] * 4
    other["inputs"]["system"]["active_chunks"] = 8
    page = report_html([run_of(sample(), "slow & old"), run_of(other, "fast")])
    text = " ".join(parsed(page).text)
    assert "2.000×" in text
    assert "slow & old" in text
    assert "system.active_chunks" in text
    assert "scheduling_policy" not in text


def test_a_comparison_has_differences_of_collectives_and_the_use_of_dimensions() -> None:
    """The all-reduce takes 100 us less, twice the all-gather nothing; the second run has no dimension."""
    other = sample()
    other["collectives"][0]["end_ns"] -= 100_000
    other["dimensions"] = []
    runs = [run_of(sample(), "old"), run_of(other, "new")]
    table = collectives_table(runs, ["old", "new"])
    assert table.columns == ("collective, sum over groups", "old", "new", "new - old")
    assert ("ALL_REDUCE", "300 µs", "200 µs", "-100 µs") in table.rows
    assert [row[-1] for row in table.rows if row[0] == "ALL_GATHER"] == ["0 ns"]
    share = 100 * sample()["dimensions"][0]["utilisation"]
    assert dimensions_table(runs, ["old", "new"]).rows[0][1:3] == (f"{share:.1f} %", "")
    text = " ".join(parsed(report_html(runs)).text)
    assert "new - old" in text
    assert "Network dimensions" in text


def test_what_recorded_times_do_not_tell_is_no_zero_of_a_comparison() -> None:
    """A run whose communication took recorded times has collectives, and nobody knows which: no time, no difference."""
    record = sample()
    record["inputs"]["system"]["replay_only"] = True
    record["collectives"] = []
    runs = [run_of(record, "record"), run_of(sample(), "model")]
    assert ("ALL_REDUCE", "-", "300 µs", "-") in collectives_table(runs, ["record", "model"]).rows
    assert dimensions_table(runs, ["record", "model"]).rows[0][1] == "-"
    assert "-" in dimensions(runs[0]).rows[0]
    # a modelled run that has none of a kind has none for certain
    none = sample()
    none["collectives"] = [row for row in none["collectives"] if row["kind"] != "ALL_REDUCE"]
    both = [run_of(none, "none"), run_of(sample(), "model")]
    assert ("ALL_REDUCE", "0 ns", "300 µs", "+300 µs") in collectives_table(both, ["none", "model"]).rows


@pytest.mark.parametrize(("gpu_ns", "verdict"), [
    (0, "Most of the time the CPUs compute, in traces without accelerator work (99.0 %)."),
    (10, "Most of the time the NPUs wait for their CPUs (98.0 %)."),
])  # fmt: skip
def test_the_verdict_fits_traces_of_the_cpu_alone(gpu_ns: int, verdict: str) -> None:
    account = {"compute_ns": [gpu_ns], "cpu_ns": [990 - gpu_ns], "transfer_ns": [10]}
    document = {**sample(1, 0), "npus": 1, "finish_ns": [1000], "exposed_comm_ns": [10], "account": account}
    text = essence(run_of(document, "a run"))
    assert verdict in text
    assert "\nCPU: " in text


@pytest.mark.parametrize(("compute_ns", "verdict"), [
    (501, "Most of the time the NPUs compute (50.1 %)."),
    (500, "The largest part of the time the NPUs compute (50.0 %)."),
    (493, "The largest part of the time the NPUs compute (49.3 %)."),
])  # fmt: skip
def test_most_is_more_than_half(compute_ns: int, verdict: str) -> None:
    account = {"compute_ns": [compute_ns], "transfer_ns": [300], "waiting_ns": [700 - compute_ns]}
    document = {**sample(1, 0), "npus": 1, "finish_ns": [1000], "exposed_comm_ns": [300], "account": account}
    assert verdict in essence(run_of(document, "a run"))


def test_the_essence_states_units_and_bars_fit_the_terminal() -> None:
    text = essence(run_of(sample(), "x"))
    assert "900 µs (900,000 ns)" in text
    assert "The largest part of the time goes into moving data" in text
    assert re.search(r"NPU 3    \|#{20}={20}\| 900 µs", text)
    assert max(map(len, text.splitlines())) < 140


HOSTILE = ["<script>alert(1)</script>", "\x1b[31m", "\ud800", '" onload="x', "]]>", "{{ 7*7 }}", "a\x00b"]


INTERVAL = {
    "share": 0.9, "low_ns": 2_000_000, "high_ns": 5_000_000, "family": "Selene", "rows": 4,
    "differs": ["measured without pp"], "reason": None,
}  # fmt: skip


def test_the_most_exposed_npu_is_named_where_they_differ() -> None:
    """400 us of 900; NPU 2 has 450 in the second run."""
    facts = [
        dict(headline(run_of(sample() | {"exposed_comm_ns": ns}, "x")))
        for ns in ([400_000] * 4, [400_000, 1, 450_000, 0])
    ]
    said = [fact["Exposed communication"] for fact in facts]
    assert said[0].startswith("400 µs at most (44.4 %)")
    assert said[1].startswith("450 µs at most, NPU 2 (50.0 %)")


def test_the_interval_of_a_replay_is_a_headline() -> None:
    stated = essence(run_of(sample() | {"interval": INTERVAL}, "run"))
    assert (
        "Interval:               2 ms to 5 ms with 90 % (Selene; measured without pp; such rows were measured slower "
        "than predicted)\n" in stated
    )
    none = INTERVAL | {"low_ns": None, "high_ns": None, "reason": "no framework is named"}
    page = report_html([run_of(sample() | {"interval": none}, "run")])
    assert "none: nothing measured is near (no framework is named)" in "".join(parsed(page).text)
    assert "Interval" not in essence(run_of(sample(), "run"))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(HOSTILE), st.integers(0, 11))
def test_no_text_of_the_document_becomes_markup_or_control_characters(text: str, place: int) -> None:
    document = sample() | {"interval": dict(INTERVAL)}
    spots: list[tuple[Any, Any]] = [
        (document["warnings"], 0),
        (document["collectives"][0], "kind"),
        (document["collectives"][0], "group"),
        (document["critical_path"][0], "name"),
        (document["nodes"][0]["names"], 0),
        (document["inputs"], "workload"),
        (document["dimensions"][0], "topology"),
        (document["links"][0], "from"),
        (document["nodes"][0]["engines"], 0),
        (document, "backend"),
        (document["inputs"]["system"], "scheduling_policy"),
        (document["interval"], "family"),
    ]
    holder, key = spots[place]
    holder[key] = text
    document["inputs"][text] = text
    document["corrections"][text] = 1
    run = run_of(document, text)
    for page, scripts in ((report_html([run]), 2), (report_html([run, run_of(sample(), "other")]), 1)):
        page.encode()
        found = parsed(page)
        assert not any(name.startswith("on") for _, attrs in found.tags for name in attrs)
        # ours, and the data that the timeline's reads
        assert sum(tag == "script" for tag, _ in found.tags) == scripts
        assert "\x1b" not in page
        assert "\x00" not in page
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", essence(run))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("finish_ns"), "no result of a replay"),
        (lambda d: d.update(finish_ns=[]), "finish_ns is empty"),
        (lambda d: d.update(finish_ns="x"), "no list of integers"),
        (lambda d: d.update(exposed_comm_ns=[1]), "has 1 entry"),
        (lambda d: d.update(schema="chakra.replay.result/9"), "result/9"),
        (lambda d: d["account"].update(compute_ns=[1.5] * 4), r"account\.compute_ns"),
        (lambda d: d.update(finish_ns=[2**70] * 4), "64 bits"),
    ],
)
def test_documents_that_are_none_are_named(change: Any, words: str) -> None:
    document = copy.deepcopy(sample())
    change(document)
    with pytest.raises(UsageError, match=words):
        run_of(document, "doc")


ODD: list[Any] = [
    5, True, "x", [5], [[1]], {"a": 5}, 10**400, None, float("nan"), float("inf"), [], {}, [None], {"dims": [{"a": {}}]},
    [{"bytes": 10**400, "count": -1, "start_ns": "x", "members": {}, "from": {}}],
    {"time_ns": [1], "bytes": [10**400], "peak_bytes": [10**400], "npu": "x"}, {"peak_bytes": 5}, {"compute_ns": {}},
]  # fmt: skip


@pytest.mark.parametrize("key", sorted({*sample(), "interval"}))
def test_odd_parts_are_left_out_or_named_but_never_crash(key: str) -> None:
    for value in ODD:
        document = sample()
        document[key] = value
        with suppress(UsageError):
            run = run_of(document, "odd")
            parsed(report_html([run]))
            parsed(report_html([run, run]))
            essence(run)


def test_the_command(tmp_path: Path) -> None:
    one, two, out = tmp_path / "one.json", tmp_path / "two.json", tmp_path / "r.html"
    for path in (one, two):
        path.write_text(json.dumps(sample()))
    runner = CliRunner()
    done = runner.invoke(command, [str(one), "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "Replay report: one" in out.read_text()
    assert runner.invoke(command, [str(one), str(two), "-o", str(out), "--name", "base"]).exit_code == 0
    assert "base" in out.read_text()
    assert "Simulated time" in runner.invoke(command, [str(one)]).stdout
    before = out.read_text()
    (tmp_path / "bad.json").write_text("{")
    for args, words in (
        ([str(tmp_path / "bad.json"), "-o", str(out)], "not JSON"),
        ([str(one), "-o", str(tmp_path / "r.pdf")], "unknown suffix"),
        ([str(tmp_path / "absent.json")], "cannot be read"),
    ):
        done = runner.invoke(command, args)
        assert isinstance(done.exception, UsageError)
        assert words in str(done.exception)
    assert out.read_text() == before


def test_figures_show_what_the_reports_show() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.patches import Rectangle

    from chakra.report.figures import account_figure, timeline_figure
    from chakra.timeline import from_document

    figure = account_figure(run_of(sample(), "x"))
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["NPU 0-2", "NPU 3"]
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert max(bar.get_x() + bar.get_width() for bar in bars) == pytest.approx(900)
    figure = timeline_figure(from_document(sample()))
    assert len(figure.axes[0].patches) == 20


def test_a_graph_figure_has_a_shape_for_every_box() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.patches import Polygon

    from chakra.et import TraceColumns
    from chakra.report.figures import graph_figure
    from chakra.viz import from_trace

    columns = TraceColumns(2)
    columns.ids[:] = 0, 1
    columns.types[:] = 4
    columns.set_names(["a$b", "c"])
    columns.set_data_deps([0, 0, 1], [0])
    figure = graph_figure(from_trace(columns.build()))
    shapes = [patch for patch in figure.axes[0].patches if isinstance(patch, Polygon)]
    assert len(shapes) == 2 + 1  # the boxes and the legend's sample


def test_npus_that_did_the_same_share_a_row() -> None:
    nodes = sample(5, slow=3)["nodes"]
    chosen = representatives(nodes)
    assert [(entry["npu"], count) for entry, count in chosen] == [(0, 4), (3, 1)]
    for k, entry in enumerate(nodes):
        entry["finish_ns"] = [*entry["finish_ns"][:-1], 900_000 + (100 if k == 2 else k)]
    assert [count for _, count in representatives(nodes)] == [1] * 5
    # the first, and the one that ends last
    assert [entry["npu"] for entry, _ in representatives(nodes, 2)] == [0, 2]
    assert [entry["npu"] for entry, _ in representatives(nodes, 3)] == [0, 2, 4]
    assert len(representatives([{"npu": 0}, {"npu": 1, "kinds": 3}])) == 2


def test_rows_of_a_timeline_are_bounded() -> None:
    """200 receives that wait at once need 200 rows, of which those with the most in them stay: the last to end."""
    workload = Workload(2)
    sender, receiver = workload.builder(0), workload.builder(1)
    for tag in range(200):
        receiver.recv(0, size_bytes=1000, tag=tag, name=f"receive {tag}")
        sender.send(1, size_bytes=1000, tag=tag, after=[sender.compute(duration_ns=1000)])
    network = {"topology": ["Switch"], "npus_count": [2], "bandwidth": [50.0], "latency": [500.0]}
    document = simulate(workload, {"endpoint-delay": 0}, network).to_dict(nodes=True)
    found = excerpt(run_of(document, "run"))
    rows = json.loads(str(found.data))["rows"]
    assert len(rows) == 96
    assert found.omitted_rows >= 100
    shown = {name for name in json.loads(str(found.data))["names"] if name.startswith("receive")}
    assert "receive 199" in shown
    assert "receive 0" not in shown
    page = report_html([run_of(document, "run")])
    assert f"{found.omitted_rows} rows with the least in them are left out." in page


def test_the_timelines_data_are_the_documents_nodes() -> None:
    """Every slice comes back with its start, duration, name and colour, from the differences that the page holds."""
    document = sample(4)
    found = excerpt(run_of(document, "run"))
    assert (found.npus, found.stood_for, found.omitted) == (2, 4, 0)
    data = json.loads(str(found.data))
    slices: dict[str, list[tuple[str, int, int]]] = {}
    for row in data["rows"]:
        at = 0
        for gap, length, name, _ in zip(*[iter(row["slices"])] * 4, strict=True):
            slices.setdefault(row["label"].split(" (")[0].rsplit(" c", 1)[0], []).append(
                (data["names"][name], at + gap, at + gap + length)
            )
            at += gap + length
    for entry in (document["nodes"][0], document["nodes"][3]):
        expected = sorted(zip(entry["names"], entry["issue_ns"], entry["finish_ns"], strict=True))
        assert sorted(slices[f"rank {entry['npu']}"]) == expected
    assert data["rows"][0]["label"] == "rank 0 (+2) compute"


def test_operators_differ_by_stream_and_by_what_they_compute() -> None:
    document = sample(2)
    assert operators(run_of(document, "x")).columns == ("operator", "kind", "times", "total", "of all")
    for entry in document["nodes"]:
        entry["names"] = ["mm", "ar", "mm", "ar", "mm"]
        entry["streams"] = [0, 1, 0, 1, None]
        entry["operators"] = [0, None, 1, None, None]
    document["operators"] = ["gemm m=8 n=4 k=2", "gemm m=8 n=8 k=8"]
    table = operators(run_of(document, "x"))
    assert table.columns == ("operator", "kind", "stream", "what it computes", "times", "total", "of all")
    assert sorted(row[:5] for row in table.rows) == [
        ("ar", "communication", "1", "", "4"),
        ("mm", "compute", "", "", "2"),
        ("mm", "compute", "0", "gemm m=8 n=4 k=2", "2"),
        ("mm", "compute", "0", "gemm m=8 n=8 k=8", "2"),
    ]
    assert table.first_number == 4


def test_kernels_of_devices_and_operators_of_hosts_are_lists_of_their_own() -> None:
    """Two kernels of one name without its types are one row; kinds are called the same as on the critical path."""
    document = sample(1)
    ns = [[0, 10], [10, 40], [0, 100], [40, 45]]
    kernel = "void at::native::{}_kernel<{}, at::native::FillFunctor<int>>(int, float*)"
    document["nodes"] = [
        {
            "npu": 0, "ids": [0, 1, 2, 3],
            "names": [kernel.format("unrolled", 4), kernel.format("unrolled", 2), "aten::mm", "gemm_128x64_tn"],
            "kinds": ["COMP"] * 4, "engines": ["GPU", "GPU", "CPU", "GPU"], "streams": [7, 7, None, 7],
            "issue_ns": [a for a, _ in ns], "finish_ns": [b for _, b in ns],
        }
    ]  # fmt: skip
    run = run_of(document, "x")
    assert list(operators(run).rows) == [
        ("at::native::unrolled_kernel<FillFunctor>", "compute", "7", "2", "40 ns", "88.9 %"),
        ("gemm_128x64_tn", "compute", "7", "1", "5 ns", "11.1 %"),
    ]
    hosts = operators(run, host=True)
    assert (hosts.columns, list(hosts.rows)) == (
        ("operator", "times", "total", "of all"),
        [("aten::mm", "1", "100 ns", "100.0 %")],
    )
    document["critical_path"] = [
        {"name": "aten::mm", "kind": "CPU", "npu": 0, "node": 2, "issue_ns": 0, "finish_ns": 100},
        {"name": "gemm_128x64_tn", "kind": "GPU", "npu": 0, "node": 3, "issue_ns": 100, "finish_ns": 105},
    ]
    assert [row[1] for row in path_by_operator(run_of(document, "x")).rows[:2]] == ["CPU", "compute"]
    text = " ".join(parsed(report_html([run])).text)
    assert text.index("On the devices") < text.index("On the hosts")


def test_links_of_a_list_have_no_dimension() -> None:
    """Those of building blocks are of one; the links of a list join whom they join."""
    document = sample()
    assert links(run_of(document, "x")).columns == ("link", "dim", "bytes", "utilisation", "busy", "queueing")
    document["dimensions"][0]["topology"] = "Links"
    found = links(run_of(document, "x"))
    assert found.columns == ("link", "bytes", "utilisation", "busy", "queueing")
    assert found.rows == [("NPU 0 → NPU 1", "2.861 MiB", "32.2 %", "290 µs", "1 µs")]


def test_a_collective_faster_than_its_links_is_marked_and_explained() -> None:
    """40,000 ns from the last start where links allow 60,000; where they are shared, of equal starts only rounding."""
    document = sample()
    row = document["collectives"][0]
    late = row | {"ready_ns": 460_000}
    even = row | {"ready_ns": row["start_ns"], "end_ns": row["start_ns"] + 40_000}
    words = "faster than the bandwidth of its links allows: on the unaware backend"
    early = "those that started earlier had sent bytes by then"
    for backend, shown, told in (("unaware", late, words), ("aware", late, early), ("aware", even, "")):
        run = run_of(document | {"backend": backend, "collectives": [shown]}, "x")
        text = " ".join(parsed(report_html([run])).text)
        assert ("150.0 %*" in text) == bool(told)
        assert [one in text and one in essence(run) for one in (words, early)] == [
            told == words,
            told == early,
        ]
    assert words not in " ".join(parsed(report_html([run_of(sample(), "x")])).text)


@pytest.mark.browser
def test_the_timeline_zooms_and_tells_what_is_under_the_pointer(tmp_path: Path) -> None:
    from viz_browser import Page, find_chromium

    if find_chromium() is None:
        pytest.skip("no Chromium installed")
    path = tmp_path / "r.html"
    path.write_text(report_html([run_of(sample(), "x")]))
    with Page(f"file://{path}", tmp_path / "profile") as page:
        page.wait("window.chakra !== undefined")
        assert page.value("chakra.span()") == [0, 900_000]
        page.value("document.querySelector('#zoom').scrollIntoView()")
        place = """(() => {{ const box = document.querySelector('#zoom canvas').getBoundingClientRect();
            const at = chakra.place({}); return [box.left + at[0], box.top + at[1]]; }})()"""
        x, y = page.value(place.format("0, 550000"))
        page.mouse("mouseMoved", x, y)
        said = "document.querySelector('#zoom output').textContent"
        page.wait(f"{said} !== ''")
        assert page.value(said) == "backward <b>&: 500 µs + 100 µs"
        page.click(x, y, count=2)
        page.wait("chakra.span()[0] > 0")
        begin, end = page.value("chakra.span()")
        assert end - begin == pytest.approx(0.4 * 900_000)
        assert begin < 550_000 < end
        x, y = page.value(place.format("0, 550000"))
        page.mouse("mousePressed", x, y, button="left", clickCount=1)
        page.mouse("mouseMoved", x + 50, y, button="left")
        page.mouse("mouseReleased", x + 50, y, button="left", clickCount=1)
        assert page.value("chakra.span()")[0] < begin
        page.value("document.querySelector('#zoom button[value=\"0\"]').click()")
        assert page.value("chakra.span()") == [0, 900_000]
        assert page.problems == []


@pytest.mark.browser
def test_the_page_opens_in_chromium(tmp_path: Path) -> None:
    from viz_browser import Page, find_chromium

    if find_chromium() is None:
        pytest.skip("no Chromium installed")
    path = tmp_path / "r.html"
    path.write_text(report_html([run_of(sample(), "x")]))
    with Page(f"file://{path}", tmp_path / "profile") as page:
        assert page.problems == []
        assert len(page.requests) == 1
        assert page.value("document.querySelectorAll('svg').length") > 8
        assert page.value("document.documentElement.scrollWidth") <= 1400
        assert len(page.screenshot(tmp_path / "r.png")) > 20_000


@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 390, 1400])
def test_bars_fit_the_screen_in_the_proportion_of_their_times(width: int, tmp_path: Path) -> None:
    from viz_browser import Page, find_chromium

    if find_chromium() is None:
        pytest.skip("no Chromium installed")
    path = tmp_path / "r.html"
    half = sample() | {"finish_ns": [450_000] * 4, "account": {"compute_ns": [450_000] * 4}}
    whole = sample() | {"finish_ns": [900_000] * 4, "account": {"compute_ns": [900_000] * 4}}
    path.write_text(report_html([run_of(half, "half"), run_of(whole, "whole")]))
    with Page(f"file://{path}", tmp_path / "profile", width=width) as page:
        seen = """[...document.querySelectorAll('.wide > svg')].filter(svg => svg.clientWidth)
            .map(svg => [...svg.querySelectorAll('rect.part')].map(bar => bar.getBoundingClientRect()))"""
        ((short, long),) = page.value(f"{seen}.map(bars => bars.map(bar => bar.width))")
        assert long == pytest.approx(2 * short, rel=0.01)
        assert page.value(f"Math.max(...{seen}[0].map(bar => bar.right))") < width
        ends = """Math.max(...[...document.querySelectorAll('.wide > svg text')]
            .map(text => text.getBoundingClientRect().right))"""
        assert page.value(ends) <= width


def test_npus_that_have_not_finished_are_told_apart() -> None:
    """They had an end of 0 ns, which was that of the first NPU, too."""
    document = sample() | {"partial": True, "finish_ns": [900_000, None, -1, 450_000]}
    run = run_of(document, "run")
    facts = dict(headline(run))
    assert (facts["First NPU finished"], facts["NPUs that finished"]) == ("450 µs", "2")
    assert [(group.label, group.finish) for group in npu_groups(run)[0]] == [
        ("NPU 0", "900 µs"),
        ("NPU 1-2", "not finished"),
        ("NPU 3", "450 µs"),
    ]
    assert " ".join(parsed(report_html([run])).text).count("not finished") == 3  # both frames, and the table
    assert "NPUs that finished" not in dict(headline(run_of(sample(), "x")))


def test_runs_of_nothing_say_so() -> None:
    """No communication, no time, one kind of work: no empty table, no figure twice, no sample of what is not there."""
    zero = Workload(2)
    zero.run(lambda b: b.compute("matmul", duration_ns=0))
    network = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50], "latency": [500]}
    run = run_of(json.loads(json.dumps(simulate(zero, {}, network).to_dict(nodes=True))), "nothing")
    facts = dict(headline(run))
    assert facts["Simulated time"] == "0 ns"
    assert facts["Exposed communication"] == "none"
    found = parsed(report_html([run]))
    headings = [attrs.get("id") for tag, attrs in found.tags if tag == "h2"]
    assert headings == ["account", "network", "operators", "timeline", "corrections", "inputs"]
    assert excerpt(run).parts == [("compute_ns", "compute")]
    assert dict(headline(run_of(sample(), "x")))["Simulated time"] == "900 µs (900,000 ns)"
