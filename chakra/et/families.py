"""What kind of work a kernel does: the families that differ in what limits them.

A generated node says what it computes; of a recorded kernel the operator that launched it tells, else its name: cuDNN
and cuBLAS run products of matrices by kernels of one name, for convolutions and for linear layers.

Names are facts of the libraries that launch the kernels: cuBLAS and CUTLASS (``sm90_xmma_gemm``, ``nvjet``, ``cutlass``),
cuDNN and MIOpen (``implicit_convolve``, ``xmma_fprop_implicit_gemm``, ``winograd``), Tensile (``Cijk_``), FlashAttention
(``flash_fwd_kernel``, ``fmha``), PyTorch's own (``elementwise_kernel``, ``reduce_kernel``), Triton (``triton_poi_``,
``triton_red_``), and the operators of generated workloads (``layer0.qkv``).
What FBGEMM adds to PyTorch are mostly lookups and permutations for recommendation models, in names and arguments of which
its own name stands; its products are CUTLASS's.
"""

import re
from functools import lru_cache
from typing import Final

from chakra.arguments import checked
from chakra.errors import TraceError
from chakra.et.operators import (
    Attention,
    Computed,
    Host,
    Kernel,
    KernelKind,
    MatrixProduct,
    parse_operators,
)

#: back ends whose collectives CPUs run, as the names of recorded operations begin (``gloo:all_reduce``)
CPU_BACK_ENDS: Final = ("gloo", "mpi", "ucc")
#: families in the order in which a name is tried
FAMILIES: Final = (
    "attention",
    "convolution",
    "matmul",
    "copy",
    "optimizer",
    "norm",
    "reduction",
    "memory",
    "other",
)

_PATTERNS: Final = {
    "attention": r"flash_|fmha|attention|attn_fwd|attn_bwd|\bmha_|paged_?attn|(^|[ ._])attn(_|\b)",
    "convolution": r"conv(?!er|[0-9]_act)|winograd|implicit_gemm|(xmma|tensorop|simt|cudnn).*(dgrad|wgrad|fprop)"
    r"|igemm_(fwd|bwd|wrw)|[dw]grad_(alg|engine)|5x_cudnn|scudnn|cudnn::gemm|im2col|col2im|nchw.*nhwc|nhwc.*nchw",
    "matmul": r"(?<!fb)gemm|nvjet|cutlass|cublas|gemv|\bCijk_|matmul|xmma|_mm_|\bmm\b|splitK|dot_kernel|wgmma"
    r"|\.(qkv|q|kv|proj|out|mlp[0-9]|fc[0-9]?|ffn\w*|expert[0-9]|shared[0-9]|router|logits|head)(\.|$)"
    r"|\.(cross_(q|kv|proj)|(in|x|dt|out)_proj|(q|kv)_(up|down)|q_latent|v_up|chunk_\w+|patches|project[0-9])(\.|$)",
    "copy": r"^mem(cpy|set)|copy_kernel|direct_copy|CatArray|split_with_sizes|chunk_cat|\bcopy\b",
    "optimizer": r"multi_tensor|adam|optimi[sz]er|\bsgd\b|lamb\b|FusedOpt",
    "norm": r"norm|\bbn_|batch_norm|welford|GammaBeta|RowwiseMoments",
    "reduction": r"reduce|softmax|\bsum\b|argmax|triton_(red|per)_|topk|sort|scan|cross_entropy|nll_loss|\.loss",
    "memory": r"elementwise|triton_poi_|vectorized|unrolled|fill|embedding|index|gather|scatter|dropout|gelu|silu"
    r"|relu|pool|upsample|transpose|fbgemm|\.((cross_)?add[0-9]?|act|permute|unpermute|lookup|expert_act|expert_bias)(\.|$)|_act(\.|$)"
    r"|\.(positions|relative|rope|images|class_token|state_step|pass_states)(\.|$)",
}
_TABLE: Final = tuple((family, re.compile(pattern, re.IGNORECASE)) for family, pattern in _PATTERNS.items())

#: families whose time goes with the bandwidth of the memory
MEMORY_BOUND: Final = frozenset(("copy", "optimizer", "norm", "reduction", "memory"))


