"""How large a model is and what a token costs."""

from torch import nn

from transformer.blocks import MultiHeadAttention
from transformer.transformer import Transformer


def parameters_by_block(model: nn.Module) -> dict[str, int]:
    """Parameters of each part of a model; one that stands in several places counts for the first.

    What the model holds itself, as the vector of a class that stands before all patches, is a part by its own name.
    """
    seen: set[int] = set()
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters(recurse=False)}
    for name, part in model.named_children():
        new = [parameter for parameter in part.parameters() if id(parameter) not in seen]
        seen.update(map(id, new))
        sizes[name] = sum(parameter.numel() for parameter in new)
    return sizes


def flops_per_token(model: nn.Module, length: int) -> dict[str, float]:
    """Floating-point operations of one forward pass, divided by its tokens.

    Counts two operations for each weight of a linear map and, for attention, the two products of `length` positions
    with `length` positions. The encoder's figure is per source token; the decoder's per target token, the keys and
    values it takes from a source as long as the target included.

    Args:
        model: a `Transformer`; other models give an empty answer.
        length: tokens of source and of target.
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
    return sum((4.0 * length * block.h * block.d_k for block in blocks), 0.0)
