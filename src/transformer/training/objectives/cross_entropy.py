"""Label-smoothed cross-entropy of a projection, computed in chunks without materializing all logits."""

from typing import Any, Final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from transformer.blocks.overrides import overridable
from transformer.kernels import cross_entropy, triton_module
from transformer.kernels.gemm import Epilogue, matmul, supports_tensors

CHUNK_ROWS: Final = 1024
"""Rows per chunk on a CPU: enough for fast products and few additions to the weight's gradient."""
CHUNK_ELEMENTS: Final = 1 << 25
"""Largest number of logits in a chunk on a CPU."""
GPU_CHUNK_ROWS: Final = 4096
"""Rows per chunk on a GPU, which needs larger products."""
GPU_CHUNK_ELEMENTS: Final = 1 << 27
"""Largest number of logits in a chunk on a GPU: 256 MiB in bfloat16."""
MAX_CHUNKS_WITHOUT_COPY: Final = 2
"""Largest number of chunks for which the kernel rounds the weight at each read, which saves the memory of a copy."""
ROW_ALIGNMENT: Final = 32
"""Multiple of elements that rows of logits are padded to: one or two cache lines."""
BLOCK_ELEMENTS: Final = 1 << 19
"""Elements of a chunk, or of the weight, that a CPU processes at a time: 2 MiB in float32, which fit into the cache."""


