"""Positions as rotations of queries and keys."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.blocks.attention import MultiHeadAttention
from transformer.errors import ConfigError


class RotaryPositions(nn.Module):
    """Turns pair i of a head's features by the angle position * base^(-2i / d_k).

    The product of a query at position m and a key at position n then depends on m - n alone. Pair i is features i and
    i + d_k / 2, as in published models; the paper pairs 2i and 2i + 1, which is the same after reordering the columns
    of W_q and W_k.

    Args:
        d_k: width of a head, even.
        seq_len: number of positions.
        base: of the frequencies.

    Raises:
        ConfigError: `d_k` is odd.

    Source: Su et al. 2021, "RoFormer", Sec. 3.2.2, Eq. 14-16 and 34.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(self, d_k: int, seq_len: int, base: float = 10000.0) -> None:
        super().__init__()
        if d_k % 2:
            raise ConfigError(f"d_k={d_k} is odd, but features are turned in pairs; choose an even width of heads")
        self.seq_len = seq_len
        frequency = base ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
        angle = torch.outer(torch.arange(seq_len, dtype=torch.float64), frequency)
        for name, table in (("cosines", angle.cos()), ("sines", angle.sin())):
            self.register_buffer(name, table.to(torch.get_default_dtype()), persistent=False)

    def forward(
        self, x: Float[Tensor, "B H T E"], positions: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B H T E"]:
        """Returns `x` turned.

        Args:
            x: queries or keys of every head.
            positions: of the first one of each row; 0 if not given. The caller keeps them below `seq_len`.

        Raises:
            ConfigError: `x` is longer than `seq_len`.
        """
        length = x.size(2)
        if length > self.seq_len:
            raise ConfigError(f"length={length} exceeds seq_len={self.seq_len} positions; shorten the input")
        if positions is None:
            cosines, sines = self.cosines[:length], self.sines[:length]  # T E/2
        else:
            places = positions[:, None] + torch.arange(length, device=x.device)
            cosines, sines = (table[places][:, None] for table in (self.cosines, self.sines))  # B 1 T E/2
        first, second = x.chunk(2, dim=-1)
        turned = torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)
        return turned.to(x.dtype)


class RotaryAttention(MultiHeadAttention):
    """Self-attention that knows positions by `RotaryPositions`.

    Args:
        d_model: width of queries, keys, values and the output.
        h: number of heads.
        rotation: of the heads' width; may be shared by all layers.
        dropout: of the attention weights.
        d_k: as in `MultiHeadAttention`.
        kv_heads: as there.
        bias: as there.
    """

    def __init__(
        self,
        d_model: int,
        h: int,
        rotation: RotaryPositions,
        dropout: float = 0.0,
        *,
        d_k: int | None = None,
        kv_heads: int | None = None,
        bias: str = "all",
    ) -> None:
        super().__init__(d_model, h, dropout, d_k=d_k, kv_heads=kv_heads, bias=bias)
        self.rotation = rotation

    def placed(
        self, x: Float[Tensor, "B H T E"], positions: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B H T E"]:
        """Queries or keys turned by their positions, as in `RotaryPositions`."""
        return self.rotation(x, positions)
