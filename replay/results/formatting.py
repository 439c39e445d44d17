"""A replay result as text, CSV, Parquet or JSON.

Input is the result document (``ReplayResult.to_dict``), so that stored results print like fresh ones.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chakra.alignment import aligned
from chakra.errors import UsageError
from chakra.et.memory_need import need_entry, need_in_words
from chakra.io.documents import json_text, lined_text
from chakra.io.markup import element, nested
from chakra.io.readable import (
    beside_prediction,
    count_text,
    counted,
    counted_text,
    duration_text,
    figure_text,
    grouped_text,
    nouns,
    percent_figure,
    percent_text,
    price_text,
)
from chakra.replay.config.model import LinkTopology
from chakra.replay.results.beaten import busy_remark, why_faster
from chakra.replay.results.corrections import OF_TIME
from chakra.replay.results.pipeline import bubble_in_words, pipeline_entry

if TYPE_CHECKING:
    from chakra.replay.results.result import ReplayResult

Document = Mapping[str, Any]


#: name in the document, words in the summary
_ACCOUNT = (
    ("compute_ns", "GPU compute"),
    ("cpu_ns", "CPU only"),
    ("transfer_ns", "transfer"),
    ("waiting_ns", "waiting for peers"),
    ("memory_ns", "remote memory"),
    ("idle_ns", "idle"),
)
#: what waiting for peers is, which is a part of exposed communication
WAITING = (
    "no data moves: the peer has not come yet (it computes or waits itself: pipeline bubbles, uneven work)"
)
#: what transfer is called where recorded times do not tell it from the waits for peers
WAITS_INSIDE = "communication, waiting included"
#: what sums over messages are not
SUMS_OF_MESSAGES = "sums over messages that overlap (receives are posted early), no part of the run's time"
#: rows of a table in the text summary; the JSON document has them all
_MAX_ROWS = 20
#: different bandwidths of a dimension that its line names one by one
_MOST_SPEEDS = 3
#: NPUs whose finish lines stand above a summary without being asked for
_MAX_FINISH_LINES = 16


def essential(result: "ReplayResult", *, summary: bool) -> dict[str, Any]:
    """The part of a result's document that `format_text` and rows per NPU need, without the costly rest.

    Parameters
    ----------
    summary
        also what the text's summary shows
    """
    document: dict[str, Any] = {
        "backend": result.options.backend,
        "compat": result.options.compat,
        "partial": result.partial,
        "finish_ns": result.finish_ns.tolist(),
        "exposed_comm_ns": result.exposed_comm_ns.tolist(),
        "warnings": list(result.warnings),
    }
    if summary:
        document["notes"] = result.notes
        document |= need_entry(result.memory_need, result.system.local_mem_capacity_bytes)
        document["corrections"] = result.corrections
        document["account"] = {name: values.tolist() for name, values in result.account.items()}
        document |= pipeline_entry(result.pipeline)
        document |= {"waits_in_transfer": True} if result.waits_in_transfer else {}
        document["collectives"] = result.collectives
        document["messages"] = result.messages
        document["dimensions"] = result.dimensions
        links = result.network.links
        facts = {} if links is None else links.facts
        system = {"replay_only": result.system.replay_only}
        document["inputs"] = {"network": {"dims": result.dimensions, **facts}, "system": system}
    return document


def takes_recorded_times(document: Document) -> bool:
    """Whether a result's communication took its recorded times, so that nothing is known of what networks carried."""
    inputs = document.get("inputs")
    system = inputs.get("system") if isinstance(inputs, Mapping) else None
    return isinstance(system, Mapping) and system.get("replay_only") is True


def format_json(document: Document) -> str:
    """The document as strict JSON, one line per top-level key."""
    return lined_text(document, line=json_text)


