"""One small job, and a command line for every command, with the JSON document that it prints or writes."""

import contextlib
import importlib.util
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import forked
from seeds import INFRAGRAPH

from chakra.builder import TraceBuilder, Workload
from chakra.cli.main import run as in_process

NETWORK = "topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
SYSTEM = {
    f"{kind}-implementation": ["ring"]
    for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
}
STUDY = """\
study: how much network
workload: {kind: mlp, widths: [64, 64, 64], dp: 16, npus: 16}
platform: hgx-h100
parameters:
  network.dim1.bandwidth: {range: [5, 100], count: 6, log: true}
method: {random: 4, seed: 1}
objective: exposed_ms
"""
TEXT = "DATA\n2\nfc1 -1 10 NONE 0 10 NONE 0 10 ALLREDUCE 4096 2\nfc2 -1 10 NONE 0 10 NONE 0 10 ALLREDUCE 4096 2\n"
MEASURED = """\
source,hardware,nodes,gpus_per_node,workload_model,parallelism,sequence,micro_batch,global_batch,precision,metric,value,unit,notes
own,H100 SXM,1,8,"layers 2, hidden 512, heads 8, vocab 1024",tp2 dp4,128,1,8,bf16,step time,2.5,ms,framework=megatron
"""
OLD_NETWORK = {
    "topology-name": "Hierarchical", "topologies-per-dim": ["Ring"], "dimension-type": ["N"], "dimensions-count": 1,
    "units-count": [4], "links-count": [1], "link-latency": [500], "link-bandwidth": [50],
}  # fmt: skip


@dataclass(frozen=True)
class Scene:
    """A command line; `schema` names the JSON document on standard output or in the file `document`."""

    line: str
    schema: str | None = None
    document: str | None = None
    #: files that the command writes, for comparing bytes
    writes: tuple[str, ...] = ()

    @property
    def args(self) -> list[str]:
        """Words of the command line."""
        return self.line.split()


