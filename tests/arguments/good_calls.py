"""A call of every public function that takes arguments, all of them named, whose values fit."""

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from seeds import INFRAGRAPH

import chakra
from chakra import anonymize, calibrate, compare, generate, platforms, report, rescale, sweep, timeline, viz
from chakra.builder import TraceBuilder, Workload
from chakra.compare.spans import Kind
from chakra.converters import astra_config, msccl, pytorch, text
from chakra.replay import config, topologies
from chakra.replay.collectives import library
from chakra.schemas import protolib
from chakra.schemas.et_def_pb2 import AttributeProto, GlobalMetadata, IOInfo

TRACES = Path(__file__).resolve().parents[2] / "traces" / "allreduce_ring8"
DDP = Path(__file__).resolve().parents[1] / "data" / "pytorch" / "ddp"
WORKLOAD, SYSTEM, NETWORK = (str(TRACES / name) for name in ("workload", "system.json", "network.yml"))
STUDY = (
    "workload: {kind: transformer, model: gpt3-175b, npus: 8, layers: 2, fuse: true}\nplatform: hgx-h100\n"
    "parameters: {workload.tp: [1, 2]}\n"
)
TEXT = "DATA\n1\nl -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 100 1\n"

Call = tuple[str, Callable[..., Any], dict[str, Any]]


def of_object(make: Callable[[], Any], method: str) -> Callable[..., Any]:
    """A method of a fresh object each time."""

    def call(**values: Any) -> Any:
        return getattr(make(), method)(**values)

    return call


def made(kind: type, then: Callable[[Any], Any] = lambda value: value) -> Callable[..., Any]:
    """A dataclass, and what is done with it."""

    def call(**values: Any) -> Any:
        return then(kind(**values))

    return call


def defaults(kind: Any, **changes: Any) -> dict[str, Any]:
    """Values of a dataclass's fields."""
    value = kind(**changes)
    return {field.name: getattr(value, field.name) for field in fields(kind)}


def one_trace() -> chakra.Trace:
    """A compute node and an all-reduce."""
    builder = TraceBuilder()
    builder.collective("all_reduce", size_bytes=4096, after=builder.compute("f", duration_micros=3))
    return builder.build()


def two_ranks() -> Workload:
    """A workload of two ranks."""
    workload = Workload(2)
    workload.run(lambda b: b.compute(duration_ns=3))
    return workload


def columns() -> chakra.et.TraceColumns:
    """Two compute nodes."""
    return chakra.et.TraceColumns(2)