@overridable
def smoothed_cross_entropy(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"] | None,
    labels: Int[Tensor, " N"],
    epsilon: float,
    divergence: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Projects to the vocabulary and sums the cross-entropy against smoothed labels.

    The target distribution has 1 - epsilon on the label and epsilon / V on every token, the label included. Rows are
    processed in chunks, whose logits are overwritten by their gradient, so the full (N, V) matrix is never allocated.
    Under autocast, the products have its precision; softmax, loss and the sum of the weight's gradient over chunks are
    float32.

    Args:
        hidden: Decoder outputs of the scored positions.
        weight: Weight of the projection.
        bias: Bias of the projection, if it has one.
        labels: Target token of each position.
        epsilon: Label smoothing, 0 <= epsilon < 1.
        divergence: Weight of R-Drop. If it is more than 0, rows 2i and 2i + 1 are the same position under different
            dropout. The mean of KL(p || q) and KL(q || p) of every pair, times this weight, is added to the loss.

    Returns:
        The smoothed loss in nats summed over positions, with gradient, and the unsmoothed loss, without gradient.

    Raises:
        ValueError: The divergence is not 0 and the rows are not pairs with the same label.

    Source: Szegedy et al. 2016, Sec. 7, with uniform u; Vaswani et al. 2017, Sec. 5.4; Liang et al. 2021, Sec. 2.1.
    """
    if divergence and not torch.equal(labels[::2], labels[1::2]):
        raise ValueError("rows 2i and 2i + 1 must have one label")
    target = epsilon, divergence
    loss_sum, nll_sum = _SmoothedCrossEntropy.apply(hidden, weight, bias, labels, target, torch.is_grad_enabled())
    return loss_sum, nll_sum.detach()


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Computes the gradient, softmax minus target, together with the loss in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        target: tuple[float, float],
        wants_gradient: bool,
    ) -> Any:
        kind = hidden.device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
        with torch.autocast(kind, enabled=False):
            parameters = [weight] if bias is None else [weight, bias]
            is_compiled = supports_tensors(hidden, *parameters) and all(p.dtype == torch.float32 for p in parameters)
            is_compiled = is_compiled and precision in (torch.float32, torch.bfloat16)
            x = hidden.to(precision).contiguous()
            most_rows, elements = (
                (GPU_CHUNK_ROWS, GPU_CHUNK_ELEMENTS) if hidden.is_cuda else (CHUNK_ROWS, CHUNK_ELEMENTS)
            )
            rows = 2 * max(1, min(most_rows, elements // weight.size(0)) // 2)  # pairs stay in one chunk
            is_rounded_once = not is_compiled or len(x) > MAX_CHUNKS_WITHOUT_COPY * rows
            w = weight.to(precision) if is_rounded_once else weight
            b = bias if is_compiled or bias is None else bias.to(precision)
            sums = torch.zeros(2, dtype=torch.promote_types(precision, torch.float32), device=hidden.device)
            d_hidden = torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device) if wants_gradient else None
            d_weight = torch.empty_like(weight) if wants_gradient else None
            if d_weight is not None and not len(x):
                d_weight.zero_()
            d_bias = torch.zeros_like(bias) if wants_gradient and bias is not None else None
            ops = _CompiledOps(precision) if is_compiled else _TorchOps()
            logits = ops.allocate_logits(x, min(rows, len(x)), weight.size(0))
            for start in range(0, len(x), rows):
                chunk = slice(start, start + rows)
                d_logits = ops.project(x[chunk], w, b, logits[: len(x[chunk])])
                sums += ops.to_gradient(d_logits, labels[chunk], *target)
                if d_hidden is not None and d_weight is not None:
                    ops.hidden_gradient(d_logits, w, d_hidden[chunk])
                    ops.add_weight_gradient(d_logits, x[chunk], d_weight, d_bias, is_first=start == 0)
        ctx.gradients = (d_hidden, d_weight, d_bias)
        return sums[0].clone(), sums[1].clone()  # FSDP2 hooks what the model returns, which must not be a view

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        scaled = [None if gradient is None else gradient.mul_(gradients[0]) for gradient in ctx.gradients]
        del ctx.gradients  # the last reference, so that autograd may add to them in place
        return (*scaled, None, None, None)


class _CompiledOps:
    """Operations by compiled kernels, which round a float32 weight while they read it."""

    def __init__(self, precision: torch.dtype) -> None:
        self.precision = precision

    def allocate_logits(self, x: Tensor, rows: int, vocab_size: int) -> Tensor:
        """Allocates logits whose rows are padded with zeros to whole cache lines."""
        padded = x.new_empty(rows, -(-vocab_size // ROW_ALIGNMENT) * ROW_ALIGNMENT)
        padded[:, vocab_size:] = 0
        return padded[:, :vocab_size]

    def project(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
        """Computes the logits of a chunk into `out`."""
        return matmul(x, weight.t(), Epilogue(bias), precision=self.precision, out=out)

    def to_gradient(self, logits: Tensor, labels: Tensor, epsilon: float, divergence: float) -> Tensor:
        """Overwrites logits by the gradient of the summed smoothed loss; returns the smoothed and the plain loss."""
        return cross_entropy.to_gradient(logits, labels, epsilon, divergence).sum(dim=0)

    def hidden_gradient(self, d_logits: Tensor, weight: Tensor, out: Tensor) -> None:
        """Computes the gradient of a chunk of `hidden` into `out`."""
        matmul(d_logits, weight, precision=self.precision, out=out, is_padded=True)

    def add_weight_gradient(
        self, d_logits: Tensor, x: Tensor, total: Tensor, d_bias: Tensor | None, *, is_first: bool
    ) -> None:
        """Adds the gradients of weight and bias for a chunk; the first chunk overwrites `total`."""
        finish = Epilogue(accumulate=not is_first, row_sums=d_bias)
        matmul(d_logits.t(), x, finish, precision=self.precision, out=total)


class _TorchOps:
    """Same as `_CompiledOps`, but by torch, and on GPUs Triton, with a weight in the precision of x."""

    def allocate_logits(self, x: Tensor, rows: int, vocab_size: int) -> Tensor:
        return x.new_empty(rows, vocab_size)

    def project(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
        return torch.mm(x, weight.T, out=out) if bias is None else torch.addmm(bias, x, weight.T, out=out)

    def to_gradient(self, logits: Tensor, labels: Tensor, epsilon: float, divergence: float) -> Tensor:
        is_supported = logits.is_cuda and logits.dtype != torch.float64 and not divergence
        if is_supported and (gpu := triton_module()) is not None:
            return gpu.smoothed_gradient(logits, labels, epsilon).sum(dim=0)
        return _to_gradient(logits, labels, epsilon, divergence)

    def hidden_gradient(self, d_logits: Tensor, weight: Tensor, out: Tensor) -> None:
        out.copy_(d_logits @ weight)

    def add_weight_gradient(
        self, d_logits: Tensor, x: Tensor, total: Tensor, d_bias: Tensor | None, *, is_first: bool
    ) -> None:
        _add(total.zero_() if is_first else total, d_logits.T @ x)
        if d_bias is not None:
            d_bias += d_logits.sum(dim=0, dtype=d_bias.dtype)


def _to_gradient(logits: Tensor, labels: Tensor, epsilon: float, divergence: float) -> Tensor:
    """Overwrites logits by the gradient of the summed smoothed loss; returns the smoothed and the plain loss."""
    vocab_size = logits.size(1)
    sums = torch.zeros(2, dtype=torch.promote_types(logits.dtype, torch.float32), device=logits.device)
    block_rows = 2 * max(1, BLOCK_ELEMENTS // vocab_size // 2)  # pairs stay together
    rows = block_rows if logits.device.type == "cpu" else max(1, len(logits))
    for block, label in zip(logits.split(rows), labels[:, None].split(rows), strict=True):
        scores = block.to(sums.dtype)
        p = scores.softmax(dim=-1)
        # log of the softmax's denominator, from its largest element, which is at least 1 / V
        log_z = scores.amax(dim=-1) - p.amax(dim=-1).log()
        nll = (log_z - scores.gather(1, label)[:, 0]).sum()
        sums += torch.stack([(1 - epsilon) * nll + epsilon * (log_z - scores.mean(dim=-1)).sum(), nll])
        d_divergence = None
        if divergence:
            kl_sum, d_divergence = _divergence(p, scores - log_z[:, None])
            sums[0] += divergence * kl_sum
        d_scores = p.sub_(epsilon / vocab_size)
        if d_divergence is not None:
            d_scores += divergence * d_divergence
        block.copy_(d_scores.scatter_add_(1, label, torch.full_like(label, epsilon - 1, dtype=p.dtype)))
    return sums


def _divergence(p: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """Sums the mean of KL(p || q) and KL(q || p), p in even and q in odd rows; also returns the gradient to logits."""
    difference = torch.stack([p[::2] - p[1::2], p[1::2] - p[::2]], dim=1).flatten(0, 1)
    ratio = torch.stack([log_p[::2] - log_p[1::2], log_p[1::2] - log_p[::2]], dim=1).flatten(0, 1)
    kl = (p * ratio).sum(dim=-1, keepdim=True)
    return 0.5 * kl.sum(), 0.5 * (p * (ratio - kl) + difference)


def _add(total: Tensor, part: Tensor) -> None:
    """Adds a tensor of another dtype in place; on a CPU by blocks, since torch would first convert all of it."""
    rows = max(1, BLOCK_ELEMENTS // total.size(1)) if total.device.type == "cpu" else len(total)
    for total_rows, part_rows in zip(total.split(rows), part.split(rows), strict=True):
        total_rows += part_rows
