"""Workloads of more ranks from recorded or generated ones of few, along data, pipeline-replica or expert parallelism.

>>> from chakra.generate import TransformerRequest, build_workload
>>> from chakra.rescale import rescale
>>> few = build_workload(TransformerRequest(model="gpt2-small", tp=2, dp=4, npus=8).plan())
>>> many = rescale(few, 64)
>>> many.npus, many.groups["dp"].shape, many.groups["tp"].shape
(64, (2, 32), (32, 2))
"""

from chakra.rescale.workload import Along, read_workload, rescale

__all__ = ["Along", "read_workload", "rescale"]