def of_traces(trace: chakra.Trace) -> Iterator[Call]:
    """Builder, traces, columns."""
    yield "TraceBuilder", TraceBuilder, {"rank": 0, "npus": 4, "groups": {"g": [0, 1]}}
    more: dict[str, Any] = {"after": (), "ctrl": (), "attrs": {"a": 1}}
    fresh = lambda: TraceBuilder(0, 4, {"g": [0, 1]})  # noqa: E731
    sized = {"size_bytes": 8, "name": "n", **more}
    for method, values in {
        "compute": {
            "name": "c",
            "duration_micros": 1.0,
            "num_ops": 3,
            "tensor_bytes": 4,
            "cpu": False,
            **more,
        },
        "collective": {"kind": "all_reduce", "group": "g", "involved_dim": [True], "priority": 1, **sized},
        "send": {"to": 1, "tag": 0, **sized},
        "recv": {"source": 1, "tag": 0, **sized},
        "load": sized,
        "store": sized,
        "metadata": {"name": "m", "groups": {"g": [1]}, **more},
        "build": {"write_rank": True},
    }.items():
        yield f"TraceBuilder.{method}", of_object(fresh, method), values
    yield "Workload", Workload, {"npus": 2}
    calls: dict[str, dict[str, Any]] = {
        "add_group": {"ranks": [0, 1], "name": "x"},
        "builder": {"rank": 1},
        "trace_of": {"rank": 1},
        "write": {"prefix": "out/w", "compress": False},
    }
    for method, values in calls.items():
        yield f"Workload.{method}", of_object(two_ranks, method), values
    yield "Workload.run", of_object(lambda: Workload(2), "run"), {"program": len, "uniform": False}
    yield "read_trace", chakra.read_trace, {"path": f"{WORKLOAD}.0.et", "repair": False}
    yield (
        "read_traces",
        chakra.read_traces,
        {"paths": [f"{WORKLOAD}.0.et"], "repair": False, "progress": None},
    )
    yield "write_trace", chakra.write_trace, {"trace": trace, "path": "o.et"}
    yield "TraceColumns", chakra.et.TraceColumns, {"n": 2}
    attribute = AttributeProto(name="q", int64_val=3)
    calls = {
        "build": {"source": "x"},
        "set_attribute": {"name": "q", "codes": [0, 0], "table": [attribute]},
        "set_bool": {"name": "q", "values": [True, False]},
        "set_bools": {"name": "q", "codes": [0, 0], "table": [[True]]},
        "set_ctrl_deps": {"offsets": [0, 0, 1], "ids": [0]},
        "set_data_deps": {"offsets": [0, 0, 1], "ids": [0]},
        "set_inputs": {"codes": [0, -1], "table": [IOInfo(values="x")]},
        "set_outputs": {"codes": [0, -1], "table": [IOInfo(values="x")]},
        "set_int": {"name": "comm_size", "values": [1, 2], "kind": None},
        "set_names": {"names": ["a", "b"], "table": None},
        "set_text": {"name": "pg_name", "codes": [0, -1], "table": ["x"]},
    }
    for method, values in calls.items():
        yield f"TraceColumns.{method}", of_object(columns, method), values
    yield "Trace.attr", trace.attr, {"index": 0, "name": "num_ops", "default": None}
    yield "Trace.index_of", trace.index_of, {"node_id": 0}
    yield "Trace.node", trace.node, {"index": 0}
    yield "Trace.node_proto", trace.node_proto, {"index": 0}
    yield "encode_varint", protolib.encode_varint, {"value": 3}
    yield (
        "decode_message",
        protolib.decode_message,
        {"in_file": io.BytesIO(), "message": GlobalMetadata()},
    )
    yield "open_file_rd", lambda **given: protolib.open_file_rd(**given).close(), {"path": "empty"}


def of_runs(trace: chakra.Trace, result: chakra.ReplayResult) -> Iterator[Call]:
    """Replay, configurations, topologies."""
    yield (
        "simulate",
        chakra.simulate,
        {
            "workload": [trace] * 8, "system": SYSTEM, "network": NETWORK, "memory": None, "comm_groups": None,
            "backend": "unaware", "compat": None, "queues_per_dim": 1, "injection_scale": 1.0, "comm_scale": 1.0,
            "rendezvous": False, "compute_scale": 1.0, "comm_streams": 1, "npu_scale": None,
            "start": None, "host_speed": 1.0, "accelerator_speed": 1.0, "progress": None,
            "engine": "auto", "fold": True, "replicate": False, "fail_links": (), "slow_links": None,
        },
    )  # fmt: skip
    yield "ReplayResult.node_ticks", result.node_ticks, {"npu": 0}
    yield "ReplayResult.records", result.records, {"what": "npus"}
    yield "ReplayResult.to_dict", result.to_dict, {"nodes": False}
    network, system = config.load_network(NETWORK), config.load_system(SYSTEM)
    yield "check_fit", config.check_fit, {"network": network, "system": system, "memory": None}
    yield "dump_network", config.dump_network, {"network": network}
    yield "load_groups", config.load_groups, {"src": {"1": [0, 1]}, "compat": None, "npus": 8}
    yield "load_memory", config.load_memory, {"src": {"memory-type": "NO_MEMORY_EXPANSION"}, "compat": None}
    yield "load_network", config.load_network, {"src": NETWORK, "compat": None}
    yield "load_system", config.load_system, {"src": SYSTEM, "compat": None}
    yield "load_per_node_custom", config.load_per_node_custom, {"path": SYSTEM}
    link = {"bandwidth_gibps": 50, "latency_ns": 500}
    far = {"local_bandwidth_gibps": None, "global_bandwidth_gibps": None, "global_latency_ns": None}
    yield "dragonfly", topologies.dragonfly, {"groups": 2, "routers": 2, "npus_per_router": 2, **link, **far}
    yield "fat_tree", topologies.fat_tree, {"down": [2, 2], "up": [1, 1], "oversubscription": 1.0, **link}
    node = {"node_bandwidth_gibps": 50, "node_latency_ns": 500, "spines": 1, "oversubscription": 1.0}
    yield "rail_optimised", topologies.rail_optimised, {"nodes": 2, "npus_per_node": 2, **node, **link}
    yield "torus", topologies.torus, {"shape": [2, 3], "wrap": True, **link}
    Path("infra.json").write_bytes(INFRAGRAPH)
    numbers = {"npus_count": [4], "routing": "hops", "leave_out": ()}
    yield "import_infragraph", topologies.import_infragraph, {"path": "infra.json", **link, **numbers}
    yield "with_faults", topologies.with_faults, {"network": network, "fail": ["0-1"], "slow": {"1-2": 0.5}}


