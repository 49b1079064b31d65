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
    """

    pad: int | None
    bos: int | None
    eos: int | None
    unk: int | None
    mask: int | None = None

    @property
    def padding(self) -> int:
        """Id that fills rows up to a common length: that of PAD, or 0 without one."""
        return self.pad or 0

    @property
    def end(self) -> int:
        """Id that stands for the end of a text: that of EOS, or 0 without one."""
        return self.eos or 0

    def suppressed_ids(self, *, allow_unknown: bool) -> tuple[int, ...]:
        """Returns the ids that a model must not generate."""
        suppressed = (self.pad, self.bos) if allow_unknown else (self.pad, self.bos, self.unk)
        return tuple(dict.fromkeys(token for token in suppressed if token is not None and token != self.eos))


DEFAULT_SPECIAL_TOKENS: Final = SpecialTokenIds(PAD_ID, BOS_ID, EOS_ID, UNK_ID, mask=UNK_ID)
"""Special tokens of the tokenizers trained here. They hardly ever produce [UNK], so its id also serves as the mask."""
