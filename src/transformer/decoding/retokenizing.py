"""Retokenizing: ensembles of models with different source tokenizers."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer.decoding.search_model import SingleModel
from transformer.interfaces import GenerativeModel, State
from transformer.tokenizers.base import Tokenizer

Retokenize = Callable[[Tensor], Tensor]
"""Converts padded rows of source tokens, each with EOS, from one tokenizer to another."""


def keep_tokens(src: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
    """Returns the tokens unchanged, for a model with the same tokenizer."""
    return src


def make_retokenizer(source: Tokenizer, target: Tokenizer, max_tokens: int) -> Retokenize:
    """Creates a function that decodes tokens to text and encodes the text with another tokenizer.

    Args:
        source: Tokenizer of the given tokens.
        target: Tokenizer of the returned tokens.
        max_tokens: Maximum number of tokens of a sentence, EOS included; longer ones are truncated.
    """
    pad, eos = target.special_tokens.padding, target.special_tokens.end

    def retokenize(src: Int[Tensor, "B S"]) -> Int[Tensor, "B Z"]:
        rows = target.encode_batch([source.decode(row) for row in src.tolist()])
        return pad_sequence([torch.tensor([*row[: max_tokens - 1], eos]) for row in rows], True, pad).to(src.device)

    return retokenize


class RetokenizingModel(SingleModel):
    """A member of an ensemble whose source tokenizer differs from the ensemble's; the target tokenizer is shared.

    Args:
        model: Model in evaluation mode.
        retokenize: Function that converts the ensemble's source tokens to the model's.
        pad: Padding id of the model's source tokenizer.
    """

    def __init__(self, model: GenerativeModel, retokenize: Retokenize, pad: int) -> None:
        super().__init__(model)
        self.retokenize, self.pad = retokenize, pad

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> State:
        """Implements `GenerativeModel.begin`; the mask is computed from the converted tokens."""
        del src_mask
        retokenized = self.retokenize(src)
        return self.model.begin(retokenized, (retokenized != self.pad)[:, None, None], limit)