def of_makers() -> Iterator[Call]:
    """Generated and converted workloads, machines, studies, calibration."""
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "seq": 16}
    kind = generate.TransformerRequest
    yield "TransformerRequest", made(kind, lambda r: r.plan()), defaults(kind, **sizes)
    yield "MlpRequest", made(generate.MlpRequest, lambda r: r.plan()), {"widths": (4, 4)}
    yield "ResnetRequest", made(generate.ResnetRequest, lambda r: r.plan()), {"image": 224, "classes": 10}
    unset = dict.fromkeys(("bottom", "top", "tables", "rows", "dim", "pooling"))
    yield "DlrmRequest", made(generate.DlrmRequest, lambda r: r.plan()), {**unset, "model": "dlrm-criteo"}
    yield "Request.from_mapping", kind.from_mapping, {"values": {"tp": 1}}
    plan = kind(layers=2, hidden=64, heads=4, tp=2, dp=2, seq=16).plan()
    workload = generate.build_workload(plan)
    yield (
        "build_workload",
        generate.build_workload,
        {"plan": plan, "tensors": False, "names": True, "metadata": None},
    )
    for function in (generate.summarize, generate.total_matmul_flops, generate.total_parameters):
        yield function.__name__, function, {"plan": plan}
    yield "read_manifest", generate.read_manifest, {"path": "study.yml"}
    for write in (generate.write_plain, generate.write_shared):
        yield write.__name__, write, {"manifest": workload, "prefix": f"{write.__name__}/x"}
    name = next(iter(workload.groups))
    yield "WorkloadManifest.members", workload.members, {"name": name, "rank": 0}
    yield "WorkloadManifest.rows", workload.rows, {"name": name}
    parts = {"npus": 8, "traces": (one_trace(),), "trace_of": np.zeros(8, np.int32), "groups": {}}
    more = {"peer_mode": "relative", "about": {}, "source": "x"}
    replayed = made(generate.WorkloadManifest, lambda m: chakra.simulate(m, SYSTEM, NETWORK))
    yield "WorkloadManifest", replayed, {**parts, **more}
    yield "cluster", chakra.cluster, {"words": "hgx-h100", "npus": 8, "sized": True}
    yield "load_platform", platforms.load_platform, {"name": "hgx-h100"}
    machine = platforms.load_platform("hgx-h100")
    yield "Platform.sized", machine.sized, {"npus": None, "machines": 2}
    yield "write_platform", platforms.write_platform, {"platform": machine.sized(8), "prefix": "machine/x"}
    options = {"npus": 4, "passes": 1, "network_dims": None, "model_parallel": None, "time_unit": "us"}
    options |= {"update_time": False, "span": "auto", "compat": None}
    yield "load_text", text.load_text, {"source": "w.txt", **options}
    written = {"output": "text/w", "link": True, "progress": None}
    yield "convert_text", text.convert_text, {"source": "w.txt", **options, **written}
    yield "write_converted", text.write_converted, {"converted": text.load_text("w.txt", npus=4), **written}
    yield "parse_workload", text.parse_workload, {"text": TEXT, "source": "x", "as_upstream": False}
    yield "read_workload", text.read_workload, {"path": "w.txt", "as_upstream": False}
    for read in (astra_config.convert_config, astra_config.is_old_network, astra_config.read_old_network):
        yield read.__name__, read, {"path": SYSTEM}
    ring = {"algorithm": "ring", "collective": "all_reduce", "npus": 3}
    yield "export_msccl", msccl.export_msccl, ring
    Path("ring.xml").write_text(msccl.export_msccl("ring", "all_reduce", 3))
    yield "load_msccl", msccl.load_msccl, {"path": "ring.xml"}
    algorithm = msccl.load_msccl("ring.xml")
    traces = {"algorithm": algorithm, "prefix": "algo/x", "size_bytes": 4096, "system": None}
    yield "write_msccl", msccl.write_msccl, traces
    yield "system_key", msccl.system_key, {"collective": algorithm.collective}
    yield "find_inputs", pytorch.find_inputs, {"folder": Path("."), "job": None}
    yield "LinkOptions", pytorch.LinkOptions, defaults(pytorch.LinkOptions)
    yield "EmitOptions", pytorch.EmitOptions, defaults(pytorch.EmitOptions)
    yield "Settings", pytorch.Settings, defaults(pytorch.Settings)
    inputs: dict[str, Any] = {"host": Path("study.yml"), "device": Path("w.txt"), "linked": None, "rank": 0}
    settings = pytorch.Settings()
    yield "Inputs", made(pytorch.Inputs, lambda i: pytorch.convert_rank(i, Path("o.et"), settings)), inputs
    rank = {"inputs": pytorch.Inputs(**inputs), "settings": settings, "check": False, "report": None}
    yield "convert_rank", pytorch.convert_rank, {**rank, "output": Path("o.et")}
    job = {**rank, "inputs": [pytorch.Inputs(**inputs)], "shortest": False, "jobs": 1, "progress": None}
    yield "convert_job", pytorch.convert_job, {**job, "prefix": Path("job/x")}
    reduce = config.CollectiveKind.ALL_REDUCE
    measured = [calibrate.Measurement(reduce, 8, 1 << k, 10.0 + (1 << k) / 1e4, "x:1") for k in range(10, 20)]
    yield "CostModel", calibrate.CostModel, defaults(calibrate.CostModel)
    model = calibrate.CostModel()
    one = made(calibrate.Measurement, lambda m: calibrate.calibrate([m, *measured], model))
    yield (
        "Measurement",
        one,
        {"kind": reduce, "ranks": 8, "size_bytes": 1 << 20, "time_us": 114.9, "source": "x"},
    )
    yield (
        "calibrate",
        calibrate.calibrate,
        {"measurements": measured, "model": model, "endpoint_delay_ns": None},
    )
    case = {"model": model, "kind": reduce, "ranks": 8, "size_bytes": 1 << 20}
    rates = {"latency_ns": 500.0, "bytes_per_ns": 50.0, "endpoint_delay_ns": 10}
    yield "modelled_ns", calibrate.modelled_ns, {**case, **rates}
    yield (
        "calibrate.read_log",
        calibrate.read_log,
        {"path": "w.txt", "kind": None, "ranks": None, "in_place": False},
    )
    yield (
        "calibrate.read_whole_log",
        calibrate.read_whole_log,
        {"path": "w.txt", "kind": None, "ranks": None, "in_place": False},
    )
    costs = platforms.collective_parameters("hgx-h100")
    yield (
        "fit_library",
        calibrate.fit_library,
        {"measurements": measured, "machine": costs, "nodes": None, "source": "x", "validate": False},
    )
    yield (
        "fit_recorded",
        calibrate.fit_recorded,
        {"measurements": measured, "machine": costs, "nodes": None, "source": "x"},
    )
    yield "read_recordings", calibrate.read_recordings, {"paths": ["w.txt"], "job": None, "told": None}
    comm, forced = library.Communicator(8, 8), library.Forced(library.Algorithm.RING)
    asked: dict[str, Any] = {"kind": reduce, "size_bytes": 1 << 20, "comm": comm}
    yield "library_time", library.library_time, {**asked, "machine": costs, "forced": forced}
    choice = library.library_time(**asked, machine=costs).choice
    yield "link_bytes", library.link_bytes, {**asked, "choice": choice}
    yield "parameters_to", library.parameters_to, {"machine": costs}
    yield "parameters_from", library.parameters_from, {"document": library.parameters_to(costs), "name": "x"}
    yield "collective_parameters", platforms.collective_parameters, {"name": "hgx-h100"}
    yield from _of_studies()
    few = generate.build_workload(generate.MlpRequest(npus=8).plan())
    asked_ranks: dict[str, Any] = {"npus": 16, "along": "data", "group": (), "optimizer": "adam"}
    yield "rescale", rescale.rescale, {"workload": few, **asked_ranks}
    yield "read_workload", rescale.read_workload, {"prefix": WORKLOAD, "groups": None}
    recording = compare.read_source(DDP)
    yield (
        "read_source",
        compare.read_source,
        {"path": str(DDP / "ddp.rank0.kineto.json.gz"), "job": None, "step": None},
    )
    yield "compare", compare.compare, {"a": recording, "b": recording, "rank": 0}
    found = compare.compare(recording, recording)
    span = {"kind": Kind.HOST, "label": "x", "start_ns": 1, "end_ns": 2}
    yield "RankSpans.add", compare.RankSpans().add, span
    yield "difference_text", compare.difference_text, {"found": found, "kernels": 3}
    yield "difference_html", compare.difference_html, {"found": found}
    target = {"groups": None, "memory": None, "in_place": False}
    yield (
        "anonymize",
        anonymize.anonymize,
        {"source": f"{WORKLOAD}.0.et", "target": "a/t.et", "labels": None, **target},
    )
    labels = anonymize.Labels()
    yield "anonymous_trace", anonymize.anonymous_trace, {"trace": one_trace(), "labels": labels}
    yield "Labels", anonymize.Labels, {"key": None, "kinds": True}
    yield "Labels.group", labels.group, {"name": "x"}
    yield "Labels.node", labels.node, {"name": "x"}
    yield "Labels.label", labels.label, {"kind": "node", "text": "x", "prefix": None}
    yield "read_key", anonymize.read_key, {"path": "study.yml"}


