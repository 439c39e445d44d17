"""Which NPUs a collective joins: by dimensions, by groups, or all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra.converters.text import Converted, write_converted
from chakra.converters.text.policies import Span
from chakra.converters.text.spans import Dims, EvenGroups, Everyone, Nobody, SpanGroups
from chakra.errors import ConversionError, UsageError
from chakra.et import NodeType, Trace, read_trace

Load = Callable[..., Converted]
TextOf = Callable[..., str]

ALL = "ALLREDUCE ALLREDUCE ALLREDUCE"


def spans_by_name(trace: Trace) -> dict[str, tuple[bool, ...] | str | None]:
    """What each collective says: its dimensions, its group, or nothing."""
    found: dict[str, Any] = {}
    for node in trace.nodes():
        if node.type == NodeType.COMM_COLL:
            found[node.name.removeprefix("COMM_COLL_NODE_").removesuffix("_ALLREDUCE")] = node.attrs.get(
                "involved_dim", node.attrs.get("pg_name")
            )
    return found


def written(converted: Converted, folder: Path, rank: int = 0) -> Trace:
    write_converted(converted, folder / "out")
    return read_trace(folder / f"out.{rank}.et")


def test_model_traffic_stays_in_dimension_0_of_hybrid_data_model(
    load: Load, text_of: TextOf, tmp_path: Path
) -> None:
    """On a [4, 2] network: model-parallel collectives in dimension 0, data-parallel ones in dimension 1."""
    trace = written(load(text_of("HYBRID_DATA_MODEL", ALL, ALL), npus=8, network_dims=[4, 2]), tmp_path)
    assert spans_by_name(trace) == {
        "L0_FWD": (True, False),
        "L1_FWD": (True, False),
        "L1_BWD_IG": (True, False),
        "L1_BWD_WG": (False, True),
        "L0_BWD_WG": (False, True),
    }


def test_hybrid_model_data_is_the_other_way_round(load: Load, text_of: TextOf, tmp_path: Path) -> None:
    trace = written(load(text_of("HYBRID_MODEL_DATA", ALL), network_dims=[4, 2, 3], npus=24), tmp_path)
    assert spans_by_name(trace) == {"L0_FWD": (False, True, True), "L0_BWD_WG": (True, False, False)}


@pytest.mark.parametrize(
    ("policy", "forward", "weight"), [("DATA", False, True), ("MODEL", True, False), ("MICRO", False, True)]
)
def test_pure_policies_join_everybody(
    load: Load, text_of: TextOf, tmp_path: Path, policy: str, forward: bool, weight: bool
) -> None:
    """Nothing need be said on up to four dimensions; with more the simulators' default would leave some
    out."""
    for dims, said in (([4, 2], None), ([2, 2, 2, 2, 2], (True,) * 5)):
        converted = load(text_of(policy, ALL), npus=None, network_dims=dims)
        found = spans_by_name(written(converted, tmp_path))
        assert found == ({"L0_FWD": said} if forward else {}) | ({"L0_BWD_WG": said} if weight else {})


def test_dlrm_joins_everybody(load: Load, text_of: TextOf, tmp_path: Path) -> None:
    text = text_of("HYBRID_DLRM 1", "ALLTOALL ALLTOALL NONE", ALL, ALL)
    trace = written(load(text, npus=8, network_dims=[4, 2]), tmp_path)
    assert set(spans_by_name(trace).values()) == {None}


@pytest.mark.parametrize(
    ("group", "model", "data"),
    [
        (2, Dims((True, False, False)), Dims((False, True, True))),
        (8, Dims((True, True, False)), Dims((False, False, True))),
        (4, EvenGroups(4, False), EvenGroups(4, True)),
        (24, Everyone(), Nobody()),
        (1, Nobody(), Everyone()),
    ],
)
def test_transformer_splits_where_the_product_of_dimensions_reaches_the_group(
    load: Load, text_of: TextOf, group: int, model: object, data: object
) -> None:
    """On [2, 4, 3]; a group of 4 ends inside dimension 1, which dimensions cannot say."""
    text = text_of(f"HYBRID_TRANSFORMER model_parallel_NPU_group: {group}", ALL)
    members = load(text, npus=24, network_dims=[2, 4, 3]).members
    assert members[Span.MODEL_INNER] == model
    assert members[Span.DATA_OUTER] == data


def test_groups_are_runs_and_strides(load: Load, text_of: TextOf, tmp_path: Path) -> None:
    """Model-parallel: neighbours; data-parallel: one rank of each run. Every rank names its own groups."""
    converted = load(text_of("HYBRID_DATA_MODEL", ALL), npus=8, model_parallel=4)
    write_converted(converted, tmp_path / "out")
    groups = converted.groups().to_dict()
    assert sorted(groups.values()) == [[0, 1, 2, 3], [0, 4], [1, 5], [2, 6], [3, 7], [4, 5, 6, 7]]
    for rank in range(8):
        said = spans_by_name(read_trace(tmp_path / f"out.{rank}.et"))
        assert groups[str(said["L0_FWD"])] == list(range(rank // 4 * 4, rank // 4 * 4 + 4))
        assert groups[str(said["L0_BWD_WG"])] == [rank % 4, rank % 4 + 4]


def test_in_hybrid_model_data_the_data_parallel_group_is_the_inner_one(load: Load, text_of: TextOf) -> None:
    """Four NPUs a replica of eight: data-parallel pairs of neighbours, model-parallel groups across them."""
    members = load(text_of("HYBRID_MODEL_DATA", ALL), npus=8, model_parallel=4).members
    assert members[Span.DATA_INNER] == EvenGroups(2, outer=False)
    assert members[Span.MODEL_OUTER] == EvenGroups(2, outer=True)


def test_customized_layers_use_the_spans_of_their_own_policy(
    load: Load, text_of: TextOf, tmp_path: Path
) -> None:
    text = text_of(
        "HYBRID_CUSTOMIZED",
        f"{ALL} HYBRID_DATA_MODEL",
        f"{ALL} HYBRID_MODEL_DATA",
        f"{ALL} DATA",
        f"{ALL} MODEL",
    )
    trace = written(load(text, npus=8, network_dims=[4, 2]), tmp_path)
    assert spans_by_name(trace) == {
        "L0_FWD": (True, False),
        "L1_FWD": (False, True),
        "L3_FWD": None,
        "L3_BWD_IG": None,
        "L2_BWD_WG": None,
        "L1_BWD_IG": (False, True),
        "L1_BWD_WG": (True, False),
        "L0_BWD_WG": (False, True),
    }


def test_groups_of_unknown_size_join_everybody_and_say_so(
    load: Load, text_of: TextOf, tmp_path: Path
) -> None:
    converted = load(text_of("HYBRID_DATA_MODEL", ALL), npus=8)
    summary = write_converted(converted, tmp_path / "out")
    assert any("give --network FILE" in note and "join all 8 NPUs" in note for note in summary.notes)
    assert set(spans_by_name(read_trace(tmp_path / "out.5.et")).values()) == {None}
    with pytest.raises(UsageError, match="of unknown size; give --network FILE"):
        load(text_of("HYBRID_DATA_MODEL", ALL), npus=8, span="groups")


def test_style_can_be_chosen(load: Load, text_of: TextOf) -> None:
    text = text_of("HYBRID_DATA_MODEL", ALL)
    assert load(text, npus=8, network_dims=[4, 2], span="groups").members[Span.MODEL_INNER] == EvenGroups(
        4, False
    )
    with pytest.raises(
        UsageError, match=r"groups of 2 neighbouring NPUs cannot be said .*none of \[4, 2\] ends there"
    ):
        load(text, npus=8, network_dims=[4, 2], model_parallel=2, span="dims")


def test_sizes_that_do_not_fit(load: Load, text_of: TextOf) -> None:
    text = text_of("HYBRID_TRANSFORMER model_parallel_NPU_group: 4", ALL)
    with pytest.raises(
        ConversionError, match=r"model_parallel_NPU_group 4 does not divide the 6 NPUs.* 1, 2, 3, 6"
    ):
        load(text, npus=6)
    assert load(text, npus=6, model_parallel=3).members[Span.MODEL_INNER] == EvenGroups(3, False)
    with pytest.raises(
        UsageError, match=r"--npus 6 contradicts the network, whose dimensions \[4, 2\] hold 8"
    ):
        load(text, npus=6, network_dims=[4, 2])


@given(st.integers(1, 12), st.integers(1, 12))
def test_group_numbers_partition_the_ranks(inner: int, outer: int) -> None:
    """Each kind of group covers every rank once, numbers have equal lengths, and ranks name the groups they
    are in."""
    npus = inner * outer
    kinds = {Span.MODEL_INNER: EvenGroups(inner, False), Span.DATA_OUTER: EvenGroups(inner, True)}
    table = SpanGroups(npus, kinds)  # type: ignore[arg-type]
    groups = table.to_dict()
    assert {len(name) for name in groups} == {table.digits}
    assert len(groups) == inner + outer
    for kind in table.kinds:
        numbers = [str(number) for number in table.number_of(kind)]
        assert all(rank in groups[name] for rank, name in enumerate(numbers))
        assert sorted(rank for name in set(numbers) for rank in groups[name]) == list(range(npus))
