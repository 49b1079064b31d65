"""Parameter counts and floating-point operations per token."""

from torch import nn

from transformer.blocks import MultiHeadAttention
from transformer.transformer import Transformer


def parameters_by_block(model: nn.Module) -> dict[str, int]:
    """Returns the number of parameters of each child module; a shared parameter counts for the first one.

    Parameters of the model itself, such as the class token of a Vision Transformer, are listed under their own names.
    """
    seen: set[int] = set()
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters(recurse=False)}
    for name, part in model.named_children():
        new = [parameter for parameter in part.parameters() if id(parameter) not in seen]
        seen.update(map(id, new))
        sizes[name] = sum(parameter.numel() for parameter in new)
    return sizes


def shared_blocks(model: nn.Module) -> dict[str, str]:
    """Returns the child modules whose parameters all belong to an earlier one too, and the name of that one."""
    owners: dict[int, str] = {}
    shared: dict[str, str] = {}
    for name, part in model.named_children():
        parameters = [*part.parameters()]
        first = [owners.setdefault(id(parameter), name) for parameter in parameters]
        if parameters and name not in first:
            shared[name] = first[0]
    return shared


def flops_per_token(model: nn.Module, length: int) -> dict[str, float]:
    """Estimates the floating-point operations per token of one forward pass, by part of the model.

    Each weight of a linear layer counts as two operations. Attention counts as two matrix products of `length`
    positions with `length` positions. The encoder's figure is per source token. The decoder's figure is per target
    token and includes the keys and values of a source that is as long as the target.

    Args:
        model: A `Transformer`; the result is empty for other models.
        length: Number of source tokens, and of target tokens.
    """
    if not isinstance(model, Transformer):
        return {}
    parts = {"encoder": model.encoder, "decoder": model.decoder, "projection": model.projection_layer}
    attention = {name: _attention_flops(part, length) for name, part in parts.items()}
    return {name: 2.0 * _linear_weights(part) + attention[name] for name, part in parts.items()}


def _linear_weights(part: nn.Module) -> int:
    return sum(module.weight.numel() for module in part.modules() if isinstance(module, nn.Linear))


def _attention_flops(part: nn.Module, length: int) -> float:
    blocks = [module for module in part.modules() if isinstance(module, MultiHeadAttention)]
    return sum((2.0 * length * block.h * (block.d_k + block.d_v) for block in blocks), 0.0)