def _of_studies() -> Iterator[Call]:
    study = sweep.load_study("study.yml")
    store = sweep.Store(Path("store"))
    outcomes = [sweep.Outcome("k", {"workload.tp": 1}, "ok", {"step_ms": 1.0, "memory_gb": 2.0})]
    yield "Method", sweep.Method, defaults(sweep.Method)
    span = {"name": "workload.tp", "values": (), "low": 1, "high": 4, "step": None, "count": 3, "log": False}
    yield "Parameter", made(sweep.Parameter, lambda p: p.listed()), span
    yield (
        "Parameter of steps",
        made(sweep.Parameter, lambda p: p.listed()),
        {**span, "step": 1, "count": None},
    )
    yield "Shard", sweep.Shard, {"index": 1, "count": 1}
    yield "Shard.parse", sweep.Shard.parse, {"text": "1/2"}
    yield "Store", sweep.Store, {"folder": Path("st")}
    yield "Store.find", store.find, {"key": "k", "point": {}}
    yield "Store.put", store.put, {"key": "k", "point": {}, "merged": {}, "outcome": {"status": "ok"}}
    for method in (study.admits, study.names, study.merged):
        yield f"Study.{method.__name__}", method, {"point": {"workload.tp": 1}}
    yield "front", sweep.front, {"study": study, "outcomes": outcomes}
    yield "ranked", sweep.ranked, {"study": study, "outcomes": outcomes}
    yield "plot", sweep.plot, {"study": study, "outcomes": outcomes, "path": "p.svg"}
    yield "write_table", sweep.write_table, {"outcomes": outcomes, "folder": "table"}
    yield "load_study", sweep.load_study, {"path": "study.yml"}
    yield (
        "study_from",
        sweep.study_from,
        {"document": {"workload": {"kind": "mlp"}, "platform": "x"}, "source": "x"},
    )
    point = study.merged({"workload.tp": 1})
    yield "run_point", sweep.run_point, {"merged": point, "needs_memory": False, "document_from_s": 1.0}
    how = {"shard": None, "retry_failed": False, "progress": None, "begin": None}
    serial = lambda function, tasks: ((i, function(**task)) for i, task in enumerate(tasks))  # noqa: E731
    yield "run_study", sweep.run_study, {"study": study, "store": store, "run": serial, **how}

    def opened(**values: Any) -> None:
        with sweep.runner(**values):
            pass

    yield "runner", opened, {"workers": 1, "threads": False, "scheduler": None}


