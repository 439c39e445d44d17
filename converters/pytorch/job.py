"""One rank from files to files: read, link, write, check."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chakra.arguments import check_fields, checked
from chakra.converters.pytorch.all_ranks.job_replay import rank_graph
from chakra.converters.pytorch.comm.group_numbers import GroupNumbers, write_groups
from chakra.converters.pytorch.deprofile import deprofile, parse_cost, unprofiled_step_ns
from chakra.converters.pytorch.graph.event_cost import host_events, without_events
from chakra.converters.pytorch.link import Linked, LinkOptions, link
from chakra.converters.pytorch.match.pair import Pairing
from chakra.converters.pytorch.read.columns import Names
from chakra.converters.pytorch.read.device import DeviceTrace, read_device_trace
from chakra.converters.pytorch.read.file_kinds import expect
from chakra.converters.pytorch.read.first_bytes import FileKind
from chakra.converters.pytorch.read.host import HostTrace, read_host_trace
from chakra.converters.pytorch.write.emit import EmitOptions, encode_blocks
from chakra.converters.pytorch.write.link_summary import attached_text, self_check, summarize
from chakra.converters.pytorch.write.linked_json import read_linked, write_linked
from chakra.converters.pytorch.write.replay_check import ReplayCheck, replay_span
from chakra.errors import ConversionError, ThresholdError, UsageError
from chakra.et import read_trace
from chakra.io.digits import is_whole, whole_number
from chakra.io.files import atomic_bytes, expect_apart
from chakra.io.readable import counted, percent_text, verb

#: Larger traces are read back and compared only when asked for: that takes as long as writing them.
CHECK_UP_TO = 300_000

_RANK = re.compile(r"rank[_\-.]?([0-9]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files of one rank: host and device trace, the device trace alone, or a linked file.

    Attributes
    ----------
    host
        Host trace (JSON, may be gzipped).
    device
        Kineto trace (JSON, may be gzipped).
    linked
        Linked file, instead of the two.
    rank
        Rank, where the files do not say it.
    """

    host: Path | None = None
    device: Path | None = None
    linked: Path | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a job reads, links and writes.

    Attributes
    ----------
    repair
        Cut broken files at the last whole element.
    min_matched, min_attached, min_recorded
        Shares of host operators matched, of device operations attached, and of kernel launches whose kernel was
        recorded, below which `ThresholdError` is raised (after writing).
    link
        How host and device are joined.
    emit
        What the trace holds.
    strict
        Whether a difference between summary and files is an error.
    deprofile
        Take the cost of recording off the host's time: us per operator, or ``auto`` to measure it from the steps
        without profiler that `chakra.capture` timed; empty leaves it in.
    """

    link: LinkOptions = field(default_factory=LinkOptions)
    emit: EmitOptions = field(default_factory=EmitOptions)
    repair: bool = False
    min_matched: float = 0.9
    min_attached: float = 0.5
    min_recorded: float = 0.9
    strict: bool = False
    deprofile: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("min_matched", "min_attached", "min_recorded"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name}: {getattr(self, name)!r} is not a share from 0 to 1")
        if self.deprofile:
            measured = parse_cost(self.deprofile) is None
            if self.link.gpu_only:
                raise UsageError("--deprofile takes time off the host's part, which --gpu-only leaves out")
            if measured and (self.link.gaps == "drop" or self.link.deps != "order"):
                option = "--gaps drop" if self.link.gaps == "drop" else f"--deps {self.link.deps}"
                raise UsageError(
                    f"--deprofile auto compares steps with and without profiler, but with {option} a step is none that "
                    "was recorded; give the cost in us per operator"
                )


@dataclass(slots=True)
class Outcome:
    """What became of one rank.

    Attributes
    ----------
    rank
        The rank.
    output
        File that was written.
    summary
        Counts, as the command line prints them.
    check
        Measured and replayed span, where asked for.
    """

    rank: int
    output: str
    summary: dict[str, Any]
    check: ReplayCheck | None = None


def read_traces(
    inputs: Inputs, *, repair: bool = False, all_io: bool = False
) -> tuple[HostTrace | None, DeviceTrace, Pairing | None]:
    """Read the files of one rank: its host trace if it has one, its device trace, and of a linked file what is paired.

    Parameters
    ----------
    inputs
        Files of the rank.
    repair
        Cut broken files at the last whole element.
    all_io
        Keep input shapes of all operators of a device trace.

    Raises
    ------
    ConversionError
        A file is missing, of the wrong kind or broken.
    UsageError
        No device trace.
    """
    if inputs.linked is not None:
        return read_linked(inputs.linked, repair=repair)
    if inputs.device is None:
        raise UsageError("a device trace is needed: --device KINETO, or --input LINKED.json")
    names = Names()
    host: HostTrace | None = None
    expect(inputs.device, FileKind.DEVICE)
    if inputs.host is not None:
        host = read_host_trace(inputs.host, names, repair=repair)
        if expect(inputs.host, FileKind.HOST, FileKind.LINKED) is FileKind.LINKED:
            raise ConversionError(f"{inputs.host}: this is a linked trace already; give it as --input")
    return (
        host,
        read_device_trace(inputs.device, names, repair=repair, keep_io=host is None, all_io=all_io),
        None,
    )


def read_and_link(inputs: Inputs, settings: Settings) -> tuple[Linked, int]:
    """Read the files of one rank and link them; returns the linked trace and the rank.

    Raises
    ------
    ConversionError
        A file is missing, of the wrong kind or broken, or the traces do not fit together.
    """
    host, device, pairing = read_traces(inputs, repair=settings.repair)
    rank = rank_of(inputs, device)
    linked = link(host, device, settings.link, rank, pairing)
    linked.warnings += _doubts(inputs, host, device)
    return linked, rank


def _doubts(inputs: Inputs, host: HostTrace | None, device: DeviceTrace) -> list[str]:
    """Warnings where files say that they are not of one process, or of another rank than asked for."""
    found = []
    pid = host.header.get("pid") if host is not None and inputs.linked is None else None
    processes = {process for process, _ in device.threads if is_whole(process)}
    if type(pid) is int and processes and str(pid) not in processes:
        others = ", ".join(sorted(processes)[:3])
        found.append(
            f"{inputs.host} is of process {pid}, {inputs.device} of {others}: another rank, or another run of the program"
        )
    if device.rank is not None and inputs.rank not in (None, device.rank):
        found.append(
            f"{device.source}: recorded as rank {device.rank}, converted as rank {inputs.rank}, as it was given"
        )
    return found


def rank_of(inputs: Inputs, device: DeviceTrace | None) -> int:
    """Rank: as given, as recorded in the device trace, as in a file name (number after ``rank``), else 0."""
    if inputs.rank is not None:
        return inputs.rank
    if device is not None and device.rank is not None:
        return device.rank
    for path in (inputs.device, inputs.host, inputs.linked):
        match = _RANK.search(path.name) if path is not None else None
        if match:
            return whole_number(match.group(1))
    return 0


@checked
def convert_rank(
    inputs: Inputs,
    output: Path,
    settings: Settings,
    *,
    check: bool = False,
    report: Callable[[dict[str, object]], None] | None = None,
) -> Outcome:
    """Link one rank and write it: linked JSON or, for names that end in ``.et`` (or ``.et.gz``), an
    execution trace.

    Beside an execution trace with process groups of its own, ``NAME.comm_groups.json`` is written.
    ``report`` is called with the summary before it is judged.

    Parameters
    ----------
    inputs
        Files of the rank.
    output
        ``NAME.et``, ``NAME.et.gz``, or the name of a linked JSON file.
    settings
        How to read, link and write.
    check
        Replay the result with recorded durations and compare with the measured span.
    report
        Called with the summary before it is judged.

    Raises
    ------
    ThresholdError
        Less was matched or attached than ``settings`` ask for, or ``strict`` and something differs.
    UsageError
        The output would overwrite an input.
    """
    expect_apart([output], [path for path in (inputs.host, inputs.device, inputs.linked) if path])
    linked, rank = read_and_link(inputs, settings)
    summary = summarize(linked, rank)
    if settings.deprofile:
        alone = rank_graph(linked, rank)
        found = deprofile([alone], unprofiled_step_ns(inputs.device), parse_cost(settings.deprofile))
        summary["deprofiled"] = found.to_dict()
        take_off(linked, found.operator_us)
    if output.name.endswith((".et", ".et.gz")):
        table = GroupNumbers([(linked.device.source, linked.groups)], _used_groups(linked))
        outcome = write(linked, rank, table, output, settings, summary, check=check)
        content = table.file_content(_used_groups(linked))
        if content:
            groups_path = groups_file(output)
            write_groups(groups_path, content)
            summary["comm_groups_file"] = str(groups_path)
    else:
        write_linked(linked, output)
        outcome = Outcome(rank, str(output), summary)
        if check:
            outcome.check = ReplayCheck(linked.measured_ns, linked.graph.replay_ns)
    if report is not None:
        report(summary)
    enforce(summary, settings)
    return outcome


def take_off(linked: Linked, operator_us: float) -> None:
    """Take the cost of recording off a linked rank's host."""
    graph = linked.graph
    events = host_events(graph, linked.device.calls)
    recorded = graph.duration
    graph.duration = without_events(recorded, events, operator_us * 1e3)
    linked.recording_cost_ns = int((recorded - graph.duration).sum())


