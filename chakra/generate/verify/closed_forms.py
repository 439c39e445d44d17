"""Closed forms that generated workloads must meet. They share no code with the generator, so that each checks the other.

Symbols as in the literature: L layers, h hidden, a heads of d, k key-value heads, f feed-forward width, g = 3 with a gate
else 2, V vocabulary, s sequence, b sequences per micro-batch, M micro-batches, B = b*M*D sequences a step; T, C, P, D, E
sizes of tp, cp, pp, dp, ep; w bytes per element. In latent attention queries are compressed to cq, keys and values to c,
a head has a rotary part r and values of dv. Sources: Narayanan et al. 2021 (arXiv 2104.04473, appendix) for FLOPs;
Korthikanti et al. 2022 (arXiv 2205.05198, section 4) for activations; Shoeybi et al. 2019 for tensor parallelism;
Rajbhandari et al. 2020 (arXiv 1910.02054) for ZeRO.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from chakra.generate.model.config import TransformerConfig
from chakra.generate.model.layer_kinds import Feed, Mixer
from chakra.generate.plan.options import Recompute
from chakra.replay.config.model import CollectiveKind


def attention_matrices(model: TransformerConfig) -> int:
    """Elements of one layer's attention matrices: h*(a + 2k)*d + a*d*h; with latent attention

    h*cq + cq*a*(d + r) + h*(c + r) + c*a*(d + dv) + a*dv*h, where queries that are not compressed cost h*a*(d + r).
    """
    h, a, d = model.hidden, model.heads, model.head_dim
    if not model.kv_rank:
        return h * (a + 2 * model.kv_heads) * d + a * d * h
    c, r, cq, dv = model.kv_rank, model.rope_dim, model.q_rank, model.value_dim
    queries = h * cq + cq * a * (d + r) if cq else h * a * (d + r)
    return queries + h * (c + r) + c * a * (d + dv) + a * dv * h


def layer_parameters(model: TransformerConfig, *, moe: bool = False, active: bool = False) -> int:
    """Parameters of one layer, all of them; ``active`` counts only the experts that a token visits."""
    fixed = 0
    if model.mixer is Mixer.ATTENTION:
        fixed += _attention_parameters(model)
    elif model.mixer is not Mixer.NONE:
        fixed += _state_space_parameters(model)
    if model.feed is Feed.NONE:
        return fixed
    return fixed + _feed_parameters(model, moe=moe or model.feed is Feed.MOE, active=active)


def _norm(model: TransformerConfig) -> int:
    return model.hidden * (2 if model.layer_norm else 1)


def _attention_parameters(model: TransformerConfig) -> int:
    """Attention with its norm."""
    fixed = attention_matrices(model) + _norm(model)
    fixed += model.q_rank + model.kv_rank  # norms of what is compressed
    if model.sinks:
        fixed += model.heads
    if model.biases:
        keys = 2 if model.key_bias else 1
        fixed += (model.heads + keys * model.kv_heads) * model.head_dim + model.hidden
    return fixed


def _state_space_matrices(model: TransformerConfig) -> int:
    """Elements of a state-space layer's matrices, with inner channels e, states of N, H heads, G groups, rank R.

    Mamba-2: h*(2e + 2GN + H) + e*h; Mamba: h*2e + e*(R + 2N) + R*e + e*h.
    """
    h, e, n = model.hidden, model.inner, model.state_size
    if model.mixer is Mixer.MAMBA2:
        return h * (2 * e + 2 * model.state_groups * n + model.state_heads) + e * h
    return h * 2 * e + e * (model.dt_rank + 2 * n) + model.dt_rank * e + e * h


def _state_space_parameters(model: TransformerConfig) -> int:
    """A state-space mixer with its norm: matrices, taps and bias of the convolution, decay, skip and step of the scan.

    Mamba-2 has three numbers a head (decay, skip, step) and a norm of e; Mamba e*N decays, e skips and e steps.
    """
    e, n = model.inner, model.state_size
    total = _state_space_matrices(model) + _norm(model)
    if model.mixer is Mixer.MAMBA2:
        convolved = e + 2 * model.state_groups * n
        return total + convolved * (model.conv_width + 1) + 3 * model.state_heads + e
    total += e * (model.conv_width + 1) + e * n + 2 * e
    return total + (model.dt_rank + 2 * n if model.inner_norms else 0)


def scan_products(model: TransformerConfig, sequence: int) -> int:
    """Operations of all Mamba-2 scans for a sequence, forward: chunks of Q tokens, the last one filled up.

    A chunk has scores 2*Q*Q*N for each group, their sums 2*Q*Q*e, its state 2*Q*N*e, and what earlier states give,
    2*Q*N*e.
    """
    total = 0
    for one, count in model.variants().items():
        if one.mixer is Mixer.MAMBA2:
            q, n, e = min(one.chunk, sequence), one.state_size, one.inner
            chunk = 2 * q * q * (one.state_groups * n + e) + 4 * q * n * e
            total += count * -(-sequence // q) * chunk
    return total


def _feed_parameters(model: TransformerConfig, *, moe: bool, active: bool) -> int:
    """A feed-forward with its norm."""
    h, f = model.hidden, model.ffn
    g = 3 if model.gated else 2
    bias = 1 if model.biases else 0
    fixed = _norm(model)
    if not moe:
        return fixed + g * h * f + bias * (f * (g - 1) + h)
    visited = model.experts_per_token if active else model.experts
    # experts of width w take tokens of h, or of l behind a matrix of h x l and before one of l x h
    expert = g * model.expert_hidden * model.moe_ffn
    shared = model.shared_experts * g * h * model.moe_ffn
    fixed += 2 * h * model.moe_latent
    if bias:
        fixed += model.experts
        expert += model.moe_ffn * (g - 1) + h
        if model.shared_experts:
            shared += model.shared_experts * model.moe_ffn * (g - 1) + h
    return fixed + h * model.experts + visited * expert + shared


def copies_sent(model: TransformerConfig, tokens: int, domains: int) -> int:
    """Copies of tokens that travel to experts: one for each expert, or (``domains`` > 0) one for each domain with any.

    A domain of x of X experts has none of a token's k with the probability of k draws without one of them.
    """
    if not domains:
        return tokens * model.experts_per_token
    experts, here = model.experts, model.experts // domains
    none = Fraction(1)
    for drawn in range(model.experts_per_token):
        none *= Fraction(max(experts - here - drawn, 0), experts - drawn)
    return ceil(tokens * domains * (1 - none))


def parameters(model: TransformerConfig, *, active: bool = False) -> int:
    """All parameters: layers, embedding (twice unless tied), learned positions, final norm."""
    total = sum(count * layer_parameters(one, active=active) for one, count in model.variants().items())
    total += model.learned_positions * model.hidden + model.relative_buckets * model.heads
    if model.encoder is not None:
        attending = 0 if model.encoder.patch else model.layers * _attention_parameters(model)
        total += attending + encoder_parameters(model, model.encoder)
    if model.patch:
        # one matrix for the patches, the class token, and the classifier
        bias = 1 if model.biases else 0
        total += (
            model.hidden * (pixels(model) + bias) + model.hidden + model.vocabulary * (model.hidden + bias)
        )
        return total + _norm(model)
    total += model.vocabulary * model.hidden * (1 if model.tied else 2)
    total += (1 if model.mtp_repeated else model.mtp) * _predictor_parameters(model, active=active)
    return total + (model.embedding_norm + model.final_norm) * _norm(model)


def _predictor_parameters(model: TransformerConfig, *, active: bool) -> int:
    """A module of multi-token prediction: 2h*h, three norms, and its layers; embedding and output matrix are shared."""
    if not model.mtp:
        return 0
    layers = sum(layer_parameters(one, active=active) for one in model.mtp_layers())
    return 2 * model.hidden**2 + 3 * _norm(model) + layers


def predictor_products(model: TransformerConfig, sequence: int, *, causal: bool) -> tuple[int, int, int, int]:
    """Operations of all modules of multi-token prediction for a sequence, forward.

    2*2h*h and 2*h*V for a token, the matrices of its layers, their attention cores, and their scans.
    """
    layers = model.mtp_layers()
    outside = model.mtp * 2 * (2 * model.hidden**2 + model.hidden * model.vocabulary) * sequence
    matrices = model.mtp * 2 * sum(layer_matrices(one) for one in layers) * sequence
    core = sum(layer_pairs(one, sequence, causal=causal) * core_width(one) for one in layers)
    scan = sum(scan_products(replace(one, layers=1), sequence) for one in layers)
    return outside, matrices, model.mtp * core, model.mtp * scan


def encoder_parameters(model: TransformerConfig, encoder: TransformerConfig) -> int:
    """Parameters before the model: layers, positions, norm, and the embedding where it is not the model's.

    A spectrum of m bands goes through convolutions of three frames, m*3*h + h and h*3*h + h. Patches have one matrix and
    a class token, and the projector to a model of width H has h*H + H and H*H + H.
    """
    h = encoder.hidden
    norms = encoder.embedding_norm + encoder.final_norm
    total = encoder.layers * layer_parameters(encoder) + norms * _norm(encoder)
    total += encoder.learned_positions * h + encoder.relative_buckets * encoder.heads
    if encoder.mel:
        return total + 3 * encoder.mel * h + h + 3 * h * h + h
    if encoder.patch:
        wide = model.hidden
        patches = h * (pixels(encoder) + (1 if encoder.biases and encoder.patch_bias else 0)) + h
        return total + patches + h * wide + wide + wide * wide + wide
    return total + (0 if model.shared_embedding else encoder.vocabulary * h)


def pixels(model: TransformerConfig) -> int:
    """Numbers of one patch of an image."""
    return model.channels * model.patch * model.patch


def matmul_parameters(model: TransformerConfig) -> int:
    """Parameters whose products every token pays for: layer matrices (active experts) and the output matrix."""
    each = sum(count * layer_matrices(one) for one, count in model.variants().items())
    return each + model.hidden * model.vocabulary


def layer_matrices(model: TransformerConfig) -> int:
    """The same of one layer of a model as `TransformerConfig.at` gives it."""
    h = model.hidden
    g = 3 if model.gated else 2
    total = 0
    if model.mixer is Mixer.ATTENTION:
        total = attention_matrices(model)
    elif model.mixer is not Mixer.NONE:
        total = _state_space_matrices(model)
    if model.feed is Feed.MOE:
        routed = model.experts_per_token * model.expert_hidden + model.shared_experts * h
        total += h * (model.experts + 2 * model.moe_latent) + routed * g * model.moe_ffn
    elif model.feed is Feed.MLP:
        total += g * h * model.ffn
    return total


def layer_pairs(model: TransformerConfig, sequence: int, *, causal: bool) -> int:
    """Twice the pairs of query and key that a layer computes for a sequence.

    All s^2 of them, or half with a mask; with a window of W, query i sees min(i + 1, W) keys, without a mask W. One token
    has one pair, which no mask takes.
    """
    if sequence == 1:
        return 2
    if model.window == 0 or model.window >= sequence:
        return sequence * sequence * (1 if causal else 2)
    if not causal:
        return 2 * sequence * model.window
    return model.window * (model.window + 1) + 2 * (sequence - model.window) * model.window


def core_width(model: TransformerConfig) -> int:
    """Elements of all heads that a pair multiplies: a*d for the score and a*d (a*dv) for the value."""
    if model.mixer is not Mixer.ATTENTION:
        return 0
    return model.heads * (model.head_dim + model.rope_dim + (model.value_dim or model.head_dim))


def core_products(model: TransformerConfig, sequence: int, *, causal: bool) -> int:
    """Operations of all attention cores for a sequence, forward: pairs times the elements that a pair multiplies."""
    return sum(
        count * layer_pairs(one, sequence, causal=causal) * core_width(one)
        for one, count in model.variants().items()
    )


def training_flops(
    model: TransformerConfig,
    sequences: int,
    sequence: int,
    recompute: Recompute = Recompute.NONE,
    *,
    causal: bool = False,
    frozen_encoder: bool = False,
) -> int:
    """Matrix FLOPs of a step over ``sequences`` (B): 6*(L*N1 + h*V)*B*s + 12*L*B*s^2*a*d, plus recomputation.

    Latent attention has 6*L*B*s^2*a*(d + r + dv), layers with a window their pairs for s^2.

    Full recomputation runs every layer's forward once more (8 instead of 6, not for the output matrix); selective
    recomputation the attention core's (4*L*B*s^2*a*d more). ``causal`` leaves masked pairs out.
    """
    tokens = sequences * sequence
    head = model.hidden * model.vocabulary
    layers = matmul_parameters(model) - head
    core = sequences * core_products(model, sequence, causal=causal)
    scan = sequences * scan_products(model, sequence)
    outside, within, more_core, more_scan = (
        sequences * products for products in predictor_products(model, sequence, causal=causal)
    )
    core, scan = core + more_core, scan + more_scan
    flops = 6 * (layers + head) * tokens + 3 * (outside + within + core + scan)
    if model.patch:
        # the classifier sees one token of an image; patches have no gradient of their input
        flops += 6 * head * (sequences - tokens)
        flops += 4 * pixels(model) * model.hidden * (sequence - 1) * sequences
    if recompute is Recompute.FULL:
        flops += 2 * layers * tokens + within + core + scan
    elif recompute is Recompute.SELECTIVE:
        flops += core
    if model.encoder is None:
        return flops
    if model.encoder.patch:
        images = sequences * model.images
        return flops + images * _images_training(model, model.encoder, recompute, frozen=frozen_encoder)
    return flops + sequences * _encoder_training(model, model.encoder, sequence, recompute)


def _images_training(
    model: TransformerConfig, encoder: TransformerConfig, recompute: Recompute, *, frozen: bool
) -> int:
    """The same of an encoder of images and the projector, for one image.

    A frozen encoder runs forward alone; the projector's first matrix then has no gradient of its input.
    """
    matrices, core = stack_forward(encoder)
    patches, first, second = images_forward(model, encoder)
    if frozen:
        return matrices + core + patches + 2 * first + 3 * second
    times = 4 if recompute is Recompute.FULL else 3
    cores = 3 if recompute is Recompute.NONE else 4
    return times * matrices + cores * core + 2 * patches + 3 * (first + second)


def images_forward(model: TransformerConfig, encoder: TransformerConfig) -> tuple[int, int, int]:
    """Operations of the matrix of an image's patches, and of the two of the projector, forward."""
    h, wide, tokens = encoder.hidden, model.hidden, encoder.sequence - 1
    return 2 * tokens * pixels(encoder) * h, 2 * tokens * h * wide, 2 * tokens * wide * wide