def table(document: Document) -> tuple[list[str], Iterator[list[Any]]]:
    """Header and rows of the tabular forms: one row per node if the document has nodes, else one per NPU; ns."""
    if "nodes" in document:
        header = ["npu", "node", "name", "kind", "engine", "issue_ns", "finish_ns"]
        keys = ("ids", "names", "kinds", "engines", "issue_ns", "finish_ns")
        return header, (
            [entry["npu"], *row]
            for entry in document["nodes"]
            for row in zip(*(entry[key] for key in keys), strict=True)
        )
    account = document.get("account") or {}
    keys_of_account = [key for key, _ in _ACCOUNT if key in account]
    columns = [
        document["finish_ns"],
        document["exposed_comm_ns"],
        *(account[key] for key in keys_of_account),
    ]
    rows = ([npu, *row] for npu, row in enumerate(zip(*columns, strict=True)))
    return ["npu", "finish_ns", "exposed_comm_ns", *keys_of_account], rows


def rows_of(document: Document) -> list[dict[str, Any]]:
    """The rows of `table` as dicts."""
    header, rows = table(document)
    return [dict(zip(header, row, strict=True)) for row in rows]


def format_csv(document: Document) -> str:
    """One row per NPU, or one row per node if the document has nodes; times in ns."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    header, rows = table(document)
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()


def write_parquet(document: Document, path: str) -> None:
    """The table of `format_csv` as a Parquet file.

    Raises
    ------
    UsageError
        When pyarrow, the extra `parquet`, is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "--format parquet needs pyarrow: pip install 'chakra-replay[parquet]'; or use --format csv"
        ) from None
    from chakra.io.files import atomic_bytes

    header, rows = table(document)
    columns = list(zip(*rows, strict=True)) or [()] * len(header)
    with atomic_bytes(path) as target:
        pyarrow.parquet.write_table(
            pyarrow.table({name: list(values) for name, values in zip(header, columns, strict=True)}), target
        )


def format_text(document: Document, *, summary: bool = True, per_npu: bool = False) -> str:
    """ASTRA-sim's finish lines, then a summary that states units.

    Parameters
    ----------
    summary
        False leaves only the finish lines
    per_npu
        with a summary: finish lines also of more than 16 NPUs, whose first and last the summary names
    """
    lines: list[str] = []
    if per_npu or not summary or len(document["finish_ns"]) <= _MAX_FINISH_LINES:
        lines += [*finish_lines(document), ""]
    if summary:
        lines.extend(_summary(document))
    else:
        lines.pop()
    return "\n".join(lines) + "\n"


def format_summary(document: Document) -> str:
    """The summary below the finish lines."""
    return "\n".join(_summary(document))


def format_html(summary: str, npus: Sequence[Mapping[str, Any]]) -> str:
    """A summary and the rows of the first NPUs as HTML, for notebooks."""
    shown = npus[:_MAX_ROWS]
    right = {"style": "text-align:right"}
    head = "".join(element("th", name) for name in (shown[0] if shown else ()))
    body = "".join(
        nested("tr", "".join(element("td", f"{value:,}", right) for value in row.values())) for row in shown
    )
    rows = nested("table", nested("thead", nested("tr", head)) + nested("tbody", body))
    cut = len(npus) - len(shown)
    more = element("p", f"... and {counted_text(cut, 'more NPU')}") if cut else ""
    return nested("div", element("pre", summary) + rows + more)


def finish_lines(document: Document) -> Iterator[str]:
    """The line that ASTRA-sim prints for each NPU that finished (1 cycle = 1 ns)."""
    for npu, (finish, exposed) in enumerate(
        zip(document["finish_ns"], document["exposed_comm_ns"], strict=True)
    ):
        if finish is not None and finish >= 0:
            # ASTRA-sim's count is unsigned: below zero it wraps
            yield (
                f"sys[{npu}] finished, {finish} cycles, exposed communication {exposed % (1 << 64)} cycles."
            )


