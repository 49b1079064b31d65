"""A sentence to search for."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformer.decoding.constrained import Constraint
from transformer.options.search import Tokens


@dataclass(frozen=True)
class Request:
    """One sentence to search for.

    Attributes:
        source: Source tokens with EOS last; for a language model, the prompt without its last token.
        limit: Maximum number of tokens of a hypothesis, EOS included; at least 1.
        prefix: Tokens that every hypothesis begins with.
        number: Number of the sentence's random stream, which makes its samples independent of other sentences.
        required: Constraints that a hypothesis must satisfy before it ends. A beam of several times as many hypotheses
            as they have tokens finds good positions for them; a narrow one places them as soon as it can.
        decoder_start_token_id: Token that the decoder reads first; None is BOS of this package's vocabularies.
        reserve_eos: Whether the last token within the limit may only be EOS, so that a truncated hypothesis has one
            token fewer.
        prompt: All tokens of a language model's text so far, at which logits processors look too.
    """

    source: Sequence[int]
    limit: int
    prefix: Tokens = ()
    number: int = 0
    required: tuple[Constraint, ...] = ()
    decoder_start_token_id: int | None = None
    reserve_eos: bool = False
    prompt: Tokens = ()
