"""Boxes of wide tables in a real browser: nothing is cut without a word."""

from pathlib import Path
from typing import Any

import pytest
from report_sample import sample
from viz_browser import Page, find_chromium

from chakra.report import report_html, run_of

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason="no Chromium installed"),
]

#: of each box of a table: what is out of sight to the right, and the words above it
_BOXES = """[...document.querySelectorAll('.wide')].filter(box => box.clientWidth && box.querySelector('table'))
    .map(box => [box.scrollWidth - box.clientWidth, box.previousElementSibling.hidden ? ''
        : box.previousElementSibling.textContent])"""


def of_a_library() -> dict[str, Any]:
    """Collectives whose algorithm takes a whole phrase, and whose figures are wide."""
    document = sample()
    document["collectives"] = [
        {
            "kind": "REDUCE_SCATTER", "algorithm": "nccl", "library_algorithm": "NVLSTree", "library_protocol": "Simple",
            "library_channels": 24, "group": "tp-cp-dp", "members": 4096, "bytes": 268_435_456 + k, "start_ns": 123_456,
            "ready_ns": 123_456, "end_ns": 456_789, "algbw_gbps": 12345.67, "busbw_gbps": 12345.67, "bound_ns": 60_000,
            "count": 1_234_567,
        }
        for k in range(40)
    ]  # fmt: skip
    return document


def opened(folder: Path, width: int) -> Page:
    path = folder / "r.html"
    path.write_text(report_html([run_of(of_a_library(), "x")]))
    return Page(f"file://{path}", folder / "profile", width=width)


def test_a_table_of_collectives_is_whole_on_a_window(tmp_path: Path) -> None:
    """13 columns stand in 1,400 px: headings wrap. Its 40 rows scroll, and the page says so."""
    with opened(tmp_path, 1400) as page:
        assert page.problems == []
        boxes = page.value(_BOXES)
        assert [hidden for hidden, _ in boxes] == [0] * len(boxes)
        assert "Scroll in the box down for more rows." in [words for _, words in boxes]


def test_a_box_that_scrolls_says_so_but_not_on_paper(tmp_path: Path) -> None:
    with opened(tmp_path, 390) as page:
        boxes = page.value(_BOXES)
        assert any(hidden > 0 for hidden, _ in boxes)
        assert all(("sideways for more columns" in words) == (hidden > 1) for hidden, words in boxes)
        assert page.value("document.documentElement.scrollWidth") <= 390
        page.call("Emulation.setEmulatedMedia", media="print")
        shown = "[...document.querySelectorAll('.more')].filter(said => said.clientHeight).length"
        assert page.value(shown) == 0
