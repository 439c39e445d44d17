"""What timelines are made from: results, ASTRA-sim's log, Kineto traces."""

import copy
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from report_sample import sample

from chakra.cli.commands.timeline import command
from chakra.converters.pytorch import Settings, convert_job, find_inputs
from chakra.errors import UsageError
from chakra.replay import simulate
from chakra.timeline import Timeline, from_document, from_result, read_kineto, read_log
from chakra.timeline.astrasim_log import parse_frequency
from chakra.timeline.lanes import half_overlaps

PREFIX = "[2026-03-01 10:00:00.123] [workload] [debug] "
LOG = """issue,sys->id=0, tick=0, node->id=1, node->name=a,b=c COMP, node->type=4
issue,sys->id=1, tick=5, node->id=1, node->name=ring (x=1), node->type=7
callback,sys->id=0, tick=100, node->id=1, node->name=a,b=c COMP, node->type=4
issue,sys->id=0, tick=100, node->id=2, node->name=ring (x=1), node->type=7
callback,sys->id=1, tick=250, node->id=1, node->name=ring (x=1), node->type=7
callback,sys->id=0, tick=250, node->id=2, node->name=ring (x=1), node->type=7
"""


def slices(timeline: Timeline) -> list[tuple[int, str, int, int, str]]:
    return sorted(
        (timeline.rows[row].rank, timeline.rows[row].name, start, length, timeline.names[name])
        for row, start, length, name in zip(
            timeline.row.tolist(),
            timeline.start_ns.tolist(),
            timeline.duration_ns.tolist(),
            timeline.name.tolist(),
            strict=True,
        )
    )


EXPECTED = [
    (0, "communication", 100, 150, "ring (x=1)"),
    (0, "compute", 0, 100, "a,b=c COMP"),
    (1, "communication", 5, 245, "ring (x=1)"),
]


@pytest.mark.parametrize("prefix", ["", PREFIX])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_astra_sims_log_is_read_with_and_without_its_prefix(tmp_path: Path, prefix: str, ending: str) -> None:
    path = tmp_path / "log.log"
    noise = "[2026] [workload] [info] sys[0] finished, 250 cycles, exposed communication 150 cycles.\nno issue here\n"
    lines = [prefix + line for line in LOG.splitlines()] + noise.splitlines()
    path.write_bytes(ending.join(lines).encode())
    read = read_log(path, npus=2)
    assert slices(read.timeline) == EXPECTED
    assert read.remarks == []
    # The rank that came last to the collective is where the arrow begins.
    assert [read.timeline.start_ns[i] for i in (read.timeline.flow_from[0], read.timeline.flow_to[0])] == [
        100,
        5,
    ]


def test_ticks_are_scaled_by_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "log.log"
    path.write_text(LOG)
    read = read_log(path, mhz=parse_frequency("2GHz"))
    assert slices(read.timeline)[1] == (0, "compute", 0, 50, "a,b=c COMP")
    assert parse_frequency("1.5GHz") == parse_frequency("1500") == Fraction(1500)
    for text in ("0", "-1", "fast", "1 THz", ""):
        with pytest.raises(UsageError, match="--npu_frequency"):
            parse_frequency(text)


def test_upstreams_older_lines_are_classified_by_name(tmp_path: Path) -> None:
    path = tmp_path / "old.log"
    path.write_text(
        "issue,sys->id=0,tick=1,node->id=3,node->name=COMM_SEND_NODE_x\ncallback,sys->id=0,tick=4,node->"
        "id=3\n"
        "issue,sys->id=0,tick=4,node->id=4,node->name=COMP_NODE_y\n"
    )
    read = read_log(path)
    assert slices(read.timeline) == [
        (0, "communication", 1, 3, "COMM_SEND_NODE_x"),
        (0, "compute", 4, 0, "COMP_NODE_y"),
    ]
    assert read.remarks == ["1 node has no callback line; drawn to the end of the log"]


