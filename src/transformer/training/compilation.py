"""Layers that `torch.compile` turns into fewer kernels."""

from torch import nn

from transformer.blocks import DecoderLayer, EncoderLayer


def compile_layers(objective: nn.Module) -> None:
    """From now on the layers of a stack are compiled at their first call, once for all of a kind and for all lengths.

    The rest stays as it is: the loss works through chunks in a loop of its own. See
    https://docs.pytorch.org/tutorials/recipes/regional_compilation.html.
    """
    for module in objective.modules():
        if isinstance(module, EncoderLayer | DecoderLayer):
            module.compile(dynamic=True)
