"""Reports of replays: a self-contained HTML page, a comparison page, and a few lines for a terminal."""

from chakra.report.document import Run, read_run, run_of
from chakra.report.figures import account_figure, graph_figure, timeline_figure
from chakra.report.page import report_html
from chakra.report.terminal import essence

__all__ = [
    "Run",
    "account_figure",
    "essence",
    "graph_figure",
    "read_run",
    "report_html",
    "run_of",
    "timeline_figure",
]
