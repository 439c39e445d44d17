"""Inputs of a wanted size, one function for each shape: what `scaling.py` gives to the commands.

A shape writes an input of about n nodes, events or rows below a prefix, and returns the number of its NPUs.
"""

import contextlib
import io
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chakra.builder import TraceBuilder, Workload

#: writes an input of about n of them below a prefix and returns the number of its NPUs
Shape = Callable[[Path, int], int]


def run(arguments: list[str]) -> None:
    """A command in this process; what it prints is dropped.

    Raises
    ------
    RuntimeError
        If the command fails.
    """
    from chakra.cli.main import run as run_command

    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        code = run_command(arguments)
    if code not in (0, None):
        raise RuntimeError(
            f"chakra {' '.join(arguments)}: exit code {code}: {said.getvalue().strip()[-300:]}"
        )


def _one(prefix: Path, builder: TraceBuilder) -> int:
    from chakra.et import write_trace

    write_trace(builder.build(), f"{prefix}.0.et")
    return 1


def chain(prefix: Path, n: int) -> int:
    """Each node waits for the one before it."""
    builder = TraceBuilder()
    last = builder.compute("op", duration_micros=1)
    for k in range(n - 1):
        last = builder.compute(f"op{k % 100}", duration_micros=1, after=[last])
    return _one(prefix, builder)


def star(prefix: Path, n: int) -> int:
    """All wait for one, and one waits for all."""
    builder = TraceBuilder()
    first = builder.compute("first", duration_micros=1)
    every = [builder.compute("leaf", duration_micros=1, after=[first]) for _ in range(n)]
    builder.compute("last", duration_micros=1, after=every)
    return _one(prefix, builder)