def _summary(document: Document) -> Iterator[str]:
    finish = document["finish_ns"]
    last = max(range(len(finish)), key=finish.__getitem__)
    first = min(range(len(finish)), key=finish.__getitem__)
    spread = (
        ("the only NPU" if len(finish) == 1 else f"all {counted_text(len(finish), 'NPU')} at the same time")
        if finish[first] == finish[last]
        else f"NPU {last} last, NPU {first} first at {_time(finish[first])}"
    )
    yield f"finished after    {_time(finish[last])}: {spread}; 1 cycle = 1 ns"
    if document.get("partial"):
        yield "partial           some NPUs did not run to their end"
    if document.get("interval"):
        yield _interval(document["interval"], finish[last])
    yield from rates_in_words(document.get("rates") or {})
    if document.get("memory_need"):
        yield f"memory            {need_in_words(document['memory_need'])}"
    yield from _machine(document)
    yield from _account(document, last)
    if document.get("pipeline"):
        yield f"pipeline bubble   {bubble_in_words(document['pipeline'])}"
    yield from _collectives(document.get("collectives") or [], document.get("backend", "unaware"))
    yield from _messages(document.get("messages") or [])
    yield from _dimensions(document, carried=not takes_recorded_times(document))
    given = document.get("corrections") or {}
    corrections = {name: count for name, count in given.items() if count and name in OF_TIME}
    if corrections:
        listed = ", ".join(f"{name} {count_text(count)}x" for name, count in corrections.items())
        yield f"corrections       {listed}: ASTRA-sim differs here (docs/differences.md, --compat astra-sim)"


def rates_in_words(rates: Mapping[str, Any]) -> Iterator[str]:
    """What the step comes to in a second, as shares of the peak, and its costs."""
    parts = []
    if "tokens_per_s" in rates:
        each = rates["tokens_per_s_per_npu"]
        what = "output tokens/s" if "tpot_ms" in rates or "ttft_ms" in rates else "tokens/s"
        parts.append(f"{figure_text(rates['tokens_per_s'])} {what}, {figure_text(each)} of each NPU")
    if {"ttft_ms", "decode_tokens_per_s"} <= rates.keys():
        parts.append(f"{figure_text(rates['decode_tokens_per_s'])} while decoding")
    elif "samples_per_s" in rates:
        parts.append(f"{figure_text(rates['samples_per_s'])} samples/s")
    parts += [f"{name.upper()} {percent_text(rates[name])}" for name in ("mfu", "hfu") if name in rates]
    if parts:
        yield f"throughput        {'; '.join(parts)}"
    yield from _requests_in_words(rates)
    words = {
        "cost_per_hour": "an hour",
        "cost_per_step": "for this step",
        "cost_per_million_tokens": "per million tokens",
        "steady_cost_per_million_tokens": "per million tokens in steady state",
    }
    costs = [f"{price_text(rates[name])} {what}" for name, what in words.items() if name in rates]
    if costs:
        paid = (
            f" (of {counted_text(rates['paid_npus'], 'NPU')}, spare ones included)"
            if "paid_npus" in rates
            else ""
        )
        yield f"cost              {', '.join(costs)}{paid}"


def _requests_in_words(rates: Mapping[str, Any]) -> Iterator[str]:
    """Latencies of an inference's requests, and the steady state of halves that work on different batches."""
    words = {"ttft_ms": "time to first token", "tpot_ms": "time per output token"}
    times = [
        f"{what} {duration_text(round(rates[name] * 1e6))}" for name, what in words.items() if name in rates
    ]
    if times:
        yield f"requests          {', '.join(times)}"
    if "steady_samples_per_s" in rates:
        tokens = ""
        if "steady_tokens_per_s" in rates:
            tokens = f", {figure_text(rates['steady_tokens_per_s'])} output tokens/s"
        yield f"steady            {figure_text(rates['steady_samples_per_s'])} samples/s{tokens}"


