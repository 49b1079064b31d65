"""Top-k of the log-softmax, without storing the probabilities of the whole vocabulary."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.kernels.library import library, threads_for, triton_module

MAX_TOP_K = 64
"""Largest k for which the kernel, which inserts candidates one by one, is faster than PyTorch."""


def best_tokens(
    logits: Float[Tensor, "M V"], k: int, forbidden: Bool[Tensor, " V"] | None = None
) -> tuple[Float[Tensor, "M k"], Int[Tensor, "M k"]]:
    """Finds the k most probable tokens of each row.

    Args:
        logits: Logits over the whole vocabulary, float32 or a narrower dtype.
        k: Number of tokens, at most V.
        forbidden: Tokens to exclude. If fewer than k tokens remain, the other log-probabilities are -inf.

    Returns:
        Log-probabilities and ids of the tokens, in descending order of probability.
    """
    if logits.is_cuda and k <= MAX_TOP_K and (gpu := triton_module()) is not None:
        return gpu.best_tokens(logits, k, forbidden)
    compiled = library()
    rows, columns = logits.shape
    if compiled is None or logits.dtype != torch.float32 or logits.device.type != "cpu" or k > MAX_TOP_K:
        logits = logits.float()
        allowed = logits if forbidden is None else logits.masked_fill(forbidden, -torch.inf)
        best = allowed.topk(k, dim=1)
        return best.values - logits.logsumexp(dim=1, keepdim=True), best.indices
    logits = logits.contiguous()
    log_p = torch.empty(rows, k, dtype=torch.float32, device="cpu")
    tokens = torch.empty(rows, k, dtype=torch.long, device="cpu")
    compiled.transformer_log_softmax_topk(
        logits.data_ptr(), rows, columns, k,
        None if forbidden is None else forbidden.data_ptr(),
        log_p.data_ptr(), tokens.data_ptr(), threads_for(8 * rows * columns),
    )  # fmt: skip
    return log_p, tokens
