"""Recording a matched pair of traces of a PyTorch job, one pair per rank, with the settings that linking needs.

PyTorch is an extra (``pip install chakra-replay[capture]``) and is imported only when a recording starts.

>>> from chakra.capture import capture  # doctest: +SKIP
>>> with capture("traces/job", steps=2, warmup=1) as recording:  # doctest: +SKIP
...     for batch in loader:
...         train_step(batch)
...         recording.step()
>>> recording.host, recording.device  # doctest: +SKIP
('traces/job.rank0.et.json', 'traces/job.rank0.kineto.json')

Then ``chakra convert pytorch --dir traces --job job --output job`` makes the execution traces of all ranks.
"""

import contextlib
import itertools
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from chakra.arguments import checked
from chakra.errors import UsageError
from chakra.io.digits import whole_number
from chakra.io.documents import document_text, with_first_key
from chakra.io.files import expect_prefix, made_folder
from chakra.io.readable import counted

__all__ = ["Recording", "capture"]

#: Oldest PyTorch whose profiler takes an execution trace observer and whose traces carry record function ids.
OLDEST_TORCH = (2, 3)


@dataclass(slots=True)
class Recording:
    """A recording in progress: call `step` after every step of the job.

    Attributes
    ----------
    host, device
        Paths of the host trace and the Kineto trace of this rank.
    rank, world_size
        As ``torch.distributed`` says, else by the variables RANK and WORLD_SIZE, else 0 and 1.
    facts
        Path of the rank's facts: steps without profiler, versions, clocks.
    done
        Whether all steps asked for have been recorded and written, and timed without profiler.
    recorded
        Whether all steps asked for have been recorded and written.
    wanted
        Steps that are recorded.
    unprofiled
        Steps that are timed behind them with the profiler off.
    steps
        Steps so far.
    """

    host: str
    device: str
    rank: int
    world_size: int
    wanted: int
    facts: str = ""
    unprofiled: int = 0
    steps: int = 0
    recorded: bool = False
    done: bool = False
    _profiler: Any = field(default=None, repr=False)
    _wait: Callable[[], None] | None = field(default=None, repr=False)
    _marks: list[float] = field(default_factory=list, repr=False)

    def step(self) -> None:
        """Mark the end of a step."""
        if self._profiler is None or self.done:
            return
        if self.recorded:
            self._time()
            return
        self.steps += 1
        self._profiler.step()
        self.done = self._is_over()

    def _is_over(self) -> bool:
        """Whether everything is recorded, and nothing is to be timed."""
        return self.recorded and not self.unprofiled

    def _time(self) -> None:
        """Note the end of a step without profiler, when the device has done it too; the first is not counted."""
        if self._wait is not None:
            self._wait()
        self._marks.append(time.perf_counter())
        self.done = len(self._marks) > self.unprofiled

    @property
    def step_us_unprofiled(self) -> list[float]:
        """Times of the steps without profiler, us."""
        return [1e6 * (end - start) for start, end in itertools.pairwise(self._marks)]


@contextmanager
@checked
def capture(
    prefix: str | os.PathLike[str],
    *,
    steps: int = 1,
    warmup: int = 1,
    wait: int = 0,
    rank: int | None = None,
    record_shapes: bool = True,
    unprofiled: int = 3,
) -> Iterator[Recording]:
    """Record ``steps`` steps of the job in the block, after ``wait + warmup`` steps without recording.

    Writes ``PREFIX.rank<R>.et.json`` (host trace) and ``PREFIX.rank<R>.kineto.json`` (device trace). Both come from the
    same steps of one profiler, so their record function ids match. Synchronisation events are switched on where the
    installed PyTorch can record them; stacks are not, because they make up most of a trace and linking drops them.

    With the profiler off again, ``unprofiled`` more steps are timed, as many as the block still runs. They go, with
    versions and clocks, to ``PREFIX.rank<R>.meta.json``, from which ``chakra convert pytorch --deprofile auto`` tells
    what recording cost the host.

    Parameters
    ----------
    prefix
        Path and name of the job; the folder is made.
    steps, warmup, wait
        Numbers of steps: recorded, run with the profiler already on (its start is slow), and left alone before that.
        At least one warm-up step is needed: work of steps before it would appear without its launch.
    rank
        Rank, where neither ``torch.distributed`` nor the variable RANK says it.
    record_shapes
        Record shapes of inputs.
    unprofiled
        Steps to be timed without profiler, behind one that is not counted; 0 times none.

    Raises
    ------
    UsageError
        PyTorch is missing or too old, a number is out of range, or the block ended before all steps were recorded
        (what was written by then is removed).
    """
    if steps < 1 or warmup < 1 or wait < 0 or unprofiled < 0:
        raise UsageError(
            f"capture: steps {steps} and warmup {warmup} must be at least 1, wait {wait} and unprofiled {unprofiled} at "
            "least 0"
        )
    torch = _torch()
    own_rank, world = _place(torch, rank)
    stem = expect_prefix(prefix)
    host = stem.with_name(f"{stem.name}.rank{own_rank}.et.json")
    device = stem.with_name(f"{stem.name}.rank{own_rank}.kineto.json")
    facts = stem.with_name(f"{stem.name}.rank{own_rank}.meta.json")
    recording = Recording(str(host), str(device), own_rank, world, steps, str(facts), unprofiled)
    recording._wait = _synchronize(torch)
    with made_folder(stem.parent, prefix):
        try:
            with _profiler(torch, recording, (wait, warmup, steps), record_shapes) as profiler:
                recording._profiler = profiler
                try:
                    yield recording
                finally:
                    recording._profiler = None
        finally:
            if not recording.recorded:
                for path in (host, device):
                    path.unlink(missing_ok=True)
        if not recording.recorded:
            raise UsageError(
                f"capture: the block ended after {counted(recording.steps, 'step')}; {wait + warmup + steps} are needed "
                f"({wait} wait + {warmup} warm-up + {steps} recorded): call step() after every step"
            )
        with open(facts, "w", encoding="utf-8") as file:
            file.write(document_text(_facts(torch, recording)))


