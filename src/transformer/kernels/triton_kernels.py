"""What a step of a search computes on a GPU between its products, compiled by Triton when it is first needed.

Every sub-layer of a step takes so few numbers that starting a kernel costs more than its work: each of these does what
would be five to thirty of torch's, and reads keys, values and logits once.
"""

import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor, empty, float32, int64

AT_ONCE = 32
"""Positions whose keys and values one program reads at a time."""
TOGETHER = 16
"""Hypotheses of a sentence for which one program reads the source: what the smallest product has."""
PART = 1024
"""Tokens that one program ranks."""
# What Triton compiles has types of its own.
# pyright: reportMissingParameterType=false, reportCallIssue=false, reportOperatorIssue=false, reportIndexIssue=false


@triton.jit(do_not_specialize=["held"])
def _attend_written(
    joint, keys, values, cache_indirection, positions, out, scale, by_row, by_head, by_position, held,
    H: tl.constexpr, E: tl.constexpr, AT_ONCE: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    row, head, e = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, E)
    written = tl.load(positions + row)
    own = joint + row * 3 * H * E + head * E + e
    q, new_k, new_v = tl.load(own).to(tl.float32) * scale, tl.load(own + H * E), tl.load(own + 2 * H * E)
    place = row * by_row + head * by_head + written * by_position + e
    tl.store(keys + place, new_k)
    tl.store(values + place, new_v)
    top, total, sums = tl.sum(q * new_k.to(tl.float32), 0), 1.0, new_v.to(tl.float32)
    for start in range(0, written, AT_ONCE):
        position = start + tl.arange(0, AT_ONCE)
        inside = position < written
        holder = row
        if SHARED:
            holder = tl.load(cache_indirection + row * held + position, mask=inside, other=0).to(tl.int64)
        at = (holder * by_row + head * by_head + position * by_position)[:, None] + e[None, :]
        k = tl.load(keys + at, mask=inside[:, None], other=0.0).to(tl.float32)
        v = tl.load(values + at, mask=inside[:, None], other=0.0).to(tl.float32)
        score = tl.where(inside, tl.sum(k * q[None, :], 1), -float("inf"))
        higher = tl.maximum(top, tl.max(score, 0))  # a softmax that is summed up as it goes
        weight, before = tl.exp(score - higher), tl.exp(top - higher)
        top, total = higher, total * before + tl.sum(weight, 0)
        sums = sums * before + tl.sum(weight[:, None] * v, 0)
    tl.store(out + (row * H + head) * E + e, sums / total)


def attend_written(
    joint: Float[Tensor, "R J"],
    keys: Float[Tensor, "B H L E"],
    values: Float[Tensor, "B H L E"],
    positions: Int[Tensor, " R"],
    scale: float,
    cache_indirection: Int[Tensor, "R L"] | None = None,
) -> Float[Tensor, "R D"]:
    """Self-attention of one new position a row, whose key and value are written to the cache.

    Args:
        joint: query, key and value of every head, one after another.
        keys: of the positions before.
        values: likewise.
        positions: of the new one of each row.
        scale: of the products.
        cache_indirection: which row of the cache holds each position before; its own if not given.
    """
    rows, (_, heads, _, width) = joint.size(0), keys.shape
    out = empty(rows, heads * width, dtype=joint.dtype, device=joint.device)
    _attend_written[rows, heads](
        joint, keys, values, keys if cache_indirection is None else cache_indirection, positions, out, scale,
        *keys.stride()[:3], 0 if cache_indirection is None else cache_indirection.stride(0),
        H=heads, E=width, AT_ONCE=AT_ONCE, SHARED=cache_indirection is not None,
        num_warps=2,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["length"])
