"""The residual connection around every sub-layer."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from transformer.blocks.dropout import Dropout
from transformer.blocks.normalization import LayerNormalization
from transformer.errors import ConfigError

Norm = Callable[[int], nn.Module]


class ResidualConnection(nn.Module):
    """Adds a sub-layer's output to its input, with a norm before or after.

    - `order="post"`, as in the paper: norm(x + dropout(sublayer(x))).
    - `order="pre"`, as in most later models, because it trains without a long warm-up:
      x + dropout(sublayer(norm(x))). A stack of these ends with one more norm, see `Encoder`.

    Args:
        d_model: Width of the model.
        dropout: Probability of zeroing an element of the sub-layer's output (Sec. 5.4).
        order: Position of the norm, "pre" or "post".
        norm: Function that builds the normalization for a given width.

    Raises:
        ConfigError: `order` is neither.

    Source: Vaswani et al. 2017, Sec. 3.1 (post); Xiong et al. 2020, "On Layer Normalization in the Transformer
    Architecture", Fig. 1 (pre).
    """

    def __init__(self, d_model: int, dropout: float, *, order: str = "pre", norm: Norm = LayerNormalization) -> None:
        super().__init__()
        if order not in ("pre", "post"):
            raise ConfigError(f"order={order!r} is unknown; choose 'pre' or 'post'")
        self.order = order
        self.dropout = Dropout(dropout)
        self.norm = norm(d_model)

    def forward(
        self, x: Float[Tensor, "B T D"], sublayer: Callable[[Float[Tensor, "B T D"]], Float[Tensor, "B T D"]]
    ) -> Float[Tensor, "B T D"]:
        """Returns the sum of `x` and the output of `sublayer`, normalized as `order` says.

        Args:
            x: Input of the sub-layer, to which its output is added.
            sublayer: Sub-layer, a function of its input.
        """
        if self.order == "pre":
            return self.dropout.add_dropout(x, sublayer(self.norm(x)))
        return self.norm(self.dropout.add_dropout(x, sublayer(x)))


def residual_connections(n: int, d_model: int, dropout: float, order: str, norm: Norm) -> nn.ModuleList:
    """Returns the residual connections of a layer with n sub-layers; see `ResidualConnection`."""
    return nn.ModuleList(ResidualConnection(d_model, dropout, order=order, norm=norm) for _ in range(n))
