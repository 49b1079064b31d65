"""Absolute positions of tokens: the sinusoids of Sec. 3.5, learned vectors, or none."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.blocks.aliases import keyword_aliases
from transformer.blocks.dropout import Dropout
from transformer.errors import ConfigError


def sinusoid(seq_len: int, d_model: int) -> Float[Tensor, "{seq_len} {d_model}"]:
    """Returns the table PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same angle.

    Sines and cosines are interleaved. For a fixed k, PE(pos + k) is PE(pos) with each (sin, cos) pair i rotated by the
    angle k / 10000^(2i / d_model), which does not depend on pos. The paper's hypothesis is that this makes it easy to
    attend by relative position.

    Angles are computed in float64 and rounded once, since far positions would lose digits in float32.

    Raises:
        ConfigError: `d_model` is odd, so that the last sine has no cosine.

    Source: Vaswani et al. 2017, Sec. 3.5.
    """
    if d_model % 2:
        raise ConfigError(f"d_model={d_model} is odd, but sines and cosines come in pairs; choose an even d_model")
    position = torch.arange(seq_len, dtype=torch.float64)
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = torch.outer(position, frequency)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).to(torch.get_default_dtype())


def halved_sinusoid(seq_len: int, d_model: int) -> Float[Tensor, "{seq_len} {d_model}"]:
    """Returns the table of `sinusoid` with its columns reordered: all sines first, then all cosines.

    Marian models in the Hugging Face format use this table. (tensor2tensor, fairseq and Marian itself space the
    frequencies by d_model / 2 - 1.)

    Raises:
        ConfigError: `d_model` is odd.
    """
    table = sinusoid(seq_len, d_model)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


@keyword_aliases(max_seq_length="seq_len")
class PositionalEncoding(nn.Module):
    """Adds the sinusoid of each position, then applies dropout.

    The table is a non-persistent buffer: it is recomputed, not saved.

    Args:
        d_model: Width of the model, even.
        seq_len: Number of positions, 0 .. seq_len - 1.
        dropout: Probability of zeroing an element of the sum (Sec. 5.4).
        table: Function that computes the table from seq_len and d_model.

    Source: Vaswani et al. 2017, Sec. 3.5.
    """

    pe: Tensor

    def __init__(
        self, d_model: int, seq_len: int = 5000, dropout: float = 0.0, *, table: Callable[[int, int], Tensor] = sinusoid
    ) -> None:
        super().__init__()
        self.seq_len = seq_len
        self.dropout = Dropout(dropout)
        self.register_buffer("pe", table(seq_len, d_model), persistent=False)

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B T D"]:
        """Returns dropout(x + PE).

        Args:
            x: Embedded tokens; row b has the positions 0 .. T - 1, or those from `positions[b]` on.
            positions: Position of the first token of each row; default: 0. The caller must ensure that all positions
                are below `seq_len`: a check here would synchronize with the GPU in every decoding step.

        Raises:
            ConfigError: `x` is longer than `seq_len`.
        """
        return self.dropout(x + _lookup(self.pe, x, positions))


class LearnedPositions(nn.Module):
    """Learned position embeddings: adds a vector for each position, then applies dropout.

    Args:
        d_model: Width of the model.
        seq_len: Number of positions, 0 .. seq_len - 1.
        dropout: Probability of zeroing an element of the sum.

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", Sec. 3.1; compared with the sinusoids in
    Vaswani et al. 2017, Table 3, row (E).
    """

    def __init__(self, d_model: int, seq_len: int, dropout: float) -> None:
        super().__init__()
        self.seq_len = seq_len
        self.dropout = Dropout(dropout)
        self.embedding = nn.Embedding(seq_len, d_model)

    def forward(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B T D"]:
        """Returns dropout(x + vectors); for `positions` and errors, see `PositionalEncoding.forward`."""
        return self.dropout(x + _lookup(self.embedding.weight, x, positions))


class NoPositions(nn.Module):
    """Applies dropout only, for models whose attention encodes the positions.

    Args:
        seq_len: Maximum input length that the model is meant for.
        dropout: Probability of zeroing an element.
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
"""Modules that add absolute positions to embedded tokens."""


def _lookup(table: Tensor, x: Float[Tensor, "B T D"], positions: Int[Tensor, " B"] | None) -> Tensor:
    """Returns the rows of a table for the positions of `x`."""
    length = x.size(1)
    if length > len(table):
        raise ConfigError(
            f"length={length} exceeds seq_len={len(table)} positions; shorten the input or build with more"
        )
    return table[:length] if positions is None else table[positions[:, None] + torch.arange(length, device=x.device)]