def test_odd_logs(tmp_path: Path) -> None:
    path = tmp_path / "log.log"
    path.write_text("callback,sys->id=0, tick=9, node->id=7, node->name=x, node->type=4\n" + LOG)
    assert "1 callback line has no issue line" in read_log(path).remarks[0]
    for text, words in (
        ("nothing\n", "no issue or callback line"),
        ("issue,sys->id=0, tick=zero, node->id=1\n", "line 1"),
        (LOG, "--num_npus is 1"),
        ("issue,sys->id=0, tick=99999999999999999999, node->id=1, node->name=a\n", "out of range"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=words):
            read_log(path, npus=1)


def test_a_result_becomes_rows_by_rank_with_flows_and_memory() -> None:
    timeline = from_document(sample(npus=4, slow=3))
    assert timeline.n_slices == 20
    assert len(timeline.rows) == 8
    assert half_overlaps(timeline) == 0
    # Two collectives, an arrow from the last rank to each of the three others.
    assert timeline.n_flows == 6
    first = {int(timeline.row[i]) for i in timeline.flow_from.tolist()[:3]}
    assert {timeline.rows[row].rank for row in first} == {3}
    assert timeline.counters[0].value.tolist() == [1_000_000, 3_000_000, 2_000_000, 0]


def test_sends_point_to_their_receives() -> None:
    document = {
        "nodes": [
            {"npu": 0, "ids": [1, 2], "names": ["s", "s"], "kinds": ["COMM_SEND"] * 2, "issue_ns": [0, 10],
             "finish_ns": [10, 20], "peers": [1, 1], "tags": [5, 6]},
            {"npu": 1, "ids": [1, 2], "names": ["r", "r"], "kinds": ["COMM_RECV"] * 2, "issue_ns": [0, 0],
             "finish_ns": [20, 10], "peers": [0, 0], "tags": [6, 5]},
        ]
    }  # fmt: skip
    timeline = from_document(document)
    pairs = sorted(
        (int(timeline.start_ns[a]), int((timeline.start_ns + timeline.duration_ns)[b]))
        for a, b in zip(timeline.flow_from, timeline.flow_to, strict=True)
    )
    assert pairs == [(0, 10), (10, 20)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("nodes"), "holds no nodes"),
        (lambda d: d["nodes"].__setitem__(0, 5), r"nodes\[0\] is no object"),
        (lambda d: d["nodes"][1].pop("ids"), "has no list 'ids'"),
        (lambda d: d["nodes"][1]["issue_ns"].pop(), "unequal length"),
        (lambda d: d["nodes"][1]["issue_ns"].__setitem__(0, "x"), "something else than integers"),
    ],
)
def test_malformed_results_are_named(change: Any, words: str) -> None:
    document = copy.deepcopy(sample())
    change(document)
    with pytest.raises(UsageError, match=words):
        from_document(document)


def kineto(rank: int, ts: str = "1782000000000000.125") -> str:
    events = [
        f'{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":"7","ts":{ts},"dur":0.200}}',
        f'{{"ph":"X","cat":"cuda_runtime","name":"launch","pid":1,"tid":7,"ts":{ts},"dur":0.1,"args":{{"correlation":101}}}}',
        '{"ph":"X","cat":"kernel","name":"ncclKernel","pid":0,"tid":9,"ts":1782000000000000.5,"dur":2.125,"args":ARGS}',
        '{"ph":"i","name":"note","pid":1,"tid":7,"ts":1}',
        '{"ph":"M","name":"process_name","pid":1,"args":{"name":"python"}}',
    ]
    events[2] = events[2].replace("ARGS", '{"correlation":101,"stream":9,"device":0}')
    return f'{{"schemaVersion":1,"distributedInfo":{{"rank":{rank}}},"traceEvents":[{",".join(events)}]}}'