def _torch() -> Any:
    try:
        import torch
        import torch.profiler
    except ImportError:
        raise UsageError(
            "capture: PyTorch is not installed; pip install 'chakra-replay[capture]' (or torch itself)"
        ) from None
    version = tuple(whole_number(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < OLDEST_TORCH:
        wanted = ".".join(map(str, OLDEST_TORCH))
        raise UsageError(f"capture: PyTorch {torch.__version__} is too old; {wanted} or newer is needed")
    return torch


def _synchronize(torch: ModuleType) -> Callable[[], None] | None:
    """What waits for the device's work; None on the CPU."""
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_available():
        wait: Callable[[], None] = cuda.synchronize
        return wait
    return None


def _facts(torch: ModuleType, recording: Recording) -> dict[str, object]:
    """Steps without profiler, versions and clocks of a rank; what the installation cannot say is left out."""
    facts: dict[str, object] = {
        "rank": recording.rank,
        "world": recording.world_size,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "host": platform.machine(),
        "step_us_unprofiled": recording.step_us_unprofiled,
    }
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_available():
        return facts
    asked: dict[str, Callable[[], object]] = {
        "device": cuda.get_device_name,
        "cuda": lambda: torch.version.cuda,
        "nccl": lambda: ".".join(map(str, cuda.nccl.version())),
        "clock_mhz": cuda.clock_rate,
        "power_w": lambda: cuda.power_draw() / 1e3,
    }
    for name, ask in asked.items():
        # clocks need NVIDIA's management library, and every installation lacks something else
        with contextlib.suppress(Exception):
            facts[name] = ask()
    return facts


def _place(torch: ModuleType, rank: int | None) -> tuple[int, int]:
    """Rank and world size of this process."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    try:
        own = whole_number(os.environ.get("RANK", "0")) if rank is None else rank
        return own, max(whole_number(os.environ.get("WORLD_SIZE", "1")), own + 1)
    except ValueError:
        raise UsageError("capture: the variables RANK and WORLD_SIZE must be numbers") from None


@contextmanager
def _profiler(
    torch: ModuleType, recording: Recording, plan: tuple[int, int, int], record_shapes: bool
) -> Iterator[Any]:
    from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

    wait, warmup, active = plan
    activities = [ProfilerActivity.CPU]
    for name in ("CUDA", "XPU", "MTIA"):
        backend = getattr(torch, name.lower(), None)
        if hasattr(ProfilerActivity, name) and backend is not None and backend.is_available():
            activities.append(getattr(ProfilerActivity, name))

    def ready(profiler: Any) -> None:
        # Leaving the block in the middle of the recorded steps ends here, too.
        if recording.steps < wait + warmup + active:
            return
        profiler.export_chrome_trace(recording.device)
        _complete(recording)
        recording.recorded = True

    observer = ExecutionTraceObserver()
    observer.register_callback(recording.host)
    extra: dict[str, Any] = {}
    config = _experimental_config()
    if config is not None:
        extra["experimental_config"] = config
    with profile(
        activities=activities,
        schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=1),
        on_trace_ready=ready,
        record_shapes=record_shapes,
        execution_trace_observer=observer,
        **extra,
    ) as profiler:
        yield profiler


def _experimental_config() -> object:
    """Synchronisation events, where the installed PyTorch knows the switch."""
    try:
        from torch._C._profiler import _ExperimentalConfig

        return _ExperimentalConfig(enable_cuda_sync_events=True)
    except (ImportError, TypeError):
        return None


def _complete(recording: Recording) -> None:
    """Write rank and world size into the device trace where PyTorch left them out (no process group)."""
    path = Path(recording.device)
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    head = text[: text.find('"traceEvents"')]
    if '"distributedInfo"' in head:
        return
    info = {"rank": recording.rank, "world_size": recording.world_size}
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(with_first_key(text, "distributedInfo", info))
