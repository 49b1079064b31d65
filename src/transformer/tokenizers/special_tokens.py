"""Ids of special tokens. No text is ever encoded to one of them."""

from dataclasses import dataclass
from typing import Final

PAD_ID: Final = 0
BOS_ID: Final = 1
EOS_ID: Final = 2
UNK_ID: Final = 3

SPECIAL_TOKEN_NAMES: Final = ("[PAD]", "[SOS]", "[EOS]", "[UNK]")
N_SPECIAL_TOKENS: Final = len(SPECIAL_TOKEN_NAMES)


@dataclass(frozen=True)
class SpecialTokenIds:
    """Ids of the special tokens of a vocabulary; None for tokens that it lacks.

    Attributes:
        pad: Padding; never generated.
        bos: Start of the decoder input; never generated.
        eos: End of a text.
        unk: Unknown text; generated only if that is allowed.
        mask: Masked token, which an encoder predicts.
        further_eos: Further tokens that end a text if a model generates them, such as the end of a message in a chat.
            They are never appended to a text.
        tags: Tags of target languages, which stand before a source; never generated.
    """

    pad: int | None
    bos: int | None
    eos: int | None
    unk: int | None
    mask: int | None = None
    further_eos: tuple[int, ...] = ()
    tags: tuple[int, ...] = ()

    @property
    def padding(self) -> int:
        """Id that fills rows up to a common length: that of PAD, or 0 without one."""
        return self.pad or 0

    @property
    def end(self) -> int:
        """Id that stands for the end of a text: that of EOS, or 0 without one."""
        return self.eos or 0

    @property
    def ends(self) -> tuple[int, ...]:
        """All tokens that end a text if a model generates them; none if only the limit ends it."""
        return self.further_eos if self.eos is None else (self.eos, *self.further_eos)

    @property
    def present(self) -> tuple[int, ...]:
        """Ids of all special tokens that the vocabulary has."""
        known = (self.pad, self.bos, *self.ends, self.unk, self.mask, *self.tags)
        return tuple(token for token in known if token is not None)

    def suppressed_ids(self, *, allow_unknown: bool) -> tuple[int, ...]:
        """Returns the ids that a model must not generate."""
        suppressed = (self.pad, self.bos, *(() if allow_unknown else (self.unk,)), *self.tags)
        return tuple(dict.fromkeys(token for token in suppressed if token is not None and token not in self.ends))


DEFAULT_SPECIAL_TOKENS: Final = SpecialTokenIds(PAD_ID, BOS_ID, EOS_ID, UNK_ID, mask=UNK_ID)
"""Special tokens of the tokenizers trained here. They hardly ever produce [UNK], so its id also serves as the mask."""