def collectives(prefix: Path, n: int) -> int:
    """Collectives of eight NPUs, one after the other."""
    workload = Workload(8)

    def program(builder: TraceBuilder) -> None:
        last = builder.compute(duration_micros=1)
        for k in range(n // 8):
            last = builder.collective("all_reduce", size_bytes=1024 + k, after=[last])

    workload.run(program)
    workload.write(prefix)
    return 8


def messages(prefix: Path, n: int) -> int:
    """Eight NPUs that send to their neighbours, message by message."""
    workload = Workload(8)
    for rank in range(8):
        builder = workload.builder(rank)
        last = builder.compute(duration_micros=1)
        for k in range(n // 16):
            builder.send((rank + 1) % 8, size_bytes=64, tag=k, after=[last])
            last = builder.recv((rank - 1) % 8, size_bytes=64, tag=k, after=[last])
    workload.write(prefix)
    return 8


def waiting(prefix: Path, n: int) -> int:
    """Receives that are all posted long before the first of their messages is sent."""
    workload = Workload(2)
    sender, receiver = workload.builder(0), workload.builder(1)
    late = sender.compute(duration_micros=1000)
    for k in range(n // 2):
        sender.send(1, size_bytes=1000, tag=k, after=[late])
        receiver.recv(0, size_bytes=1000, tag=k)
    workload.write(prefix)
    return 2


def gather(prefix: Path, n: int) -> int:
    """NPUs that all send four messages to the first one."""
    npus = max(n // 8, 2)
    workload = Workload(npus)
    for rank in range(1, npus):
        for k in range(4):
            workload.builder(rank).send(0, size_bytes=1000, tag=k)
            workload.builder(0).recv(rank, size_bytes=1000, tag=k)
    workload.write(prefix)
    return npus


def streams(prefix: Path, n: int) -> int:
    """Eight kernels on each of many streams."""
    builder = TraceBuilder()
    for k in range(n):
        builder.compute("op", duration_micros=1, attrs={"stream": k // 8})
    return _one(prefix, builder)


def groups(prefix: Path, n: int) -> int:
    """NPUs in pairs, each pair with a group, two collectives and work of its own."""
    npus = max(n // 3 // 2 * 2, 4)
    workload = Workload(npus)
    names = [workload.add_group([k, k + 1]) for k in range(0, npus, 2)]
    for rank in range(npus):
        builder = workload.builder(rank)
        last = builder.compute(duration_micros=1 + rank // 2 % 97)
        for size in (64, 4096):
            last = builder.collective("all_reduce", size_bytes=size, group=names[rank // 2], after=[last])
    workload.write(prefix)
    return npus


def unlike(prefix: Path, n: int) -> int:
    """NPUs in groups of eight, each with work that no other has and two collectives."""
    npus = max(n // 3 // 8 * 8, 8)
    workload = Workload(npus)
    names = [workload.add_group(list(range(k, k + 8))) for k in range(0, npus, 8)]
    for rank in range(npus):
        builder = workload.builder(rank)
        last = builder.compute(duration_micros=1 + rank)
        for size in (64, 4096):
            last = builder.collective("all_reduce", size_bytes=size, group=names[rank // 8], after=[last])
    workload.write(prefix)
    return npus


def relay(prefix: Path, n: int) -> int:
    """NPUs that each send on what they receive from the one before."""
    npus = max(n // 3, 2)
    workload = Workload(npus)
    for rank in range(npus):
        builder = workload.builder(rank)
        last = [builder.recv(rank - 1, size_bytes=1000, tag=0)] if rank else []
        last = [builder.compute(duration_micros=1, after=last)]
        if rank + 1 < npus:
            builder.send(rank + 1, size_bytes=1000, tag=0, after=last)
    workload.write(prefix)
    return npus


def pipeline(prefix: Path, n: int) -> int:
    """A step of a model on machines of eight: collectives in each, messages between them."""
    npus = max(n // 16, 2) * 8
    run(
        [
            *(
                "generate",
                "transformer",
                "--model",
                "gpt2-small",
                "--tp",
                "4",
                "--pp",
                "2",
                "--npus",
                str(npus),
            ),
            *("--global-batch", str(npus), "-o", str(prefix), "--quiet"),
        ]
    )
    return npus


#: attributes that PyTorch gives every host node
_NO_TENSORS: dict[str, list[object]] = {"values": [], "shapes": [], "types": [], "strides": []}


def _host_node(node: int, name: str, parent: int, *, scope: int = 0, thread: int = 1, reads: int = 0) -> str:
    """A node of a host trace, which reads a tensor and writes one of its own."""
    said = {
        "rf_id": node, "fw_parent": 0, "seq_id": -1, "scope": scope, "tid": thread, "fw_tid": 0, "op_schema": "",
    }  # fmt: skip
    kinds = {"seq_id": "int64", "op_schema": "string"}

    def tensor(number: int) -> dict[str, list[object]]:
        return {
            "values": [[number, number + 1, 0, 64, 4, "cuda:0"]], "shapes": [[64]], "types": ["Tensor(float)"],
            "strides": [[1]],
        }  # fmt: skip

    return json.dumps(
        {
            "id": node,
            "name": name,
            "ctrl_deps": parent,
            "inputs": tensor(reads) if reads else _NO_TENSORS,
            "outputs": _NO_TENSORS if scope == 7 else tensor(10_000_000 + 2 * node),
            "attrs": [{"name": k, "type": kinds.get(k, "uint64"), "value": v} for k, v in said.items()],
        }
    )


def _event(cat: str, name: str, lane: tuple[int, int], ts: float, dur: float, args: dict[str, object]) -> str:
    """An event of a device trace; microseconds."""
    pid, tid = lane
    return json.dumps(
        {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
    )


@dataclass
class Operator:
    """A host operator of a profile."""

    name: str
    #: microseconds
    begin: float
    time: float
    #: microseconds and stream of each kernel that it launches
    kernels: list[tuple[float, int]] = field(default_factory=lambda: [(5.0, 7)])
    #: place of the operator that it runs in; -1: none
    parent: int = -1
    #: place of the operator whose tensor it reads; -1: none
    reads: int = -1
    thread: int = 1
    #: what its kernels' events say besides
    said: dict[str, object] = field(default_factory=dict)


def _profile(
    prefix: Path,
    operators: Iterable[Operator],
    rank: int = 0,
    ranks: int = 1,
    groups: Sequence[dict[str, object]] = (),
) -> None:
    """Write a job's host trace and device trace."""
    first, tensors = 10, 10_000_000
    nodes = [
        _host_node(1, "[pytorch|profiler|execution_trace|process]", 1, scope=7, thread=0),
        _host_node(2, "[pytorch|profiler|execution_trace|thread]", 1, scope=7),
    ]
    events: list[str] = []
    launched = 0
    for k, op in enumerate(operators):
        parent = first + op.parent if op.parent >= 0 else 2
        reads = tensors + 2 * (first + op.reads) if op.reads >= 0 else 0
        nodes.append(_host_node(first + k, op.name, parent, thread=op.thread, reads=reads))
        host = (1, 100 + op.thread)
        ids: dict[str, object] = {
            "External id": first + k,
            "Record function id": first + k,
            "Ev Idx": first + k,
        }
        events.append(_event("cpu_op", op.name, host, op.begin, op.time, ids))
        step = op.time / (len(op.kernels) + 1)
        for place, (length, stream) in enumerate(op.kernels):
            launched += 1
            at = op.begin + step * (place + 0.5)
            call: dict[str, object] = {"correlation": launched}
            events.append(_event("cuda_runtime", "cudaLaunchKernel", host, at, step / 4, call))
            work = {**call, "device": rank, "context": 1, "stream": stream, **op.said}
            events.append(_event("kernel", f"kernel_of_{op.name}", (rank, stream), at + step, length, work))
    inside = f"{prefix}.rank{rank}"
    Path(f"{inside}.et.json").write_text(
        '{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "now", "start_ts": 1, "nodes": [\n'
        + ",\n".join(nodes)
        + '],\n"finish_ts": 2}\n'
    )
    job = {"backend": "nccl", "rank": rank, "world_size": ranks, "pg_config": list(groups)}
    Path(f"{inside}.kineto.json").write_text(
        '{"schemaVersion": 1, "baseTimeNanoseconds": 1000000000000000000, '
        f'"distributedInfo": {json.dumps(job)}, "traceEvents": [\n' + ",\n".join(events) + "]}\n"
    )


def operators(prefix: Path, n: int) -> int:
    """A profile: operators one after the other, each launches a kernel and reads the tensor of the one before."""
    _profile(prefix, (Operator(f"aten::op{k % 100}", 10.0 * k, 8.0, reads=k - 1) for k in range(n)))
    return 1


def nested(prefix: Path, n: int) -> int:
    """A profile whose operators are each inside the one before, the last with a kernel."""

    def each(k: int) -> Operator:
        return Operator(
            f"aten::op{k % 100}", float(k), 2.0 * (n - k), [(5.0, 7)] if k == n - 1 else [], parent=k - 1
        )

    _profile(prefix, map(each, range(n)))
    return 1


def launches(prefix: Path, n: int) -> int:
    """A profile with one operator that launches all kernels."""
    _profile(prefix, [Operator("aten::op", 0.0, 4.0 * n, [(3.0, 7)] * n)])
    return 1


def lanes(prefix: Path, n: int) -> int:
    """A profile with eight operators on each of many threads, each with a stream of its own."""

    def each(k: int) -> Operator:
        return Operator(f"aten::op{k % 100}", 10.0 * k, 8.0, [(5.0, 7 + k // 8)], thread=1 + k // 8)

    _profile(prefix, map(each, range(n)))
    return 1


def shared(prefix: Path, n: int) -> int:
    """A profile whose operators all read the first one's tensor, kernels on four streams."""

    def each(k: int) -> Operator:
        return Operator(f"aten::op{k % 100}", 10.0 * k, 8.0, [(5.0, 7 + k % 4)], reads=0 if k else -1)

    _profile(prefix, map(each, range(n)))
    return 1


def _job(prefix: Path, npus: int, calls: int) -> int:
    """Profiles of ranks: operators, every second one a collective of all or of eight, on eight sizes."""
    folder = Path(f"{prefix}.job")
    folder.mkdir()
    for rank in range(npus):
        first = rank // 8 * 8
        eight = list(range(first, min(first + 8, npus)))
        config = [
            {"pg_name": "0", "pg_desc": "default_pg", "pg_size": npus, "ranks": []},
            {"pg_name": f"tp{first}", "pg_desc": "tp", "pg_size": len(eight), "ranks": eight},
        ]

        def each(k: int, first: int = first, eight: list[int] = eight) -> Operator:
            if k % 2 == 0:
                return Operator("aten::mm", 100.0 * k, 80.0, [(50.0, 7)])
            name, size = (f"tp{first}", len(eight)) if k % 4 == 1 else ("0", npus)
            elements = 1024 << (k // 4 % 8)
            said = {
                "Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements,
                "dtype": "Float", "Process Group Name": name, "Group size": size,
            }  # fmt: skip
            return Operator("nccl:all_reduce", 100.0 * k, 80.0, [(50.0, 9)], said=said)

        _profile(folder / "job", map(each, range(calls)), rank, npus, config)
    return npus


def ranks(prefix: Path, n: int) -> int:
    """Profiles of many ranks, of eight operators each."""
    return _job(prefix, max(n // 8, 2), 8)


def calls(prefix: Path, n: int) -> int:
    """Profiles of two ranks with many operators each."""
    return _job(prefix, 2, n // 2)


def layers(prefix: Path, n: int) -> int:
    """A text workload of ASTRA-sim 1.0 with many layers."""
    rows = [
        f"layer_{k}\t-1\t{k % 97 + 1}\tALLREDUCE\t{1024 + k}\t5\tNONE\t0\t7\tALLREDUCE\t{2048 + k}\t10"
        for k in range(max(n // 8, 2))
    ]
    Path(f"{prefix}.txt").write_text("\n".join(["DATA", str(len(rows)), *rows]) + "\n")
    return 8


def numbered(prefix: Path, n: int) -> int:
    """A text workload of four layers for many NPUs, in groups of two."""
    rows = ["layer\t-1\t1\tALLREDUCE\t1024\t5\tNONE\t0\t7\tALLREDUCE\t2048\t10"] * 4
    Path(f"{prefix}.txt").write_text("\n".join(["HYBRID_DATA_MODEL", "4", *rows]) + "\n")
    return max(n // 16 * 2, 4)


SHAPES: dict[str, Shape] = {
    "chain": chain,
    "star": star,
    "collectives": collectives,
    "messages": messages,
    "waiting": waiting,
    "gather": gather,
    "streams": streams,
    "groups": groups,
    "unlike": unlike,
    "relay": relay,
    "pipeline": pipeline,
    "operators": operators,
    "nested": nested,
    "launches": launches,
    "lanes": lanes,
    "shared": shared,
    "ranks": ranks,
    "calls": calls,
    "layers": layers,
    "numbered": numbered,
}
#: shapes of plain traces, which every command takes
PLAIN = (
    "chain",
    "star",
    "collectives",
    "messages",
    "waiting",
    "gather",
    "streams",
    "groups",
    "unlike",
    "relay",
)
#: those of which one file says all to a command that reads one
ALONE = ("chain", "star", "collectives", "messages", "waiting", "streams")
#: shapes of profiles of one rank
PROFILES = ("operators", "nested", "launches", "lanes", "shared")
#: shapes of profiles of several ranks
JOBS = ("ranks", "calls")
