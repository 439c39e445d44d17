"""Device traces of all ranks of a job, made by hand: what calibration from recordings measures."""

import json
from pathlib import Path
from typing import Any

from chakra.platforms import collective_parameters
from chakra.replay.collectives.library import Communicator, library_time
from chakra.replay.config.model import CollectiveKind as Kind


def event(
    cat: str, name: str, pid: int, tid: int, ts: float, dur: float, args: dict[str, Any]
) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


class Job:
    """Device traces of a job in the making: its computing kernels, and collectives on all ranks. Times in us."""

    def __init__(self, ranks: int, *, devices: list[int] | None = None) -> None:
        self.devices = devices or list(range(ranks))
        self.events: list[list[dict[str, Any]]] = [[] for _ in range(ranks)]
        self.ahead_us = [0.0] * ranks

    def kernel(
        self, rank: int, ts: float, dur: float, name: str = "gemm", stream: int = 7, **args: Any
    ) -> None:
        """A kernel, and the call that launched it."""
        number, device, at = len(self.events[rank]) + 1, self.devices[rank], ts + self.ahead_us[rank]
        work = {"correlation": number, "device": device, "context": 1, "stream": stream, **args}
        self.events[rank] += [
            event("cuda_runtime", "cudaLaunchKernel", 1, 100, at - 0.5, 0.1, {"correlation": number}),
            event("kernel", name, device, stream, at, dur, work),
        ]

    def collective(
        self,
        name: str,
        elements: int,
        starts: list[float],
        end: float,
        sizes: list[int] | None = None,
        stream: int = 9,
    ) -> None:
        """A collective of all ranks, of floats, which ends everywhere within a microsecond."""
        for rank, start in enumerate(starts):
            many = sizes[rank] if sizes else elements
            self.kernel(
                rank, start, end - start - 0.1 * rank, "ncclDevKernel_X", stream,
                **{
                    "Collective name": name, "In msg nelems": many, "Out msg nelems": many, "dtype": "Float",
                    "Process Group Name": "0", "Group size": len(starts),
                },
            )  # fmt: skip

    def write(self, folder: Path, ranks: list[int] | None = None) -> Path:
        folder.mkdir(exist_ok=True)
        for rank in ranks if ranks is not None else range(len(self.events)):
            header = {
                "schemaVersion": 1, "baseTimeNanoseconds": 10**18,
                "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": len(self.events)},
            }  # fmt: skip
            events = sorted(self.events[rank], key=lambda one: float(one["ts"]))
            first, last = float(events[0]["ts"]), float(events[-1]["ts"])
            events.insert(
                0, event("cpu_op", "aten::step", 1, 100, first - 1, last - first + 2, {"External id": 1})
            )
            (folder / f"job.rank{rank}.json").write_text(json.dumps({**header, "traceEvents": events}))
        return folder


def modelled_job(sizes: list[int]) -> Job:
    """Collectives of 8 ranks that take what 8 H100 take by the model."""
    machine = collective_parameters("hgx-h100")
    job, now = Job(8), 1000.0
    for name, kind in (("allreduce", Kind.ALL_REDUCE), ("all_to_all", Kind.ALL_TO_ALL)):
        for size in sizes:
            time = library_time(kind, size, Communicator(8, 8), machine).time_ns / 1e3
            job.collective(name, size // 4, [now + rank for rank in range(8)], now + 7 + time)
            now += time + 100
    return job
