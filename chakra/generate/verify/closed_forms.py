"""Closed forms that generated workloads must meet. They share no code with the generator, so that each checks the other.

Symbols as in the literature: L layers, h hidden, a heads of d, k key-value heads, f feed-forward width, g = 3 with a gate
else 2, V vocabulary, s sequence, b sequences per micro-batch, M micro-batches, B = b*M*D sequences a step; T, C, P, D, E
sizes of tp, cp, pp, dp, ep; w bytes per element. Sources: Narayanan et al. 2021 (arXiv 2104.04473, appendix) for FLOPs;
Korthikanti et al. 2022 (arXiv 2205.05198, section 4) for activations; Shoeybi et al. 2019 for tensor parallelism;
Rajbhandari et al. 2020 (arXiv 1910.02054) for ZeRO.
"""

from dataclasses import dataclass

from chakra.generate.model.config import TransformerConfig
from chakra.generate.plan.options import Recompute
from chakra.replay.config.model import CollectiveKind


def layer_parameters(model: TransformerConfig, *, moe: bool = False, active: bool = False) -> int:
    """Parameters of one layer; ``active`` counts only the experts that a token visits. Norms and biases included."""
    h, qd, kd = model.hidden, model.attention_width, model.kv_width
    g = 3 if model.gated else 2
    attention = h * qd + 2 * h * kd + qd * h
    norms = 2 * h * (2 if model.layer_norm else 1)
    biases = 0
    if model.biases:
        biases = qd + 2 * kd + h + (model.ffn * (g - 1) + h)
    if not moe:
        return attention + g * h * model.ffn + norms + biases
    visited = model.experts_per_token if active else model.experts
    return attention + h * model.experts + (visited + model.shared_experts) * g * h * model.moe_ffn + norms


def parameters(model: TransformerConfig, *, active: bool = False) -> int:
    """All parameters: layers, embedding (twice unless tied), learned positions, final norm."""
    total = 0
    for layer in range(model.layers):
        total += layer_parameters(model, moe=model.is_moe(layer), active=active)
    total += model.vocabulary * model.hidden * (1 if model.tied else 2)
    total += model.learned_positions * model.hidden
    return total + model.hidden * (2 if model.layer_norm else 1)


def matmul_parameters(model: TransformerConfig) -> int:
    """Parameters whose products every token pays for: layer matrices (active experts) and the output matrix."""
    h, qd, kd = model.hidden, model.attention_width, model.kv_width
    g = 3 if model.gated else 2
    total = 0
    for layer in range(model.layers):
        total += h * qd + 2 * h * kd + qd * h
        if model.is_moe(layer):
            total += (
                h * model.experts + (model.experts_per_token + model.shared_experts) * g * h * model.moe_ffn
            )
        else:
            total += g * h * model.ffn
    return total + h * model.vocabulary


def training_flops(
    model: TransformerConfig,
    sequences: int,
    sequence: int,
    recompute: Recompute = Recompute.NONE,
    *,
    causal: bool = False,
) -> int:
    """Matrix FLOPs of a step over ``sequences`` (B): 6*(L*N1 + h*V)*B*s + 12*L*B*s^2*a*d, plus recomputation.

    Full recomputation runs every layer's forward once more (8 instead of 6, not for the output matrix); selective
    recomputation the attention core's (4*L*B*s^2*a*d more). ``causal`` halves the attention core.
    """
    tokens = sequences * sequence
    head = model.hidden * model.vocabulary
    layers = matmul_parameters(model) - head
    core = 4 * model.layers * sequences * sequence * sequence * model.attention_width
    if causal:
        core //= 2
    flops = 6 * (layers + head) * tokens + 3 * core
    if recompute is Recompute.FULL:
        flops += 2 * layers * tokens + core
    elif recompute is Recompute.SELECTIVE:
        flops += core
    return flops


def megatron_flops(
    layers: int, hidden: int, vocabulary: int, sequences: int, sequence: int, *, full_recompute: bool
) -> float:
    """Megatron-LM's form for f = 4h: 72*B*s*L*h^2*(1 + s/(6h) + V/(12*L*h)), or 96 and V/(16*L*h) with recomputation."""
    factor, share = (96, 16) if full_recompute else (72, 12)
    inner = 1 + sequence / (6 * hidden) + vocabulary / (share * layers * hidden)
    return factor * sequences * sequence * layers * hidden * hidden * inner