def test_kineto_keeps_every_nanosecond_and_ranks_apart(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"k{rank}.json").write_text(kineto(rank))
    timeline = read_kineto([tmp_path / "k1.json", tmp_path / "k0.json"])
    assert slices(timeline)[:3] == [
        (0, "GPU 0 stream 9", 375, 2125, "ncclKernel"),
        (0, "thread 7", 0, 100, "launch"),
        (0, "thread 7", 0, 200, "aten::mm"),
    ]
    # Both ranks have correlation 101: each launch points to its own rank's kernel.
    ranks = [
        (timeline.rows[timeline.row[a]].rank, timeline.rows[timeline.row[b]].rank)
        for a, b in zip(timeline.flow_from, timeline.flow_to, strict=True)
    ]
    assert sorted(ranks) == [(0, 0), (1, 1)]
    (tmp_path / "again.json").write_text(kineto(1))
    with pytest.raises(UsageError, match="is of rank 1, as"):
        read_kineto([tmp_path / "k1.json", tmp_path / "again.json"])


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"traceEvents": 5}',
        '{"traceEvents": []}',
        '{"a": 1}',
        "[]",
        '{"traceEvents":[{"ph":"X","ts":1e999}]}',
    ],
)
def test_broken_kineto_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"k\.json"):
        read_kineto([path])


def communicating(rank: int, kernels: list[tuple[str, str, int, int]]) -> str:
    """A recording of a rank: kernels by (collective, group's ranks, peer or -1, start in us), one stream each."""
    events = []
    for place, (what, members, peer, start) in enumerate(kernels):
        args: dict[str, Any] = {
            "stream": place,
            "device": rank,
            "correlation": place + 1,
            "Collective name": what,
        }
        args |= {"Process Group Name": "0", "Process Group Ranks": members}
        if peer >= 0:
            args["Dst Rank" if what == "send" else "Src Rank"] = peer
        events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": "nccl",
                "pid": 0,
                "tid": place,
                "ts": start,
                "dur": 5,
                "args": args,
            }
        )
    return json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events})


def test_messages_and_collectives_of_recordings_have_arrows_between_ranks(tmp_path: Path) -> None:
    """A send of 0 to 2 and its receive; an all-reduce of 0 and 1, which waited for 1; none where ranks recorded unlike
    many of them, and none for kernels of which the profiler says nothing."""
    pair, outer = "[0, 1]", "[0, 2]"
    jobs = {
        0: [
            ("send", outer, 2, 10),
            ("allreduce", pair, -1, 20),
            ("send", pair, 1, 60),
            ("coalesced", pair, -1, 70),
        ],
        1: [("allreduce", pair, -1, 30), ("_allgather_base", "[1, 2]", -1, 50), ("coalesced", pair, -1, 71)],
        2: [("recv", outer, 0, 11), ("_allgather_base", "[1, 2]", -1, 45), ("allreduce", "[1, 2]", -1, 80)],
    }
    for rank, kernels in jobs.items():
        (tmp_path / f"k{rank}.json").write_text(communicating(rank, kernels))
    timeline = read_kineto([tmp_path / f"k{rank}.json" for rank in jobs])
    first = int(timeline.start_ns.min())
    ends = [
        tuple(
            (timeline.rows[timeline.row[slice_at]].rank, int(timeline.start_ns[slice_at]) - first)
            for slice_at in pair_of
        )
        for pair_of in zip(timeline.flow_from.tolist(), timeline.flow_to.tolist(), strict=True)
    ]
    assert sorted(ends) == [((0, 0), (2, 1000)), ((1, 20_000), (0, 10_000))]


