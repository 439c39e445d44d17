"""Recording with PyTorch: a real two-process job where PyTorch is installed, and what happens where it is not."""

import builtins
import importlib.util
import multiprocessing
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from chakra.capture import capture
from chakra.errors import UsageError

HAS_TORCH = importlib.util.find_spec("torch") is not None


def test_numbers_out_of_range_are_refused(tmp_path: Path) -> None:
    """Without a warm-up the first recorded kernels have no launch."""
    cases: list[dict[str, Any]] = [{"steps": 0}, {"warmup": 0}, {"wait": -1}]
    for wrong in cases:
        with pytest.raises(UsageError, match="capture: steps"), capture(tmp_path / "job", **wrong):
            pass


def test_missing_pytorch_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch is an extra."""
    real = builtins.__import__

    def without_torch(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "torch":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_torch)
    message = r"PyTorch is not installed; pip install 'chakra-replay\[capture\]'"
    with pytest.raises(UsageError, match=message), capture(tmp_path / "job"):
        pass


def _work(rank: int, port: int, prefix: str) -> None:
    """One process of a data-parallel job on the CPU."""
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with capture(prefix, steps=2, warmup=1) as recording:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(8, 32)).sum().backward()
            optimizer.step()
            recording.step()
    assert recording.recorded
    dist.destroy_process_group()


def _record(folder: Path) -> None:
    """Record the job of `_work` on two processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_work, args=(rank, port, str(folder / "traces" / "ddp"))) for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(240)
        assert process.exitcode == 0


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed (the capture extra)")
def test_a_two_process_job_is_captured_linked_and_replayed(tmp_path: Path) -> None:
    """Gloo DDP: both pairs match, collectives agree across ranks, the replay gives back the recorded span.

    A gloo worker ends its record after the thread that waits has gone on. On a busy machine PyTorch's profiler may stop
    before that, and a rank lacks its last collective; the conversion says so, and the job is recorded again.
    """
    from chakra.converters.pytorch import Settings, convert_job, find_inputs

    for attempt in range(4):
        folder = tmp_path / str(attempt)
        _record(folder)
        inputs = find_inputs(folder / "traces", "ddp")
        assert [i.rank for i in inputs] == [0, 1]
        result = convert_job(inputs, folder / "ddp", Settings(), check=True, jobs=1)
        if not result.mismatches:
            break
        assert all("collectives on rank" in text for text in result.mismatches)
    assert result.mismatches == []
    for outcome in result.outcomes:
        assert outcome.summary["matching"]["method"] == "record function id"
        assert outcome.summary["matching"]["share"] > 0.9
        assert outcome.check is not None
        assert abs(outcome.check.error) < 0.03
        assert any(item["kind"] == "allreduce" for item in outcome.summary["collectives"])


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed (the capture extra)")
def test_a_block_that_ends_early_leaves_nothing_behind(tmp_path: Path) -> None:
    """Half a recording is no recording."""
    message = "the block ended after 1 step; 3 are needed"
    with (
        pytest.raises(UsageError, match=message),
        capture(tmp_path / "job", steps=2, warmup=1) as recording,
    ):
        recording.step()
    assert list(tmp_path.iterdir()) == []