def inference_flops(model: TransformerConfig, *, prompt: int = 0, contexts: tuple[int, ...] = ()) -> int:
    """Matrix FLOPs for one sequence: prefill of ``prompt`` tokens and one decode step per entry of ``contexts``.

    Prefill 2*N*tokens + 4*L*s^2*a*d (halved by causal kernels), logits for the last token only; decode per token
    2*N + 4*L*context*a*d.
    """
    head = model.hidden * model.vocabulary
    layers = matmul_parameters(model) - head
    total = 0
    if prompt:
        total += 2 * layers * prompt + 2 * head + 4 * model.layers * prompt * prompt * model.attention_width
    for context in contexts:
        total += 2 * (layers + head) + 4 * model.layers * context * model.attention_width
    return total


def kv_cache_bytes(model: TransformerConfig, context: int, itemsize: int = 2) -> int:
    """Keys and values of one sequence: 2*L*k*d*context*w."""
    return 2 * model.layers * model.kv_width * context * itemsize


def activation_bytes(
    sequence: int,
    sequences: int,
    hidden: int,
    heads: int,
    tp: int,
    *,
    sp: bool,
    recompute: Recompute,
    flash: bool,
) -> float:
    """Activations of one layer with 16-bit elements, f = 4h, dropout (Korthikanti et al., equations 1 to 6)."""
    sbh = sequence * sequences * hidden
    if recompute is Recompute.FULL:
        return 2 * sbh / (tp if sp else 1)
    scores = 0.0 if flash or recompute is Recompute.SELECTIVE else 5 * heads * sequence / hidden
    if sp:
        return sbh / tp * (34 + scores)
    return sbh * (10 + 24 / tp + scores / tp)


@dataclass(frozen=True, slots=True)
class CallCount:
    """Collectives of one kind on one group that one rank issues in a step: how many, and the bytes each brings in."""

    group: str
    kind: CollectiveKind
    calls: int
    size_bytes: int


def tensor_parallel_calls(
    *,
    layers: int,
    micro_batches: int,
    message_bytes: int,
    tp: int,
    sp: bool,
    full_recompute: bool = False,
    regather: bool = True,
) -> list[CallCount]:
    """Calls inside the dense layers of one stage with ``layers`` layers; ``message_bytes`` is m = b*(s/C)*h*w."""
    times = layers * micro_batches
    extra = 2 if full_recompute else 0
    if not sp:
        return [CallCount("tp", CollectiveKind.ALL_REDUCE, (4 + extra) * times, message_bytes)]
    gathers = 4 + extra + (2 if regather else 0)
    return [
        CallCount("tp", CollectiveKind.ALL_GATHER, gathers * times, message_bytes // tp),
        CallCount("tp", CollectiveKind.REDUCE_SCATTER, (4 + extra) * times, message_bytes),
    ]


def pipeline_messages(*, stages: int, chunks: int, micro_batches: int, chains: int) -> int:
    """Point-to-point messages of a step over all ranks: 2*M*(P*v - 1) along each of the D*T*C chains."""
    return 2 * micro_batches * (stages * chunks - 1) * chains


def sent_bytes(kind: CollectiveKind, size_bytes: int, ranks: int) -> float:
    """Bytes that one rank sends in a bandwidth-optimal ring, for ``size_bytes`` brought in.

    All-reduce 2(n-1)/n of the buffer, reduce-scatter and all-to-all (n-1)/n, all-gather (n-1) times the shard.
    """
    if kind is CollectiveKind.ALL_REDUCE:
        return 2 * (ranks - 1) / ranks * size_bytes
    if kind is CollectiveKind.ALL_GATHER:
        return (ranks - 1) * float(size_bytes)
    return (ranks - 1) / ranks * size_bytes


def model_state_bytes(
    elements: int, shards: int, zero: int, *, itemsize: int, grad_itemsize: int, state_bytes: int
) -> float:
    """Weights, gradients and optimizer states of ``elements`` parameters held by one rank.

    ZeRO-0: w + w_g + states; 1: states/D; 2: also gradients/D; 3: everything/D.
    """
    weights = elements * itemsize / (shards if zero >= 3 else 1)
    grads = elements * grad_itemsize / (shards if zero >= 2 else 1)
    return weights + grads + elements * state_bytes / (shards if zero >= 1 else 1)
