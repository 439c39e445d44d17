"""Times of fabrics whose links are not shared say so, in a result and in a study; others do not."""

from typing import Any

import pytest

from chakra.builder import TraceBuilder
from chakra.platforms import cluster
from chakra.replay import simulate
from chakra.replay.results.sharing_notes import NOT_SHARED
from chakra.sweep import study_from
from chakra.sweep.table import unshared

PORTS = "8x hgx-h100 over 400G fat tree of 16 ports oversubscribed 3"


def said(words: str, **options: Any) -> bool:
    builder = TraceBuilder()
    builder.collective("all_reduce", size_bytes=1 << 20)
    platform = cluster(words)
    result = simulate([builder.build()] * 64, platform.system(), platform.network(), **options)
    return NOT_SHARED in result.notes


@pytest.mark.parametrize("backend", ["aware", "flow"])
def test_only_links_that_are_not_shared_are_named(backend: str) -> None:
    assert said(PORTS)
    assert not said(PORTS, backend=backend)
    assert not said("8x hgx-h100 over 400G oversubscribed 3")


def test_a_study_says_it_once() -> None:
    def notes(platforms: list[str], **more: Any) -> list[str]:
        return unshared(
            study_from(
                {"workload": {"model": "llama3-8b"}, "parameters": {"platform": platforms}, **more}, "s.yml"
            )
        )

    assert notes([PORTS, "hgx-h100 over 400G"]) == [NOT_SHARED]
    assert notes(["hgx-h100 over 400G"]) == []
    assert notes([PORTS], replay={"backend": "flow"}) == []
    assert unshared(
        study_from(
            {
                "platform": PORTS,
                "workload": {"model": "llama3-8b"},
                "parameters": {"replay.backend": ["unaware", "flow"]},
            },
            "s.yml",
        )
    ) == [NOT_SHARED]
