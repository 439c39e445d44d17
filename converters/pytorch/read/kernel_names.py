"""Which kernels communicate, by their names alone: libraries that PyTorch's profiler does not annotate.

Names are facts of those projects: vLLM and SGLang (``cross_device_reduce_1stage``), TensorRT-LLM and FlashInfer
(``allreduce_fusion_kernel_oneshot_lamport``), PyTorch's symmetric memory (``two_shot_all_reduce_kernel_inplace``), DeepEP
(``deep_ep::intranode::dispatch``), pplx, NVSHMEM (``nvshmemi_alltoall_kernel``), MSCCL++, Ascend (``hcom_allReduce_``).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chakra.errors import UsageError

#: Kernels of the libraries behind process groups. What such a kernel does stands in the trace's metadata.
LIBRARY = re.compile(r"nccl|rccl|oneccl|msccl|hccl|hcom_", re.IGNORECASE)
_LIBRARY_KIND = re.compile(
    r"(AllReduce|ReduceScatter|AllGather|AllToAll|Broadcast|Reduce|Gather|Scatter|SendRecv|Barrier)",
    re.IGNORECASE,
)
_TABLE = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"deep_?ep::.*(get_dispatch_layout|layout::)", ""),
        (r"deep_?ep::.*(barrier|notify)", "barrier"),
        (r"deep_?ep::.*(dispatch|combine)", "alltoall"),
        (r"(pplx|a2a|all_?to_?all)\w*(::\w*)*[:_](dispatch|combine)", "alltoall"),
        (r"cross_device_reduce", "allreduce"),
        (r"quick_?reduce|quickreduce", "allreduce"),
        (r"(one|two|1|2)_?(shot|stage)\w*all_?reduce", "allreduce"),
        (r"all_?reduce\w*(one|two)_?shot|(one|two)_?shot\w*reduce\w*lamport", "allreduce"),
        (r"(multimem|multicast|symm_?mem|nvshmem\w*|rocshmem\w*)\w*(::\w*)*all_?reduce", "allreduce"),
        (r"(fusion|custom|lamport)\w*(::\w*)*all_?reduce", "allreduce"),
        (r"all_?reduce\w*(multimem|fusion|lamport|prototype)", "allreduce"),
        (r"(multimem|symm_?mem|nvshmem\w*|rocshmem\w*)\w*(::\w*)*all_?gather", "allgather"),
        (r"(multimem|symm_?mem|nvshmem\w*|rocshmem\w*)\w*(::\w*)*reduce_?scatter", "reducescatter"),
        (r"(nvshmem\w*|rocshmem\w*)\w*(::\w*)*all_?to_?all", "alltoall"),
        (r"(nvshmem\w*|rocshmem\w*)\w*broadcast", "broadcast"),
        (r"(nvshmem\w*|rocshmem\w*)\w*(barrier|sync_all)", "barrier"),
    )
)  # fmt: skip
_LOOKS = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|nvshmem|rocshmem|deep_?ep"
    r"|mscclpp|cross_device|symm_?mem|multimem",
    re.IGNORECASE,
)
#: what `--comm-kernels` may call a kernel; ``none`` is computing
KINDS = (
    "allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce", "gather", "scatter", "barrier",
    "none",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelNames:
    """Rules for names of kernels, the user's before our own."""

    given: tuple[tuple[re.Pattern[str], str], ...] = ()

    @classmethod
    def of(cls, texts: Sequence[str]) -> "KernelNames":
        """Rules of texts ``PATTERN=kind``: a regular expression found anywhere in the name, and one of `KINDS`.

        Raises
        ------
        UsageError
            A text has no kind, a kind is unknown, or a pattern is no regular expression.
        """
        given: list[tuple[re.Pattern[str], str]] = []
        for text in texts:
            pattern, sign, word = text.rpartition("=")
            kind = word.strip().lower().replace("_", "").replace("-", "")
            if not sign or not pattern or kind not in KINDS:
                raise UsageError(
                    f"--comm-kernels: {text!r}: expected PATTERN=KIND, KIND one of {', '.join(KINDS)}"
                )
            try:
                given.append((re.compile(pattern), kind))
            except re.error as error:
                raise UsageError(f"--comm-kernels: {pattern!r} is no regular expression: {error}") from None
        return cls(tuple(given))

    def unused(self, names: Iterable[str]) -> list[str]:
        """Patterns of the user's that are found in none of the names."""
        texts = list(names)
        return [
            pattern.pattern for pattern, _ in self.given if not any(pattern.search(text) for text in texts)
        ]

    def kind(self, name: str) -> str | None:
        """Collective that a kernel carries out; empty where it computes for sure; None where the name does not say."""
        for pattern, kind in self.given:
            if pattern.search(name):
                return "" if kind == "none" else kind
        if LIBRARY.search(name):
            found = _LIBRARY_KIND.search(name.replace("_", ""))
            word = found[1].lower() if found else None
            return "alltoall" if word == "sendrecv" else word
        return next((kind for pattern, kind in _TABLE if pattern.search(name)), None)


def looks_like_communication(name: str) -> bool:
    """Whether a reader would take a kernel for communication."""
    return _LOOKS.search(name) is not None


#: the rules without any of a user's
DEFAULT = KernelNames()
