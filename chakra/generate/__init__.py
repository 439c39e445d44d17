"""Execution traces of workloads that nobody has run: from a model, a parallelisation and a schedule.

>>> from chakra.generate import TransformerRequest, build_workload
>>> request = TransformerRequest(model="gpt2-small", tp=2, pp=2, npus=64, micro_batches=4)
>>> workload = build_workload(request.plan())
>>> workload.npus, len(workload.traces), workload.groups["tp"].shape
(64, 2, (32, 2))
"""

from typing import TYPE_CHECKING

from chakra.lazy import lazy_names

if TYPE_CHECKING:
    from chakra.et.manifest import WorkloadManifest, read_manifest
    from chakra.generate.model.blocks import ContextParallel
    from chakra.generate.plan.options import Recompute
    from chakra.generate.plan.training import StepPlan
    from chakra.generate.request.base import CommOrder, Request
    from chakra.generate.request.requests import DlrmRequest, MlpRequest, ResnetRequest
    from chakra.generate.request.transformers import Mode, MoeRequest, TransformerRequest
    from chakra.generate.schedule.pipeline import ScheduleKind
    from chakra.generate.verify.step_totals import summarize, total_matmul_flops, total_parameters
    from chakra.generate.verify.workload import build_workload
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

# importing the package stays cheap: a replay asks modules of it for little
lazy_names(
    __name__,
    {
        "CommOrder": "chakra.generate.request.base",
        "ContextParallel": "chakra.generate.model.blocks",
        "DlrmRequest": "chakra.generate.request.requests",
        "MlpRequest": "chakra.generate.request.requests",
        "Mode": "chakra.generate.request.transformers",
        "MoeRequest": "chakra.generate.request.transformers",
        "Recompute": "chakra.generate.plan.options",
        "Request": "chakra.generate.request.base",
        "ResnetRequest": "chakra.generate.request.requests",
        "ScheduleKind": "chakra.generate.schedule.pipeline",
        "StepPlan": "chakra.generate.plan.training",
        "TransformerRequest": "chakra.generate.request.transformers",
        "WorkloadManifest": "chakra.et.manifest",
        "build_workload": "chakra.generate.verify.workload",
        "read_manifest": "chakra.et.manifest",
        "summarize": "chakra.generate.verify.step_totals",
        "total_matmul_flops": "chakra.generate.verify.step_totals",
        "total_parameters": "chakra.generate.verify.step_totals",
        "write_plain": "chakra.generate.write",
        "write_shared": "chakra.generate.write",
    },
)
