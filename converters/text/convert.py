"""Text workload in, one execution trace a rank out."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from chakra.arguments import checked
from chakra.arrays import U8
from chakra.converters.text.conversion_summary import Summary, notes_on, summarize
from chakra.converters.text.encode import encode_common, rank_files
from chakra.converters.text.grammar import TextWorkload
from chakra.converters.text.output import StagedFiles
from chakra.converters.text.passes import Graph, Rules, build_graph
from chakra.converters.text.policies import POLICIES, SIMAI_POLICY, Span
from chakra.converters.text.reader import read_workload
from chakra.converters.text.spans import (
    Machine,
    Members,
    Nobody,
    SpanGroups,
    Style,
    check_layout,
    resolve_spans,
    sizes_unknown,
    with_shards,
)
from chakra.converters.text.upstream import upstream_graph, upstream_rank_files
from chakra.errors import ConversionError, UsageError
from chakra.io.documents import lined_text
from chakra.io.readable import counted

#: Bounds that keep a mistyped number from filling the memory.
MAX_NPUS = 1 << 20
MAX_NODES = 1 << 27
MAX_NODES_PER_PASS = 1 << 23

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Converted:
    """A workload as a graph that all NPUs run, before anything is written.

    Attributes
    ----------
    workload, graph
        What the file says, and the graph of all passes.
    npus, passes
        How many.
    members
        What each span joins; empty as upstream writes it (everything spans all NPUs).
    time_unit
        "us" or "ns".
    compat
        "chakra" if written as upstream's converter does, else None.
    update_time
        Whether update times are compute nodes.
    """

    workload: TextWorkload
    graph: Graph
    npus: int
    passes: int
    members: dict[Span, Members]
    time_unit: str
    update_time: bool
    compat: str | None
    #: nothing says how large the model- and data-parallel groups are, so that they join all NPUs
    sizes_unknown: bool = False

    def groups(self) -> SpanGroups:
        """Communicator groups and their numbers."""
        return SpanGroups(self.npus, self.members)


@checked
def load_text(
    source: str | os.PathLike[str],
    *,
    npus: int | None = None,
    passes: int = 1,
    network_dims: Sequence[int] | None = None,
    model_parallel: int | None = None,
    time_unit: str | None = None,
    update_time: bool = False,
    span: str = "auto",
    compat: str | None = None,
) -> Converted:
    """Read a text workload and build its graph. Parameters and errors are those of `convert_text`.

    Parameters
    ----------
    source
        Text workload.
    npus
        Number of NPUs; by default the product of ``network_dims``, or those of a stage that a SimAI header says.
    passes
        Training passes, one after the other.
    network_dims
        Sizes of the network's dimensions, dimension 0 first.
    model_parallel
        NPUs that share one model replica.
    time_unit
        "us" or "ns": what the file's times are in; None: ns where the header is SimAI's, else us.
    update_time
        Whether update times become compute nodes.
    span
        "dims" or "groups": how partial collectives are written; None decides by what is known.
    compat
        "chakra": as upstream's converter writes it.

    Raises
    ------
    ConversionError
        The file or an option is wrong; see `convert_text`.
    """
    if compat is not None:
        npus = _npus(npus, network_dims)
        _check_numbers(npus, passes, model_parallel, time_unit or "us", span)
        _check_compat(compat, network_dims, model_parallel, time_unit or "us", update_time, span)
        workload = read_workload(source, as_upstream=True)
        _check_size(workload, passes)
        graph = upstream_graph(workload, passes)
        return Converted(workload, graph, npus, passes, {}, time_unit or "us", False, compat)
    workload = read_workload(source)
    layout = workload.layout
    if layout is not None and npus is None and network_dims is None:
        npus = layout.stage
    if time_unit is None:
        # the headers of SimAI tell its files, whose times are ns, from others
        time_unit = "us" if layout is None else "ns"
    npus = _npus(npus, network_dims)
    _check_numbers(npus, passes, model_parallel, time_unit, span)
    _check_size(workload, passes)
    policy = POLICIES[workload.policy] if layout is None else SIMAI_POLICY
    machine = Machine(npus, None if network_dims is None else tuple(network_dims), model_parallel)
    check_layout(workload, machine)
    workload = with_shards(workload, npus)
    members = resolve_spans(workload, policy, machine, Style[span.upper()])
    nobody = frozenset(item for item, joined in members.items() if isinstance(joined, Nobody))
    graph = build_graph(workload, policy, passes, rules=Rules(update_time=update_time), nobody=nobody)
    if graph.n_nodes == 0:
        raise ConversionError(
            f"{workload.source}: {workload.policy} on {npus} NPU has neither compute nor communication"
        )
    unknown = sizes_unknown(workload, policy, machine)
    return Converted(workload, graph, npus, passes, members, time_unit, update_time, None, unknown)


@checked
def convert_text(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    npus: int | None = None,
    passes: int = 1,
    network_dims: Sequence[int] | None = None,
    model_parallel: int | None = None,
    time_unit: str | None = None,
    update_time: bool = False,
    span: str = "auto",
    compat: str | None = None,
    link: bool = True,
    progress: Progress | None = None,
) -> Summary:
    """Convert a text workload to execution traces ``OUTPUT.<rank>.et``, all of them or none.

    Parameters
    ----------
    source
        The text workload.
    output
        Prefix of the files. With communicator groups ``OUTPUT.comm_groups.json`` is written too.
    npus
        Number of NPUs; may be left out if ``network_dims`` is given, or a SimAI header says it.
    passes
        Number of training (or inference) passes.
    network_dims
        Sizes of the network's dimensions; dimension 0 varies fastest in the rank.
    model_parallel
        NPUs that share one model replica. Overrides the file's own number and dimension 0 of the network.
    time_unit
        What the file's times are: "us" (as upstream's converter and the tutorials read them) or "ns" (as
        ASTRA-sim 1.0). None: ns where the header is SimAI's, else us.
    update_time
        Put a COMP node of the layer's update time between each collective and its waiters.
    span
        How a collective that joins part of the NPUs says so: "dims" (``involved_dim``), "groups"
        (``pg_name``) or "auto".
    compat
        "chakra" writes what upstream's converter writes, its mistakes included.
    link
        Store equal files once, as hard links.
    progress
        Called with (files done, files in all).

    Returns
    -------
    Summary
        What was written.

    Raises
    ------
    ConversionError
        If the file cannot be understood or does not fit the NPUs.
    UsageError
        If options contradict each other or the output cannot be written.
    """
    converted = load_text(
        source,
        npus=npus,
        passes=passes,
        network_dims=network_dims,
        model_parallel=model_parallel,
        time_unit=time_unit,
        update_time=update_time,
        span=span,
        compat=compat,
    )
    return write_converted(converted, output, link=link, progress=progress)


@checked
def write_converted(
    converted: Converted,
    output: str | os.PathLike[str],
    *,
    link: bool = True,
    progress: Progress | None = None,
) -> Summary:
    """Write the traces of a converted workload; see `convert_text`.

    Parameters
    ----------
    converted
        Result of `load_text`.
    output
        Prefix: files are ``OUTPUT.<rank>.et``.
    link
        Store equal files once, as hard links.
    progress
        Called with files done and files in all.
    """
    table = converted.groups()
    distinct = 0
    done = 0
    with StagedFiles(output, link=link) as staged:
        for ranks, content in _contents(converted, table):
            staged.add((f".{rank}.et" for rank in ranks), content)
            distinct += 1
            done += len(ranks)
            if progress is not None:
                progress(done, converted.npus)
        if table.kinds:
            staged.add([".comm_groups.json"], _groups_json(table))
        leftovers = _leftovers(staged, converted.npus, groups=bool(table.kinds))
        files = staged.commit()
    groups_file = files[-1] if table.kinds else None
    return summarize(converted, Path(output), distinct, groups_file, notes_on(converted) + leftovers)


def _contents(converted: Converted, table: SpanGroups) -> Iterator[tuple[list[int], U8]]:
    """Distinct file contents with the ranks that have them."""
    if converted.compat is not None:
        return upstream_rank_files(converted.graph, converted.workload, converted.npus)
    provenance = {
        "converter": "chakra convert text",
        "time_unit": converted.time_unit,
        "update_time": "used" if converted.update_time else "not used",
        "passes": str(converted.passes),
    }
    common = encode_common(
        converted.graph,
        converted.workload,
        converted.members,
        table,
        time_unit=converted.time_unit,
        provenance=provenance,
    )
    return rank_files(common, table)


def _groups_json(table: SpanGroups) -> bytes:
    return lined_text(table.to_dict()).encode()


def _leftovers(staged: StagedFiles, npus: int, *, groups: bool) -> tuple[str, ...]:
    """Files of an earlier conversion that this one does not replace."""
    found = [f".{npus}.et", *([] if groups else [".comm_groups.json"])]
    return tuple(
        f"{path} is from an earlier conversion and was left alone"
        for path in map(staged.target, found)
        if os.path.lexists(path)
    )


def _npus(npus: int | None, dims: Sequence[int] | None) -> int:
    total = None if dims is None else prod(dims)
    if npus is None and total is None:
        raise UsageError("the number of NPUs is needed: give --npus N or --network FILE")
    if npus is not None and total is not None and npus != total:
        raise UsageError(
            f"--npus {npus} contradicts the network, whose dimensions {list(dims or ())} hold {counted(total, 'NPU')}"
        )
    return npus if npus is not None else int(total or 0)


def _check_numbers(npus: int, passes: int, model_parallel: int | None, time_unit: str, span: str) -> None:
    if not 1 <= npus <= MAX_NPUS:
        raise UsageError(f"the number of NPUs must lie between 1 and {MAX_NPUS}, but is {npus}")
    if model_parallel is not None and model_parallel < 1:
        raise UsageError(f"the NPUs that share a model must be at least 1, but are {model_parallel}")
    if passes < 1:
        raise UsageError(f"the number of passes must be at least 1, but is {passes}")
    if time_unit not in ("us", "ns"):
        raise UsageError(f"the time unit must be us or ns, but is {time_unit!r}")
    if span not in ("auto", "dims", "groups"):
        raise UsageError(f"span must be auto, dims or groups, but is {span!r}")


def _check_compat(
    compat: str,
    network_dims: Sequence[int] | None,
    model_parallel: int | None,
    time_unit: str,
    update_time: bool,
    span: str,
) -> None:
    if compat != "chakra":
        raise UsageError(f"compat must be 'chakra' (upstream's converter), but is {compat!r}")
    refused = {
        "--network": network_dims is not None,
        "--model-parallel": model_parallel is not None,
        "--time-unit ns": time_unit != "us",
        "--update-time": update_time,
        "--span": span != "auto",
    }
    for option, given in refused.items():
        if given:
            raise UsageError(
                f"{option} cannot be combined with --compat chakra: upstream's converter knows no such thing"
            )


def _check_size(workload: TextWorkload, passes: int) -> None:
    recomputed = sum(layer - start for layer, start in workload.recomputations().items())
    # Each of the three phases has at most a compute, two collectives and an update.
    per_pass = (3 * len(workload.layers) + recomputed) * 4
    if per_pass > MAX_NODES_PER_PASS or per_pass * passes > MAX_NODES:
        raise UsageError(
            f"{workload.source}: {counted(len(workload.layers), 'layer')} x {counted(passes, 'pass')} may give "
            f"{counted(per_pass * passes, 'node')} a rank; at most {MAX_NODES_PER_PASS} a pass and {MAX_NODES} in all "
            f"are converted"
        )
