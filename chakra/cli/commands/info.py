"""`chakra info`: what execution traces hold."""

import dataclasses
import os
from typing import TYPE_CHECKING

import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.options import format_option
from chakra.io.documents import document_text
from chakra.io.readable import counted

if TYPE_CHECKING:
    from chakra.et.trace_summary import TraceSummary


@click.command(cls=ChakraCommand)
@click.argument("paths", nargs=-1, required=True, metavar="TRACE...")
@format_option()
@click.option("--path/--no-path", "with_path", default=False, help="List the nodes of the critical path.")
@click.option(
    "--repair",
    is_flag=True,
    help="Drop data dependencies on absent nodes, and control dependencies in cycles.",
)
def command(paths: tuple[str, ...], output_format: str, with_path: bool, repair: bool) -> None:
    """Say what execution traces hold: nodes by kind, bytes by collective and group, compute time, critical
    path.

    A TRACE is a file, or the prefix of one file a rank (PREFIX.<rank>.et) or of a generated workload
    (PREFIX.workload.json). Files of equal content are described once.
    """
    from chakra.errors import UsageError
    from chakra.et import read_traces
    from chakra.et.manifest import SUFFIX, shared_traces
    from chakra.et.trace_summary import TraceSummary, summarize
    from chakra.io.rank_files import rank_files

    names: list[str] = []
    for path in paths:
        shared = shared_traces(path)
        if shared:
            names += shared
            continue
        of_prefix = [] if os.path.exists(path) else rank_files(path)
        if not of_prefix and not os.path.exists(path):
            raise UsageError(f"{path}: there is no such file, and no {path}.<rank>.et or {path}{SUFFIX}")
        names += of_prefix or [path]
    traces = read_traces(names, repair=repair)
    files: dict[int, list[str]] = {}
    for path, trace in zip(names, traces, strict=True):
        files.setdefault(id(trace), []).append(path)
    distinct = {id(trace): trace for trace in traces}
    documents: list[dict[str, object]] = []
    for key, trace in distinct.items():
        summary: TraceSummary = summarize(trace)
        if output_format == "json":
            document = dataclasses.asdict(summary)
            document["files"] = files[key]
            nodes = document["critical_path"].pop("nodes")
            document["critical_path"]["node_count"] = len(nodes)
            if with_path:
                document["critical_path"]["node_ids"] = [int(trace.ids[i]) for i in nodes]
            documents.append(document)
        else:
            click.echo("\n".join(_lines(summary, files[key])))
            if with_path:
                for i in summary.critical_path.nodes:
                    node = trace.node(i)
                    click.echo(f"  {node.id}  {node.type.name}  {node.duration_ns} ns  {node.name}")
    if output_format == "json":
        click.echo(document_text({"schema": "chakra.info/1", "traces": documents}, indent=1))


def _lines(summary: "TraceSummary", files: list[str]) -> list[str]:
    """The summary as text."""
    others = f" and {len(files) - 1} more with equal content" if len(files) > 1 else ""
    rank = "" if summary.rank is None else f", of rank {summary.rank}"
    version = f"version {summary.version}" if summary.version else "no version"
    lines = [f"{summary.source}{others}", f"  format: {version}{rank}"]
    lines += [f"  metadata {name}: {value}" for name, value in summary.metadata.items() if name != "rank"]
    kinds = ", ".join(f"{count} {name}" for name, count in summary.nodes_by_type.items())
    lines.append(
        f"  nodes: {summary.nodes}" + (f" ({kinds}; {summary.cpu_nodes} on the CPU)" if kinds else "")
    )
    lines.append(
        f"  dependencies: {summary.data_edges} data, {summary.ctrl_edges} control; "
        f"{summary.roots} first (wait{'s' * (summary.roots == 1)} for none), "
        f"{summary.leaves} last (none waits for {'it' if summary.leaves == 1 else 'them'})"
    )
    for name, count in (("control", summary.dropped_ctrl_deps), ("data", summary.dropped_data_deps)):
        if count:
            lines.append(f"  dropped: {count} {name} dependencies")
    lines.append(
        f"  compute: {summary.accelerator_compute_ns} ns on the accelerator, "
        f"{summary.cpu_compute_ns} ns on the CPU"
    )
    if summary.num_ops:
        lines.append(f"  operations: {summary.num_ops}")
    for row in summary.collectives:
        group = f"group {row.group!r}" if row.group else "all ranks"
        lines.append(f"  collective: {row.count} x {row.kind}, {group}, {row.bytes} bytes")
    for row in (*summary.messages, *summary.memory):
        lines.append(f"  {row.kind}: {counted(row.count, 'node')}, {row.bytes} bytes")
    path = summary.critical_path
    if path.length_ns is None:
        lines.append(f"  critical path: none, {path.problem} (--repair drops its control dependencies)")
    else:
        lines.append(
            f"  critical path: {path.length_ns} ns over {counted(len(path.nodes), 'node')} (durations in the trace)"
        )
    return lines