def _interval(interval: Mapping[str, Any], predicted_ns: int) -> str:
    """Within which times the step is expected to be measured, and on what that rests."""
    if interval["low_ns"] is None:
        return f"interval          none: nothing measured is near ({interval['reason']})"
    units = (("s", 10**9), ("ms", 10**6), ("us", 10**3))
    unit, size = next((entry for entry in units if interval["low_ns"] >= entry[1]), ("ns", 1))
    ends = f"{interval['low_ns'] / size:.4g} to {interval['high_ns'] / size:.4g} {unit}"
    beside = beside_prediction(interval["low_ns"], interval["high_ns"], predicted_ns)
    differs = "".join(f"; {text}" for text in (*interval["differs"], beside) if text)
    rows = interval["rows"]
    nearest = f"{interval['family']}, {counted(rows, 'measured row')}{differs}"
    return f"{100 * interval['share']:g} % interval     {ends} ({nearest})"


def _machine(document: Document) -> Iterator[str]:
    network = (document.get("inputs") or {}).get("network") or {}
    words = {
        "unaware": "links are not shared: messages never slow each other down",
        "aware": "links are shared: messages queue, store and forward",
        "flow": "links are shared max-min fairly by flows",
        "ns3": "packets, by ns-3",
        "outside": "another package simulates every transfer",
    }
    for d, dim in enumerate(network.get("dims") or []):
        listed = dim["topology"] == LinkTopology.LINKS
        yield (
            f"{'network' if d == 0 else '':18}dim {d}: {dim['topology']} of {counted_text(dim['npus'], 'NPU')}, "
            f"{_speeds(dim, listed=listed)}, "
            f"{grouped_text(dim['latency_ns'])} ns {'a way' if listed else 'per hop'}"
        )
    if network.get("built_of"):
        yield f"{'':18}{built_in_words(network['built_of'])}"
    mode = document.get("compat")
    backend = document.get("backend", "unaware")
    yield f"backend           {backend} ({words.get(backend, 'plug-in')})"
    yield f"mode              {mode + ' (its answer, known errors included)' if mode else 'default (corrected)'}"
    for note in document.get("notes") or []:
        yield f"note              {note}"


def _speeds(dim: Mapping[str, Any], *, listed: bool) -> str:
    """Bandwidth of a dimension, with how many NPUs or links have which where they differ."""
    unit, noun = "GB/s (of 2^30 B/s)", "NPU" if listed else "link"
    where, rows = "out of" if listed else "on", dim.get("unequal") or []
    if not rows:
        return f"{grouped_text(dim['bandwidth_gibps'])} {unit} {'out of an NPU' if listed else 'per link and direction'}"
    if len(rows) > _MOST_SPEEDS:
        count = sum(row["count"] for row in rows)
        least, most = rows[-1]["bandwidth_gibps"], rows[0]["bandwidth_gibps"]
        ends = f"{grouped_text(least)} to {grouped_text(most)} {unit}"
        return f"{ends} {where} {counted_text(count, noun)} ({len(rows)} different ones)"
    first, *others = (
        (grouped_text(row["bandwidth_gibps"]), f"{where} {counted_text(row['count'], noun)}") for row in rows
    )
    return ", ".join([f"{first[0]} {unit} {first[1]}", *(f"{speed} {at}" for speed, at in others)])


def speeds_in_short(dim: Mapping[str, Any]) -> str:
    """Bandwidth of a row of dimensions, from the least to the most where they differ."""
    rows = dim.get("unequal") or [dim]
    return " to ".join(dict.fromkeys(grouped_text(row["bandwidth_gibps"]) for row in (rows[-1], rows[0])))