MODEL = "--layers 2 --hidden 64 --heads 4 --vocabulary 128 --seq 32 --tp 2 --dp 2"
RUN = "-w run -s system.json -n network.yml"
SCENES = {
    "accuracy": Scene("accuracy --file measured.csv --rows --format json", "chakra.accuracy/1"),
    "anonymize": Scene("anonymize run hidden --format json", "chakra.anonymize/1", None, ("hidden.0.et", "hidden.3.et")),
    "calibrate": Scene("calibrate sweep.log --format json -o fitted.yml", "chakra.calibration/1", None, ("fitted.yml",)),
    "calibrate --library": Scene(
        "calibrate sweep.log --library hgx-h100 --format json -o costs.yml",
        "chakra.library-calibration/1",
        None,
        ("costs.yml",),
    ),
    "check-config": Scene("check-config -s system.json -n network.yml --format json", "chakra.check-config/1"),
    "compare": Scene("compare recorded/DEVICE recorded/DEVICE --format json", "chakra.compare/1"),
    "compare backends": Scene(f"compare --backends aware,flow {RUN} --format json", "chakra.compare.backends/1"),
    "compare page": Scene("compare recorded/DEVICE recorded/DEVICE -o difference.html", None, None, ("difference.html",)),
    "convert config": Scene(
        "convert config -i network.yml -o new.yml --format json", "chakra.written/1", None, ("new.yml",)
    ),
    "convert msccl export": Scene(
        "convert msccl --algorithm ring --collective all_reduce --npus 4 -o ring.xml --format json", "chakra.written/1",
        None, ("ring.xml",),
    ),
    "convert msccl": Scene(
        "convert msccl -i ring.xml -o ring --size 4096 --format json", "chakra.written/1", None, ("ring.0.et",)
    ),
    "convert text": Scene(
        "convert text -i model.txt -o text --npus 4 --format json", "chakra.convert.text/1", None, ("text.0.et",)
    ),
    "convert pytorch": Scene(
        "convert pytorch --dir recorded -o job --format json", "chakra.convert.pytorch/1", None, ("job.0.et",)
    ),
    "convert pytorch one": Scene(
        "convert pytorch --host recorded/HOST --device recorded/DEVICE -o one.et --format json", "chakra.link/1", None,
        ("one.et",),
    ),
    "convert pytorch checked": Scene(
        "convert pytorch --dir recorded -o checked --check --deprofile 5 --ranks shortest --format json",
        "chakra.convert.pytorch/1", None, ("checked.0.et",),
    ),
    "convert pytorch one checked": Scene(
        "convert pytorch --device recorded/DEVICE -o alone.et --check --deprofile 5 --format json", "chakra.link/1", None,
        ("alone.et",),
    ),
    "doctor": Scene("doctor --format json", "chakra.doctor/1"),
    "generate transformer": Scene(
        f"generate transformer {MODEL} -o llm --format json", "chakra.generate.summary/1", None, ("llm.class0.et",)
    ),
    "generate dlrm": Scene(
        "generate dlrm --npus 4 -o rec --format json", "chakra.generate.summary/1", None, ("rec.class0.et",)
    ),
    "generate mlp": Scene(
        "generate mlp --widths 64,64 --dp 2 -o mlp --format json", "chakra.generate.summary/1", None, ("mlp.class0.et",)
    ),
    "generate moe": Scene(
        f"generate moe {MODEL} --kv-heads 4 --experts 4 --ep 2 -o moe --format json", "chakra.generate.summary/1", None,
        ("moe.class0.et",),
    ),
    "generate resnet": Scene(
        "generate resnet --dp 2 -o resnet --format json", "chakra.generate.summary/1", None, ("resnet.class0.et",)
    ),
    "generate manifest": Scene(
        f"generate transformer {MODEL} -o llm2", "chakra.workload/1", "llm2.workload.json", ("llm2.workload.json",)
    ),
    "generate collective": Scene(
        "generate collective --npus 4 --size 64KiB -o coll --gzip", None, None, ("coll.0.et.gz",)
    ),
    "info": Scene("info run.0.et --format json --path", "chakra.info/1"),
    "jsonize": Scene("jsonize run.0.et run.json", "chakra.et.json/1", "run.json", ("run.json",)),
    "link": Scene(
        "link --host recorded/HOST --device recorded/DEVICE -o linked.json --format json", "chakra.link/1", None,
        ("linked.json",),
    ),
    "platform list": Scene("platform list --format json", "chakra.platforms/1"),
    "platform show": Scene("platform show hgx-h100 --format json", "chakra.platform/1"),
    "platform write": Scene("platform write hgx-h100 --npus 8 -o machine", None, None, ()),
    "replay": Scene(f"replay {RUN} --format json --nodes", "chakra.replay.result/1"),
    "replay aware": Scene(
        f"replay {RUN} --format json --nodes --backend aware -o result.json", "chakra.replay.result/1", "result.json",
        ("result.json",),
    ),
    "replay csv": Scene(f"replay {RUN} --format csv"),
    "replay text": Scene(f"replay {RUN}"),
    "what-if": Scene(f"replay {RUN} --what-if dim0.bandwidth=2x --format json", "chakra.replay.what_if/1"),
    "rescale": Scene(
        "rescale run -o larger --npus 16 --along pipeline --format json", "chakra.rescale/1", None, ("larger.class0.et",)
    ),
    "report": Scene("report result.json -o report.html", None, None, ("report.html",)),
    "sweep": Scene(
        "sweep study.yml -o results --workers 1 --format json", "chakra.sweep/1", None, ("results/pareto.svg",)
    ),
    "timeline": Scene("timeline result.json line.json.gz", None, None, ("line.json.gz",)),
    "timeline perfetto": Scene("timeline result.json line.pftrace", None, None, ("line.pftrace",)),
    "topology": Scene("topology torus --shape 2x2"),
    "topology file": Scene(
        "topology dragonfly --groups 3 --routers 2 --npus-per-router 2 -o fly.yml --format json", "chakra.written/1",
        None, ("fly.yml",),
    ),
    "topology machine": Scene(
        "topology machine hgx-h100 over 400G torus 2 -o torus.yml --format json",
        "chakra.written/1",
        None,
        ("torus.yml",),
    ),
    "topology fat-tree": Scene(
        "topology fat-tree --down 4,2 -o fat.yml --format json", "chakra.written/1", None, ("fat.yml",)
    ),
    "topology rail": Scene("topology rail --nodes 2 -o rail.yml --format json", "chakra.written/1", None, ("rail.yml",)),
    "topology torus": Scene(
        "topology torus --shape 2x2 -o torus.yml --format json", "chakra.written/1", None, ("torus.yml",)
    ),
    "topology import": Scene(
        "topology import -i infra.json -o infra.yml --format json", "chakra.written/1", None, ("infra.yml",)
    ),
    "validate": Scene("validate run --npus 4 --format json", "chakra.validate/1"),
    "visualize html": Scene("visualize run.0.et graph.html", None, None, ("graph.html",)),
    "visualize svg": Scene("visualize run.0.et graph.svg --format json", "chakra.written/1", None, ("graph.svg",)),
    "visualize pdf": Scene("visualize run.0.et graph.pdf", None, None, ("graph.pdf",)),
    "visualize dot": Scene("visualize run.0.et graph.dot", None, None, ("graph.dot",)),
}  # fmt: skip


