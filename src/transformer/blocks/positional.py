"""Where a token stands: the sinusoids of Sec. 3.5, learned vectors, or nothing."""

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

    It is what Marian's models have as they are published for Hugging Face's library; `sinusoid` with its columns in
    another order. (tensor2tensor, fairseq and Marian itself space the frequencies by d_model / 2 - 1.)

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
        return self.dropout(x + _rows(self.pe, x, positions))


class LearnedPositions(nn.Module):
    """Adds a learned vector a position, then applies dropout.

    Args:
        d_model: width of the model.
        seq_len: number of positions, 0 .. seq_len - 1.
        dropout: probability of zeroing an element of the sum.

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", Sec. 3.1; compared with the sinusoids in
    Vaswani et al. 2017, Table 3, row (E).
    """

    def __init__(self, d_model: int, seq_len: int, dropout: float) -> None:
        super().__init__()
        self.seq_len = seq_len
        self.dropout = Dropout(dropout)
        self.embedding = nn.Embedding(seq_len, d_model)

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B T D"]:
        """Returns dropout(x + vectors); `positions` and errors as of `PositionalEncoding`."""
        return self.dropout(x + _rows(self.embedding.weight, x, positions))


class NoPositions(nn.Module):
    """Applies dropout alone, where attention itself knows positions.

    Args:
        seq_len: longest input that the model is meant for.
        dropout: probability of zeroing an element.
    """

    def __init__(self, seq_len: int, dropout: float) -> None:
        super().__init__()
        self.seq_len = seq_len
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B T D"]:
        """Returns dropout(x)."""
        del positions
        return self.dropout(x)


Positions = PositionalEncoding | LearnedPositions | NoPositions
"""What may tell a stack where its tokens stand."""


def _rows(table: Tensor, x: Float[Tensor, "B T D"], positions: Int[Tensor, " B"] | None) -> Tensor:
    """The rows of a table that go with `x`."""
    length = x.size(1)
    if length > len(table):
        raise ConfigError(
            f"length={length} exceeds seq_len={len(table)} positions; shorten the input or build with more"
        )
    return table[:length] if positions is None else table[positions[:, None] + torch.arange(length, device=x.device)]
