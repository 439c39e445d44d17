"""The account of a link: what was matched, how, and what was not; and the check of what was written."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from chakra.arrays import I64, distinct, rows_by
from chakra.converters.pytorch.comm.operations import COLLECTIVES, POINT_TO_POINT
from chakra.converters.pytorch.link import NODE_DEVICE, NODE_DEVICE_GAP, NODE_TURN, NODE_UNMATCHED, Linked
from chakra.converters.pytorch.read.device import KERNEL
from chakra.converters.pytorch.time.host_time import NODE_GAP, NODE_JOIN, NODE_OP, NODE_SYNC
from chakra.et import ABSENT, Trace
from chakra.io.readable import counted, percent_text, verb

_KIND_NAMES = {
    NODE_OP: "operators",
    NODE_SYNC: "waits for the device",
    NODE_JOIN: "waits for threads",
    NODE_GAP: "gaps",
    NODE_DEVICE: "device operations",
    NODE_UNMATCHED: "unmatched host nodes",
    NODE_DEVICE_GAP: "device gaps",
    NODE_TURN: "turns of other ranks",
}
#: share of a span that fitted waits may have without a warning; more is a result that says little of changes
MOST_FITTED = 0.1
_TRANSFER_NAMES = {number: name for name, number in POINT_TO_POINT.items()}
_COLLECTIVE_NAMES = {number: name for name, number in reversed(COLLECTIVES.items())}


def summarize(linked: Linked, rank: int) -> dict[str, Any]:
    """Everything a user or a program may want to know about one linked rank (plain values, units in the
    names).
    """
    graph, device, host = linked.graph, linked.device, linked.host
    kinds = Counter(graph.kind.tolist())
    on_device = graph.kind == NODE_DEVICE
    out: dict[str, Any] = {
        "rank": rank,
        "device_trace": {
            "file": device.source,
            "events": device.events,
            "operators": len(device.ops.name),
            "host_calls": len(device.calls.name),
            "device_operations": len(device.device.name),
            "steps": sorted(linked.steps),
            "resolution_ns": device.resolution_ns,
            "repaired_places": device.repaired,
            "lost_bytes": device.lost_bytes,
        },
        "matching": _matching(linked),
        "attaching": _attaching(linked),
        "waits": dict(sorted((k, v) for k, v in linked.waits.counts.items() if v)),
        "bursts": {"started_by_another_thread": linked.bursts.started, "waited_for": linked.bursts.waited},
        "nodes": {name: kinds[kind] for kind, name in _KIND_NAMES.items() if kinds[kind]},
        "edges": {k: v for k, v in graph.edges.items() if v},
        "dropped_against_time": graph.against_time,
        "device_busy_ns": _covered_ns(graph.start[on_device], graph.duration[on_device]),
        "host_ns": int(graph.duration[graph.device_row < 0].sum()),
        "waits_ns": int(graph.duration[graph.kind == NODE_SYNC].sum()),
        "held_by_other_ranks_ns": int(graph.duration[graph.kind == NODE_TURN].sum()),
        "self_time_moved_ns": linked.moved_ns,
        "gaps_dropped_ns": linked.gaps_dropped_ns,
        "collectives": collectives(linked),
        "groups": {name: list(ranks) for name, ranks in sorted(linked.groups.ranks.items())},
        "measured_span_ns": linked.measured_ns,
        "explained_span_ns": graph.explained_ns,
        "explained_percent": round(100 * graph.explained_ns / linked.measured_ns, 4)
        if linked.measured_ns
        else 100.0,
        "warnings": [*linked.warnings, *_unexplained(linked)],
    }
    if host is not None:
        out["host_trace"] = {
            "file": host.source,
            "schema": host.schema,
            "nodes": len(host.nodes.id),
            "repaired_places": host.repaired,
            "lost_bytes": host.lost_bytes,
        }
    return out


def _covered_ns(start: I64, duration: I64) -> int:
    """Length of the union of intervals: operations of several streams at once occupy the device once."""
    order = np.argsort(start, kind="stable")
    begin, end = start[order], (start + duration)[order]
    reached = np.maximum.accumulate(np.concatenate([begin[:1], end[:-1]]))
    return int(np.maximum(end - np.maximum(begin, reached), 0).sum())


def _unexplained(linked: Linked) -> list[str]:
    """A warning where much of the span is waits that were fitted: no change to a replay shortens these.

    Without the host's part nearly all that a device waits for is, and was asked for.
    """
    graph = linked.graph
    fitted = graph.replay_ns - graph.explained_ns
    if fitted <= MOST_FITTED * linked.measured_ns or (graph.device_row >= 0).all():
        return []
    share = f"{percent_text(fitted / linked.measured_ns)} of the recorded span"
    said = "are waits whose cause the recording does not show: a replay keeps them as recorded, whatever is changed"
    return [f"{linked.device.source}: {share} {said}"]


def _matching(linked: Linked) -> dict[str, Any]:
    pairing = linked.pairing
    if pairing is None:
        return {"method": "none (no host trace)", "candidates": 0, "matched": 0, "share": 1.0, "notes": []}
    return {
        "method": pairing.method,
        "candidates": pairing.candidates,
        "matched": pairing.matched,
        "share": pairing.matched / pairing.candidates if pairing.candidates else 0.0,
        "names_agree": pairing.agreeing,
        "notes": pairing.notes,
    }


def _attaching(linked: Linked) -> dict[str, Any]:
    kept = int(linked.kept.sum())
    attached = linked.counts["device_ops_attached"]
    return {
        "kept": kept,
        "attached": attached,
        "share": (attached + linked.counts["device_ops_outside_operators"]) / kept if kept else 1.0,
        "by_correlation": linked.attachment.by_correlation,
        "by_external_id": linked.attachment.by_external,
        "external_id_agrees": linked.attachment.external_agrees,
        "launched_outside_operators": linked.counts["device_ops_outside_operators"],
        "without_launch": linked.counts["device_ops_without_launch"],
        "before_the_window": linked.counts["device_ops_before_window"],
        "outside_the_matched_region": linked.counts["device_ops_left_out"],
        "kernel_launches": linked.counts["kernel_launches"],
        "kernel_launches_lost": linked.counts["kernel_launches_lost"],
        "kinds_of_repeated_ids": linked.counts["kinds_of_repeated_ids"],
        "communication_as_computing": linked.counts["communication_as_computing"],
    }


def attached_text(attaching: Mapping[str, Any]) -> str:
    """How many operations of the device have a launch in the trace, and their share: the number that is judged."""
    outside = attaching["launched_outside_operators"]
    return (
        f"{attaching['attached'] + outside} of {counted(attaching['kept'], 'device operation')} "
        f"({percent_text(attaching['share'])}{f', {outside} of them launched outside operators' if outside else ''})"
    )


def collectives(linked: Linked) -> list[dict[str, Any]]:
    """Count and bytes of communication by name, kind and group."""
    count: Counter[tuple[str, str, str]] = Counter()
    size: Counter[tuple[str, str, str]] = Counter()
    for comm in linked.graph.comm.values():
        kind = _TRANSFER_NAMES.get(comm.kind) or _COLLECTIVE_NAMES[comm.comm_type]
        key = (comm.label, kind, comm.group)
        count[key] += 1
        size[key] += comm.size
    return [
        {
            "name": name,
            "kind": kind,
            "group": group,
            "count": count[name, kind, group],
            "bytes": size[name, kind, group],
        }
        for name, kind, group in sorted(count)
    ]


def self_check(linked: Linked, trace: Trace, *, exact_time: bool = True) -> list[str]:
    """Compare a written trace with the graph it was written from (rule R-SELFCHECK); one line per
    difference.
    """
    problems: list[str] = []
    graph = linked.graph
    if trace.n_nodes != len(graph):
        return [f"{counted(trace.n_nodes, 'node')} written, {len(graph)} expected"]
    if trace.dropped_ctrl_deps or trace.dropped_data_deps:
        problems.append(
            f"{counted(trace.dropped_ctrl_deps + trace.dropped_data_deps, 'dependency')} on absent nodes"
        )
    # Process group records may have become METADATA nodes (1): they are computation (4) in the graph.
    types = np.where(trace.types == 1, 4, trace.types)
    for kind in distinct(graph.type).tolist():
        written, expected = int((types == kind).sum()), int((graph.type == kind).sum())
        if written != expected:
            problems.append(f"{counted(written, 'node')} of type {kind} written, {expected} expected")
    if len(trace.data_ids) != len(graph.sources):
        problems.append(
            f"{counted(len(trace.data_ids), 'data dependency')} written, {len(graph.sources)} expected"
        )
    if exact_time:
        problems += _device_time(linked, trace)
    comm = sorted(graph.comm)
    sizes = np.array([graph.comm[i].size for i in comm], np.int64)
    if len(comm) and not np.array_equal(trace.comm_size[comm], sizes):
        problems.append("communication sizes differ from the graph's")
    if int((trace.comm_size != ABSENT).sum()) != len(comm):
        problems.append("nodes with a communication size are not those that communicate")
    lost = _lost_collectives(linked)
    if lost:
        problems.append(lost)
    trace.topological_order()
    return problems


def _device_time(linked: Linked, trace: Trace) -> list[str]:
    """Device time in and out, per stream: exact in ns, within half a microsecond in whole microseconds."""
    graph, gpu = linked.graph, linked.device.device
    rows = np.flatnonzero(graph.kind == NODE_DEVICE)
    out = []
    gaps_of = rows_by(graph.stream_key, np.flatnonzero(np.isin(graph.kind, (NODE_DEVICE_GAP, NODE_TURN))))
    for key, nodes in rows_by(graph.stream_key, rows).items():
        source = distinct(graph.device_row[nodes])
        expected = int((gpu.end[source] - gpu.start[source]).sum())
        written = int(trace.duration_ns[nodes].sum())
        micros = int(trace.duration_micros[nodes].sum())
        gaps = gaps_of[key]
        micros += int(trace.duration_micros[gaps].sum())
        spent = expected + int(trace.duration_ns[gaps].sum())
        if written != expected:
            out.append(f"stream {int(gpu.stream[source[0]])}: {written} ns written, {expected} ns recorded")
        if abs(micros * 1000 - spent) > 500:
            out.append(
                f"stream {int(gpu.stream[source[0]])}: {micros} us written, {spent / 1000} us recorded"
            )
    return out


def _lost_collectives(linked: Linked) -> str | None:
    """Device events that the profiler itself calls collective, and that did not become communication
    nodes.
    """
    gpu, comm = linked.device.device, linked.device.comm
    graph = linked.graph
    communicating = {int(graph.device_row[i]) for i in graph.comm if graph.device_row[i] >= 0}
    rows = np.flatnonzero(linked.kept & (gpu.comm >= 0) & (gpu.kind == KERNEL)).tolist()
    named = {row for row in rows if comm[int(gpu.comm[row])].collective}
    lost = named - communicating
    return (
        f"{counted(len(lost), 'collective')} of the device trace {verb(len(lost), 'is no node', 'are no nodes')} of "
        "communication"
        if lost
        else None
    )


def lines(summary: dict[str, Any]) -> list[str]:
    """The summary as text for people."""
    host, gpu = summary.get("host_trace"), summary["device_trace"]
    matching, attaching = summary["matching"], summary["attaching"]
    out = [f"rank {summary['rank']}"]
    if host:
        out.append(
            f"  host trace    {host['file']}: schema {host['schema'] or '(none)'}, {counted(host['nodes'], 'node')}"
        )
    out.append(
        f"  device trace  {gpu['file']}: {counted(gpu['events'], 'event')}, {counted(gpu['operators'], 'operator')}, "
        f"{counted(gpu['device_operations'], 'device operation')}, {counted(len(gpu['steps']), 'profiler step')}"
    )
    out += [
        f"  repaired      {s['file']}: {counted(s['repaired_places'], 'place')}, {s['lost_bytes']} bytes cut off"
        for s in (host, gpu)
        if s and (s["repaired_places"] or s["lost_bytes"])
    ]
    if host:
        out.append(
            f"  matched       {matching['matched']} of {counted(matching['candidates'], 'operator')} "
            f"({percent_text(matching['share'])}) by {matching['method']}"
        )
        out += [f"                {note}" for note in matching["notes"]]
    if "deprofiled" in summary:
        found = summary["deprofiled"]
        out.append(
            f"  deprofiled    {found['operator_us']:.2f} us per operator: step "
            f"{found['profiled_step_ns'] / 1e3:,.1f} us -> {found['step_ns'] / 1e3:,.1f} us"
            + (
                f", without the profiler {found['unprofiled_step_ns'] / 1e3:,.1f} us"
                if found["unprofiled_step_ns"]
                else ""
            )
        )
    recorded = bool(gpu["device_operations"])
    out.append(
        f"  attached      {attached_text(attaching)}; "
        f"{attaching['by_correlation']} by correlation, {attaching['by_external_id']} by External id; "
        f"without launch {attaching['without_launch']}, before the window {attaching['before_the_window']}, "
        f"outside the matched region {attaching['outside_the_matched_region']}"
        if recorded
        else "  attached      none: the record has no device operations"
        + (", as that of a CPU job" if not attaching["kernel_launches"] else "")
    )
    if attaching["kernel_launches_lost"]:
        out.append(
            f"  lost          {attaching['kernel_launches_lost']} of "
            f"{counted(attaching['kernel_launches'], 'kernel launch')} "
            f"{verb(attaching['kernel_launches'], 'has', 'have')} "
            "no kernel in the trace"
        )
    for title, table in (
        ("waits", summary["waits"]),
        ("nodes", summary["nodes"]),
        ("edges", summary["edges"]),
    ):
        text = ", ".join(f"{name} {count}" for name, count in table.items()) or "none"
        out.append(f"  {title:<13} {text}")
    if summary["dropped_against_time"]:
        text = ", ".join(f"{name} {count}" for name, count in summary["dropped_against_time"].items())
        out.append(f"  dropped       edges against time: {text}")
    for item in summary["collectives"]:
        out.append(
            f"  communication {item['name']} ({item['kind']}, group {item['group']}): {item['count']} x, "
            f"{item['bytes']:,} bytes"
        )
    device = (
        f"device busy {summary['device_busy_ns'] / 1000:,.1f} us, " if recorded else "",
        f" (of it {summary['waits_ns'] / 1000:,.1f} us left of waits for the device)" if recorded else "",
    )
    out.append(
        f"  time          span {summary['measured_span_ns'] / 1000:,.1f} us, {device[0]}"
        f"host {summary['host_ns'] / 1000:,.1f} us{device[1]}"
    )
    if summary["held_by_other_ranks_ns"]:
        out.append(
            f"  shared        other ranks' turns on the same accelerator held it up for "
            f"{summary['held_by_other_ranks_ns'] / 1000:,.1f} us"
        )
    return out
