"""Small traces made by hand, so that every expected number can be counted on paper."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class MiniJob:
    """A host trace and a Kineto trace in the making. Times in microseconds."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    header: dict[str, Any] = field(
        default_factory=lambda: {"schemaVersion": 1, "baseTimeNanoseconds": 10**18}
    )
    schema: str = "1.1.1-chakra.0.0.4"
    next_id: int = 10

    def op(
        self,
        name: str,
        ts: float,
        dur: float,
        *,
        tid: int = 100,
        et_tid: int = 1,
        parent: int = 2,
        scope: int = 0,
        attrs: dict[str, Any] | None = None,
        inputs: tuple[Any, Any, Any] = ([], [], []),
        args: dict[str, Any] | None = None,
        in_kineto: bool = True,
        annotation: bool = False,
        fw_parent: int = 0,
    ) -> int:
        """Add an operator to both traces; returns its id (also its record function id and External id)."""
        node_id = self.next_id
        self.next_id += 1
        values = {
            "rf_id": node_id,
            "fw_parent": fw_parent,
            "seq_id": -1,
            "scope": scope,
            "tid": et_tid,
            "fw_tid": 0,
            "op_schema": "",
            **(attrs or {}),
        }
        self.nodes.append(
            {
                "id": node_id,
                "name": name,
                "ctrl_deps": parent,
                "inputs": dict(zip(("values", "shapes", "types"), inputs, strict=True)),
                "outputs": {"values": [], "shapes": [], "types": []},
                "attrs": [{"name": k, "type": "uint64", "value": v} for k, v in values.items()],
            }
        )
        if in_kineto:
            self.events.append(
                {
                    "ph": "X",
                    "cat": "user_annotation" if annotation else "cpu_op",
                    "name": name,
                    "pid": 1,
                    "tid": tid,
                    "ts": ts,
                    "dur": dur,
                    "args": {
                        "External id": node_id,
                        "Record function id": node_id,
                        "Ev Idx": node_id,
                        **(args or {}),
                    },
                }
            )
        return node_id

    def call(self, name: str, ts: float, dur: float, correlation: int, *, tid: int = 100) -> None:
        """Add a host call."""
        self.events.append(
            {
                "ph": "X",
                "cat": "cuda_runtime",
                "name": name,
                "pid": 1,
                "tid": tid,
                "ts": ts,
                "dur": dur,
                "args": {"correlation": correlation},
            }
        )

    def kernel(
        self,
        name: str,
        ts: float,
        dur: float,
        correlation: int,
        *,
        stream: int = 7,
        cat: str = "kernel",
        args: dict[str, Any] | None = None,
    ) -> None:
        """Add a device operation."""
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": 0,
                "tid": stream,
                "ts": ts,
                "dur": dur,
                "args": {
                    "correlation": correlation,
                    "device": 0,
                    "context": 1,
                    "stream": stream,
                    **(args or {}),
                },
            }
        )

    def write(self, folder: Path, stem: str = "job.rank0") -> tuple[Path, Path]:
        """Write both files; returns (host, device)."""
        roots = [
            {
                "id": 1,
                "name": "[pytorch|profiler|execution_trace|process]",
                "ctrl_deps": 1,
                "attrs": _root(0),
            },
            {"id": 2, "name": "[pytorch|profiler|execution_trace|thread]", "ctrl_deps": 1, "attrs": _root(1)},
        ]
        for root in roots:
            root["inputs"] = root["outputs"] = {"values": [], "shapes": [], "types": []}
        host = folder / f"{stem}.et.json"
        device = folder / f"{stem}.kineto.json"
        document = {
            "schema": self.schema,
            "pid": 1,
            "time": "now",
            "start_ts": 1,
            "nodes": [*self.nodes, *roots],
        }
        host.write_text(json.dumps({**document, "finish_ts": 2}, indent=1))
        device.write_text(json.dumps({**self.header, "traceEvents": self.events, "traceName": "x"}, indent=1))
        return host, device


def _root(tid: int) -> list[dict[str, Any]]:
    values = {"rf_id": 0, "fw_parent": 0, "seq_id": -1, "scope": 7, "tid": tid, "fw_tid": 0, "op_schema": ""}
    return [{"name": k, "type": "uint64", "value": v} for k, v in values.items()]


def simple(job: MiniJob) -> None:
    """Two operators, each launches a kernel."""
    for k in range(2):
        job.op(f"op{k}", 100 * k, 40)
        job.call("cudaLaunchKernel", 100 * k + 30, 5, 1 + k)
        job.kernel(f"kernel{k}", 100 * k + 37, 90, 1 + k)


def record_of(
    name: str,
    elements: int,
    group: str = "0",
    rank: int = 0,
    seq: int = 1,
    out: int | None = None,
    splits: tuple[list[int], list[int]] = ([], []),
) -> dict[str, Any]:
    return {
        "attrs": {
            "collective_name": name, "dtype": "Float", "in_msg_nelems": elements,
            "out_msg_nelems": elements if out is None else out, "pg_name": group, "pg_size": 2,
        },
        "inputs": (
            [[[1, 2, 0, elements, 4, "cuda:0"]], [seq, False], [group, "x"], rank, name, *splits, 0, 1, 2],
            [],
            ["GenericList[Tensor(float)]", "Tuple[Int,Bool]", "Tuple[String,String]", "Int", "String"],
        ),
    }  # fmt: skip


def collective(job: MiniJob, name: str, ts: float, correlation: int, **said: Any) -> None:
    """A record, its annotation, a launch and a kernel."""
    record = job.op("record_param_comms", ts, 40, **record_of(name, **said))
    job.op(f"nccl:{name}", ts + 5, 30, parent=record, scope=7, annotation=True)
    job.call("cuLaunchKernelEx", ts + 10, 10, correlation)
    job.kernel("ncclDevKernel_Generic", ts + 25, 50, correlation, stream=16)
