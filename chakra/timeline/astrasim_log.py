"""ASTRA-sim's issue and callback lines (its debug log, with or without the bracketed prefix) as a
timeline."""

import re
import zlib
from dataclasses import dataclass, field
from fractions import Fraction

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.et import NodeType, Trace
from chakra.io.digits import exact_number, whole_number
from chakra.io.files import PathLike, open_stream
from chakra.io.limits import MAX_LINE_BYTES
from chakra.io.readable import counted, verb
from chakra.timeline.document import from_document
from chakra.timeline.kinds import type_of
from chakra.timeline.model import Timeline

# Names may hold commas and equal signs: everything between the fourth "=" and the closing node->type is the
# name.
_LINE = re.compile(
    r"(?:\[[^\]]*\]\s*)*(?P<word>issue|callback)\s*,[^=]*=\s*(?P<npu>[0-9]+)\s*,[^=]*=\s*(?P<tick>[0-9]+)\s*,"
    r"[^=]*=\s*"
    r"(?P<id>[0-9]+)\s*(?:,[^=]*=\s?(?P<name>.*?))?(?:,\s*node->type=(?P<type>[0-9]+)\s*)?$"
)
_HEAD = re.compile(r"\s*(\[[^\]\n\"{]*\]\s*){2,}[^\s\[\]{}\",]|\s*(issue|callback)\s*,")
_FREQUENCY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(MHz|GHz)?\s*$", re.IGNORECASE)


@dataclass(slots=True)
class LogRead:
    """What a log held: the timeline, and what was odd about the log.

    Attributes
    ----------
    timeline
        The timeline.
    remarks
        What was odd, a line each.
    """

    timeline: Timeline
    remarks: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Rank:
    ids: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    issue: list[int] = field(default_factory=list)
    finish: list[int] = field(default_factory=list)
    running: dict[int, int] = field(default_factory=dict)


@checked
def read_log(
    path: PathLike,
    *,
    npus: int | None = None,
    mhz: Fraction = Fraction(1000),
    traces: dict[int, Trace] | None = None,
) -> LogRead:
    """Read issue and callback lines; other lines of the log are passed over.

    Parameters
    ----------
    path
        The log file.
    npus
        Number of NPUs, if it is to be checked.
    mhz
        Clock of the ticks in MHz; 1000 means that a tick is a nanosecond.
    traces
        The traces that ran, by rank, for arrows between ranks.

    Raises
    ------
    UsageError
        If there is no such line, a line is cut or names an NPU beyond ``npus``.
    """
    ranks: dict[int, _Rank] = {}
    stray = 0
    last = 0
    scale = Fraction(1000) / mhz
    try:
        with open_stream(path, error=UsageError) as file:
            for number, raw in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
                if len(raw) == MAX_LINE_BYTES:
                    raise UsageError(f"{path}: line {number}: longer than {MAX_LINE_BYTES} bytes: not a log")
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                if "issue" not in line and "callback" not in line:
                    continue
                match = _LINE.match(line)
                if match is None:
                    _refuse_cut(line, path, number)
                    continue
                npu, tick = whole_number(match["npu"]), round(whole_number(match["tick"]) * scale)
                if npus is not None and npu >= npus:
                    raise UsageError(f"{path}: line {number}: sys {npu}, but --num_npus is {npus}")
                if tick >= 2**62:
                    raise UsageError(f"{path}: line {number}: tick {match['tick']} is out of range")
                last = max(last, tick)
                stray += _take(ranks.setdefault(npu, _Rank()), match, tick)
    except (OSError, EOFError, zlib.error) as cause:
        raise UsageError(f"{path}: cannot be read: {cause}") from cause
    if not ranks:
        raise UsageError(
            f"{path}: no issue or callback line; ASTRA-sim writes them to log.log when system.json has "
            f'"trace-enabled": 1'
        )
    open_nodes = sum(len(rank.running) for rank in ranks.values())
    for rank in ranks.values():
        rank.finish = [
            max(end, start) if end >= 0 else last for start, end in zip(rank.issue, rank.finish, strict=True)
        ]
    document = {
        "nodes": [
            {
                "npu": npu,
                "ids": r.ids,
                "names": r.names,
                "kinds": r.kinds,
                "issue_ns": r.issue,
                "finish_ns": r.finish,
            }
            for npu, r in sorted(ranks.items())
        ]
    }
    result = LogRead(from_document(document, traces=traces, source=str(path)))
    if stray:
        result.remarks.append(
            f"{counted(stray, 'callback line')} {verb(stray, 'has', 'have')} no issue line (ASTRA-sim's log "
            "rotation loses lines); left out"
        )
    if open_nodes:
        result.remarks.append(
            f"{counted(open_nodes, 'node')} {verb(open_nodes, 'has', 'have')} no callback line; drawn to the end of "
            "the log"
        )
    return result


def is_log(path: PathLike) -> bool:
    """Whether a file begins with a log line: bracketed fields and a message, or issue or callback at once.

    Raises
    ------
    UsageError
        If the file cannot be read.
    """
    try:
        with open_stream(path, error=UsageError) as file:
            return bool(_HEAD.match(file.read(4096).decode("utf-8", "replace")))
    except (OSError, EOFError, zlib.error) as cause:
        raise UsageError(f"{path}: cannot be read: {cause}") from cause


def _take(rank: _Rank, match: re.Match[str], tick: int) -> int:
    """Take one line in; 1 if it is a callback that nothing was issued for."""
    node = whole_number(match["id"])
    if match["word"] == "issue":
        name = match["name"] or f"node {node}"
        rank.running[node] = len(rank.ids)
        rank.ids.append(node)
        rank.names.append(name)
        # Old logs have no node->type: there the name tells, as upstream's visualizer has it.
        rank.kinds.append(match["type"] or str(int(type_of(name))))
        rank.issue.append(tick)
        rank.finish.append(-1)
        return 0
    at = rank.running.pop(node, None)
    if at is None:
        return 0 if match["type"] in (str(int(NodeType.INVALID)), str(int(NodeType.METADATA))) else 1
    rank.finish[at] = tick
    return 0


def _refuse_cut(line: str, path: PathLike, number: int) -> None:
    if re.match(r"(?:\[[^\]]*\]\s*)*(issue|callback)\s*,", line):
        raise UsageError(
            f"{path}: line {number}: expected issue or callback, then sys->id=, tick=, node->id=, node->"
            f"name=; found {line[:80]!r}"
        )


def parse_frequency(text: str) -> Fraction:
    """A clock in MHz from ``1000``, ``1000MHz`` or ``1.5GHz``.

    Raises
    ------
    UsageError
        If it is no positive frequency.
    """
    match = _FREQUENCY.match(text)
    if match and len(match[1]) < 20:
        value = Fraction(exact_number(match[1])) * (1000 if (match[2] or "").lower() == "ghz" else 1)
        if value > 0:
            return value
    raise UsageError(f"--npu_frequency {text}: expected a number of MHz, such as 1000, or 1.5GHz")
