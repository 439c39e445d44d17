"""Execution traces of workloads that nobody has run: from a model, a parallelisation and a schedule.

>>> from chakra.generate import TransformerRequest, build_workload
>>> request = TransformerRequest(model="gpt2-small", tp=2, pp=2, npus=64, micro_batches=4)
>>> workload = build_workload(request.plan())
>>> workload.npus, len(workload.traces), workload.groups["tp"].shape
(64, 2, (32, 2))
"""

from chakra.et.manifest import WorkloadManifest, read_manifest
from chakra.generate.model.transformer import ContextParallel
from chakra.generate.plan.options import Recompute
from chakra.generate.plan.training import StepPlan, build_workload
from chakra.generate.request.requests import (
    CommOrder,
    DlrmRequest,
    MlpRequest,
    Mode,
    MoeRequest,
    Request,
    ResnetRequest,
    TransformerRequest,
)
from chakra.generate.schedule.pipeline import ScheduleKind
from chakra.generate.verify.step_totals import summarize, total_matmul_flops, total_parameters
from chakra.generate.write import write_plain, write_shared

__all__ = [
    "CommOrder",
    "ContextParallel",
    "DlrmRequest",
    "MlpRequest",
    "Mode",
    "MoeRequest",
    "Recompute",
    "Request",
    "ResnetRequest",
    "ScheduleKind",
    "StepPlan",
    "TransformerRequest",
    "WorkloadManifest",
    "build_workload",
    "read_manifest",
    "summarize",
    "total_matmul_flops",
    "total_parameters",
    "write_plain",
    "write_shared",
]