def groups_file(output: Path) -> Path:
    """Name of the group file beside an execution trace: ``job.0.et`` -> ``job.comm_groups.json``."""
    stem = re.sub(r"(\.[0-9]+)?\.et(\.gz)?$", "", output.name)
    return output.with_name(f"{stem}.comm_groups.json")


def _used_groups(linked: Linked) -> list[str]:
    return [comm.group for comm in linked.graph.comm.values()]


def write(
    linked: Linked,
    rank: int,
    groups: GroupNumbers,
    output: Path,
    settings: Settings,
    summary: dict[str, object],
    *,
    check: bool = False,
    exact_time: bool = True,
) -> Outcome:
    """Write one execution trace, read it back and compare (device time only if it is the recorded one)."""
    with atomic_bytes(output) as file:
        for block in encode_blocks(linked, rank, groups, settings.emit):
            file.write(block)
    outcome = Outcome(rank, str(output), summary)
    if len(linked.graph) > CHECK_UP_TO and not (check or settings.strict):
        summary["self_check"] = []
        summary["self_check_skipped"] = f"above {CHECK_UP_TO} nodes only with --check or --strict"
        return outcome
    trace = read_trace(output)
    problems = self_check(linked, trace, exact_time=exact_time)
    summary["self_check"] = problems
    if check:
        outcome.check = ReplayCheck(linked.measured_ns, replay_span(trace, linked.graph.engine))
        summary["replayed_span_ns"] = outcome.check.replayed_ns
        summary["replay_error_percent"] = round(100 * outcome.check.error, 4)
    return outcome


