"""The residual connection around every sub-layer."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

from transformer.blocks.dropout import Dropout
from transformer.blocks.normalization import LayerNormalization
from transformer.errors import ConfigError

Norm = Callable[[int], nn.Module]


class ResidualConnection(nn.Module):
    """Adds a sub-layer's output to its input, with the norm before or after.

    - `order="post"`, the paper: norm(x + dropout(sublayer(x))).
    - `order="pre"`, what most later models do because it trains without a long warm-up:
      x + dropout(sublayer(norm(x))). A stack of these ends with one more norm, see `Encoder`.

    Args:
        d_model: width of the model.
        dropout: probability of zeroing an element of the sub-layer's output (Sec. 5.4).
        order: "pre" or "post".
        norm: makes the normalization of a given width.

    Raises:
        ConfigError: `order` is neither.

    Source: Vaswani et al. 2017, Sec. 3.1 (post); Xiong et al. 2020, "On Layer Normalization in the Transformer
    Architecture", Fig. 1 (pre).
    """

    def __init__(self, d_model: int, dropout: float, *, order: str = "pre", norm: Norm = LayerNormalization) -> None:
        super().__init__()
        if order not in ("pre", "post"):
            raise ConfigError(f"order={order!r} is no norm order; choose 'pre' or 'post'")
        self.order = order
        self.dropout = Dropout(dropout)
        self.norm = norm(d_model)

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        sublayer: Callable[[Float[Tensor, "B S D"]], Float[Tensor, "B T D"]],
        first: int | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns `x` with `sublayer` applied around the connection.

        Args:
            x: input of the sub-layer, and what its output is added to.
            sublayer: what the connection is around.
            first: how many positions `sublayer` returns, where it is not all of them.
        """
        kept = x if first is None else x[:, :first]
        if self.order == "pre":
            return self.dropout.onto(kept, sublayer(self.norm(x)))
        return normalized_sum(kept, sublayer(x), self.dropout, self.norm)


def normalized_sum(
    x: Float[Tensor, "B T D"], y: Float[Tensor, "B T D"], dropout: Dropout, norm: nn.Module
) -> Float[Tensor, "B T D"]:
    """Returns norm(`x` + dropout(`y`)). Can be replaced within a context, as `attention`."""
    if has_torch_function((x, y)):
        return handle_torch_function(normalized_sum, (x, y), x, y, dropout, norm)
    return norm(dropout.onto(x, y))