def _encoder_training(
    model: TransformerConfig, encoder: TransformerConfig, sequence: int, recompute: Recompute
) -> int:
    """The same of an encoder and of what attends to it, for a sequence of s tokens and a source of S.

    An encoder's layers see all S^2 pairs. Each layer behind it has 2*h*a*d for every token of its own, 2*h*k*d for every
    one of the source, and s*S pairs.
    """
    matrices, core = stack_forward(encoder)
    layers, cross = cross_forward(model, sequence, encoder.sequence)
    times = 4 if recompute is Recompute.FULL else 3
    cores = 3 if recompute is Recompute.NONE else 4
    total = times * (matrices + layers) + cores * (core + cross)
    if encoder.mel:
        # a spectrum has no gradient
        first, second = _spectrum(encoder)
        total += 2 * first + 3 * second
    return total


def stack_forward(encoder: TransformerConfig) -> tuple[int, int]:
    """Operations of an encoder's matrices and of its attention cores, forward, for one source."""
    tokens = encoder.sequence
    matrices = 2 * encoder.layers * layer_matrices(encoder.at(0)) * tokens
    return matrices, encoder.layers * 4 * tokens * tokens * encoder.heads * encoder.head_dim


def cross_forward(model: TransformerConfig, sequence: int, source: int) -> tuple[int, int]:
    """Operations of the attention to an encoder, forward: of matrices, and of cores."""
    h, a, k, d = model.hidden, model.heads, model.kv_heads, model.head_dim
    matrices = 2 * model.layers * (2 * h * a * d * sequence + 2 * h * k * d * source)
    return matrices, model.layers * 4 * sequence * source * a * d