def enforce(summary: dict[str, Any], settings: Settings) -> None:
    """Raise when a summary is below what the settings ask for."""
    name = summary["device_trace"]["file"]
    matching, attaching = summary["matching"], summary["attaching"]
    if matching["share"] < settings.min_matched:
        raise ThresholdError(
            f"{name}: {matching['matched']} of {counted(matching['candidates'], 'host operator')} matched "
            f"({percent_text(matching['share'])}), below --min-matched {settings.min_matched:g}"
        )
    if attaching["share"] < settings.min_attached:
        raise ThresholdError(
            f"{name}: {attached_text(attaching)} attached, below --min-attached {settings.min_attached:g}"
        )
    launches, lost = attaching["kernel_launches"], attaching["kernel_launches_lost"]
    if launches and (launches - lost) / launches < settings.min_recorded:
        raise ThresholdError(
            f"{name}: {lost} of {counted(launches, 'kernel launch')} {verb(launches, 'has', 'have')} no kernel in "
            "the trace, so "
            f"{percent_text((launches - lost) / launches)} are recorded, below --min-recorded {settings.min_recorded:g}"
        )
    if settings.strict:
        problems = list(summary.get("self_check", []))
        if summary["dropped_against_time"]:
            problems.append(f"edges against time dropped: {summary['dropped_against_time']}")
        if lost:
            problems.append(
                f"{lost} of {counted(launches, 'kernel launch')} {verb(launches, 'has', 'have')} no "
                "kernel in the trace"
            )
        if attaching["kinds_of_repeated_ids"]:
            problems.append("ids that should be unique are there several times")
        if alike := attaching["communication_as_computing"]:
            problems.append(
                f"{counted(alike, 'kernel')} that {verb(alike, 'looks', 'look')} like communication "
                f"{verb(alike, 'is', 'are')} kept as computing"
            )
        if problems:
            raise ThresholdError(f"{name}: --strict: {'; '.join(problems)}")