def _attend_source(
    queries, keys, values, mask, out, scale, length, by_sentence, by_head, by_position,
    H: tl.constexpr, E: tl.constexpr, WIDTH: tl.constexpr, TOGETHER: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    tiles: tl.constexpr = (WIDTH + TOGETHER - 1) // TOGETHER
    sentence, head, e = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(1), tl.arange(0, E)
    hypothesis = tl.program_id(0) % tiles * TOGETHER + tl.arange(0, TOGETHER)
    is_row = (hypothesis < WIDTH)[:, None]
    place = ((sentence * WIDTH + hypothesis)[:, None] * H + head) * E + e[None, :]
    q = tl.load(queries + place, mask=is_row, other=0.0)
    top = tl.full([TOGETHER], -1e30, dtype=tl.float32)
    total, sums = tl.zeros([TOGETHER], dtype=tl.float32), tl.zeros([TOGETHER, E], dtype=tl.float32)
    for start in range(0, length, AT_ONCE):
        position = start + tl.arange(0, AT_ONCE)
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


def attend_source(
    queries: Float[Tensor, "R D"],
    keys: Float[Tensor, "N H S E"],
    values: Float[Tensor, "N H S E"],
    mask: Bool[Tensor, "N 1 1 S"],
    scale: float,
) -> Float[Tensor, "R D"]:
    """Attention of every row to the source of its sentence; the rows of a sentence stand side by side.

    Args:
        queries: of every head, one after another.
        keys: of the sources.
        values: likewise.
        mask: which of their positions are no padding; contiguous.
        scale: of the products.
    """
    rows, (sentences, heads, length, width) = queries.size(0), keys.shape
    out = empty(rows, heads * width, dtype=queries.dtype, device=queries.device)
    hypotheses = rows // sentences
    _attend_source[sentences * triton.cdiv(hypotheses, TOGETHER), heads](
        queries, keys, values, mask, out, scale, length, *keys.stride()[:3],
        H=heads, E=width, WIDTH=hypotheses, TOGETHER=TOGETHER, AT_ONCE=AT_ONCE, num_warps=2,
    )  # fmt: skip
    return out


@triton.jit
def _add_norm(
    x, y, alpha, beta, total, out, eps, D: tl.constexpr, FILLED: tl.constexpr, ADDS: tl.constexpr, KEEPS: tl.constexpr
):
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, FILLED)
    inside = d < D
    value = tl.load(x + row * D + d, mask=inside, other=0.0).to(tl.float32)
    if ADDS:
        value += tl.load(y + row * D + d, mask=inside, other=0.0).to(tl.float32)
    if KEEPS:
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
    keeps: bool = False,
) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R D"]]:
    """A sum, and its layer normalization (Ba et al. 2016, Eq. 4), in float32 but for what is read and written.

    Args:
        x: what is normalized.
        y: what is added to it before, if anything.
        alpha: gain.
        beta: bias.
        eps: added to the variance.
        keeps: whether the sum is written down; otherwise `x` is returned in its place.
    """
    rows, width = x.shape
    out = empty(rows, width, dtype=x.dtype, device=x.device)
    total = empty(rows, width, dtype=x.dtype, device=x.device) if keeps else x
    _add_norm[rows,](
        x, x if y is None else y, alpha, beta, total, out, eps,
        D=width, FILLED=triton.next_power_of_2(width), ADDS=y is not None, KEEPS=keeps, num_warps=4,
    )  # fmt: skip
    return total, out


@triton.jit
def _top_of_part(logits, never, tops, sums, V, PART: tl.constexpr, FORBIDS: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = part * PART + tl.arange(0, PART)
    value = tl.load(logits + row * V + token, mask=token < V, other=-float("inf")).to(tl.float32)
    top = tl.max(value, 0)
    top = tl.where(top == -float("inf"), 0.0, top)
    number = row * tl.num_programs(1) + part
    tl.store(sums + number, top + tl.log(tl.sum(tl.exp(value - top), 0)))
    if FORBIDS:
        value = tl.where(tl.load(never + token, mask=token < V, other=1) != 0, -float("inf"), value)
    tl.store(tops + number, tl.max(value, 0))


@triton.jit
def _best_of_row(
    logits, never, tops, sums, log_p, chosen, V,
    PARTS: tl.constexpr, FILLED: tl.constexpr, K: tl.constexpr, PART: tl.constexpr, FORBIDS: tl.constexpr,
):  # fmt: skip
    row, part, place = tl.program_id(0).to(tl.int64), tl.arange(0, FILLED), tl.arange(0, PART)
    found = tl.load(sums + row * PARTS + part, mask=part < PARTS, other=-float("inf"))
    highest = tl.max(found, 0)
    normalizer = highest + tl.log(tl.sum(tl.exp(found - highest), 0))
    top = tl.load(tops + row * PARTS + part, mask=part < PARTS, other=-float("inf"))
    last, last_token = float("inf"), -1
    for k in range(K):
        # The best one that is left is in the part with the highest top; what was chosen comes before the last in order.
        at = tl.argmax(top, 0)
        token = at * PART + place
        value = tl.load(logits + row * V + token, mask=token < V, other=-float("inf")).to(tl.float32)
        if FORBIDS:
            value = tl.where(tl.load(never + token, mask=token < V, other=1) != 0, -float("inf"), value)
        value = tl.where((value < last) | ((value == last) & (token > last_token)), value, -float("inf"))
        best = tl.argmax(value, 0)
        last, last_token = tl.max(value, 0), (at * PART + best).to(tl.int32)
        tl.store(log_p + row * K + k, last - normalizer)
        tl.store(chosen + row * K + k, last_token.to(tl.int64))
        top = tl.where(part == at, tl.max(tl.where(place == best, -float("inf"), value), 0), top)


def best_tokens(
    logits: Float[Tensor, "M V"], k: int, never: Bool[Tensor, " V"] | None = None
) -> tuple[Float[Tensor, "M k"], Int[Tensor, "M k"]]:
    """As `transformer.kernels.best_tokens`; equal logits in the order of their tokens."""
    logits = logits.contiguous()
    rows, vocabulary = logits.shape
    parts = triton.cdiv(vocabulary, PART)
    tops, sums, log_p = (
        empty(rows, width, dtype=float32, device=logits.device) for width in (parts, parts, k)
    )  # fmt: skip
    chosen = empty(rows, k, dtype=int64, device=logits.device)
    forbidden, forbids = (logits, False) if never is None else (never, True)
    _top_of_part[rows, parts](logits, forbidden, tops, sums, vocabulary, PART=PART, FORBIDS=forbids, num_warps=4)
    _best_of_row[rows,](
        logits, forbidden, tops, sums, log_p, chosen, vocabulary,
        PARTS=parts, FILLED=triton.next_power_of_2(parts), K=k, PART=PART, FORBIDS=forbids, num_warps=4,
    )  # fmt: skip
    return log_p, chosen