def of_pictures(trace: chakra.Trace, result: chakra.ReplayResult) -> Iterator[Call]:
    """Drawings, timelines, reports."""
    graph, shown, document = viz.from_trace(trace), timeline.from_result(result), result.to_dict(nodes=True)
    Path("result.json").write_text(json.dumps(document), encoding="utf-8")
    run = report.run_of(document, "x")
    yield "account_figure", report.account_figure, {"runs": [run]}
    yield "essence", report.essence, {"run": run, "bars": 8}
    yield "graph_figure", report.graph_figure, {"graph": graph}
    yield "timeline_figure", report.timeline_figure, {"timeline": shown}
    yield "report_html", report.report_html, {"runs": [run]}
    yield "read_run", report.read_run, {"path": "result.json", "name": None}
    yield "run_of", report.run_of, {"document": document, "name": "x"}
    yield "Run.table", run.table, {"key": "collectives"}
    yield "estimated_bytes", timeline.estimated_bytes, {"timeline": shown, "file_format": "json"}
    kept = {"window_ns": (0, 1000), "ranks": {0}, "min_duration_ns": 0}
    yield "filtered", timeline.filtered, {"timeline": shown, **kept}
    yield "from_document", timeline.from_document, {"document": document, "traces": None, "source": "d"}
    yield "from_result", timeline.from_result, {"result": result}
    yield "read_kineto", timeline.read_kineto, {"paths": ["study.yml"]}
    yield "timeline.read_log", timeline.read_log, {"path": "w.txt", "npus": None, "mhz": 1000, "traces": None}
    yield (
        "write_timeline",
        timeline.write_timeline,
        {"timeline": shown, "path": "t.json", "file_format": None},
    )
    drawn = made(viz.DrawOptions, lambda options: viz.draw(graph, "d.dot", options))
    yield "DrawOptions", drawn, defaults(viz.DrawOptions)
    yield "draw", viz.draw, {"graph": graph, "path": "d.dot", "options": None}
    yield "around", viz.around, {"graph": graph, "node_id": 0, "hops": 1}
    yield "only", viz.only, {"graph": graph, "words": ("comp",)}
    yield "window", viz.window, {"graph": graph, "begin_ns": 0, "end_ns": 100}
    yield "critical_path", viz.critical_path, {"graph": graph}
    yield "dot_text", viz.dot_text, {"graph": graph, "legend": True}
    yield "graphml_text", viz.graphml_text, {"graph": graph}
    yield "fold", viz.fold, {"graph": graph, "how": viz.Folding.AUTO, "limit": 300}
    tree = viz.fold(graph)
    yield "folded", viz.folded, {"graph": graph, "tree": tree, "opened": None}
    yield "html_text", viz.html_text, {"graph": graph, "tree": tree}
    yield "from_trace", viz.from_trace, {"trace": trace, "title": None, "written": None}
    yield "read_graph", viz.read_graph, {"path": f"{WORKLOAD}.0.et"}


def all_calls() -> list[Call]:
    """Every call; the current folder is the caller's to give."""
    Path("study.yml").write_text(STUDY, encoding="utf-8")
    Path("w.txt").write_text(TEXT, encoding="utf-8")
    Path("empty").write_bytes(b"")
    trace, result = one_trace(), chakra.simulate(WORKLOAD, SYSTEM, NETWORK)
    return [*of_traces(trace), *of_runs(trace, result), *of_makers(), *of_pictures(trace, result)]
