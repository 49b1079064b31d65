"""First values of the parameters."""

from torch import nn


def initialize_xavier_uniform(module: nn.Module) -> None:
    """Draws every parameter with more than one axis from U(-a, a), a = sqrt(6 / (fan_in + fan_out)).

    Vectors (biases, norms) keep what their blocks gave them. A shared parameter is drawn once.

    Source: Glorot and Bengio 2010, Eq. 16. The paper does not state its initialization.
    """
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