def prepare(folder: Path) -> None:
    """Write the inputs of all scenes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "network.yml").write_text(NETWORK)
    (folder / "system.json").write_text(json.dumps(SYSTEM))
    (folder / "study.yml").write_text(STUDY)
    (folder / "infra.json").write_bytes(INFRAGRAPH)
    (folder / "model.txt").write_text(TEXT)
    (folder / "measured.csv").write_text(MEASURED)
    lines = [
        "# Collective test starting: all_reduce_perf",
        *(
            f"#  Rank {rank:2d} Group  0 Pid  100 on node device {rank:2d} [0x00] NVIDIA H100"
            for rank in range(4)
        ),
        "#       size         count      type   redop    root" + 2 * "     time   algbw   busbw #wrong",
    ]
    for size in (1 << k for k in range(10, 24)):
        time = 20 + size / 10_000 + math.sin(size)
        rate = size / time / 1e3
        values = [f"{t:.3f} {r:.2f} {1.5 * r:.2f} 0" for t, r in ((time, rate), (2 * time, rate / 2))]
        lines.append(f"{size} {size // 4} float sum -1 {' '.join(values)}")
    (folder / "sweep.log").write_text("\n".join([*lines, ""]))

    def program(b: TraceBuilder) -> None:
        first = b.compute("mlp", duration_micros=7 + b.rank)
        last = b.collective("all-reduce", size_bytes=1 << 16, after=first)
        b.compute("update", duration_micros=3, after=last)

    work = Workload(4)
    work.run(program)
    work.write(str(folder / "run"))
    spec = importlib.util.spec_from_file_location(
        "pytorch_conftest", Path(__file__).parents[1] / "pytorch" / "conftest.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (folder / "recorded").mkdir(exist_ok=True)
    job = module.MiniJob()
    for k in range(4):
        job.op(f"op{k}", 100 * k, 40)
        job.call("cudaLaunchKernel", 100 * k + 30, 5, 1 + k)
        job.kernel(f"kernel{k}", 100 * k + 37, 50, 1 + k)
    host, device = job.write(folder / "recorded")
    host.rename(host.with_name("job.rank0.host.json"))
    device.rename(device.with_name("job.rank0.kineto.json"))


def words(scene: Scene) -> list[str]:
    """The command line with the recording's file names."""
    return [
        w.replace("HOST", "job.rank0.host.json").replace("DEVICE", "job.rank0.kineto.json")
        for w in scene.args
    ]


def prepare_with(folder: Path, *names: str) -> None:
    """Write the inputs of all scenes, and what some scenes make of them."""
    prepare(folder)
    with contextlib.chdir(folder):
        for name in names:
            assert in_process([*words(SCENES[name]), "-q"]) == 0


def run_warm(args: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own, a fork of one that has imported chakra."""
    return forked.python(["-m", "chakra", *args], folder, variables={**os.environ, **variables})


def run(args: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a new process."""
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-m", "chakra", *args], cwd=folder, env=environment, capture_output=True, check=False
    )


@dataclass(frozen=True)
class Ran:
    """What a command gave."""

    code: int
    out: bytes
    err: bytes
    folder: Path
    files: dict[str, bytes]