def _spectrum(encoder: TransformerConfig) -> tuple[int, int]:
    """Operations of the two convolutions, forward: of twice as many frames as tokens, and of every second one."""
    h, tokens = encoder.hidden, encoder.sequence
    return 2 * (2 * tokens) * 3 * encoder.mel * h, 2 * tokens * 3 * h * h


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
    2*N + 4*L*context*a*d, and 2*L*context*a*(2c + r) where keys stay compressed. Windows bound the context.
    """
    head = model.hidden * model.vocabulary
    layers = matmul_parameters(model) - head
    total = 0
    if prompt:
        total += 2 * layers * prompt + 2 * head + core_products(model, prompt, causal=False)
        total += scan_products(model, prompt)
        total += 2 * pixels(model) * model.hidden * (prompt - 1)
    if prompt and model.encoder is not None and model.encoder.patch:
        total += model.images * sum([*stack_forward(model.encoder), *images_forward(model, model.encoder)])
    elif prompt and model.encoder is not None:
        parts = [*stack_forward(model.encoder), *cross_forward(model, prompt, model.encoder.sequence)]
        total += sum(parts) + (sum(_spectrum(model.encoder)) if model.encoder.mel else 0)
    for context in contexts:
        total += 2 * (layers + head)
        if model.encoder is not None and not model.encoder.patch:
            # keys and values of the source are there
            matrices, core = cross_forward(model, 1, model.encoder.sequence)
            total += matrices - cross_forward(model, 0, model.encoder.sequence)[0] + core
        for one, count in model.variants().items():
            width = one.heads * (2 * one.kv_rank + one.rope_dim) if one.kv_rank else core_width(one)
            total += 2 * count * _kept(one, context) * width
    return total


def _kept(model: TransformerConfig, context: int) -> int:
    """Keys that the last query of a context sees; none where a layer has no attention."""
    if model.mixer is not Mixer.ATTENTION:
        return 0
    return min(model.window, context) if model.window else context


def kv_cache_bytes(model: TransformerConfig, context: int, itemsize: int = 2) -> int:
    """Keys and values of one sequence: 2*L*k*d*context*w, compressed L*(c + r)*context*w; windows bound the context.

    A state-space layer keeps e*N*w and the last inputs of its convolution, whatever the context is.
    """
    total = 0
    for one, count in model.variants().items():
        width = one.kv_rank + one.rope_dim if one.kv_rank else 2 * one.kv_heads * one.head_dim
        total += count * _kept(one, context) * width * itemsize
        if one.mixer in (Mixer.MAMBA, Mixer.MAMBA2):
            shared = 2 * one.state_groups * one.state_size if one.mixer is Mixer.MAMBA2 else 0
            total += count * (one.inner * one.state_size + (one.inner + shared) * one.conv_width) * itemsize
    if model.encoder is not None and not model.encoder.patch:
        total += model.layers * 2 * model.kv_heads * model.head_dim * model.encoder.sequence * itemsize
    return total


def moved_cache_bytes(model: TransformerConfig, context: int, itemsize: int, tp: int) -> int:
    """Keys and values, and states, of one sequence on all ``tp`` ranks that take them in.

    Ranks that are more than the key-value heads (groups of a state's inputs) keep copies of them, and all of them keys
    and values that are compressed.
    """
    total = 0
    for one, count in model.variants().items():
        elements = 0
        if one.mixer is Mixer.ATTENTION:
            heads = 1 if one.kv_rank else one.kv_heads
            width = one.kv_rank + one.rope_dim if one.kv_rank else 2 * one.head_dim
            elements = _kept(one, context) * width * max(heads, tp)
        elif one.mixer in (Mixer.MAMBA, Mixer.MAMBA2):
            elements = one.inner * (one.state_size + one.conv_width)
        if one.mixer is Mixer.MAMBA2:
            elements += max(one.state_groups, tp) * 2 * one.state_size * one.conv_width
        total += count * elements * itemsize
    return total


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
    blocks: int,
    micro_batches: int,
    message_bytes: int,
    tp: int,
    sp: bool,
    full_recompute: bool = False,
    regather: bool = True,
) -> list[CallCount]:
    """Calls inside the dense layers of one stage; ``message_bytes`` is m = b*(s/C)*h*w.

    ``blocks`` are matrices split by columns with those split by rows behind them: two a layer, attention and
    feed-forward.
    """
    times = blocks * micro_batches
    extra = 1 if full_recompute else 0
    if not sp:
        return [CallCount("tp", CollectiveKind.ALL_REDUCE, (2 + extra) * times, message_bytes)]
    gathers = 2 + extra + (1 if regather else 0)
    return [
        CallCount("tp", CollectiveKind.ALL_GATHER, gathers * times, message_bytes // tp),
        CallCount("tp", CollectiveKind.REDUCE_SCATTER, (2 + extra) * times, message_bytes),
    ]


def mamba_parallel_calls(
    model: TransformerConfig, *, passes: int, tokens: int, itemsize: int, full_recompute: bool
) -> list[CallCount]:
    """Calls of a Mamba layer beside those round its matrices: step sizes, inputs and outputs of the state, R + 2N wide.

    Summed over tp forward, and their gradient backward.
    """
    size = tokens * (model.dt_rank + 2 * model.state_size) * itemsize
    times = (3 if full_recompute else 2) * passes
    return [CallCount("tp", CollectiveKind.ALL_REDUCE, times, size)]


def summed_norm(model: TransformerConfig) -> int:
    """Elements of a layer's norms whose gradients tp ranks sum once a step, without sequence parallelism."""
    normed = model.mixer is Mixer.MAMBA and model.inner_norms
    return model.dt_rank + 2 * model.state_size if normed else 0


def latent_parallel_bytes(
    model: TransformerConfig, *, layers: int, micro_batches: int, tokens: int, itemsize: int, tp: int, sp: bool,
    full_recompute: bool = False, regather: bool = True,
) -> dict[CollectiveKind, int]:  # fmt: skip
    """Bytes that one rank brings into tensor-parallel collectives inside dense layers with latent attention.

    Behind compressed queries (cq), keys and values (c) and the shared rotary part (r) stand matrices that tp splits, so
    that these widths are exchanged where other attention exchanges h; h is exchanged behind the output, and twice by the
    feed-forward. Without ``sp`` only results and gradients are, by all-reduce.
    """
    again = 1 if full_recompute else 0
    queries = model.q_rank or model.hidden
    inputs = queries + model.kv_rank + model.rope_dim + model.hidden
    outputs = 2 * model.hidden
    each = layers * micro_batches * tokens * itemsize
    if not sp:
        return {CollectiveKind.ALL_REDUCE: each * (outputs * (1 + again) + inputs)}
    # the rotary part's gradient needs nothing gathered again
    twice = inputs - model.rope_dim if regather else 0
    gathered = inputs * (1 + again) + outputs + twice
    return {
        CollectiveKind.ALL_GATHER: each // tp * gathered,
        CollectiveKind.REDUCE_SCATTER: each * (outputs * (1 + again) + inputs),
    }


def cross_parallel_calls(
    *, blocks: int, passes: int, message_bytes: int, tp: int, sp: bool, full_recompute: bool = False,
    regather: bool = True,
) -> list[CallCount]:  # fmt: skip
    """Calls for keys and values of an encoder's output in so many layers; ``message_bytes`` is b*S*h*w.

    Its gradient is summed in each layer; with ``sp`` each layer gathers it.
    """
    times = blocks * passes
    if not sp:
        return [CallCount("tp", CollectiveKind.ALL_REDUCE, times, message_bytes)]
    gathers = 1 + full_recompute + regather
    return [
        CallCount("tp", CollectiveKind.ALL_GATHER, gathers * times, message_bytes // tp),
        CallCount("tp", CollectiveKind.REDUCE_SCATTER, times, message_bytes),
    ]


def pipeline_messages(
    *, stages: int, chunks: int, micro_batches: int, chains: int, encoder_stages: int | None = None, folded: bool = False,
    frozen: int = 0,
) -> int:  # fmt: skip
    """Point-to-point messages of a step over all ranks: 2*M*(P*v - 1) along each of the D*T*C chains.

    Behind the stages of an encoder, S, its output goes on from each of the P - S others to the next: P - S - 1 more.
    Where a pipeline is folded (DualPipeV), the last stage has both sides of one boundary. Nothing goes back across the
    first ``frozen`` boundaries, before which nothing is trained.
    """
    boundaries = stages * chunks - 1 - folded
    if encoder_stages is not None:
        boundaries += stages - encoder_stages - 1
    return micro_batches * (2 * boundaries - frozen) * chains


def sent_bytes(kind: CollectiveKind, size_bytes: int, ranks: int) -> float:
    """Bytes that one rank sends in a bandwidth-optimal ring, for ``size_bytes`` brought in.

    All-reduce 2(n-1)/n of the buffer, reduce-scatter and all-to-all (n-1)/n, all-gather (n-1) times the shard.
    """
    if kind is CollectiveKind.ALL_REDUCE:
        return 2 * (ranks - 1) / ranks * size_bytes
    if kind is CollectiveKind.ALL_GATHER:
        return (ranks - 1) * float(size_bytes)
    return (ranks - 1) / ranks * size_bytes


def bucket_sizes(size_bytes: int, bucket_bytes: int) -> list[int]:
    """Sizes of the buckets that ``size_bytes`` of gradients fill: all full but the last."""
    full, rest = divmod(size_bytes, bucket_bytes)
    return [bucket_bytes] * full + ([rest] if rest else [])


def sharded_reductions(sizes: Iterable[int], shards: int, copies: int) -> tuple[int, int]:
    """Bytes that a rank brings into reduce-scatters among ``shards`` ranks, and into all-reduces of the shards.

    Every size is padded to a multiple of the ranks that share it. The shards are summed across ``copies`` (hybrid
    sharding), 1/``shards`` of the bytes; either is 0 among one rank.
    """
    parts = sum(-(-size // shards) for size in sizes)
    return parts * shards if shards > 1 else 0, parts if copies > 1 else 0


def gathered_shards(elements: Iterable[int], shards: int, itemsize: int) -> int:
    """Bytes that a rank brings into all-gathers of weights of so many elements, each padded to its ranks."""
    return sum(-(-number // shards) for number in elements) * itemsize if shards > 1 else 0


def model_state_bytes(
    elements: int, shards: int, zero: int, *, itemsize: int, grad_itemsize: int, state_bytes: int,
    whole_gradients: bool = False,
) -> float:  # fmt: skip
    """Weights, gradients and optimizer states of ``elements`` parameters held by one rank.

    ZeRO-0: w + w_g + states; 1: states/D; 2: also gradients/D; 3: everything/D. ``whole_gradients`` are added up over
    micro-batches before they are scattered: w_g of ZeRO-3, too.
    """
    weights = elements * itemsize / (shards if zero >= 3 else 1)
    grads = elements * grad_itemsize / (shards if zero >= 2 and not whole_gradients else 1)
    return weights + grads + elements * state_bytes / (shards if zero >= 1 else 1)
