"""Recordings of PyTorch (host trace, Kineto trace) made anew from the keys that `chakra convert pytorch` reads.

Names stay where they are words of a closed list that the conversion goes by (collectives, waits of the host, profiler
steps); all others become classes. Both files of a rank must see the same `Labels`, for names match them.
"""

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from chakra.anonymize.labels import MAX_APART_NS, Labels
from chakra.converters.pytorch.comm.operations import COLLECTIVES, NOT_COMMUNICATION, dtype_bytes, normalise
from chakra.converters.pytorch.read.ascend import FLOW
from chakra.converters.pytorch.read.columns import to_integer
from chakra.converters.pytorch.read.device import CALL, CATEGORIES, COMMUNICATION, DEVICE, OP
from chakra.converters.pytorch.read.file_kinds import expect
from chakra.converters.pytorch.read.first_bytes import FileKind
from chakra.converters.pytorch.read.kernel_names import DEFAULT, LIBRARY
from chakra.converters.pytorch.read.split_sizes import rows_of
from chakra.converters.pytorch.time.sync import classify
from chakra.errors import ConversionError
from chakra.io import files
from chakra.io.digits import signed_whole_number, whole_number

#: words of collectives, all variants reduced
_WORDS = {*COLLECTIVES, *NOT_COMMUNICATION, "send", "recv", "coalesced"} - {""}
_FIXED = re.compile(
    r"record_param_comms|ProfilerStep#[0-9]{1,6}|## process_group:init ##"
    r"|\[pytorch\|profiler\|execution_(graph|trace)\|(process|thread)\]"
)
_CALLS = {
    "device": "cudaDeviceSynchronize", "stream": "cudaStreamSynchronize", "event": "cudaEventSynchronize",
    "wait": "cudaStreamWaitEvent", "record": "cudaEventRecord", "copy": "cudaMemcpyAsync",
}  # fmt: skip
_SYNCS = ("Stream Sync", "Event Sync", "Stream Wait Event", "Context Sync", "Device Sync")
#: collectives as NCCL's kernels are named
_LIBRARY_WORDS = {
    "allreduce": "AllReduce", "reducescatter": "ReduceScatter", "allgather": "AllGather", "alltoall": "SendRecv",
    "broadcast": "Broadcast", "reduce": "Reduce", "gather": "Gather", "scatter": "Scatter", "barrier": "Barrier",
}  # fmt: skip
_DEVICE = re.compile(r"(cpu|cuda|hip|xpu|meta|mps|hpu|mtia)(:[0-9]{1,3})?")
_TYPE_WORDS = {
    *(
        "Tensor",
        "GenericList",
        "Tuple",
        "Int",
        "Double",
        "Bool",
        "String",
        "Device",
        "None",
        "Object",
        "float",
        "double",
    ),
    *(
        "long",
        "int",
        "short",
        "signed",
        "unsigned",
        "char",
        "bool",
        "c10",
        "Half",
        "BFloat16",
        "complex",
        "Float8_e4m3fn",
    ),
    *("Float8_e5m2", "Scalar", "ScalarList", "TensorList"),
}
#: a list of sizes or ranks as text; an address or a date has other marks between its numbers
_NUMBERS = re.compile(r"\s*[\[(]?\s*[0-9]{1,19}(\s*,\s*[0-9]{1,19})*\s*,?\s*[\])]?\s*")
#: the same, cut by the profiler, which says no more
_CUT = re.compile(r"\[[0-9,\s]*(\.\.\.)?[0-9,\s]*\]")
_HOST_INTS = (
    *("id", "ctrl_deps", "parent", "rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid"),
    *(
        "in_msg_nelems",
        "out_msg_nelems",
        "global_rank_start",
        "global_rank_stride",
        "pg_size",
        "is_asynchronized_op",
    ),
)
_EVENT_INTS = (
    *(
        "External id",
        "correlation",
        "Record function id",
        "Ev Idx",
        "Sequence number",
        "Fwd thread id",
        "stream",
    ),
    *(
        "device",
        "context",
        "bytes",
        "wait_on_stream",
        "wait_on_cuda_event_record_corr_id",
        "wait_on_cuda_event_id",
    ),
    *(
        "event_id",
        "In msg nelems",
        "Out msg nelems",
        "Group size",
        "Global rank start",
        "Global rank stride",
        "Rank",
    ),
    *("Src Rank", "Dst Rank", "Seq"),
)
#: shares of a collective, which a replay needs: a list of sizes as text
_EVENT_SPLITS = ("In split size", "Out split size")
_DTYPE = re.compile(
    r"[A-Za-z]+[0-9]{0,2}|[Ff]loat8_?e[0-9]m[0-9][a-z]{0,4}"
    r"|c10::(Half|BFloat16|complex<(float|double)>|Float8_e[0-9]m[0-9][a-z]{0,4})"
)
_VERSION = re.compile(r"[0-9](\.[0-9]{1,2}){0,2}(-chakra\.[0-9](\.[0-9]{1,2}){0,2})?")
#: a clock that starts later is one that was read, us
_DAY_US = 86_400 * 10**6
#: digits behind the point of a time, us, that are kept: readers go to 3
_TIME_DIGITS = Decimal("1e-6")
#: rows of a device's events, which stand for device and stream where nothing else does
_MAX_ROW = 1 << 16