def built_in_words(parts: Mapping[str, Any]) -> str:
    """Switches of each level and cables of a fabric."""
    cables = counted_text(parts["cables"], "cable")
    if not parts["switches"]:
        return f"{cables} of {figure_text(parts['port_gbps'])} Gb/s between NPUs, no switches"
    levels = [f"{count_text(count)} {name}" for name, count in parts["switches"].items()]
    *others, last = levels
    listed = f"{', '.join(others)} and {last}" if others else last
    noun = nouns(sum(parts["switches"].values()), "switch")
    return (
        f"{listed} {noun} of {count_text(parts['ports'])} ports of {figure_text(parts['port_gbps'])} Gb/s, "
        + cables
    )


def _account(document: Document, npu: int) -> Iterator[str]:
    account = document.get("account") or {}
    total = document["finish_ns"][npu]
    words = dict(_ACCOUNT) | ({"transfer_ns": WAITS_INSIDE} if document.get("waits_in_transfer") else {})
    shares = [
        f"{words[key]} {count_text(account[key][npu])} ns ({percent_text(account[key][npu] / total)})"
        for key, _ in _ACCOUNT
        if key in account and account[key][npu]
    ]
    if shares and total:
        yield f"time of NPU {npu:<6}{', '.join(shares)}"
        if account.get("waiting_ns") and account["waiting_ns"][npu]:
            yield f"waiting           {WAITING}"


def ran_in_words(row: Mapping[str, Any]) -> str:
    """The algorithm of a row of collectives; of a library what it ran, as ``nccl NVLSTree/Simple``."""
    if "library_algorithm" not in row:
        return str(row.get("algorithm", ""))
    return f"{row['algorithm']} {row['library_algorithm']}/{row['library_protocol']}"


def members_in_words(members: int, exchanging: int | None) -> str:
    """How many members a collective has, and how many of them exchange data where these are fewer, as ``16 of 64``."""
    every = count_text(members)
    return every if exchanging is None else f"{count_text(exchanging)} of {every}"


def _taken(row: Mapping[str, Any]) -> tuple[int, int]:
    """How many collectives a row stands for, and what they take in all from the last member's start, ns."""
    count = row.get("count", 1)
    return count, row.get("total_transfer_ns", count * (row["end_ns"] - row["ready_ns"]))


def _mean_bound(rows: Sequence[Mapping[str, Any]], taken: Sequence[tuple[int, int]]) -> float | None:
    """Bound of collectives of one size, mean over all groups; None where one has none."""
    bounds = [row.get("bound_ns") for row in rows]
    known = [bound * count for bound, (count, _) in zip(bounds, taken, strict=True) if bound is not None]
    return sum(known) / sum(count for count, _ in taken) if len(known) == len(bounds) else None


def _mean_rate(rates: Sequence[float | None], taken: Sequence[tuple[int, int]]) -> float | None:
    """Bandwidth of collectives of one size, of those of each row with the time that they take."""
    known = [(rate, total) for rate, (_, total) in zip(rates, taken, strict=True) if rate is not None]
    time = sum(total for _, total in known)
    return sum(rate * total for rate, total in known) / time if time else None


