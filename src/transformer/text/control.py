"""The ids that steer the model. No text, however it is typed, is ever encoded to one of them."""

from typing import Final

PAD_ID: Final = 0
BOS_ID: Final = 1
EOS_ID: Final = 2
UNK_ID: Final = 3

CONTROL_NAMES: Final = ("[PAD]", "[SOS]", "[EOS]", "[UNK]")
N_CONTROL: Final = len(CONTROL_NAMES)
