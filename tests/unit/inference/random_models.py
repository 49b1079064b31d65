"""A model whose parameters are all random."""

from typing import Any

from torch import nn

from transformer.transformer import Transformer, build_transformer


def random_model(**options: Any) -> Transformer:
    """Every parameter random, norms and biases too."""
    sizes = {"d_model": 48, "N": 2, "h": 3, "d_ff": 70, "dropout": 0.1}
    model = build_transformer(101, 101, 23, 50, **(sizes | options)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter.data, std=0.3)
    return model
