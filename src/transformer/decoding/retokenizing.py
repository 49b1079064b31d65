"""A model that reads sources which were split into tokens for another one."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer.decoding.shortlist import Projection, SupportsOutputSubset
from transformer.tokenizers.base import Tokenizer

Reread = Callable[[Tensor], Tensor]
"""Source tokens of one tokenizer, a padded row each with EOS, as those of another."""


def as_they_are(src: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
    """The tokens, for a model of the same tokenizer."""
    return src


def rereader(theirs: Tokenizer, own: Tokenizer, room: int) -> Reread:
    """Puts tokens together to text again and splits it anew.

    Args:
        theirs: what the tokens are of.
        own: what they become tokens of.
        room: most tokens of a source, EOS counted; what is beyond is cut.
    """
    pad, eos = own.special_tokens.pad or 0, own.special_tokens.eos or 0

    def reread(src: Int[Tensor, "B S"]) -> Int[Tensor, "B Z"]:
        rows = own.encode_batch([theirs.decode(row) for row in src.tolist()])
        return pad_sequence([torch.tensor([*row[: room - 1], eos]) for row in rows], True, pad).to(src.device)

    return reread


class RetokenizingModel:
    """A model of an ensemble that has a source tokenizer of its own; the target's is that of all.

    Args:
        model: in evaluation mode.
        reread: makes its tokens of those that it is given.
        pad: its padding.
    """

    def __init__(self, model: SupportsOutputSubset, reread: Reread, pad: int) -> None:
        self.model, self.reread, self.pad = model, reread, pad

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> Any:
        """As `GenerativeModel.begin`, with tokens of its own."""
        del src_mask
        own = self.reread(src)
        return self.model.begin(own, (own != self.pad)[:, None, None], limit)

    def step(self, tokens: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        """As `GenerativeModel.step`."""
        return self.model.step(tokens, state)

    def step_hidden(self, tokens: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B D"], Any]:
        """As `SupportsOutputSubset.step_hidden`."""
        return self.model.step_hidden(tokens, state)

    def output_subset(self, ids: Int[Tensor, " C"] | None) -> Projection:
        """As `SupportsOutputSubset.output_subset`."""
        return self.model.output_subset(ids)