def _alike(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str, int], list[Mapping[str, Any]]]:
    """Rows of collectives that the summary has in one: by kind, what ran, members and bytes."""
    merged: dict[tuple[str, str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        members = members_in_words(row["members"], row.get("exchanging"))
        merged.setdefault((row["kind"], ran_in_words(row), members, row["bytes"]), []).append(row)
    return merged


def _why_star(same: Sequence[Mapping[str, Any]], backend: str) -> str:
    """What a star at the bound of alike collectives means; empty where there is none."""
    taken = [_taken(row) for row in same]
    count, total = (sum(column) for column in zip(*taken, strict=True))
    library = "library_algorithm" in same[0]
    waited = any(row.get("total_ns", 0) > row.get("total_transfer_ns", 0) for row in same)
    bound = (_mean_bound(same, taken) or 0) * count
    return why_faster(total, bound, library=library, backend=backend, waited=waited)


def why_stars(rows: Sequence[Mapping[str, Any]], backend: str) -> list[str]:
    """What the stars at bounds of a result's collectives mean, as the summary says it; nothing without stars.

    Parameters
    ----------
    rows
        ``collectives`` of a result.
    backend
        Its backend.
    """
    return sorted({_why_star(same, backend) for same in _alike(rows).values()} - {""})


def _collectives(rows: Sequence[Mapping[str, Any]], backend: str) -> Iterator[str]:
    if not rows:
        return
    table = [
        [
            "collective",
            "algorithm",
            "NPUs",
            "bytes",
            "times",
            "mean ns",
            "algbw GB/s",
            "busbw GB/s",
            "bound ns",
        ]
    ]
    for (kind, algorithm, members, size), same in _alike(rows).items():
        taken = [_taken(row) for row in same]
        count, total = (sum(column) for column in zip(*taken, strict=True))
        bound = _mean_bound(same, taken)
        table.append(
            [
                kind,
                algorithm,
                members,
                count_text(size),
                count_text(count),
                count_text(round(total / count)),
                *(
                    _rate(_mean_rate([row.get(key) for row in same], taken))
                    for key in ("algbw_gbps", "busbw_gbps")
                ),
                ("-" if bound is None else count_text(round(bound))) + "*" * bool(_why_star(same, backend)),
            ]
        )
    yield ""
    yield from _table(table, left=2)
    yield from why_stars(rows, backend)
    yield (
        "GB/s of 10^9 B/s; algbw = bytes (all-gather, gather and scatter: times NPUs) / mean time from the last "
        "member's start, busbw as nccl-tests define it"
    )
    yield (
        "bound = bytes that must cross a cut between NPUs / bandwidth of its links (of an NPU, a machine, a level of "
        "switches), without latencies and steps: small collectives take many times that"
    )


def ends_in_words(dims: Sequence[int]) -> str:
    """In which dimensions ends of messages differ."""
    if not dims:
        return "an NPU and itself"
    return f"dim {' and '.join(map(str, dims))}"


def _messages(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    table = [["messages across", "times", "bytes", "longest ns", "transfer ns", "waiting ns"]]
    table.extend(
        [
            ends_in_words(row["dims"]),
            *(count_text(row[key]) for key in ("count", "bytes", "longest_ns", "transfer_ns", "waiting_ns")),
        ]
        for row in rows
    )
    yield ""
    yield from _table(table, left=1)
    yield "bytes of all; longest and all transfers, and waiting for the sender before them, as receives saw them"
    yield f"transfer and waiting: {SUMS_OF_MESSAGES}"


def _dimensions(document: Document, *, carried: bool) -> Iterator[str]:
    """Dimensions; what they carried only where that is known."""
    rows = document.get("dimensions") or []
    if not rows:
        return
    table = [["dim", "topology", "NPUs", "GB/s (2^30)", "latency ns", "bytes per NPU", "busy %"]]
    table.extend(
        [
            str(row["dim"]),
            str(row["topology"]),
            count_text(row["npus"]),
            speeds_in_short(row),
            grouped_text(row["latency_ns"]),
            count_text(round(row["bytes_per_npu"])) if carried else "-",
            percent_figure(row["utilisation"]) if carried and row.get("utilisation") is not None else "-",
        ]
        for row in rows
    )
    yield ""
    yield from _table(table, left=2)
    remark = busy_remark(row.get("utilisation") or 0.0 for row in rows) if carried else ""
    if remark:
        yield remark


def _table(rows: list[list[str]], *, left: int) -> Iterator[str]:
    """Aligned columns. Long tables are cut."""
    yield aligned(rows[0], rows[1 : _MAX_ROWS + 1], left=left)
    cut = len(rows) - 1 - _MAX_ROWS
    if cut > 0:
        yield f"... and {count_text(cut)} more (--format json has all)"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _time(ns: int) -> str:
    """Nanoseconds, with a larger unit beside them where it reads better."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{ns:,} ns ({ns / size:.3f} {unit})"
    return f"{ns:,} ns"