class Recordings:
    """Anonymous copies of the recordings of one job."""

    def __init__(self, labels: Labels) -> None:
        self.labels = labels

    def copy(self, source: str, target: Path, *, compress: bool) -> None:
        """Write the anonymous copy of one file.

        Raises
        ------
        ConversionError
            When the file is no host or Kineto trace, or damaged; linked traces are refused.
        """
        kind = expect(source, FileKind.HOST, FileKind.DEVICE)
        try:
            data = files.read_bytes(source, error=ConversionError).decode("utf-8-sig")
            document = json.loads(data, parse_float=Decimal)
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise ConversionError(f"{source}: {files.json_fault(error)}") from None
        try:
            out = self._host(document) if kind is FileKind.HOST else self._device(document, source)
        except (KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise ConversionError(f"{source}: not in the form that PyTorch writes: {error!r}") from None
        with files.atomic_bytes(target, compress=compress) as file:
            file.write(msgspec.json.Encoder(decimal_format="number").encode(out))

    # ------------------------------------------------------------------------------------------------ host

    def _host(self, document: dict[str, Any]) -> dict[str, object]:
        schema = str(document.get("schema", ""))
        nodes = [self._host_node(node) for node in document["nodes"] if isinstance(node, dict)]
        return {"schema": schema if _VERSION.fullmatch(schema) else "", "nodes": nodes}

    def _host_node(self, node: dict[str, Any]) -> dict[str, object]:
        name = self._name(node.get("name"))
        comm = name == "record_param_comms" or name.startswith(COMMUNICATION)
        out = {"name": name, **_integers(node, _HOST_INTS)}
        values = node.get("inputs")
        if name == "## process_group:init ##":
            texts = values.get("values") if isinstance(values, dict) else values
            groups = [self._groups_text(text) for text in texts or () if isinstance(text, str)]
            if isinstance(values, dict):
                out["inputs"] = {"values": groups, "shapes": [[]], "types": ["String"]}
            else:
                out |= {"inputs": groups, "input_shapes": [[]], "input_types": ["String"]}
        else:
            out |= self._io(node, "inputs", comm=comm)
        out |= self._io(node, "outputs", comm=comm)
        if isinstance(node.get("attrs"), list):
            out["attrs"] = [kept for attr in node["attrs"] if (kept := self._attr(attr)) is not None]
        return out

    def _io(self, node: dict[str, object], side: str, *, comm: bool) -> dict[str, object]:
        given = node.get(side)
        if side == "inputs" and node.get("name") == "## process_group:init ##":
            return {}
        if isinstance(given, dict):
            return {
                side: {
                    "values": self._values(given.get("values", []), comm=comm),
                    "shapes": _shapes(given.get("shapes", [])),
                    "types": _types(given.get("types", [])),
                }
            }
        if given is None:
            return {}
        one = side.removesuffix("s")
        return {
            side: self._values(given, comm=comm),
            f"{one}_shapes": _shapes(node.get(f"{one}_shapes", [])),
            f"{one}_types": _types(node.get(f"{one}_types", [])),
        }

    def _values(self, value: object, *, comm: bool) -> object:
        """Tensors (ids, sizes, device) stay; other values only where they describe communication."""
        if isinstance(value, list):
            if len(value) == 6 and isinstance(value[5], str):
                device = value[5] if _DEVICE.fullmatch(value[5]) else ""
                return [*(item if _is_integer(item) else 0 for item in value[:5]), device]
            return [self._values(item, comm=comm) for item in value]
        if isinstance(value, str):
            return (_collective(value) or self.labels.group(value)) if comm else ""
        return value if comm and (value is None or isinstance(value, bool | int)) else 0

    def _attr(self, attr: object) -> dict[str, object] | None:
        name, value = (attr.get("name"), attr.get("value")) if isinstance(attr, dict) else (None, None)
        if name in _HOST_INTS and _is_integer(value):
            kind = "int64" if name == "seq_id" else "uint64"
            return {"name": name, "type": kind, "value": value}
        text = self._text(str(name), value)
        return None if text is None else {"name": name, "type": "string", "value": text}

    def _text(self, name: str, value: object) -> str | None:
        """What is kept of a text attribute or argument; None if nothing is."""
        if not isinstance(value, str):
            return None
        if name in ("collective_name", "Collective name"):
            return _collective(value)
        if name == "dtype":
            return value if dtype_bytes(value) and len(value) < 24 and _known_dtype(value) else None
        if name in ("pg_name", "Process Group Name"):
            return self.labels.group(value)
        if name in ("in_split_size", "out_split_size", *_EVENT_SPLITS):
            rows = rows_of(value) if _NUMBERS.fullmatch(value) else ()
            return json.dumps(list(rows)) if rows else None
        if name == "Process Group Ranks":
            if _NUMBERS.fullmatch(value):
                return json.dumps([int(number) for number in re.findall(r"[0-9]+", value)])
            return "[...]" if _CUT.fullmatch(value) else None
        if name == "kernel_backend":
            return "triton" if value == "triton" else ""
        return None

    def _groups_text(self, text: str) -> str:
        try:
            items = json.loads(text)
        except ValueError:
            return "[]"
        kept = [
            {
                "pg_name": self.labels.group(str(item.get("pg_name", ""))),
                "ranks": [rank for rank in item.get("ranks") or () if _is_integer(rank)],
                **_integers(item, ("group_size", "group_count", "pg_size")),
            }
            for item in items
            if isinstance(item, dict)
        ]
        return json.dumps(kept)

    def _name(self, name: object) -> str:
        text = name if isinstance(name, str) else str(name)
        if text.startswith("## process_group:init"):
            return "## process_group:init ##"
        if _FIXED.fullmatch(text):
            return text
        for prefix in COMMUNICATION:
            if text.startswith(prefix):
                word = re.match(r"\s*(\w+)", text[len(prefix) :])
                known = _collective(word[1]) if word else None
                return prefix + (known or self.labels.label("node", text, "op"))
        return self.labels.node(text)

    # ---------------------------------------------------------------------------------------------- Kineto

    def _device(self, document: Any, source: str) -> dict[str, object]:
        head = document if isinstance(document, dict) else {}
        events = document["traceEvents"] if isinstance(document, dict) else document
        if any(isinstance(e, dict) and e.get("cat") == FLOW for e in events):
            raise ConversionError(
                f"{source}: Ascend's tasks have no category that could be kept; convert it, then anonymize the trace"
            )
        kept = [e for e in events if _is_work(e)]
        out: dict[str, object] = {"schemaVersion": 1}
        info = head.get("distributedInfo")
        if isinstance(info, dict):
            groups = [
                {
                    "pg_name": self.labels.group(str(item.get("pg_name", ""))),
                    "ranks": [rank for rank in item.get("ranks") or () if _is_integer(rank)],
                    **_integers(item, ("pg_size", "group_size")),
                }
                for item in info.get("pg_config") or ()
                if isinstance(item, dict)
            ]
            out["distributedInfo"] = {
                **_integers(info, ("rank", "world_size", "pg_count")),
                "pg_config": groups,
            }
        base = to_integer(head.get("baseTimeNanoseconds"), 0)
        shift, never_read = 0, False
        if kept:
            # A time is base + ts: the sums move, by whole microseconds, so that digits behind the point stay.
            whole = base - base % 1000
            # A clock that nobody read is at 0, and stays there.
            times = [int(e["ts"]) for e in kept if e["ts"] != 0] or [0]
            first = min(times)
            if first < _DAY_US and len(times) < len(kept):
                first = 0
            if (max(times) - first) * 1000 > MAX_APART_NS:
                raise ConversionError(
                    f"{source}: its times are more than 15 months apart, which tells a date"
                )
            moved = self.labels.instant(whole + first * 1000)
            new_base = moved - moved % 10**15 - 10**15 if base else 0
            shift = first - (moved - new_base) // 1000
            never_read = first > 0
            if base:
                out["baseTimeNanoseconds"] = new_base + base % 1000
        out["traceEvents"] = [
            self._event(event, 0 if never_read and event["ts"] == 0 else shift) for event in kept
        ]
        return out

    def _event(self, event: dict[str, Any], shift_us: int) -> dict[str, object]:
        category = str(event["cat"]).lower()
        given = event.get("args")
        given = given if isinstance(given, dict) else {}
        args: dict[str, object] = _integers(given, _EVENT_INTS)
        for name in ("Collective name", "dtype", "Process Group Name", "Process Group Ranks", *_EVENT_SPLITS):
            text = self._text(name, given.get(name))
            if text is not None:
                args[name] = text
        if given.get("cuda_sync_kind") in _SYNCS:
            args["cuda_sync_kind"] = given["cuda_sync_kind"]
        if "Input Dims" in given:
            args["Input Dims"] = _shapes(given["Input Dims"])
            args["Input type"] = _types(given.get("Input type", []))
        return {
            "ph": "X",
            "cat": category,
            "name": self._event_name(category, event.get("name")),
            "pid": self._row("process", event.get("pid"), category),
            "tid": self._row("thread", event.get("tid"), category),
            "ts": _time(event["ts"] - shift_us),
            "dur": _time(event["dur"]) if _is_number(event.get("dur")) else 0,
            "args": args,
        }

    def _event_name(self, category: str, name: object) -> str:
        text = str(name)
        if "runtime" in category or "driver" in category:
            if "query" in text.lower():
                return "cudaEventQuery"
            kind = classify(text)
            return _CALLS[kind] if kind is not None else self.labels.label("call", text)
        if "sync" in category:
            return text if text in _SYNCS else "sync"
        if CATEGORIES.get(category) == DEVICE:
            kind = DEFAULT.kind(text)
            if kind or LIBRARY.search(text):
                return f"ncclDevKernel_{_LIBRARY_WORDS.get(kind or '', 'Generic')}"
        return self._name(text)

    def _row(self, kind: str, value: object, category: str) -> int:
        """Process or thread: the system's numbers become others; a device's row says which device and stream it is."""
        text = str(value)
        if CATEGORIES[category] not in (OP, CALL) and re.fullmatch(r"[0-9]{1,5}", text):
            number = whole_number(text)
            if number < _MAX_ROW:
                return number
        return self.labels.number(kind, text) + (0 if CATEGORIES[category] in (OP, CALL) else _MAX_ROW)


def _is_integer(value: object) -> bool:
    """A whole number that a reader takes: 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 64


def _is_number(value: object) -> bool:
    return _is_integer(value) or (
        isinstance(value, Decimal) and value.is_finite() and -30 < value.adjusted() < 20
    )


def _time(value: int | Decimal) -> int | Decimal:
    """A time, us, with no more digits than the picosecond."""
    exponent = value.as_tuple().exponent if isinstance(value, Decimal) else 0
    return value.quantize(_TIME_DIGITS) if isinstance(exponent, int) and exponent < -6 else value  # type: ignore[union-attr]


def _is_work(event: object) -> bool:
    """Whether the conversion reads an event; arrows, counters, Python frames and row names stay home."""
    return (
        isinstance(event, dict)
        and event.get("ph") == "X"
        and isinstance(event.get("cat"), str)
        and event["cat"].lower() in CATEGORIES
        and _is_number(event.get("ts"))
        and event["ts"] >= 0
    )


def _integers(given: dict[str, object], names: tuple[str, ...]) -> dict[str, object]:
    """Whole numbers of known keys; text that is one becomes one."""
    out = {}
    for name in names:
        value = given.get(name)
        if isinstance(value, bool) or _is_integer(value):
            out[name] = value
        elif isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
            out[name] = signed_whole_number(value)
    return out


def _collective(text: str) -> str | None:
    """A collective's word, if it is one; case and marks of variants stay within what is known."""
    return text if re.fullmatch(r"[A-Za-z_]{1,48}", text) and normalise(text) in _WORDS else None


def _known_dtype(text: str) -> bool:
    return _DTYPE.fullmatch(text) is not None


def _shapes(value: object) -> object:
    if isinstance(value, list):
        return [_shapes(item) for item in value]
    return value if _is_integer(value) else 0


def _types(value: object) -> object:
    if isinstance(value, list):
        return [_types(item) for item in value]
    words = re.findall(r"\w+", value) if isinstance(value, str) else ["?"]
    plain = re.fullmatch(r"[\w\s:<>(),\[\]]*", value) if isinstance(value, str) else None
    return value if plain and set(words) <= _TYPE_WORDS else "Object"
