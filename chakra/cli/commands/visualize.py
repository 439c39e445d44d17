"""``chakra visualize``: draw a trace's graph."""

import time
from pathlib import Path
from typing import Any

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.numbers import DecimalRange, WholeNumber, WholeRange
from chakra.cli.support.options import Options, filename_options
from chakra.cli.support.written import say, written_option
from chakra.errors import UsageError
from chakra.io.files import expect_apart
from chakra.io.readable import counted
from chakra.viz.draw import FORMATS, HTML_LIMIT, PLAIN_LIMIT, DrawOptions, draw, format_of
from chakra.viz.graph import select
from chakra.viz.graph.fold import Folding
from chakra.viz.graph.graph import Graph
from chakra.viz.graph.source import read_graph


@click.command(cls=ChakraCommand, name="visualize")
@click.argument("paths", nargs=-1, metavar="IN.et OUT", type=click.Path(path_type=Path))
@filename_options("The trace (for IN.et).")
@click.option(
    "--fold", "fold_way", type=click.Choice([str(f) for f in Folding]), is_flag=False, flag_value="auto",
    help="Fold repeated layers (repeat), call trees (operator), chains, streams or equal segments; auto does "
         "what is needed.",
)  # fmt: skip
@click.option(
    "--boxes",
    type=WholeRange(2, 1_000_000),
    default=150,
    show_default=True,
    help="Boxes a folded picture should have at most.",
)
@click.option("--around", type=WholeNumber(), metavar="ID", help="Only the surroundings of this node.")
@click.option(
    "--hops", type=WholeRange(0), default=2, show_default=True, help="How far --around goes, in edges."
)
@click.option(
    "--critical-path", is_flag=True, help="Only the longest path by durations, and only its own edges."
)
@click.option(
    "--only",
    metavar="KIND[,KIND]",
    help="Only these kinds: comm, compute, cpu, memory, metadata, missing, coll, send, recv, ...",
)
@click.option(
    "--window",
    metavar="BEGIN:END",
    help="Only nodes that run then, after the first start (such as 10us:2ms; plain numbers are us).",
)
@click.option(
    "--layout",
    type=click.Choice(["auto", "own", "dot"]),
    default="auto",
    show_default=True,
    help="dot is Graphviz; own is linear in nodes and edges.",
)
@click.option(
    "--limit",
    type=WholeRange(1),
    help=f"Nodes that are drawn at most without folding [default: {PLAIN_LIMIT}; html: {HTML_LIMIT}].",
)
@click.option(
    "--budget",
    type=DecimalRange(0.1),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that Graphviz may take.",
)
@click.option("--all-edges", is_flag=True, help="Keep edges of a folded picture that longer paths imply.")
@written_option()
def command(
    paths: tuple[Path, ...],
    input_name: Path | None,
    output_name: Path | None,
    output_format: str,
    **options: Any,
) -> None:
    """Draw the graph of an execution trace. The suffix of OUT says the format: pdf, svg, png, dot, graphml or
    html."""
    source, target = _files(paths, input_name, output_name)
    format_of(target)
    expect_apart([target], [source])
    started = time.perf_counter()
    graph = _selected(read_graph(source), options)
    if not graph.n_nodes:
        raise UsageError(f"{source}: there is nothing to draw")
    way = Folding(options["fold_way"]) if options["fold_way"] else None
    drawing = draw(
        graph,
        target,
        DrawOptions(
            way,
            options["boxes"],
            options["layout"],
            options["limit"],
            options["budget"],
            options["all_edges"],
        ),
    )
    for remark in drawing.remarks:
        click.echo(f"note: {remark}", err=True)
    seconds = time.perf_counter() - started
    click.echo(
        f"wrote {drawing.path}: {counted(drawing.boxes, 'box')}, {counted(drawing.edges, 'edge')}, {seconds:.1f} s",
        err=True,
    )
    figures = {"nodes": graph.n_nodes, "boxes": drawing.boxes, "edges": drawing.edges}
    say(output_format, "visualize", [drawing.path], figures, drawing.remarks)


def _files(paths: tuple[Path, ...], input_name: Path | None, output_name: Path | None) -> tuple[Path, Path]:
    given = list(paths)
    source = input_name or (given.pop(0) if given else None)
    target = output_name or (given.pop(0) if given else None)
    if source is None or target is None or given:
        raise UsageError(
            f"expected one trace and one file to write (.{', .'.join(FORMATS)}): chakra visualize IN.et OUT"
        )
    return source, target


def _selected(graph: Graph, options: Options) -> Graph:
    if options["window"]:
        graph = select.window(graph, *select.parse_window(options["window"]))
    if options["critical_path"]:
        graph = select.critical_path(graph)
    if options["only"]:
        graph = select.only(graph, tuple(word.strip() for word in options["only"].split(",")))
    if options["around"] is not None:
        graph = select.around(graph, options["around"], options["hops"])
    return graph
