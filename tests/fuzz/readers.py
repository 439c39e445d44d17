"""Every reader of files from outside, each as one function of a path: it returns, or raises a ChakraError.

Nothing here knows a fuzzer: `run.py` drives these functions by coverage, the tests replay what was found.
"""

import gzip
import io
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import leaks
import numpy as np

from chakra.anonymize import Labels, anonymous_trace
from chakra.calibrate import CostModel, calibrate, read_log
from chakra.converters.astra_config import convert_config
from chakra.converters.msccl import load_msccl
from chakra.converters.pytorch.job import Inputs, Settings, convert_rank
from chakra.converters.pytorch.read.host import read_host_trace
from chakra.converters.text import load_text
from chakra.errors import ChakraError, UsageError
from chakra.et import _decode_kernel, codec, decode_protobuf, jsonize, read_trace, write_trace
from chakra.et.columns import Columns, StringPool
from chakra.et.manifest import read_manifest
from chakra.et.read import decode_trace
from chakra.et.trace_summary import summarize
from chakra.et.wire import make_records
from chakra.io import files
from chakra.io.yaml import read_document
from chakra.platforms import load_platform
from chakra.replay.checks.run import check_workload
from chakra.replay.config import load_groups, load_memory, load_network, load_system
from chakra.replay.config.model import Topology
from chakra.replay.config.npu_scale import load_npu_scale
from chakra.replay.topologies import import_infragraph
from chakra.replay.workload.custom import custom_program, load_per_node
from chakra.report.document import read_run
from chakra.report.page import report_html
from chakra.report.terminal import essence
from chakra.sweep.study import load_study
from chakra.timeline.astrasim_log import is_log
from chakra.timeline.astrasim_log import read_log as read_astrasim_log
from chakra.timeline.chrome import chrome_pieces
from chakra.timeline.document import from_document
from chakra.timeline.kineto import read_kineto
from chakra.timeline.perfetto import perfetto_pieces
from chakra.viz.graph.source import read_graph

#: CPU seconds that no input may take.
SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Reader:
    """A harness: what to run, the input file's suffix, and its form (see `mutations`)."""

    name: str
    form: str
    suffix: str
    run: Callable[[Path], Any]
    #: a message names one of these
    named: tuple[str, ...] = ("input",)


class PropertyError(AssertionError):
    """A reader broke its promise: a result, or one line that names the file."""


def check(reader: Reader, data: bytes, folder: Path) -> str | None:
    """Run a reader on these bytes; the message if it refused them.

    Raises
    ------
    PropertyError
        The message is not one printable line, or does not name the file.
    Exception
        Whatever else the reader let out: a finding.
    """
    path = folder / f"input{reader.suffix}"
    path.write_bytes(data)
    try:
        reader.run(path)
    except ChakraError as error:
        message = str(error)
        if not message.isprintable() or not message:
            raise PropertyError(f"not one printable line: {message!r}") from error
        if not any(word in message for word in (*reader.named, str(folder))):
            raise PropertyError(f"does not name the file: {message!r}") from error
        if len(message) > 2000:
            raise PropertyError(f"a line of {len(message)} characters: {message[:200]!r}") from error
        return message
    return None


def expect(condition: object, what: str) -> None:
    """Fail with `PropertyError` unless ``condition`` holds."""
    if not condition:
        raise PropertyError(what)


# ------------------------------------------------------------------------------------- execution traces


def _same(a: Columns, b: Columns) -> None:
    for name, value in vars(a).items():
        other = getattr(b, name)
        if isinstance(value, np.ndarray):
            expect(np.array_equal(value, other), f"column {name} differs between kernel and protobuf")
        elif isinstance(value, StringPool):
            expect(value.strings == other.strings, f"strings {name} differ between kernel and protobuf")
        else:
            expect(value == other, f"{name} differs between kernel and protobuf")


def _verdict(decode: Callable[[], Columns]) -> Columns | str:
    try:
        return decode()
    except ChakraError as error:
        return str(error)


