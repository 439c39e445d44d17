"""The files that a conversion writes."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.converters.text import Converted, convert_text, write_converted
from chakra.converters.text.encode import round_to_micros
from chakra.errors import ChakraError, ConversionError, UsageError
from chakra.et import ABSENT, NodeType, read_trace

Load = Callable[..., Converted]
TextOf = Callable[..., str]

ALL = "ALLREDUCE ALLGATHER REDUCESCATTER"
TIMED = "MODEL\n2\na -1 1500 ALLREDUCE 10 2 NONE 0 3 NONE 0 4\nb -1 5 NONE 0 600 ALLTOALL 20 7 NONE 0 8\n"


def test_nodes_say_all_that_a_simulator_asks(load: Load, tmp_path: Path) -> None:
    """Ids from 0 in every file, is_cpu_op always, duration on computes, kind and size on collectives."""
    write_converted(load(TIMED, npus=3), tmp_path / "out")
    for rank in range(3):
        trace = read_trace(tmp_path / f"out.{rank}.et")
        assert trace.ids.tolist() == list(range(len(trace)))
        assert set(trace.is_cpu_op.tolist()) == {0}
        comp = trace.types == NodeType.COMP
        assert trace.duration_micros[comp].tolist() == [1500, 5, 600, 7, 2, 3]
        assert trace.duration_micros[~comp].tolist() == [0, 0]
        assert trace.comm_type.tolist() == [ABSENT, 0, ABSENT, ABSENT, 6, ABSENT, ABSENT, ABSENT]
        assert trace.comm_size[~comp].tolist() == [10, 20]
    names = [node.name for node in trace.nodes()]
    assert names[:2] == ["COMP_NODE_a_FWD", "COMM_COLL_NODE_a_FWD_ALLREDUCE"]
    assert names[4] == "COMM_COLL_NODE_b_BWD_IG_ALLTOALL"


def test_kinds_of_collective(load: Load, text_of: TextOf, tmp_path: Path) -> None:
    text = text_of(
        "DISTRIBUTED_INFERENCE", *(f"{w} NONE NONE" for w in ALL.split()), "ALLREDUCEALLTOALL NONE NONE"
    )
    write_converted(load(text), tmp_path / "out")
    trace = read_trace(tmp_path / "out.0.et")
    assert trace.comm_type[trace.comm_type != ABSENT].tolist() == [0, 2, 7, 0, 6]


def test_metadata_says_where_the_trace_comes_from(load: Load, tmp_path: Path) -> None:
    write_converted(load(TIMED, time_unit="ns", passes=2), tmp_path / "out")
    attrs = {attr.name: attr.string_val for attr in read_trace(tmp_path / "out.0.et").metadata.attr}
    assert attrs["schema"] == "1.0.2-chakra.1.0.0"
    assert attrs["input_file"] == TIMED
    assert (attrs["time_unit"], attrs["passes"], attrs["update_time"]) == ("ns", "2", "not used")


def test_nanoseconds_survive(load: Load, tmp_path: Path) -> None:
    """Times of 1.0 are ns: exact in duration_ns, rounded without drift in duration_micros."""
    write_converted(load(TIMED, time_unit="ns"), tmp_path / "out")
    trace = read_trace(tmp_path / "out.0.et")
    comp = trace.types == NodeType.COMP
    assert trace.duration_ns[comp].tolist() == [1500, 5, 600, 7, 2, 3]
    assert trace.duration_ns[~comp].tolist() == [ABSENT, ABSENT]
    assert trace.duration_micros.sum() == 2


@given(st.lists(st.integers(0, 10**7), max_size=50))
def test_rounding_to_microseconds_never_drifts(times: list[int]) -> None:
    micros = round_to_micros(np.array(times, np.int64), "w.txt")
    assert (micros >= 0).all()
    drift = np.cumsum(micros) * 1000 - np.cumsum(times)
    assert np.abs(drift).max(initial=0) <= 500


def test_times_that_add_up_to_too_much(load: Load, tmp_path: Path) -> None:
    layer = "L -1 9000000000000000 NONE 0 9000000000000000 NONE 0 9000000000000000 NONE 0 1\n"
    with pytest.raises(ConversionError, match="add up to more ns than"):
        write_converted(load("DATA\n900\n" + 900 * layer, time_unit="ns"), tmp_path / "out")
    assert list(tmp_path.glob("*out*")) == []


def test_equal_files_are_stored_once(load: Load, text_of: TextOf, tmp_path: Path) -> None:
    write_converted(load(text_of("DATA", ALL), npus=5), tmp_path / "linked")
    assert {os.stat(tmp_path / f"linked.{rank}.et").st_ino for rank in range(5)}.__len__() == 1
    write_converted(load(text_of("DATA", ALL), npus=5), tmp_path / "copied", link=False)
    assert {os.stat(tmp_path / f"copied.{rank}.et").st_ino for rank in range(5)}.__len__() == 5
    assert (tmp_path / "linked.3.et").read_bytes() == (tmp_path / "copied.3.et").read_bytes()


def test_files_are_copied_where_links_fail(
    load: Load, text_of: TextOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_: object) -> None:
        raise OSError(1, "no links here")

    monkeypatch.setattr(os, "link", no_link)
    write_converted(load(text_of("DATA", ALL), npus=3), tmp_path / "out")
    assert len({(tmp_path / f"out.{rank}.et").read_bytes() for rank in range(3)}) == 1


def test_groups_differ_only_where_they_must(load: Load, text_of: TextOf, tmp_path: Path) -> None:
    """128 ranks: numbers of three digits; every file decodes, and equals the others but for its groups."""
    text = text_of("HYBRID_TRANSFORMER model_parallel_NPU_group: 8", ALL, ALL)
    summary = write_converted(load(text, npus=128), tmp_path / "out")
    assert summary.distinct_files == 128
    groups = json.loads((tmp_path / "out.comm_groups.json").read_text())
    assert len(groups) == 16 + 8
    traces = [read_trace(tmp_path / f"out.{rank}.et") for rank in (0, 77, 127)]
    for rank, trace in zip((0, 77, 127), traces, strict=True):
        assert trace.ids.tolist() == traces[0].ids.tolist()
        assert trace.comm_size.tolist() == traces[0].comm_size.tolist()
        for node in trace.nodes():
            if node.type == NodeType.COMM_COLL:
                assert rank in groups[node.attrs["pg_name"]]


def test_a_group_kind_without_collectives_makes_no_difference(
    load: Load, text_of: TextOf, tmp_path: Path
) -> None:
    """Ranks of one model-parallel group have equal files when nothing data-parallel is communicated."""
    text = text_of("HYBRID_TRANSFORMER model_parallel_NPU_group: 8", "ALLREDUCE NONE NONE")
    assert write_converted(load(text, npus=32), tmp_path / "out").distinct_files == 4


def test_many_passes_equal_passes_built_one_by_one(load: Load, text_of: TextOf) -> None:
    """Passes from the third on are copies of the second with shifted ids."""
    text = text_of("HYBRID_TRANSFORMER model_parallel_NPU_group: 2", ALL, "NONE ALLREDUCE NONE", ALL)
    five, six = load(text, passes=5).graph, load(text, passes=6).graph
    n = five.n_nodes // 5
    assert six.n_nodes == 6 * n
    edges = int(five.offsets[-1] - five.offsets[-1 - n])
    assert (six.parents[: len(five.parents)] == five.parents).all()
    assert (six.parents[-edges:] == five.parents[-edges:] + n).all()
    assert (np.diff(six.offsets[-1 - n :]) == np.diff(five.offsets[-1 - n :])).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"npus": None}, "number of NPUs is needed"),
        ({"npus": 0}, "must lie between 1 and"),
        ({"npus": 1 << 40}, "must lie between 1 and"),
        ({"passes": 0}, "passes must be at least 1"),
        ({"passes": 1 << 40}, "nodes a rank; at most"),
        ({"time_unit": "ms"}, "time unit must be us or ns"),
        ({"span": "x"}, "span must be auto, dims or groups"),
        ({"compat": "x"}, "compat must be 'chakra'"),
        ({"compat": "chakra", "update_time": True}, "--update-time cannot be combined with --compat chakra"),
        ({"compat": "chakra", "time_unit": "ns"}, "--time-unit ns cannot be combined"),
        ({"compat": "chakra", "model_parallel": 2}, "--model-parallel cannot be combined"),
    ],
)
def test_wrong_options(load: Load, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(TIMED, **options)


def test_nothing_is_written_unless_all_is_right(tmp_path: Path) -> None:
    source = tmp_path / "w.txt"
    source.write_text(TIMED.replace("ALLTOALL", "ALLTOAL"))
    folder = tmp_path / "out"
    with pytest.raises(ConversionError, match=r"w\.txt: line 4: 'ALLTOAL'.*did you mean ALLTOALL\?"):
        convert_text(source, folder / "w", npus=2)
    assert not folder.exists()


def test_outputs_that_cannot_be_written(load: Load, tmp_path: Path) -> None:
    converted = load(TIMED, npus=2)
    (tmp_path / "file").write_text("")
    (tmp_path / "x.1.et").mkdir()
    for prefix, message in (
        (tmp_path, "is a folder; expected the beginning of file names, such as"),
        (f"{tmp_path}/new/", "is a folder; expected the beginning of file names, such as"),
        (tmp_path / "file" / "w", "cannot be written"),
        (tmp_path / "x", r"x\.1\.et: cannot be written: it is a folder"),
        (tmp_path / ("n" * 300), "cannot be written"),
    ):
        with pytest.raises(ChakraError, match=message):
            write_converted(converted, prefix)
    assert not (tmp_path / "x.0.et").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


def test_leftovers_of_an_earlier_conversion_are_named(load: Load, text_of: TextOf, tmp_path: Path) -> None:
    write_converted(load(text_of("HYBRID_DATA_MODEL", ALL), npus=4, model_parallel=2), tmp_path / "out")
    notes = write_converted(load(text_of("DATA", ALL), npus=2), tmp_path / "out").notes
    assert sum("earlier conversion" in note for note in notes) == 2


def test_converting_again_replaces_the_files(load: Load, text_of: TextOf, tmp_path: Path) -> None:
    for npus in (4, 2, 4):
        write_converted(load(text_of("DATA", ALL), npus=npus), tmp_path / "out")
    assert len({os.stat(tmp_path / f"out.{rank}.et").st_ino for rank in range(4)}) == 1


def test_summary_counts_and_notes(load: Load, text_of: TextOf, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    converted = load(text_of("DATA", ALL, ALL), npus=4, passes=3)
    summary = write_converted(
        converted, tmp_path / "out", progress=lambda done, total: seen.append((done, total))
    )
    assert (summary.nodes, summary.computes, summary.compute_ns) == (3 * 7, 3 * 5, 15000)
    assert [(c.kind, c.count, c.size_bytes) for c in summary.collectives] == [("REDUCE_SCATTER", 6, 48)]
    assert seen == [(4, 4)]
    assert any(
        "2 forward collectives without a node (DATA has none): layers 0, 1" in note for note in summary.notes
    )
    assert any("update times are not used" in note for note in summary.notes)
    document = json.loads(json.dumps(summary.to_dict()))
    assert document["schema"] == "chakra.convert.text/1"
    assert "times    read as us" in summary.to_text()


def test_one_npu_has_nobody_to_talk_to(load: Load, text_of: TextOf, tmp_path: Path) -> None:
    summary = write_converted(load(text_of("MODEL", ALL), npus=1), tmp_path / "out")
    assert summary.collectives == ()
    assert any("there is one NPU" in note for note in summary.notes)


def test_a_trace_without_a_node_is_refused(load: Load, text_of: TextOf) -> None:
    with pytest.raises(ConversionError, match="MICRO on 1 NPU has neither compute nor communication"):
        load(text_of("MICRO", ALL), npus=1)
