"""The ids that steer the model. No text, however it is typed, is ever encoded to one of them."""

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
    """Which ids of a vocabulary steer the model; None for what it does not have.

    Attributes:
        pad: fills up rows; never written.
        bos: what a decoder begins with; never written.
        eos: what ends a text.
        unk: what stands for text that the vocabulary lacks; written only where that is allowed.
        mask: what stands for a token that is to be guessed.
    """

    pad: int | None
    bos: int | None
    eos: int | None
    unk: int | None
    mask: int | None = None

    def suppressed_ids(self, *, allow_unknown: bool) -> tuple[int, ...]:
        """Ids that no text holds that a model writes."""
        never = (self.pad, self.bos) if allow_unknown else (self.pad, self.bos, self.unk)
        return tuple(dict.fromkeys(each for each in never if each is not None and each != self.eos))


DEFAULT_SPECIAL_TOKENS: Final = SpecialTokenIds(PAD_ID, BOS_ID, EOS_ID, UNK_ID, mask=UNK_ID)
"""Those of the tokenizers that are trained here. Their texts hold hardly an unknown token: its id can mean a mask."""
