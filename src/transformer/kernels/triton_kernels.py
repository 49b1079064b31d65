"""Triton kernels for a decoding step and the loss of training, compiled at first use.

The sub-layers of a decoding step process so few numbers that launching a kernel costs more than its work. Each kernel
here replaces five to thirty PyTorch kernels, and reads keys, values and logits once. The loss replaces as many, each of
which would read or write all logits.
"""

import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor, empty, float32, int64

BLOCK_POSITIONS = 32
"""Number of positions whose keys and values a program reads at a time."""
BLOCK_HYPOTHESES = 16
"""Number of hypotheses of a sentence that a program handles together: the smallest size of a product in Triton."""
BLOCK_TOKENS = 1024
"""Number of tokens that a program ranks."""
BLOCK_LOGITS = 4096
"""Number of logits that a program of the loss reads at a time."""
# Functions compiled by Triton use types that pyright does not know.
# pyright: reportMissingParameterType=false, reportCallIssue=false, reportOperatorIssue=false, reportIndexIssue=false


@triton.jit(do_not_specialize=["held"])
def _self_attention_step(
    joint, keys, values, cache_indirection, positions, out, scale, by_row, by_head, by_position, held,
    H: tl.constexpr, E: tl.constexpr, BLOCK_POSITIONS: tl.constexpr, IS_INDIRECT: tl.constexpr,
):  # fmt: skip
    row, head, e = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, E)
    written = tl.load(positions + row)
    head_query = joint + row * 3 * H * E + head * E + e
    q = tl.load(head_query).to(tl.float32) * scale
    new_k, new_v = tl.load(head_query + H * E), tl.load(head_query + 2 * H * E)
    place = row * by_row + head * by_head + written * by_position + e
    tl.store(keys + place, new_k)
    tl.store(values + place, new_v)
    top, total, sums = tl.sum(q * new_k.to(tl.float32), 0), 1.0, new_v.to(tl.float32)
    for start in range(0, written, BLOCK_POSITIONS):
        position = start + tl.arange(0, BLOCK_POSITIONS)
        inside = position < written
        holder = row
        if IS_INDIRECT:
            holder = tl.load(cache_indirection + row * held + position, mask=inside, other=0).to(tl.int64)
        at = (holder * by_row + head * by_head + position * by_position)[:, None] + e[None, :]
        k = tl.load(keys + at, mask=inside[:, None], other=0.0).to(tl.float32)
        v = tl.load(values + at, mask=inside[:, None], other=0.0).to(tl.float32)
        score = tl.where(inside, tl.sum(k * q[None, :], 1), -float("inf"))
        higher = tl.maximum(top, tl.max(score, 0))  # online softmax
        weight, before = tl.exp(score - higher), tl.exp(top - higher)
        top, total = higher, total * before + tl.sum(weight, 0)
        sums = sums * before + tl.sum(weight[:, None] * v, 0)
    tl.store(out + (row * H + head) * E + e, sums / total)


def self_attention_step(
    joint: Float[Tensor, "R J"],
    keys: Float[Tensor, "B H L E"],
    values: Float[Tensor, "B H L E"],
    positions: Int[Tensor, " R"],
    scale: float,
    cache_indirection: Int[Tensor, "R L"] | None = None,
) -> Float[Tensor, "R D"]:
    """Computes self-attention for one new position per row and writes its key and value to the cache.

    Args:
        joint: Concatenated queries, keys and values of all heads.
        keys: Cached keys of the earlier positions.
        values: Cached values of the earlier positions.
        positions: Index of the new position in each row.
        scale: Factor of the dot products.
        cache_indirection: Index of the cache row that holds each earlier position. By default each row reads its own.
    """
    rows, (_, heads, _, width) = joint.size(0), keys.shape
    out = empty(rows, heads * width, dtype=joint.dtype, device=joint.device)
    _self_attention_step[rows, heads](
        joint, keys, values, keys if cache_indirection is None else cache_indirection, positions, out, scale,
        *keys.stride()[:3], 0 if cache_indirection is None else cache_indirection.stride(0),
        H=heads, E=width, BLOCK_POSITIONS=BLOCK_POSITIONS, IS_INDIRECT=cache_indirection is not None,
        num_warps=2,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["length"])