@checked
def kernel_family(name: str) -> str:
    """The family of a kernel, one of `FAMILIES`.

    Parameters
    ----------
    name
        The kernel's name, as a profiler or a generator writes it.

    Examples
    --------
    >>> [kernel_family(name) for name in ("nvjet_tst_128x256", "flash_fwd_kernel<..>", "vectorized_elementwise_kernel")]
    ['matmul', 'attention', 'memory']
    """
    return _family(name)


@lru_cache(maxsize=1 << 16)
def _family(name: str) -> str:
    for family, pattern in _TABLE:
        if pattern.search(name):
            return family
    return "other"


#: operators of PyTorch whose kernels are of one family whatever they are called
_LAUNCHERS: Final = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        (
            "attention",
            r"::_?(scaled_dot_product|flash_attn|flash_attention|efficient_attention|cudnn_attention)",
        ),
        ("convolution", r"::\w*(convolution|conv_?(transpose|depthwise)?[123]d|conv_tbc)"),
        (
            "matmul",
            r"::_?(add|b|baddb|sparse_|scaled_|int_|grouped_|scaled_grouped_)?(mm|mv)\b|::(_?addmm_activation)\b",
        ),
        ("matmul", r"::(linear|matmul|dot|vdot)\b"),
    )
)
#: copies and fills by the device's own engines, as CUDA and HIP name them
_MOVES: Final = re.compile(r"mem(cpy|set)\b|copy(host|device)", re.IGNORECASE)


@lru_cache(maxsize=1 << 14)
def launcher_family(operator: str) -> str | None:
    """The family of the kernels that an operator launches itself; None for one whose kernels' names tell more.

    >>> launcher_family("aten::convolution_backward"), launcher_family("aten::addmm"), launcher_family("aten::copy_")
    ('convolution', 'matmul', None)
    """
    return next((family for family, pattern in _LAUNCHERS if pattern.search(operator)), None)


@lru_cache(maxsize=1 << 16)
def computes(name: str) -> bool:
    """Whether an operation of a device is a kernel, by its name: neither a copy nor a fill."""
    return _MOVES.match(name) is None


#: families of operators that memory bounds; the others are "memory"
_OF_KIND: Final = {
    KernelKind.NORM: "norm",
    KernelKind.LOSS: "reduction",
    KernelKind.SCAN: "reduction",
    KernelKind.OPTIMIZER: "optimizer",
    KernelKind.CAST: "copy",
    KernelKind.COPY: "copy",
}


def computed_family(operator: Computed) -> str | None:
    """The family of one operator; None of the host's."""
    match operator:
        case MatrixProduct(role=role):
            return "convolution" if role == "convolution" else "matmul"
        case Attention():
            return "attention"
        case Kernel(kind=kind):
            return _OF_KIND.get(kind, "memory")
        case Host():
            return None


@lru_cache(maxsize=1 << 16)
def operator_families(text: str) -> tuple[str, ...]:
    """Families of what a generated node computes, each once, in the order of its operators; none where it says none."""
    try:
        found = parse_operators(text)
    except TraceError:
        return ()
    families = (computed_family(operator) for operator, _ in found)
    return tuple(dict.fromkeys(family for family in families if family is not None))


def operator_family(text: str) -> str | None:
    """The family of what a generated node computes, ``other`` where it computes several; None where it says none.

    A node of several, as merged operators are, has a share of its time in each (`chakra.replay.compute.shares`).
    """
    families = operator_families(text)
    return families[0] if len(families) == 1 else "other" if families else None


@lru_cache(maxsize=1 << 16)
def plain_name(name: str) -> str:
    """A kernel's name without what differs from build to build: return type, template and call arguments.

    Parameters
    ----------
    name
        As the profiler writes it.

    Examples
    --------
    >>> plain_name("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int, float*)")
    'at::native::vectorized_elementwise_kernel<FillFunctor>'
    """
    text = re.sub(r"\(anonymous namespace\)::", "", name)
    head, sign, arguments = text.partition("<")
    head = re.sub(r"^void ", "", head.partition("(")[0]).strip()
    functor = re.search(r"(\w*(?:Functor|Op|_kernel_cuda)\w*)", arguments) if sign else None
    return f"{head}<{functor[1]}>" if functor else head
