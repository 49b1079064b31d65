"""The most probable tokens, without writing down the probabilities of all."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.kernels.library import for_gpus, library, threads_for

MOST_RANKED = 64
"""Above this, tokens are inserted one by one too often for the kernel to be worth it."""


def best_tokens(
    logits: Float[Tensor, "M V"], k: int, never: Bool[Tensor, " V"] | None = None
) -> tuple[Float[Tensor, "M k"], Int[Tensor, "M k"]]:
    """The k most probable tokens of each row, best first, and their log-probabilities.

    Args:
        logits: of the whole vocabulary, float32 or narrower.
        k: how many, at most V.
        never: tokens that are left out; a row with too few others has the log-probability -inf.
    """
    if logits.is_cuda and k <= MOST_RANKED and (gpu := for_gpus()) is not None:
        return gpu.best_tokens(logits, k, never)
    compiled = library()
    rows, columns = logits.shape
    if compiled is None or logits.dtype != torch.float32 or logits.device.type != "cpu" or k > MOST_RANKED:
        logits = logits.float()
        allowed = logits if never is None else logits.masked_fill(never, -torch.inf)
        best = allowed.topk(k, dim=1)
        return best.values - logits.logsumexp(dim=1, keepdim=True), best.indices
    logits = logits.contiguous()
    log_p = torch.empty(rows, k, dtype=torch.float32, device="cpu")
    tokens = torch.empty(rows, k, dtype=torch.long, device="cpu")
    compiled.transformer_best_tokens(
        logits.data_ptr(), rows, columns, k,
        None if never is None else never.data_ptr(),
        log_p.data_ptr(), tokens.data_ptr(), threads_for(8 * rows * columns),
    )  # fmt: skip
    return log_p, tokens
