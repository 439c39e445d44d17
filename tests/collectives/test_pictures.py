"""The pictures of docs/pictures: drawn from the engine's schedules, which carry out what they promise."""

from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from chakra.replay.collectives import registry
from chakra.replay.collectives.algorithms import parse
from chakra.replay.collectives.steps import Do
from chakra.replay.config.algorithms import NATIVE_ALGORITHMS

ROOT = Path(__file__).resolve().parents[2]
KINDS = (Do.ALL_REDUCE, Do.REDUCE_SCATTER, Do.ALL_GATHER, Do.ALL_TO_ALL)


@pytest.fixture(scope="module")
def blocks() -> ModuleType:
    import schedule_blocks

    return schedule_blocks


def checked(blocks: ModuleType, schedule: Any) -> None:
    """All blocks arrive, nothing is reduced twice, and a message is as large as the blocks in it."""
    assert blocks.finished(schedule, blocks.held(schedule)[-1])
    shards = {Do.ALL_GATHER: 1, Do.ALL_TO_ALL: schedule.n}.get(schedule.do, len(schedule.blocks))
    for step in schedule.steps:
        for message in step:
            assert len(message.blocks) == message.share * shards


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("do", KINDS)
@pytest.mark.parametrize("name", ["ring", "direct", "direct1", "direct2", "halvingDoubling"])
def test_native_schedules_do_what_they_promise(blocks: ModuleType, name: str, do: Do, n: int) -> None:
    if name != "halvingDoubling" or (n & (n - 1) == 0 and do is not Do.ALL_TO_ALL):  # else it is not offered
        checked(blocks, blocks.native(parse(name, ""), do, n))


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
def test_double_binary_tree_reduces_a_chunk_per_tree(blocks: ModuleType, n: int) -> None:
    schedule = blocks.double_binary_tree(n)
    assert blocks.finished(schedule, blocks.held(schedule)[-1])
    assert len(schedule.steps) == 2 * (n.bit_length() - 1)
    assert {message.share for step in schedule.steps for message in step} == {1}


@pytest.mark.parametrize("n", [2, 4, 6, 8, 11, 16])
@pytest.mark.parametrize(
    ("name", "do"), [(name, do) for name, made in registry.OURS.items() for do in sorted(made.kinds)]
)
def test_tables_of_steps_do_what_they_promise(blocks: ModuleType, name: str, do: Do, n: int) -> None:
    if name in ("rabenseifner", "recursiveDoubling") and n & (n - 1):
        n = 1 << n.bit_length()  # the folded form's blocks have no names here
    for segments in (1, 2, 3) if name in ("chain", "pipelinedTree") else (1,):
        schedule = blocks.table(name, do, n, segments=segments)
        checked(blocks, schedule)
        if name == "chain":
            assert len(schedule.blocks) == segments or n == 2


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("do", [Do.ALL_REDUCE, Do.REDUCE_SCATTER, Do.ALL_GATHER])
def test_a_switch_does_what_it_promises(blocks: ModuleType, do: Do, n: int) -> None:
    schedule = blocks.by_switch(do, n)
    assert blocks.finished(schedule, blocks.held(schedule)[-1][:n])
    for message in (message for step in schedule.steps for message in step):
        assert len(message.blocks) == message.share * (1 if do is Do.ALL_GATHER else n)


def test_a_wrong_schedule_is_seen(blocks: ModuleType) -> None:
    """The follower of blocks is no rubber stamp."""
    good = blocks.native(parse("ring", ""), Do.ALL_REDUCE, 4)
    short = blocks.Schedule(good.name, good.do, 4, good.blocks, good.steps[:-1])
    assert not blocks.finished(short, blocks.held(short)[-1])
    twice = blocks.Schedule(good.name, good.do, 4, good.blocks, (good.steps[0], good.steps[0]))
    with pytest.raises(ValueError, match="reduced twice"):
        blocks.held(twice)
    early = blocks.native(parse("ring", ""), Do.ALL_GATHER, 4)
    with pytest.raises(ValueError, match="has not got it"):
        blocks.held(blocks.Schedule(early.name, early.do, 4, early.blocks, early.steps[1:]))


def test_every_algorithm_has_a_picture_in_the_pages() -> None:
    pages = ("guides/collectives.md", "reference/collective-costs.md")
    text = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in pages)
    for name in (*NATIVE_ALGORITHMS, *registry.OURS, "direct1", "custom", "inNetwork"):
        path = ROOT / "docs" / "pictures" / f"{name}.svg"
        assert path.is_file(), name
        assert f"../pictures/{name}.svg" in text, name
        root = ElementTree.parse(path).getroot()
        assert root.tag.endswith("svg")
        assert name in str(root.get("aria-label"))
