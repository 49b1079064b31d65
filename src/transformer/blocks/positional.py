"""Where a token stands: the sinusoids of Sec. 3.5."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.blocks.dropout import Dropout
from transformer.errors import ConfigError


def sinusoid(seq_len: int, d_model: int) -> Float[Tensor, "{seq_len} {d_model}"]:
    """The table PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same angle.

    Sines and cosines are interleaved. For a fixed k, PE(pos + k) is PE(pos) with each (sin, cos) pair i rotated by the
    angle k / 10000^(2i / d_model), whatever pos is; the paper's hypothesis is that this makes it easy to attend by
    relative position.

    Angles are computed in float64, since far positions lose digits in float32, and rounded once.

    Raises:
        ConfigError: `d_model` is odd, so that a sine would lack its cosine.

    Source: Vaswani et al. 2017, Sec. 3.5.
    """
    if d_model % 2:
        raise ConfigError(f"d_model={d_model} is odd, but sines and cosines come in pairs; choose an even d_model")
    position = torch.arange(seq_len, dtype=torch.float64)
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = torch.outer(position, frequency)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).to(torch.get_default_dtype())


def halved_sinusoid(seq_len: int, d_model: int) -> Float[Tensor, "{seq_len} {d_model}"]:
    """The table of `sinusoid` with all sines first, then all cosines, in the order of their frequencies.

    It is what fairseq, Marian and the models that came of them have; `sinusoid` with its columns in another order.

    Raises:
        ConfigError: `d_model` is odd.
    """
    table = sinusoid(seq_len, d_model)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


class PositionalEncoding(nn.Module):
    """Adds the sinusoid of each position, then applies dropout.

    The table is a buffer that is not saved: it can be computed again.

    Args:
        d_model: width of the model, even.
        seq_len: number of positions, 0 .. seq_len - 1.
        dropout: probability of zeroing an element of the sum (Sec. 5.4).
        table: of the vectors, given seq_len and d_model.

    Source: Vaswani et al. 2017, Sec. 3.5.
    """

    pe: Tensor

    def __init__(
        self, d_model: int, seq_len: int, dropout: float, *, table: Callable[[int, int], Tensor] = sinusoid
    ) -> None:
        super().__init__()
        self.seq_len = seq_len
        self.dropout = Dropout(dropout)
        self.register_buffer("pe", table(seq_len, d_model), persistent=False)

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B T D"]:
        """Returns dropout(x + PE).

        Args:
            x: embedded tokens; row b stands at positions 0 .. T - 1, or from `positions[b]` on.
            positions: position of the first token of each row. The caller keeps them below `seq_len`: reading them
                here would make every decoding step on a GPU wait.

        Raises:
            ConfigError: `x` is longer than `seq_len`.
        """
        length = x.size(1)
        if length > self.seq_len:
            raise ConfigError(
                f"length={length} exceeds seq_len={self.seq_len} positions; shorten the input or build with more"
            )
        if positions is None:
            return self.dropout(x + self.pe[:length])
        return self.dropout(x + self.pe[positions[:, None] + torch.arange(length, device=x.device)])