@pytest.mark.shared
def test_a_recorded_pipeline_and_its_replay_have_the_same_arrows_between_ranks(
    shared: Path, tmp_path: Path
) -> None:
    """Two ranks that send 8 messages to each other."""
    folder = shared / "data" / "h200"
    recorded = read_kineto([folder / f"pp.rank{rank}.kineto.json.gz" for rank in (0, 1)])
    convert_job(find_inputs(folder, "pp"), tmp_path / "pp", Settings())
    network = {"topology": ["Switch"], "npus_count": [2], "bandwidth": [100.0], "latency": [500.0]}
    for timeline in (recorded, from_result(simulate(str(tmp_path / "pp"), {}, network))):
        rank_of = np.array([row.rank for row in timeline.rows])[timeline.row]
        ways = np.stack([rank_of[timeline.flow_from], rank_of[timeline.flow_to]], axis=1)
        assert Counter(map(tuple, ways[ways[:, 0] != ways[:, 1]].tolist())) == {(0, 1): 8, (1, 0): 8}


@pytest.mark.shared
def test_real_kineto_traces_nest(shared: Path) -> None:
    for name in ("h100_vit", "mi300_bert_small", "a100_event_sync_multi_stream", "cpu_gloo_300rank"):
        timeline = read_kineto([shared / f"data/kineto/{name}.json.gz"])
        assert timeline.n_slices > 10
        assert half_overlaps(timeline) == 0


def test_a_timeline_among_recordings_is_none_of_them(tmp_path: Path) -> None:
    """Written into the folder that it is of, it changes nothing for the next command; alone it is refused by name."""
    for rank in range(2):
        (tmp_path / f"job.rank{rank}.kineto.json").write_text(kineto(rank))
    runner, out = CliRunner(), tmp_path / "timeline.rank2.json"
    written = []
    for _ in range(2):
        done = runner.invoke(command, [str(tmp_path), str(out)])
        assert done.exit_code == 0, done.output
        written.append(out.read_bytes())
    assert written[0] == written[1]
    done = runner.invoke(command, [str(out), str(tmp_path / "again.json")])
    assert f"{out}: this is a timeline that chakra wrote" in str(done.exception)
    with pytest.raises(UsageError, match="this is a timeline that chakra wrote"):
        read_kineto([out])


def test_the_command(tmp_path: Path) -> None:
    run, log, out = tmp_path / "run.json", tmp_path / "log.log", tmp_path / "out.json"
    run.write_text(json.dumps(sample()))
    log.write_text(LOG)
    runner = CliRunner()
    done = runner.invoke(command, [str(run), str(out), "--ranks", "0-1", "--window", "0:250us"])
    assert done.exit_code == 0, done.output
    assert len([e for e in json.loads(out.read_text())["traceEvents"] if e["ph"] == "X"]) == 4
    upstream = [
        "--input_filename",
        str(log),
        "--output_filename",
        str(out),
        "--num_npus",
        "2",
        "--npu_frequency",
        "1000",
    ]
    assert runner.invoke(command, upstream).exit_code == 0
    assert len([e for e in json.loads(out.read_text())["traceEvents"] if e["ph"] == "X"]) == 3
    log.write_text("".join(PREFIX + line + "\n" for line in LOG.splitlines()))
    done = runner.invoke(command, [str(log), str(out)])
    assert done.exit_code == 0, done.output
    assert len([e for e in json.loads(out.read_text())["traceEvents"] if e["ph"] == "X"]) == 3
    out.write_text("[[1, 2], [3]]")
    assert "neither a replay" in str(runner.invoke(command, [str(out), str(tmp_path / "o.json")]).exception)
    done = runner.invoke(command, [str(run), str(tmp_path / "x.pftrace"), "--estimate"])
    assert int(done.stdout) > 1000
    assert not (tmp_path / "x.pftrace").exists()
    for args, words in (
        ([str(run)], "expected an input and a file"),
        ([str(run), str(tmp_path / "o.txt")], "unknown suffix"),
        ([str(run), str(run)], "overwrite"),
        ([str(run), str(log), str(out)], "Kineto traces only"),
        ([str(log), str(tmp_path / "o.json"), "-w", "nowhere/x"], "no nowhere/x.<rank>.et"),
    ):
        done = runner.invoke(command, args)
        assert isinstance(done.exception, UsageError), args
        assert words in str(done.exception)