def decoders(path: Path) -> None:
    """The kernel (as plain Python) and the protobuf library decode alike and refuse alike."""
    data = np.frombuffer(path.read_bytes(), np.uint8)
    starts, ends, broken = _decode_kernel.frame_records(codec.readable(data))
    try:
        bounds = codec.frame(data, str(path))
    except ChakraError as error:
        expect(broken >= 0, f"the kernel frames what the reader refuses: {error}")
        raise
    expect(broken < 0, "the kernel refuses framing that the reader takes")
    expect(np.array_equal(starts, bounds[0]) and np.array_equal(ends, bounds[1]), "framing differs")
    records = make_records(data, *bounds, str(path))
    expected = _verdict(lambda: decode_protobuf.decode(records, str(path)))
    got = _verdict(lambda: codec.decode_compiled(_decode_kernel, records, str(path)))
    if isinstance(expected, str):
        # Text and messages without a column are looked at by protobuf only, on demand.
        expect(got == expected or "is not a Node message" in expected, f"verdicts differ: {expected}")
    elif isinstance(got, str):
        raise PropertyError(f"the kernel refuses what protobuf reads: {got}")
    else:
        _same(expected, got)


def trace(path: Path) -> None:
    """Reading, and what every command does next: summary, checks, writing back byte for byte."""
    read = read_trace(path)
    data = path.read_bytes()
    summarize(read)
    check_workload([read], {}, 1)
    out = path.with_name("out.et")
    write_trace(read, out)
    if data[:2] != files.GZIP_MAGIC and files.kind_of(data[: 1 << 16]) != files.JSON_ET:
        expect(out.read_bytes() == data, "written back with other bytes")
    anonymous_trace(read, Labels())


def repaired(path: Path) -> None:
    """Reading with repairs, for drawing; what was repaired is then readable as it is."""
    read_graph(path)
    out = path.with_name("repaired.et")
    write_trace(read_trace(path, repair=True), out)
    read_trace(out)


def packed(path: Path) -> None:
    """A trace in gzip, whatever is inside."""
    read_trace(path)


def packed_inside(path: Path) -> None:
    """The same bytes, packed here: gzip must not be what stops the fuzzer."""
    path.write_bytes(gzip.compress(path.read_bytes(), 1))
    read_trace(path)


def jsonized(path: Path) -> None:
    """JSON back to a trace; if that is one, to JSON and back without loss."""
    data = jsonize.trace_bytes(path.read_bytes(), str(path))
    decode_trace(np.frombuffer(data, np.uint8), str(path))
    text = io.StringIO()
    jsonize.write_json(data, str(path), text)
    expect(jsonize.trace_bytes(text.getvalue().encode(), str(path)) == data, "jsonize loses something")


def custom(path: Path) -> None:
    """A trace as one member's part of a custom collective."""
    custom_program(read_trace(path), 4, astra=False)


# ------------------------------------------------------------------------------------- configurations


def network(path: Path) -> None:
    """Network files, as this project and as ASTRA-sim reads them."""
    load_network(path)
    load_network(path, compat="astra-sim")


def system(path: Path) -> None:
    """System files in both readings."""
    load_system(path, compat="astra-sim")
    load_system(path)


def memory(path: Path) -> None:
    """Memory files."""
    load_memory(path, compat="astra-sim")
    load_memory(path)


def groups(path: Path) -> None:
    """Communicator groups, and their anonymous form."""
    load_groups(path, npus=16)
    load_groups(path, compat="astra-sim", npus=16)


def per_node(path: Path) -> None:
    """The map from nodes to custom collectives."""
    load_per_node(str(path), load_system({}))


# ------------------------------------------------------------------------------------- converters


def text(path: Path) -> None:
    """Text workloads, as 1.0 and as upstream's converter reads them."""
    try:
        load_text(path, npus=8, passes=2, network_dims=[2, 4])
    except ChakraError:
        load_text(path, npus=8, passes=2, compat="chakra")
        raise


def host(path: Path) -> None:
    """PyTorch host traces, also broken ones."""
    try:
        read_host_trace(path)
    except ChakraError:
        read_host_trace(path, repair=True)


#: what was matched is no fault of a reader
LAX = Settings(min_matched=0.0, min_attached=0.0, min_recorded=0)
LAX_REPAIR = Settings(min_matched=0.0, min_attached=0.0, min_recorded=0, repair=True)


def device(path: Path) -> None:
    """Kineto traces alone, also broken ones, to an execution trace."""
    out = path.with_name("out.et")
    try:
        convert_rank(Inputs(device=path), out, LAX)
    except ChakraError:
        convert_rank(Inputs(device=path), out, LAX_REPAIR)