def _cross_attention_step(
    queries, keys, values, mask, out, scale, length, by_sentence, by_head, by_position,
    H: tl.constexpr, E: tl.constexpr, WIDTH: tl.constexpr, BLOCK_HYPOTHESES: tl.constexpr,
    BLOCK_POSITIONS: tl.constexpr,
):  # fmt: skip
    tiles: tl.constexpr = (WIDTH + BLOCK_HYPOTHESES - 1) // BLOCK_HYPOTHESES
    sentence, head, e = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(1), tl.arange(0, E)
    hypothesis = tl.program_id(0) % tiles * BLOCK_HYPOTHESES + tl.arange(0, BLOCK_HYPOTHESES)
    is_row = (hypothesis < WIDTH)[:, None]
    place = ((sentence * WIDTH + hypothesis)[:, None] * H + head) * E + e[None, :]
    q = tl.load(queries + place, mask=is_row, other=0.0)
    top = tl.full([BLOCK_HYPOTHESES], -1e30, dtype=tl.float32)
    total, sums = tl.zeros([BLOCK_HYPOTHESES], dtype=tl.float32), tl.zeros([BLOCK_HYPOTHESES, E], dtype=tl.float32)
    for start in range(0, length, BLOCK_POSITIONS):
        position = start + tl.arange(0, BLOCK_POSITIONS)
        inside = position < length
        inside = inside & (tl.load(mask + sentence * length + position, mask=inside, other=0) != 0)
        at = sentence * by_sentence + head * by_head + position * by_position
        k = tl.load(keys + at[None, :] + e[:, None], mask=inside[None, :], other=0.0)
        v = tl.load(values + at[:, None] + e[None, :], mask=inside[:, None], other=0.0)
        score = tl.where(inside[None, :], tl.dot(q, k, input_precision="ieee") * scale, -float("inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        weight, before = tl.exp(score - higher[:, None]), tl.exp(top - higher)
        top, total = higher, total * before + tl.sum(weight, 1)
        sums = sums * before[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
    tl.store(out + place, sums / tl.maximum(total, 1e-30)[:, None], mask=is_row)


def cross_attention_step(
    queries: Float[Tensor, "R D"],
    keys: Float[Tensor, "N H S E"],
    values: Float[Tensor, "N H S E"],
    mask: Bool[Tensor, "N 1 1 S"],
    scale: float,
) -> Float[Tensor, "R D"]:
    """Computes cross-attention of each row to the source of its sentence. The rows of a sentence are adjacent.

    Args:
        queries: Concatenated queries of all heads.
        keys: Keys of the source positions.
        values: Values of the source positions.
        mask: Padding mask, contiguous; True = not padding.
        scale: Factor of the dot products.
    """
    rows, (sentences, heads, length, width) = queries.size(0), keys.shape
    out = empty(rows, heads * width, dtype=queries.dtype, device=queries.device)
    hypotheses = rows // sentences
    _cross_attention_step[sentences * triton.cdiv(hypotheses, BLOCK_HYPOTHESES), heads](
        queries, keys, values, mask, out, scale, length, *keys.stride()[:3],
        H=heads, E=width, WIDTH=hypotheses, BLOCK_HYPOTHESES=BLOCK_HYPOTHESES, BLOCK_POSITIONS=BLOCK_POSITIONS,
        num_warps=2,
    )  # fmt: skip
    return out


@triton.jit
def _add_norm(
    x, y, alpha, beta, total, out, eps,
    D: tl.constexpr, PADDED: tl.constexpr, HAS_RESIDUAL: tl.constexpr, STORES_SUM: tl.constexpr,
):  # fmt: skip
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED)
    inside = d < D
    value = tl.load(x + row * D + d, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        value += tl.load(y + row * D + d, mask=inside, other=0.0).to(tl.float32)
    if STORES_SUM:
        tl.store(total + row * D + d, value, mask=inside)
    centred = tl.where(inside, value - tl.sum(value, 0) / D, 0.0)
    scaled = centred / tl.sqrt(tl.sum(centred * centred, 0) / D + eps)
    gain = tl.load(alpha + d, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(beta + d, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * D + d, scaled * gain + shift, mask=inside)


def add_norm(
    x: Float[Tensor, "R D"],
    y: Float[Tensor, "R D"] | None,
    alpha: Float[Tensor, " D"],
    beta: Float[Tensor, " D"],
    eps: float,
    *,
    store_sum: bool = False,
) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R D"]]:
    """Computes x + y and its layer normalization (Ba et al. 2016, Eq. 4), with internal arithmetic in float32.

    Args:
        x: Input.
        y: Tensor to add before the normalization, if any.
        alpha: Gain.
        beta: Bias.
        eps: Constant added to the variance.
        store_sum: Whether the sum is stored.

    Returns:
        The sum (x itself unless `store_sum`) and the normalized sum.
    """
    rows, width = x.shape
    out = empty(rows, width, dtype=x.dtype, device=x.device)
    total = empty(rows, width, dtype=x.dtype, device=x.device) if store_sum else x
    _add_norm[rows,](
        x, x if y is None else y, alpha, beta, total, out, eps,
        D=width, PADDED=triton.next_power_of_2(width), HAS_RESIDUAL=y is not None, STORES_SUM=store_sum, num_warps=4,
    )  # fmt: skip
    return total, out


@triton.jit
def _block_maxima(logits, forbidden, maxima, sums, V, BLOCK_TOKENS: tl.constexpr, HAS_FORBIDDEN: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = part * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    value = tl.load(logits + row * V + token, mask=token < V, other=-float("inf")).to(tl.float32)
    top = tl.max(value, 0)
    top = tl.where(top == -float("inf"), 0.0, top)
    number = row * tl.num_programs(1) + part
    tl.store(sums + number, top + tl.log(tl.sum(tl.exp(value - top), 0)))
    if HAS_FORBIDDEN:
        value = tl.where(tl.load(forbidden + token, mask=token < V, other=1) != 0, -float("inf"), value)
    tl.store(maxima + number, tl.max(value, 0))


@triton.jit
def _top_k_of_row(
    logits, forbidden, maxima, sums, log_p, chosen, V,
    N_BLOCKS: tl.constexpr, PADDED: tl.constexpr, K: tl.constexpr, BLOCK_TOKENS: tl.constexpr,
    HAS_FORBIDDEN: tl.constexpr,
):  # fmt: skip
    row, part, place = tl.program_id(0).to(tl.int64), tl.arange(0, PADDED), tl.arange(0, BLOCK_TOKENS)
    block_sums = tl.load(sums + row * N_BLOCKS + part, mask=part < N_BLOCKS, other=-float("inf"))
    highest = tl.max(block_sums, 0)
    normalizer = highest + tl.log(tl.sum(tl.exp(block_sums - highest), 0))
    top = tl.load(maxima + row * N_BLOCKS + part, mask=part < N_BLOCKS, other=-float("inf"))
    last, last_token = float("inf"), -1
    for k in range(K):
        # The best remaining token is in the block with the highest maximum. Tokens that precede the last one chosen in
        # the order of value and id have been chosen already.
        at = tl.argmax(top, 0)
        token = at * BLOCK_TOKENS + place
        value = tl.load(logits + row * V + token, mask=token < V, other=-float("inf")).to(tl.float32)
        if HAS_FORBIDDEN:
            value = tl.where(tl.load(forbidden + token, mask=token < V, other=1) != 0, -float("inf"), value)
        value = tl.where((value < last) | ((value == last) & (token > last_token)), value, -float("inf"))
        best = tl.argmax(value, 0)
        last, last_token = tl.max(value, 0), (at * BLOCK_TOKENS + best).to(tl.int32)
        tl.store(log_p + row * K + k, last - normalizer)
        tl.store(chosen + row * K + k, last_token.to(tl.int64))
        top = tl.where(part == at, tl.max(tl.where(place == best, -float("inf"), value), 0), top)


def best_tokens(
    logits: Float[Tensor, "M V"], k: int, forbidden: Bool[Tensor, " V"] | None = None
) -> tuple[Float[Tensor, "M k"], Int[Tensor, "M k"]]:
    """Same as `transformer.kernels.best_tokens`; tokens with equal logits are in ascending order of their ids."""
    logits = logits.contiguous()
    rows, vocabulary = logits.shape
    parts = triton.cdiv(vocabulary, BLOCK_TOKENS)
    maxima, sums, log_p = (
        empty(rows, width, dtype=float32, device=logits.device) for width in (parts, parts, k)
    )  # fmt: skip
    chosen = empty(rows, k, dtype=int64, device=logits.device)
    forbidden, has_forbidden = (logits, False) if forbidden is None else (forbidden, True)
    _block_maxima[rows, parts](
        logits, forbidden, maxima, sums, vocabulary,
        BLOCK_TOKENS=BLOCK_TOKENS, HAS_FORBIDDEN=has_forbidden, num_warps=4,
    )  # fmt: skip
    _top_k_of_row[rows,](
        logits, forbidden, maxima, sums, log_p, chosen, vocabulary,
        N_BLOCKS=parts, PADDED=triton.next_power_of_2(parts), K=k, BLOCK_TOKENS=BLOCK_TOKENS,
        HAS_FORBIDDEN=has_forbidden, num_warps=4,
    )  # fmt: skip
    return log_p, chosen


@triton.jit(do_not_specialize=["epsilon"])
def _smoothed_gradient(logits, labels, losses, V, epsilon, BLOCK_LOGITS: tl.constexpr):
    row, place = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_LOGITS)
    label = tl.load(labels + row)
    at_label = tl.load(logits + row * V + label).to(tl.float32)
    top, total, score_sum = -float("inf"), 0.0, 0.0
    for start in range(0, V, BLOCK_LOGITS):
        token = start + place
        score = tl.load(logits + row * V + token, mask=token < V, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(score, 0))  # online softmax
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(score - higher), 0)
        top = higher
        score_sum += tl.sum(tl.where(token < V, score, 0.0), 0)
    log_z = top + tl.log(total)
    nll = log_z - at_label
    tl.store(losses + 2 * row, (1 - epsilon) * nll + epsilon * (log_z - score_sum / V))
    tl.store(losses + 2 * row + 1, nll)
    for start in range(0, V, BLOCK_LOGITS):
        token = start + place
        score = tl.load(logits + row * V + token, mask=token < V, other=0.0).to(tl.float32)
        gradient = tl.exp(score - log_z) - epsilon / V - tl.where(token == label, 1 - epsilon, 0.0)
        tl.store(logits + row * V + token, gradient, mask=token < V)


def smoothed_gradient(logits: Float[Tensor, "N V"], labels: Int[Tensor, " N"], epsilon: float) -> Float[Tensor, "N 2"]:
    """Overwrites logits by the gradient of the summed smoothed loss: softmax minus the smoothed target.

    Args:
        logits: Scores of all tokens; rows are contiguous.
        labels: Target token of each position.
        epsilon: Label smoothing, spread over all V tokens, the label included.

    Returns:
        The smoothed and the unsmoothed loss of each position in nats.

    Source: Szegedy et al. 2016, Sec. 7.
    """
    losses = empty(len(logits), 2, dtype=float32, device=logits.device)
    if len(logits):
        _smoothed_gradient[len(logits),](
            logits, labels, losses, logits.size(1), epsilon, BLOCK_LOGITS=BLOCK_LOGITS, num_warps=8
        )
    return losses
