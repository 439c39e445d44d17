"""The workload manifest: round trips, third-party forms, and hostile files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.errors import ChakraError, WorkloadError
from chakra.et import TraceColumns, read_trace, write_trace
from chakra.et.manifest import expand, manifest_from_dict, strided
from chakra.generate import TransformerRequest, build_workload, read_manifest, write_plain, write_shared

SMALL = {"model": "", "layers": 4, "hidden": 64, "heads": 8, "vocabulary": 96, "seq": 32}


def request(**options: Any) -> TransformerRequest:
    return TransformerRequest.from_mapping({**SMALL, **options})


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 50)), max_size=3), st.integers(0, 9))
def test_strided_sequences_survive(digits: list[tuple[int, int]], start: int) -> None:
    values = expand(start, digits)
    form = strided(values)
    if form is not None:
        assert expand(form[0], form[1]).tolist() == values.tolist()


@given(st.lists(st.integers(0, 99), min_size=1, max_size=20))
def test_strided_is_right_or_declines(values: list[int]) -> None:
    form = strided(np.array(values))
    if form is not None:
        assert expand(*form).tolist() == values


@pytest.mark.parametrize("options", [
    {"tp": 2, "pp": 2, "dp": 2},
    {"tp": 2, "pp": 2, "dp": 4, "order": "pp-tp-cp-ep-dp"},
    {"cp": 4, "tp": 2},
    {"model": "mixtral-8x7b", "layers": 4, "hidden": 64, "heads": 8, "kv-heads": 4, "head-dim": 8, "moe-ffn": 64,
     "vocabulary": 96, "seq": 32, "dp": 8, "ep": 4},
])  # fmt: skip
def test_a_workload_survives_its_files(tmp_path: Path, options: dict[str, Any]) -> None:
    workload = build_workload(request(**options).plan())
    again = read_manifest(write_shared(workload, tmp_path / "w"))
    assert again.npus == workload.npus
    assert again.peer_mode == workload.peer_mode == "relative"
    assert again.trace_of.tolist() == workload.trace_of.tolist()
    assert {k: v.tolist() for k, v in again.groups.items()} == {
        k: v.tolist() for k, v in workload.groups.items()
    }
    assert [t.content_hash for t in again.traces] == [t.content_hash for t in workload.traces]
    assert json.loads((tmp_path / "w.workload.json").read_text())["about"]["workload"] == "transformer"


def test_files_are_the_same_for_the_same_input(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_shared(build_workload(request(tp=2, pp=2).plan()), tmp_path / name / "w")
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["w.class0.et", "w.class1.et", "w.workload.json"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_hundred_thousand_ranks_need_a_small_file(tmp_path: Path) -> None:
    workload = build_workload(request(tp=8, pp=4, npus=102_400).plan())
    assert len(workload.traces) == 4
    path = write_shared(workload, tmp_path / "w")
    assert path.stat().st_size < 4000
    assert read_manifest(path).groups["dp"].shape == (32, 3200)


def test_plain_files_say_the_same_with_absolute_peers_and_numbered_groups(tmp_path: Path) -> None:
    workload = build_workload(request(tp=2, cp=2, pp=2, dp=2).plan(), tensors=True)
    write_plain(workload, tmp_path / "w")
    groups = json.loads((tmp_path / "w.comm_groups.json").read_text())
    assert sorted(map(int, groups)) == list(range(1, len(groups) + 1))
    assert all(len(members) > 1 for members in groups.values())
    for rank in range(workload.npus):
        plain, shared = read_trace(tmp_path / f"w.{rank}.et"), workload.traces[workload.trace_of[rank]]
        assert plain.n_nodes == shared.n_nodes
        assert plain.comm_size.tolist() == shared.comm_size.tolist()
        for i in range(plain.n_nodes):
            ours, theirs = plain.node(i).attrs, shared.node(i).attrs
            if "comm_dst" in ours:
                assert ours["comm_dst"] == rank + theirs["comm_dst"]
            if "pg_name" in ours:
                assert groups[ours["pg_name"]] == workload.members(theirs["pg_name"], rank).tolist()
            assert ours.get("outputs") == theirs.get("outputs")


def test_the_group_of_all_ranks_has_no_number(tmp_path: Path) -> None:
    write_plain(build_workload(request(tp=4).plan()), tmp_path / "w")
    assert json.loads((tmp_path / "w.comm_groups.json").read_text()) == {}
    names = {read_trace(tmp_path / "w.0.et").node(i).attrs.get("pg_name") for i in range(40)}
    assert names <= {None, ""}


# ------------------------------------------------------------------------------------------- other people's files


def document(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "format": "chakra.workload/1",
        "npus": 4,
        "traces": ["a.et", "b.et"],
        "trace_of": [{"trace": 0, "ranks": [0, 1]}, {"trace": 1, "ranks": {"start": 2, "digits": [[2, 1]]}}],
        "groups": {"tp": {"members": [[2, 1]], "groups": [[2, 2]]}, "odd": {"ranks": [[3, 1]]}},
    }
    return {**base, **changes}


def test_a_hand_written_manifest() -> None:
    trace = TraceColumns(1).build()
    manifest = manifest_from_dict(document(), [trace, trace])
    assert manifest.trace_of.tolist() == [0, 0, 1, 1]
    assert manifest.peer_mode == "absolute"
    assert manifest.groups["tp"].tolist() == [[0, 1], [2, 3]]
    assert manifest.members("odd", 1).tolist() == [3, 1]
    with pytest.raises(WorkloadError, match="rank 0 is in no group 'odd'"):
        manifest.members("odd", 0)
    with pytest.raises(WorkloadError, match="no group 'pp'; the manifest has: odd, tp"):
        manifest.members("pp", 0)


@pytest.mark.parametrize(("changes", "message"), [
    ({"format": "x"}, "'format' must be 'chakra.workload/1'"),
    ({"npus": "4"}, "npus: must be an integer, not '4'"),
    ({"npus": 0}, "npus must be 1"),
    ({"npus": 10**12}, "npus must be 1"),
    ({"npus": True}, "npus: must be an integer"),
    ({"traces": []}, "'traces' must be a non-empty list"),
    ({"peer_mode": "up"}, "peer_mode must be 'relative' or 'absolute', not 'up'"),
    ({"trace_of": {}}, "'trace_of' must be a list"),
    ({"trace_of": [{"trace": 0, "ranks": [0, 1, 2]}]}, "1 rank has no trace, the first is rank 3"),
    ({"trace_of": [{"trace": 2, "ranks": [0]}]}, "trace 2 is not one of the 2 traces"),
    ({"trace_of": [{"trace": 0, "ranks": [0, 0]}]}, "a rank is given a trace twice"),
    ({"trace_of": [{"trace": 0, "ranks": [4]}]}, r"ranks outside 0\.\.3"),
    ({"trace_of": [{"trace": 0, "ranks": {"digits": [[10**9, 1], [10**9, 1]]}}]}, "more than the"),
    ({"trace_of": [{"trace": 0, "ranks": {"digits": [[0, 1]]}}]}, r"is not a \[count, stride\] pair"),
    ({"trace_of": [{"trace": 0, "ranks": "all"}]}, "must be a list of ranks"),
    ({"groups": []}, "'groups' must be an object"),
    ({"groups": {"g": {"ranks": [[0, 1], [2]]}}}, "rows of equal, non-zero length"),
    ({"groups": {"g": {"ranks": [[0, 0]]}}}, "a rank appears twice"),
    ({"groups": {"g": {"ranks": [[0, 9]]}}}, r"rank 9 is outside 0\.\.3"),
    ({"groups": {"g": {}}}, "needs either 'ranks' or 'members'"),
    ({"groups": {"g": {"members": [[70000, 1]], "groups": [[70000, 1]]}}}, "more than the"),
])  # fmt: skip
def test_wrong_manifests_are_refused_by_key(changes: dict[str, Any], message: str) -> None:
    trace = TraceColumns(1).build()
    with pytest.raises(WorkloadError, match=message):
        manifest_from_dict(document(**changes), [trace, trace])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": "chakra.workload/1"}', "[" * 100_000, "\0"]
)
def test_files_that_are_no_manifest(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.workload.json"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=r"x\.workload\.json"):
        read_manifest(path)


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.workload.json"
    path.write_text(json.dumps(document()))
    write_trace(TraceColumns(1), tmp_path / "a.et")
    with pytest.raises(ChakraError, match=r"b\.et"):
        read_manifest(path)


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="No such file"):
        read_manifest(tmp_path / "none.workload.json")
