"""`chakra validate`: check the traces of all ranks before a run."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import rich_click as click

from chakra.cli.support.command import ChakraCommand
from chakra.cli.support.machine import refuse_words
from chakra.cli.support.numbers import WholeRange
from chakra.cli.support.options import format_option
from chakra.errors import ChakraError, ThresholdError, TraceError, UsageError, WorkloadError
from chakra.et.manifest import RELATIVE, manifest_of, read_manifest
from chakra.io.documents import document_text
from chakra.io.rank_files import meant_prefix, missing_ranks, ranks_found
from chakra.io.readable import counted

if TYPE_CHECKING:
    from chakra.replay.checks.run import Finding


@click.command(cls=ChakraCommand)
@click.argument("prefix")
@click.option(
    "-n",
    "--network",
    "--network-configuration",
    metavar="FILE",
    help="Network file: gives the number of NPUs.",
)
@click.option(
    "--platform",
    metavar="MACHINE",
    help="A known machine, in place of --network: `hgx-h100`, or with their number, `8x hgx-h100`.",
)
@click.option(
    "--npus", type=WholeRange(min=1), metavar="N", help="Number of NPUs. [default: the files found]"
)
@click.option(
    "-g",
    "--groups",
    "--comm-group-configuration",
    metavar="FILE",
    default="empty",
    help="Communicator groups (JSON); `empty` means none.",
)
@format_option()
@click.option("-q", "--quiet", is_flag=True, help="Only the findings.")
@click.option("--strict", is_flag=True, help="Exit with 4 if there are warnings.")
def command(
    prefix: str,
    network: str | None,
    platform: str | None,
    npus: int | None,
    groups: str,
    output_format: str,
    quiet: bool,
    strict: bool,
) -> None:
    """Check the traces PREFIX.<rank>.et, those of a workload PREFIX.workload.json, or one .et file, alone and against
    each other, and whether a run of them can end.

    Findings go to standard output. The exit code is 2 if there is an error among them.
    """
    of_machine = npus_of_machine(prefix, network, platform)
    if npus is not None and of_machine is not None and npus != of_machine:
        raise UsageError(f"--npus {npus}: {network or platform} has {counted(of_machine, 'NPU')}")
    npus = npus if of_machine is None else of_machine
    manifest = manifest_of(prefix)
    if manifest is not None:
        count, ranks, findings = check_manifest(manifest, groups, npus)
        checked = f"{counted(count, 'trace')} of {counted(ranks, 'rank')}"
    else:
        paths = trace_files(prefix, npus)
        count, findings = len(paths), check(paths, groups, npus)
        checked = counted(count, "trace")
    show(prefix, checked, count, findings, output_format, quiet=quiet)
    errors = [finding for finding in findings if finding["severity"] == "error"]
    warnings = [finding for finding in findings if finding["severity"] == "warning"]
    if errors:
        raise WorkloadError(f"{prefix}: {counted(len(errors), 'error')} in {checked}")
    if strict and warnings:
        raise ThresholdError(f"--strict: {counted(len(warnings), 'warning')}")


def npus_of_machine(prefix: str, network: str | None, platform: str | None) -> int | None:
    """NPUs of the machine that the traces are for; None where none is named.

    Raises
    ------
    ConfigError, UsageError
        A machine that is named twice or not known, or of another size than the workload.
    """
    if network is not None:
        from chakra.replay.config import load_network

        if platform is not None:
            raise UsageError("--platform: the network is given by -n already")
        refuse_words(network)
        return load_network(network).npus
    if platform is None:
        return None
    from chakra.platforms import cluster
    from chakra.replay.prepare import workload_facts

    found = None if os.path.isfile(prefix) else workload_facts(prefix)[0]
    return cluster(platform, found).node_npus


def trace_files(prefix: str, npus: int | None) -> list[str]:
    """Files of ranks 0 to N-1; N is given, or the greatest rank found plus one.

    Raises
    ------
    WorkloadError
        if ranks have no file: they are listed
    """
    if os.path.isfile(prefix):
        return [prefix]
    folder = os.path.dirname(prefix) or "."
    if not os.path.isdir(folder):
        raise WorkloadError(f"{prefix}.<rank>.et: {folder} is not a folder")
    found = ranks_found(prefix)
    if not found:
        raise WorkloadError(f"{prefix}.<rank>.et: no such file for any rank{meant_prefix(prefix)}")
    count = max(found) + 1 if npus is None else npus
    missing, shown = missing_ranks(found, count)
    if missing:
        raise WorkloadError(f"{prefix}.<rank>.et: no file for {counted(missing, 'rank')}: {shown}")
    beyond = sorted(rank for rank in found if rank >= count)
    if beyond:
        raise WorkloadError(
            f"{found[beyond[0]]}: rank {beyond[0]}, but there are only {counted(count, 'NPU')}"
        )
    return [found[rank] for rank in range(count)]


def check_manifest(path: str, groups: str, npus: int | None) -> tuple[int, int, list[dict[str, str]]]:
    """Numbers of traces and ranks of a workload whose ranks share traces, and findings as `check` has them.

    Raises
    ------
    UsageError
        Groups beside those that the workload has.
    WorkloadError, TraceError
        A manifest or a trace that cannot be read.
    """
    from chakra.replay.trial import try_shared

    if groups != "empty":
        raise UsageError(f"{groups}: a groups file goes with plain traces; {path} holds its own groups")
    read = read_manifest(path)
    if npus is not None and npus != read.npus:
        raise WorkloadError(f"{path}: the workload is for {counted(read.npus, 'NPU')}, not {npus}")
    found = try_shared(
        read.traces,
        read.trace_of.astype(np.int64),
        read.groups,
        read.npus,
        relative=read.peer_mode == RELATIVE,
    )
    return len(read.traces), read.npus, _plain(found)


def check(paths: list[str], groups: str, npus: int | None) -> list[dict[str, str]]:
    """Findings of all traces: dicts with `severity` ("error", "warning", "info") and `message`."""
    from chakra.et import Trace, read_trace, read_traces
    from chakra.replay.config import load_groups

    count = len(paths) if npus is None else npus
    # one trace of a larger job is checked alone: how many ranks there are is not known
    loaded = load_groups(groups, npus=None if npus is None and count == 1 else count)
    traces: list[Trace] = []
    try:
        traces = read_traces(paths)
    except TraceError:
        findings = []
        for path in paths:  # one by one, to name every bad file and not only the first
            try:
                read_trace(path)
            except ChakraError as error:
                findings.append({"severity": "error", "message": str(error)})
        return findings
    from chakra.replay.trial import try_traces

    return _plain(try_traces(traces, {name: [ranks] for name, ranks in loaded.items()}, count))


def _plain(findings: "list[Finding]") -> list[dict[str, str]]:
    return [{"severity": str(finding.severity), "message": str(finding.message)} for finding in findings]


def show(
    prefix: str, checked: str, count: int, findings: list[dict[str, str]], output_format: str, *, quiet: bool
) -> None:
    """Print the findings on standard output; `checked` says in words what they are of, `count` how many traces."""
    if output_format == "json":
        document = {
            "schema": "chakra.validate/1",
            "workload": prefix,
            "traces": count,
            "findings": findings,
        }
        click.echo(document_text(document, indent=1))
        return
    for finding in findings:
        click.echo(f"{finding['severity']}: {finding['message']}")
    if not findings and not quiet:
        click.echo(f"{Path(prefix).name}: {checked}: no findings")
