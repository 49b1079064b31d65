"""Tokens that a trained model gets in a new run: rows of its embeddings, and which rows stay as they are."""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from transformer.errors import ConfigError
from transformer.tokenizers.new_pieces import row_origins
from transformer.tokenizers.pair import TokenizerPair
from transformer.training.freezing import EMBEDDINGS, KNOWN_TOKENS

SIDES: Final = {"src_embed.": "source", "tgt_embed.": "target", "projection_layer.": "target"}
"""Beginnings of the names of the parameters with a row for each token, and the tokenizer whose tokens they are."""
VOCABULARY: Final = "vocabulary"
"""Entry in the record of the start of a run: the numbers of text tokens and of tags of each tokenizer."""


def add_rows(
    stored: dict[str, Tensor], wanted: Mapping[str, Tensor], before: TokenizerPair, after: TokenizerPair
) -> int:
    """Adds rows to the stored embeddings and projections of a model whose vocabulary has grown, see `row_origins`.

    Args:
        stored: State dict of the pretrained model, which is changed.
        wanted: State dict of the model of the run.
        before: Tokenizers of the pretrained model.
        after: Tokenizers of the run.

    Returns:
        Number of new rows.
    """
    added = 0
    for name, rows in wanted.items():
        known, side = stored.get(name), _side_of(name)
        if side is None or known is None or known.dim() != rows.dim() or known.shape[1:] != rows.shape[1:]:
            continue
        tokenizer = getattr(before, side)
        if len(rows) <= len(known) or len(known) != tokenizer.vocab_size:
            continue
        origins = row_origins(tokenizer, getattr(after, side))
        stored[name] = torch.stack([known[ids[0]] if len(ids) == 1 else known[ids].mean(dim=0) for ids in origins])
        added = max(added, len(rows) - len(known))
    return added


def known_tokens(text: TokenizerPair | None) -> dict[str, Any]:
    """Returns the entry `vocabulary` of a model that a run starts from; empty if it reads no text."""
    if text is None:
        return {}
    sides = {"source": text.source, "target": text.target}
    return {VOCABULARY: {side: [one.vocab_size - len(one.tags), len(one.tags)] for side, one in sides.items()}}


def kept_rows(
    model: nn.Module, frozen: tuple[str, ...], origin: Mapping[str, Any], text: TokenizerPair | None
) -> dict[nn.Parameter, Tensor]:
    """Returns the rows that `training.freeze = "known_tokens"` keeps as they are; empty without it.

    Args:
        model: Model of the run.
        frozen: Value of `training.freeze`.
        origin: Record of the start of the run.
        text: Tokenizers of the run.

    Raises:
        ConfigError: The run adds no tokens, or freezes the embeddings as a whole.
    """
    if KNOWN_TOKENS not in frozen:
        return {}
    kept = dict[nn.Parameter, Tensor]()
    for name, parameter in model.named_parameters():
        side = _side_of(name)
        if side is None or text is None or side not in origin.get(VOCABULARY, {}):
            continue
        tokenizer = getattr(text, side)
        (n_text, n_tags), first_tag = origin[VOCABULARY][side], tokenizer.vocab_size - len(tokenizer.tags)
        known = torch.zeros(len(parameter), dtype=torch.bool, device=parameter.device)
        known[:n_text] = known[first_tag : first_tag + n_tags] = True
        if len(parameter) == tokenizer.vocab_size and not known.all() and parameter.requires_grad:
            kept[parameter] = known
        elif parameter.requires_grad and len(parameter) == tokenizer.vocab_size:
            parameter.requires_grad_(False)  # a side without new tokens
    if not kept:
        raise ConfigError(
            f"training.freeze={KNOWN_TOKENS!r} trains the rows of new tokens alone, but there are none to train; write "
            f"{EMBEDDINGS}, or add a language or tokenizer.added_pieces"
        )
    return kept


def _side_of(name: str) -> str | None:
    return next((side for prefix, side in SIDES.items() if name.startswith(prefix)), None)