def linked(path: Path) -> None:
    """Linked traces, to an execution trace."""
    convert_rank(Inputs(linked=path), path.with_name("out.et"), LAX)


def paired(path: Path) -> None:
    """Host and device trace of one job, in one document: ``{"host": ..., "device": ...}``."""
    document = files.read_json(path)
    parts = []
    for key in ("host", "device"):
        part = path.with_name(f"input.{key}.json")
        part.write_text(json.dumps(document.get(key) if isinstance(document, dict) else document))
        parts.append(part)
    convert_rank(Inputs(host=parts[0], device=parts[1]), path.with_name("out.json"), LAX)
    convert_rank(Inputs(linked=path.with_name("out.json")), path.with_name("out.et"), LAX)


# ------------------------------------------------------------------------------------- results and logs


def result(path: Path) -> None:
    """Result documents: report, terminal and both timelines."""
    run = read_run(path)
    essence(run)
    report_html([run, run])
    document: Any = files.read_json(path)
    drawn = from_document(document, source=str(path))
    for _ in chrome_pieces(drawn):
        pass
    for _ in perfetto_pieces(drawn):
        pass


def kineto_timeline(path: Path) -> None:
    """Kineto traces as timelines."""
    drawn = read_kineto([path])
    for _ in chrome_pieces(drawn):
        pass


def astrasim_log(path: Path) -> None:
    """ASTRA-sim's logs as timelines."""
    is_log(path)
    read = read_astrasim_log(path)
    for _ in chrome_pieces(read.timeline):
        pass


def nccl_log(path: Path) -> None:
    """Logs of nccl-tests and rccl-tests, fitted."""
    found = read_log(path)
    calibrate(found, CostModel(Topology.SWITCH, "ring", 1, 0.0))


def study(path: Path) -> None:
    """Study files and their first points."""
    read = load_study(path)
    if read.method.kind != "optuna":
        for point in itertools.islice(read.points(), 50):
            read.merged(point)


def platform(path: Path) -> None:
    """Machine presets and the files made from them."""
    read = load_platform(str(path))
    try:
        made = read.sized(machines=2)
    except UsageError:  # a machine without scale-out network
        made = read
    made.network()
    made.system()


def anonymized(path: Path) -> None:
    """Every format that `anonymize` takes with a secret in its fields: refused, or gone from the copy."""
    found = leaks.search(files.read_json(path), path.parent)
    expect(not found, f"leaks: {found[:1]}")


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader("et-decoders", "et", ".et", decoders),
        Reader("et", "et", ".et", trace),
        Reader("et-repair", "et", ".et", repaired),
        Reader("et-gz", "bytes", ".et.gz", packed),
        Reader("et-in-gz", "et", ".et.gz", packed_inside),
        Reader("et-json", "json", ".json", trace),
        Reader("jsonize", "json", ".json", jsonized),
        Reader("custom-collective", "et", ".et", custom),
        Reader("text", "words", ".txt", text),
        Reader("network", "yaml", ".yml", network),
        Reader("network-graphml", "words", ".graphml", network),
        Reader("infragraph", "json", ".json", import_infragraph),
        Reader("network-old", "json", ".json", convert_config),
        Reader("system", "json", ".json", system),
        Reader("system-old", "words", ".txt", convert_config),
        Reader("msccl", "words", ".xml", load_msccl),
        Reader("memory", "json", ".json", memory),
        Reader("groups", "json", ".json", groups),
        Reader("per-node", "yaml", ".yml", per_node),
        Reader("npu-scale", "words", ".txt", lambda path: load_npu_scale(path, 16)),
        Reader("study", "yaml", ".yml", study),
        Reader("platform", "yaml", ".yml", platform),
        Reader("yaml", "words", ".yml", lambda path: read_document(path)),
        Reader("manifest", "json", ".json", read_manifest),
        Reader("host", "json", ".json", host),
        Reader("kineto", "json", ".json", device),
        Reader("linked", "json", ".json", linked),
        Reader("paired", "json", ".json", paired),
        Reader("timeline-kineto", "json", ".json", kineto_timeline),
        Reader("timeline-log", "words", ".log", astrasim_log),
        Reader("nccl-log", "words", ".log", nccl_log),
        Reader("anonymize", "json", ".case.json", anonymized),
        Reader("result", "json", ".json", result),
        Reader("kinds", "bytes", "", lambda path: files.sniff_kind(os.fspath(path))),
    )
}
