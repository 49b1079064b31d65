"""Regional compilation of layers with `torch.compile`."""

from torch import nn

from transformer.blocks import DecoderLayer, EncoderLayer


def compile_layers(objective: nn.Module) -> None:
    """Compiles the encoder and decoder layers at their first call, once per layer type, with dynamic shapes.

    Other modules are not compiled, since the loss loops over chunks in Python. See
    https://docs.pytorch.org/tutorials/recipes/regional_compilation.html.
    """
    for module in objective.modules():
        if isinstance(module, EncoderLayer | DecoderLayer):
            module.compile(dynamic=True)
