"""Make the example workloads in this folder with our own builder: python traces/make_traces.py [FOLDER].

Every workload is a folder with WORKLOAD.<rank>.et, system.json, network.yml and memory.json, in the formats
that ASTRA-sim reads. Running this again gives the same bytes.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chakra.builder import Handle, TraceBuilder, Workload

HERE = Path(__file__).resolve().parent
MIB = 1 << 20

#: The tutorials' system: four splits, one chunk at a time in a dimension, 50 GB/s of local memory.
TUTORIAL_SYSTEM: dict[str, Any] = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring"],
    "all-gather-implementation": ["ring"],
    "reduce-scatter-implementation": ["ring"],
    "all-to-all-implementation": ["ring"],
    "collective-optimization": "localBWAware",
    "local-mem-bw": 50,
}
RING_OF_8 = """\
topology: [ Ring ]
npus_count: [ 8 ]
bandwidth: [ 50.0 ]  # GB/s (2^30 bytes a second)
latency: [ 500.0 ]  # ns
"""

#: Forward and input-gradient compute, weight-gradient compute (both in microseconds), bytes of the all-gather
#: after forward and of the all-reduce after the input gradient, of each layer of the tutorials' perceptron.
MLP_LAYERS = (
    (32291, 12864, 37632),
    (7488, 3648, 65536),
    (7488, 3456, 65536),
    (14144, 10368, 147456),
    (7488, 3648, 65536),
    (9984, 3456, 65536),
)


def all_reduce(b: TraceBuilder) -> None:
    """One all-reduce of 1 MiB."""
    b.collective("all_reduce", size_bytes=MIB, name="all-reduce 1 MiB")


def three_nodes(b: TraceBuilder) -> None:
    """An all-reduce; then an all-gather and a computation side by side."""
    first = b.collective("all_reduce", size_bytes=MIB, name="all-reduce 1 MiB")
    b.collective("all_gather", size_bytes=2 * MIB, name="all-gather 2 MiB", after=first)
    b.compute("compute 50 us", duration_micros=50, after=first)


def mlp(b: TraceBuilder) -> None:
    """One training step of a six-layer perceptron whose layers are split over all NPUs (model parallel).

    Every forward computation ends in an all-gather of activations, every input gradient but the first layer's
    in an all-reduce. A weight gradient runs while its layer's all-reduce does.
    """
    before: list[Handle] = []
    for layer, (forward, _, size) in enumerate(MLP_LAYERS):
        work = b.compute(f"layer {layer} forward", duration_micros=forward, after=before)
        before = [b.collective("all_gather", size_bytes=size, name=f"layer {layer} activations", after=work)]
    for layer, (forward, weights, size) in reversed(list(enumerate(MLP_LAYERS))):
        gradient = b.compute(f"layer {layer} input gradient", duration_micros=forward, after=before)
        before = []
        if layer:
            name = f"layer {layer} gradients"
            before = [b.collective("all_reduce", size_bytes=size, name=name, after=gradient)]
        before.append(b.compute(f"layer {layer} weight gradient", duration_micros=weights, after=gradient))


# An NVIDIA HGX H100 box: eight H100 SXM behind NVLink switches.
H100_PEAK_TFLOPS = 989  # dense 16-bit, H100 data sheet
H100_MEMORY_GBPS = 3350  # HBM3, H100 data sheet
H100_NVLINK_GBPS = 450  # one direction of 18 links at 25 GB/s, H100 data sheet; 10^9 bytes a second
H100_SYSTEM: dict[str, Any] = TUTORIAL_SYSTEM | {
    "preferred-dataset-splits": 1,
    "local-mem-bw": H100_MEMORY_GBPS,
    "roofline-enabled": 1,
    "peak-perf": H100_PEAK_TFLOPS,
}
H100_NETWORK = f"""\
# One hop of a Switch is half of the way between two GPUs: latency is what ASTRA-sim's authors fitted for this
# box.
topology: [ Switch ]
npus_count: [ 8 ]
bandwidth: [ {H100_NVLINK_GBPS * 1e9 / 2**30:.3f} ]  # GB/s (2^30 bytes a second); 450e9 B/s each way
latency: [ 936.25 ]  # ns
"""

#: Shape of Llama 3 8B: width, width of keys and values, width of the feed-forward part; tokens in a batch.
WIDTH, KV_WIDTH, FFN_WIDTH, TOKENS, LAYERS, TP = 4096, 1024, 14336, 4096, 4, 8


def h100_layers(b: TraceBuilder) -> None:
    """Forward and backward pass of four Llama-3-8B layers, tensor parallel over the box, 16-bit numbers.

    Attention and feed-forward part end in an all-reduce of the activations, in both directions.
    """
    activations = 2 * TOKENS * WIDTH
    parts = {"attention": 2 * WIDTH * (WIDTH + KV_WIDTH), "feed-forward": 3 * WIDTH * FFN_WIDTH}
    steps = [("forward", 1, layer, part) for layer in range(LAYERS) for part in parts]
    steps += [("backward", 2, layer, part) for layer in reversed(range(LAYERS)) for part in reversed(parts)]
    last: Handle | tuple[()] = ()
    for direction, factor, layer, part in steps:
        weights = parts[part] // TP
        num_ops = factor * 2 * weights * TOKENS
        touched = factor * (2 * weights + 2 * activations)
        seconds = max(num_ops / (H100_PEAK_TFLOPS * 1e12), touched / (H100_MEMORY_GBPS * 1e9))
        name = f"layer {layer} {part} {direction}"
        work = b.compute(
            name, duration_ns=round(seconds * 1e9), num_ops=num_ops, tensor_bytes=touched, after=last
        )
        last = b.collective("all_reduce", size_bytes=activations, name=f"{name} all-reduce", after=work)


WORKLOADS: dict[str, tuple[Callable[[TraceBuilder], None], dict[str, Any], str]] = {
    "allreduce_ring8": (all_reduce, TUTORIAL_SYSTEM, RING_OF_8),
    "three_nodes": (three_nodes, TUTORIAL_SYSTEM, RING_OF_8),
    "mlp_model_parallel": (mlp, TUTORIAL_SYSTEM, RING_OF_8),
    "h100_box": (h100_layers, H100_SYSTEM, H100_NETWORK),
}


def make(folder: Path) -> None:
    """Write all workloads below ``folder``."""
    for name, (program, system, network) in WORKLOADS.items():
        workload = Workload(8)
        workload.run(program, uniform=True)
        workload.write(folder / name / "workload")
        (folder / name / "system.json").write_text(json.dumps(system, indent=2) + "\n", encoding="utf-8")
        (folder / name / "network.yml").write_text(network, encoding="utf-8")
        (folder / name / "memory.json").write_text(
            '{ "memory-type": "NO_MEMORY_EXPANSION" }\n', encoding="utf-8"
        )


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
